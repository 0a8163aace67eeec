"""Screen a lesson before it is stored or shown to an actor: clean it, then accept it or reject it with a reason.

Lessons come from a model that read untrusted output. The rules cover instructions to the reader, secrets, addresses,
prompt markup and given-away answers. They are a filter, not a proof: the prompt also quotes every lesson as data.
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
_INVISIBLE = re.compile(
    "[\ufeff\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""Invisible characters that are neither control nor format characters: fillers, joiners, variation selectors."""
_MAX_SCREENED = 4000
"""Most characters of a candidate that are screened; longer ones are too long anyway."""


@dataclass(frozen=True, slots=True)
class ScreenedLesson:
    """An accepted lesson: cleaned, one line, within the limits."""

    text: str
    words: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason of a rejection. Only ``long`` is worth asking for a shorter wording."""

    reason: str
    rule: Rule


def screen_lesson(
    text: str, *, answers: Sequence[str] = (), max_words: int = MAX_WORDS, max_chars: int = MAX_CHARS
) -> ScreenedLesson | Rejection:
    """Clean and screen a lesson. Limits are at most the general ones (32 words, 280 characters).

    ``answers`` are the reference answers of its items. Screening a screened text changes nothing.
    """
    words_limit, chars_limit = min(max_words, MAX_WORDS), min(max_chars, MAX_CHARS)
    if len(text) > _MAX_SCREENED:
        return Rejection(f"{len(text)} characters; at most {chars_limit}", "long")
    cleaned = clean_text(_INVISIBLE.sub("", text))
    words = count_words(cleaned)
    if rejection := _rejected_content(cleaned, answers):
        return rejection
    if words > words_limit:
        return Rejection(f"{words} words; at most {words_limit}", "long")
    if len(cleaned) > chars_limit:
        return Rejection(f"{len(cleaned)} characters; at most {chars_limit}", "long")
    return ScreenedLesson(cleaned, words)


def _rejected_content(cleaned: str, answers: Sequence[str]) -> Rejection | None:
    if not any(character.isalpha() for character in cleaned):
        return Rejection("no words in it", "empty")
    if attack := attack_in(cleaned):
        return Rejection(attack.reason, attack.rule)
    if gives_away(cleaned, answers):
        return Rejection("gives away the answer of an item", "answer")
    return None
