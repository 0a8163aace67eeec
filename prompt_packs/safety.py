"""May this lesson be stored and shown to an actor? Lessons come from a model that read untrusted output.

A lesson is cleaned of characters nobody can see, then passes or is rejected with a reason; it is never cut or
reworded. The rules aim at a prompt's reader being addressed, at secrets, addresses, prompt markup and given-away
answers. They are a filter, not a proof: the lessons block also quotes every lesson as data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfgrpo.prompt_packs.answers import gives_away
from tfgrpo.prompt_packs.attacks import attack_in
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, clean_text, count_words

Rule: TypeAlias = Literal["empty", "markup", "order", "secret", "address", "answer", "long"]
_BLANKS = re.compile(
    "[\ufeff\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""What shows nothing without being a control or format character: fillers, joiners, variation selectors."""
_MOST_READ = 4000
"""Characters of a candidate that are looked at; whatever is longer is over-long anyway."""


@dataclass(frozen=True, slots=True)
class ScreenedLesson:
    """A lesson that may be stored and injected: cleaned, one line, within the limits."""

    text: str
    words: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """A lesson that may not. Only ``long`` is worth asking for a shorter wording."""

    reason: str
    rule: Rule


def screen_lesson(
    text: str, *, answers: Sequence[str] = (), max_words: int = MAX_WORDS, max_chars: int = MAX_CHARS
) -> ScreenedLesson | Rejection:
    """Clean a lesson and judge it. Limits above the general ones (32 words, 280 characters) count as those.

    ``answers`` are the reference answers of the items it was learned from. Screening a screened text changes nothing.
    """
    words_limit, chars_limit = min(max_words, MAX_WORDS), min(max_chars, MAX_CHARS)
    if len(text) > _MOST_READ:
        return Rejection(f"{len(text)} characters; at most {chars_limit}", "long")
    cleaned = _cleaned(text)
    words = count_words(cleaned)
    return (
        _content_fault(cleaned, answers)
        or _length_fault(cleaned, words, words_limit, chars_limit)
        or ScreenedLesson(cleaned, words)
    )


def _content_fault(cleaned: str, answers: Sequence[str]) -> Rejection | None:
    if not any(character.isalpha() for character in cleaned):
        return Rejection("no words in it", "empty")
    if attack := attack_in(cleaned):
        return Rejection(attack.reason, attack.rule)
    if gives_away(cleaned, answers):
        return Rejection("gives away the answer of an item", "answer")
    return None


def _length_fault(cleaned: str, words: int, words_limit: int, chars_limit: int) -> Rejection | None:
    if words > words_limit:
        return Rejection(f"{words} words; at most {words_limit}", "long")
    if len(cleaned) > chars_limit:
        return Rejection(f"{len(cleaned)} characters; at most {chars_limit}", "long")
    return None


def _cleaned(text: str) -> str:
    return clean_text(_BLANKS.sub("", text))
