"""What the data file of a world holds: templates of its items, and pitfalls with the words that lessons use.

Phrases of a pitfall are written as words in the order in which they must occur, ``"tax after discount|rebate"``. A word
matches everything that starts with it, ``|`` separates alternatives, ``=per`` asks for exactly that word. Up to three
other words may come between two of a phrase, but no negation and no end of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeAlias

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.stores.packaged import packaged_yaml

Slots: TypeAlias = Mapping[str, str]

_SLOT = re.compile(r"\{(\w+)\}")


@cache
def world_data(name: str) -> dict[str, Any]:
    """Return the content of ``<name>.yaml``, read once per process."""
    content: dict[str, Any] = packaged_yaml(__file__, f"{name}.yaml")
    return content


@dataclass(frozen=True)
class Template:
    """One kind of item."""

    name: str
    text: str
    """With ``{slots}``; every slot occurs once and takes one word."""
    slots: Mapping[str, str | Sequence[int | str]]
    """How each slot is drawn, in the order of the draws: a kind of draw, or the values to choose from."""
    pitfalls: Sequence[str] | None = None
    """What it tests. None: the pitfalls that change its answer, which depend on the slots."""
    weight: int = 1
    """How often this template is drawn, relative to the others."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The text, with a group for each slot."""
        pieces = _SLOT.split(self.text)
        regex = [re.escape(piece) if i % 2 == 0 else rf"(?P<{piece}>[\w.:-]*\w)" for i, piece in enumerate(pieces)]
        return re.compile("".join(regex))

    @cached_property
    def anchor(self) -> str:
        """Longest fixed piece of the text; a cheap first test before the pattern."""
        return max(_SLOT.split(self.text)[::2], key=len)


@dataclass(frozen=True, slots=True)
class Advice:
    """One wording of a lesson."""

    polarity: Polarity
    text: str


def advice_of(texts: Mapping[Polarity, Sequence[str]]) -> tuple[Advice, ...]:
    """Return the wordings listed by polarity."""
    return tuple(Advice(polarity, text) for polarity, listed in texts.items() for text in listed)


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One typical mistake."""

    name: str
    about: Sequence[str]
    """Advice on this pitfall matches every one of these words (same notation, one word each)."""
    right: Sequence[str]
    """Phrases for the right way."""
    wrong: Sequence[str]
    """Phrases for the mistake."""
    shown_avoided: Sequence[str]
    """What a step of a worked solution reads when it got this right."""
    shown_hit: Sequence[str]
    """What it reads when it made the mistake."""
    good_advice: Sequence[Advice]
    bad_advice: Sequence[Advice]
    working: str = ""
    """The working of that step, with ``{}`` for each number and the result."""
