"""Graders of numbers as strings of characters: ``math_exact`` and ``number_only``.

``number_match`` compares values. This rule is the known one: gold ``1,080`` is the number ``1``, ``42.0`` is not ``42``,
and an answer that lists many numbers wins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader, field, final_answer

_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)")
"""Digits of any script; no exponent, no separators, no fractions."""
_LENGTH_STEPS: Final = ((0, 1.0), (9, 0.5), (19, 0.4), (29, 0.3), (39, 0.2), (49, 0.1))
"""Greatest number of other characters, and the score."""


@dataclass(frozen=True, slots=True)
class MathExact(ItemGrader):
    """1.0 when any number of the final answer is written as the first number of the record's ``answer``, else 0.0.

    Without a final answer, or when the record's ``answer`` is no string with a number, the score is 0.0.
    """

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
        gold = field(item, "answer")
        answer = final_answer(item)
        if answer is None or not isinstance(gold, str):
            return 0.0
        first = _NUMBER.search(gold)
        if first is None or first[0] not in answer:
            return 0.0
        return 1.0 if first[0] in _NUMBER.findall(answer) else 0.0


@dataclass(frozen=True, slots=True)
class NumberOnly(ItemGrader):
    """1.0 when the final answer is a single number; less for other characters around its first number.

    Up to 9, 19, 29, 39 and 49 other characters score 0.5, 0.4, 0.3, 0.2 and 0.1. The value is ignored.
    """

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item; the record is ignored."""
        answer = final_answer(item)
        first = _NUMBER.search(answer) if answer is not None else None
        if answer is None or first is None:
            return 0.0
        others = len(answer.strip()) - len(first[0])
        return next((score for most, score in _LENGTH_STEPS if others <= most), 0.0)
