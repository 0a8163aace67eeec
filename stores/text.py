"""Measure, clean and phrase text: one word count for every script, safe characters, identifiers for file names.

Words are what white space separates. In scripts without spaces every ideograph and kana counts as one word, and four
letters of Thai, Lao, Burmese or Khmer count as one. Texts over a limit are refused by the caller, never cut here.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

MAX_WORDS = 32
MAX_CHARS = 280

_IDEOGRAPH = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
_LETTER_OF_LONG_WORDS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_LETTERS_A_WORD = 4
_PART = re.compile(
    f"(?P<ideographs>[{_IDEOGRAPH}]+)|(?P<letters>[{_LETTER_OF_LONG_WORDS}]+)|[^{_IDEOGRAPH}{_LETTER_OF_LONG_WORDS}]+"
)
LONGEST_IDENTIFIER = 100
_IDENTIFIER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_IDENTIFIER - 1}}}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
IDENTIFIER_RULE = (
    f"1 to {LONGEST_IDENTIFIER} of A-Z a-z 0-9 . _ -, starting with a letter or digit, not ending in a dot, no device name"
)
_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_MARKS = frozenset({"Mn", "Mc", "Me"})
_SEPARATORS = re.compile(r"[\W_]+")
_MAX_SUGGESTIONS = 30
_MAX_NAMES = 20
_NAME_CHARS = 60
_NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})


def count_words(text: str) -> int:
    """Return the number of words. Punctuation and emoji between spaces count, attached to a word they do not."""
    return sum(_words_of(chunk) for chunk in _chunks(text))


def clean_text(text: str) -> str:
    """Return the text in NFC with single spaces, without control, bidirectional and zero-width characters."""
    spaced = " ".join(_chunks(unicodedata.normalize("NFC", text)))
    if spaced.isascii() and spaced.isprintable():
        return spaced
    kept = "".join(char for char in spaced if unicodedata.category(char) not in _DROPPED_CATEGORIES)
    return unicodedata.normalize("NFC", " ".join(kept.split()))


def first_words(text: str, limit: int) -> str:
    """Return at most ``limit`` words from the start of a text, such as a transcript; lessons are never cut."""
    kept: list[str] = []
    room = limit
    for chunk in _chunks(text):
        if room <= 0:
            break
        if (words := _words_of(chunk)) > room:
            end = bisect_right(range(len(chunk) + 1), room, lo=1, key=lambda at: _words_of(chunk[:at])) - 1
            kept.append(chunk[:end])
            break
        kept.append(chunk)
        room -= words
    return " ".join(kept)


def replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced by ``?``: tools and agents emit them, UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def pluralize(count: int, noun: str) -> str:
    """Return ``1 lesson``, ``2 lessons``, ``1,200 lessons``, for nouns with a plural in s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def quoted_names(names: Iterable[str]) -> str:
    """Return names of fields or columns for a message, at most twenty."""
    listed = list(names)
    some = ", ".join(repr(name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…") for name in listed[:_MAX_NAMES])
    return f"{some} and {len(listed) - _MAX_NAMES} more" if len(listed) > _MAX_NAMES else some or "(there are none)"


def did_you_mean(name: str, candidates: Iterable[str], *, listed_by: str = "") -> str:
    """Return the accepted names as a phrase that starts with the one that ``name`` means, if there is one.

    Of many names the phrase names the command that lists them, ``listed_by``, or else the first ones.
    """
    names = sorted(candidates)
    few = len(names) <= _MAX_SUGGESTIONS
    listed = f"one of {', '.join(names) if few else quoted_names(names)}"
    if listed_by and not few:
        listed = f"one that `{listed_by}` lists"
    return suggested(name, names, listed) if len(names) > 1 else ", ".join(names) or listed


def suggested(name: str, candidates: Iterable[str], accepted: str, aliases: Mapping[str, str] = _NO_ALIASES) -> str:
    """Return ``accepted`` after what ``name`` means, if there is one.

    That is the known name with the same letters and digits, else the phrase that ``aliases`` has for it (if that starts
    with a known name), else the closest of both, else the only one of which it is a word.
    """
    names = list(candidates)
    phrases = {alias: phrase for alias, phrase in aliases.items() if phrase.partition(" ")[0] in names}
    phrases |= {each: each for each in names}
    bare, written = bare_name(name), {bare_name(each): each for each in phrases}
    close = [bare] if bare in written else difflib.get_close_matches(bare, written, n=1, cutoff=0.6)
    words = [each for each in phrases if bare in _SEPARATORS.split(each.casefold())]
    meant = {phrases[each] for each in map(written.__getitem__, close)} or {phrases[each] for each in words}
    return f"{meant.pop()} (did you mean that?), or {accepted}" if len(meant) == 1 else accepted


def bare_name(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(filter(str.isalnum, name.casefold()))


def check_identifier(value: str) -> str:
    """Return the value when it is safe as a file name on every platform; raise ``ValueError`` otherwise."""
    if not _IDENTIFIER.fullmatch(value) or value.endswith(".") or ".." in value or _RESERVED.fullmatch(value):
        raise ValueError(f"{value[:60]!r} is not an identifier; accepted: {IDENTIFIER_RULE}")
    return value


def _chunks(text: str) -> list[str]:
    # str.split leaves U+FEFF, the byte order mark, inside a word; it is a space of no width.
    return text.replace("\ufeff", " ").split()


def _words_of(chunk: str) -> int:
    if chunk.isascii():
        return 1
    count = 0
    for part in _PART.finditer(chunk):
        if part["ideographs"]:
            count += len(part[0])
        elif part["letters"]:
            count += -(-sum(unicodedata.category(char) not in _MARKS for char in part[0]) // _LETTERS_A_WORD)
        else:
            count += any(char.isalnum() for char in part[0])
    return max(count, 1)


def shorten_middle(text: str, max_chars: int) -> str:
    """Return head and tail of a text that is too long, with a mark between them that states how much is missing."""
    if len(text) <= max_chars:
        return text
    mark = f"\n[… {len(text) - max_chars} characters left out …]\n"
    room = max(0, max_chars - len(mark))
    head = room // 2
    return f"{text[:head]}{mark}{text[len(text) - (room - head) :]}"[:max_chars]
