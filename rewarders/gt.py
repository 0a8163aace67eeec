"""The ``gt`` rewarder: compare each output with the item's reference answer.

No model, no arithmetic, no partial credit. Without a reference answer it abstains.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.base import RewardContext, Verdict, abstain_on_all
from tfgrpo.rewarders.options import Name, NonNegative, Options, accepts, refusal
from tfgrpo.rewarders.text.answers import Number, answered_number, format_value, numbers_agree, stated_answer
from tfgrpo.stores.outcomes import RewardScore

Match: TypeAlias = Literal["exact", "normalized", "numeric"]

_TRIMMED: Final = " \t.,;:!?\"'`*_()[]{}$<>\u2018\u2019\u201c\u201d\u00ab\u00bb"
_SHOWN: Final = 80
"""Longest value in evidence."""


@dataclass(frozen=True, slots=True)
class GroundTruthRewarder(Options):
    r"""Scores 1.0 when the stated answer is the reference, 0.0 otherwise.

    The stated answer is the text after the last ``Answer:`` line, else the last ``\boxed{}``, else the whole output
    (for ``numeric``: its last number). The reference is read by the same rule.
    """

    match: Annotated[Match, accepts("exact, normalized, numeric")] = "normalized"
    """``exact``: equal characters, except outer white space. ``normalized``: ignores also letter case, Unicode form, runs
    of white space, and punctuation around the answer. ``numeric``: equal values."""
    tolerance: NonNegative = 0.0
    """Greatest absolute difference of equal values; ``numeric`` only."""
    rewarder_id: Name = "gt"

    quick: ClassVar[bool] = True

    @field_validator("tolerance")
    @classmethod
    def _numeric_only(cls, value: float, info: ValidationInfo) -> float:
        match = info.data.get("match", "numeric")
        if value and match != "numeric":
            raise refusal(f"0, because match is {match!r}")
        return value

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt; abstain on all when the reference is unusable."""
        if not context.answer.strip():
            return abstain_on_all(self, context, "the item has no reference answer")
        if self.match == "numeric":
            reference = answered_number(context.answer)
            if reference is None:
                return abstain_on_all(self, context, f"the reference {_short(context.answer)} holds no number")
            return [self._numeric(attempt.output, reference) for attempt in context.outputs]
        wanted = stated_answer(context.answer).text or context.answer.strip()
        return [self._textual(attempt.output, wanted) for attempt in context.outputs]

    def _verdict(self, right: bool, answered: str, reference: str) -> RewardScore:
        sign = "=" if right else "≠"
        evidence = f"{self.match}: answered {answered} {sign} reference {reference}"
        return RewardScore(self.rewarder_id, 1.0 if right else 0.0, evidence)

    def _textual(self, output: str, wanted: str) -> RewardScore:
        answer = stated_answer(output).text
        right = answer == wanted if self.match == "exact" else _normalized(answer) == _normalized(wanted)
        return self._verdict(right, _short(answer), _short(wanted))

    def _numeric(self, output: str, reference: Number) -> RewardScore:
        number = answered_number(output)
        if number is None:
            return self._verdict(False, f"{_short(stated_answer(output).text)} (no number)", _shown_number(reference))
        right = numbers_agree(number, reference, Fraction(str(self.tolerance)))
        return self._verdict(right, _shown_number(number), _shown_number(reference))


def _normalized(text: str) -> str:
    """Return the comparable form; punctuation alone is unchanged, so that ``?`` and ``!`` still differ."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    collapsed = " ".join(folded.split())
    return collapsed.strip(_TRIMMED) or collapsed


def _shown_number(number: Number) -> str:
    value = format_value(number.value) + ("%" if number.percent else "")
    return _short(number.text) if number.text == value else f"{_short(number.text)} ({_clip(value)})"


def _short(text: str) -> str:
    """Quote in one line: control characters and line breaks are escaped."""
    return repr(_clip(text))


def _clip(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
