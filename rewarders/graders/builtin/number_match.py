"""Graders of numbers: ``number_match`` by value, in any notation; ``math_exact`` and ``number_only`` by their characters.

``number_match`` does no arithmetic and gives no partial credit. The rule of ``math_exact`` is the known one: gold ``1,080``
is the number ``1``, ``42.0`` is not ``42``, and an answer that lists many numbers wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.graders.base import final_answer
from tfgrpo.rewarders.options import Flag, NonNegative, Options, accepts
from tfgrpo.rewarders.scorer import CLOSE, OPEN, GraderInput, ItemScorer, field_of, references
from tfgrpo.rewarders.text.answers import stated_answer
from tfgrpo.rewarders.text.numbers import DecimalMark, Number, reference_number
from tfgrpo.rewarders.text.references import NumberReference
from tfgrpo.rewarders.text.words import same_text, shown
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.numeric import is_finite

_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)")
"""Digits of any script; no exponent, no separators, no fractions."""
_LENGTH_STEPS: Final = ((0, 1.0), (9, 0.5), (19, 0.4), (29, 0.3), (39, 0.2), (49, 0.1))
"""Greatest number of other characters, and the score."""


@dataclass(frozen=True, slots=True)
class NumberMatch(Options, ItemScorer):
    r"""1.0 when the number that the answer states has the value of the record's ``answer``, else 0.0.

    A number may have thousands separators, signs, decimals, fractions, percent, magnitudes and ``\boxed{}``. Marked answers
    count first, then "the answer is …", then the only number of the text or of its last line. Without a final answer the
    score is 0.0.

    The reference is a JSON number, or text of one number with words and units. Raises ``RewardError`` for any other, such
    as ``3, 7`` or ``2\pi``, unless the answer is the same text; and for an answer with two readings.
    """

    tolerance: NonNegative = 0.0
    """Greatest absolute difference of equal values."""
    require_answer: Flag = True
    """When false, a completion without any reasoning tag is itself the answer. Unfinished reasoning never is."""
    decimal: Annotated[DecimalMark, accepts('"." or ","')] = "."
    """Mark before the decimals of references."""

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
        answer = stated_text(item, require_answer=self.require_answer)
        unclear: RewardError | None = None
        for reference in references(item):
            try:
                if self._agrees(answer, reference):
                    return 1.0
            except RewardError as error:
                unclear = unclear or error
        if unclear is not None:
            raise unclear
        return 0.0

    def _agrees(self, answer: str | None, reference: object) -> bool:
        gold, text = reference_value(reference, self.decimal), str(reference)
        if gold is None:
            stated = stated_answer(answer or "")
            if stated is not None and isinstance(reference, str) and same_text(stated.text, text):
                return True
            given = shown(reference) if isinstance(reference, str) else f"of type {type(reference).__name__}"
            raise RewardError(f"the reference {given} is no single number")
        # By way of the text, which makes the tolerance 0.1 one tenth exactly.
        compared = NumberReference(text, gold, self.decimal, Fraction(str(self.tolerance)))
        return answer is not None and compared.compare(answer).right

    def unusable(self, record: Mapping[str, Any]) -> str | None:
        """Return why no output can be compared with the references of a record; None if one can."""
        values = references(GraderInput.of("", record, ""))
        if any(reference_value(each, self.decimal) is not None for each in values):
            return None
        return f"{values[0]!r:.60} is no single number"


def stated_text(item: GraderInput, *, require_answer: bool) -> str | None:
    """Return the final answer, else, unless ``require_answer``, a completion without any reasoning tag."""
    answer = final_answer(item)
    if answer is not None or require_answer or OPEN in item.completion or CLOSE in item.completion:
        return answer
    return item.completion


def reference_value(gold: object, decimal: DecimalMark = ".") -> Number | None:
    """Return the number of a record's ``answer``; None when it is no single number."""
    if isinstance(gold, str):
        return reference_number(gold, decimal)
    if isinstance(gold, bool) or not isinstance(gold, int | float) or not is_finite(gold):
        return None
    return Number(Fraction(gold) if isinstance(gold, int) else Fraction(repr(gold)), percent=False, text=str(gold))


@dataclass(frozen=True, slots=True)
class MathExact(Options, ItemScorer):
    """1.0 when any number of the final answer is written as the first number of the record's ``answer``, else 0.0.

    Without a final answer, or when the record's ``answer`` is no string with a number, the score is 0.0.
    """

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
        gold = field_of(item, "answer")
        answer = final_answer(item)
        if answer is None or not isinstance(gold, str):
            return 0.0
        first = _NUMBER.search(gold)
        if first is None or first[0] not in answer:
            return 0.0
        return 1.0 if first[0] in _NUMBER.findall(answer) else 0.0


@dataclass(frozen=True, slots=True)
class NumberOnly(Options, ItemScorer):
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
