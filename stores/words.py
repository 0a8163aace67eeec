"""How long is a text in words? One rule for every script, and how a text is cleaned before it is counted.

Words are what white space separates. Where a script writes no spaces, characters stand in for words: every ideograph
and kana is one, and of Thai, Lao, Burmese and Khmer letters every four are one. It measures and cleans; what is too
long is refused elsewhere, never cut.
"""

from __future__ import annotations

import re
import unicodedata

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
_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_MARKS = frozenset({"Mn", "Mc", "Me"})


def count_words(text: str) -> int:
    """Number of words. Punctuation and emoji that stand between spaces count too; glued to a word they do not."""
    return sum(_words_of(chunk) for chunk in _chunks(text))


def clean_text(text: str) -> str:
    """NFC, white space folded to single spaces, control, bidirectional and zero-width characters removed."""
    spaced = " ".join(_chunks(unicodedata.normalize("NFC", text)))
    if spaced.isascii() and spaced.isprintable():
        return spaced
    kept = "".join(char for char in spaced if unicodedata.category(char) not in _DROPPED_CATEGORIES)
    return unicodedata.normalize("NFC", " ".join(kept.split()))


def first_words(text: str, limit: int) -> str:
    """At most ``limit`` words from the start of a text that was never meant as a lesson, such as a transcript."""
    kept: list[str] = []
    room = limit
    for chunk in _chunks(text):
        if room <= 0:
            break
        if (words := _words_of(chunk)) > room:
            kept.append(_prefix(chunk, room))
            break
        kept.append(chunk)
        room -= words
    return " ".join(kept)


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


def _prefix(chunk: str, room: int) -> str:
    end = 1
    while _words_of(chunk[: end + 1]) <= room:
        end += 1
    return chunk[:end]
