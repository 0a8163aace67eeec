"""Measure, clean and phrase text: one word count for every script, safe characters, identifiers for file names.

Words are what white space separates. In scripts without spaces every ideograph and kana counts as one word, and four
letters of Thai, Lao, Burmese or Khmer count as one. Texts over a limit are refused by the caller, never cut here.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right

MAX_WORDS = 32
MAX_CHARS = 280

_IDEOGRAPH = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_LETTER_OF_LONG_WORDS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_LETTERS_A_WORD = 4
_PART = re.compile(
    f"(?P<ideographs>[{_IDEOGRAPH}]+)|(?P<letters>[{_LETTER_OF_LONG_WORDS}]+)|[^{_IDEOGRAPH}{_LETTER_OF_LONG_WORDS}]+"
)
LONGEST_IDENTIFIER = 100
_IDENTIFIER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_IDENTIFIER - 1}}}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
IDENTIFIER_RULE = (
    f"1 to {LONGEST_IDENTIFIER} of A-Z a-z 0-9 . _ -, starting with a letter or digit, "
    "not ending in a dot, no device name"
)
_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_MARKS = frozenset({"Mn", "Mc", "Me"})


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


def check_identifier(value: str) -> str:
    """Return the value when it is safe as a file name on every platform; raise ``ValueError`` otherwise."""
    if not _IDENTIFIER.fullmatch(value) or value.endswith(".") or ".." in value or _RESERVED.fullmatch(value):
        raise ValueError(f"{value[:60]!r} is not an identifier; accepted: {IDENTIFIER_RULE}")
    return value


def _chunks(text: str) -> list[str]:
    # str.split leaves U+FEFF, the byte order mark, inside a word; it is a space of no width.
    return text.replace("\ufeff", " ").split()


def _words_of(chunk: str) -> int:
    """Words in a text without white space: at least one."""
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
