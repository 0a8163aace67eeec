"""Grader of the value of a number, in any notation, without arithmetic or partial credit."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from tfgrpo.rewarders.graders.base import (
    CLOSE,
    OPEN,
    GraderInput,
    ItemGrader,
    field,
    final_answer,
    flag,
    is_number,
    number,
    refuse,
)
from tfgrpo.rewarders.text.answers import answered_number, reference_number
from tfgrpo.rewarders.text.number_text import Number, numbers_agree
from tfgrpo.stores.errors import RewardError

_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class NumberMatch(ItemGrader):
    r"""1.0 when the answer's last stated number has the value of the record's ``answer``, else 0.0.

    A number may have thousands separators, signs, decimals, fractions, percent and ``\boxed{}``. The text after the last
    ``Answer:`` line counts, else the last box, else the last number. Without a final answer the score is 0.0.

    The reference is a JSON number, or text of one number with words and units. Raises ``RewardError`` for any other, such
    as ``3, 7`` or ``2\pi``.
    """

    tolerance: float = 0.0
    """Greatest absolute difference of equal values."""
    require_answer: bool = True
    """When false, a completion without any reasoning tag is itself the answer. Unfinished reasoning never is."""

    def __post_init__(self) -> None:
        refuse(number("tolerance", self.tolerance, least=0), flag("require_answer", self.require_answer))

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
        reference = field(item, "answer")
        gold = reference_value(reference)
        if gold is None:
            shown = repr(reference) if isinstance(reference, str) else f"of type {type(reference).__name__}"
            raise RewardError(f"the reference {shown[:_SHOWN]} is no single number")
        answer = stated_text(item, require_answer=self.require_answer)
        if answer is None:
            return 0.0
        found = answered_number(answer)
        agrees = found is not None and numbers_agree(found, gold, Fraction(str(self.tolerance)))
        return 1.0 if agrees else 0.0


def stated_text(item: GraderInput, *, require_answer: bool) -> str | None:
    """Return the final answer, else, unless ``require_answer``, a completion without any reasoning tag."""
    answer = final_answer(item)
    if answer is not None or require_answer or OPEN in item.completion or CLOSE in item.completion:
        return answer
    return item.completion


def reference_value(gold: object) -> Number | None:
    """Return the number of a record's ``answer``; None when it is no single number."""
    if isinstance(gold, str):
        return reference_number(gold)
    if not isinstance(gold, int | float) or not is_number(gold):
        return None
    return Number(Fraction(gold) if isinstance(gold, int) else Fraction(repr(gold)), percent=False, text="")
