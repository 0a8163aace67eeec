"""Graders of numbers and labels: by what an answer means, and by its characters, as they are known elsewhere.

The rule of ``math_exact`` is the known one: gold ``1,080`` is the number ``1``, ``42.0`` is not ``42``, and an answer that
lists many numbers wins. So is the partial credit of ``category_match``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import StrictStr
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.gt import Comparing, GroundTruth
from tfgrpo.rewarders.options import LIST_OF_TEXTS, Flag, NonNegative, Options, Texts, accepts
from tfgrpo.rewarders.scorer import CLOSE, OPEN, GraderInput, ItemScorer, Verdict, answer_text, field_of, final_answer
from tfgrpo.rewarders.text.base import Reference
from tfgrpo.rewarders.text.labels import LabelReference, label_reference
from tfgrpo.rewarders.text.lexer import DecimalMark
from tfgrpo.rewarders.text.words import TextReference
from tfgrpo.stores.outcomes import RewardScore

# Digits of any script; no exponent, no separators, no fractions.
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)")
# Greatest number of other characters, and the score.
_LENGTH_STEPS: Final = ((0, 1.0), (9, 0.5), (19, 0.4), (29, 0.3), (39, 0.2), (49, 0.1))


def _stated_text(item: GraderInput, *, require_answer: bool) -> str:
    """Return the final answer, else, unless ``require_answer``, a completion without any reasoning tag; empty without one."""
    tagged = OPEN in item.completion or CLOSE in item.completion
    return final_answer(item) or ("" if require_answer or tagged else item.completion)


@dataclass(frozen=True, slots=True)
class NumberMatch(Options, Comparing):
    r"""1.0 when the number that the answer states has the value of the record's ``answer``, else 0.0.

    A number may have thousands separators, signs, decimals, fractions, percent, magnitudes and ``\boxed{}``. Marked answers
    count first, then "the answer is …", then the only number of the text or of its last line. Without a final answer the
    score is 0.0. No arithmetic, no partial credit.

    The reference is a JSON number, or text of one number with words and units. Any other, such as ``3, 7`` or ``2\pi``, gives
    no score, unless the answer is the same text; and neither does an answer with two readings.
    """

    tolerance: NonNegative = 0.0
    require_answer: Flag = True
    """When false, a completion without any reasoning tag is itself the answer. Unfinished reasoning never is."""
    decimal: Annotated[DecimalMark, accepts('"." or ","')] = "."

    def reference(self, text: str, _: object = None, __: object = None) -> Reference:
        return GroundTruth("numeric", self.tolerance, self.decimal).reference(text)

    def score_one(self, item: GraderInput) -> Verdict:
        return self.compared(item, _stated_text(item, require_answer=self.require_answer), "number")


@dataclass(frozen=True, slots=True)
class LabelMatch(Options, Comparing):
    """1.0 when the answer states the expected label and no other, else 0.0.

    A letter is stated as ``(B)``, ``B) Paris``, "the answer is B", or by the text of its option in the prompt; yes and no
    also as true and false. Any other label is stated alone, or in a sentence that neither denies it nor offers another.
    Without a final answer, or without an expected label, the score is 0.0. An answer with two readings has none.
    """

    require_answer: Flag = True
    """When false, a completion without any reasoning tag is itself the answer. Unfinished reasoning never is."""
    labels: Texts = ()
    """The set of labels; with it an answer is right when exactly the expected one of them occurs."""

    def accepted(self, item: GraderInput) -> list[str]:
        """Return the expected labels that are not empty."""
        several = field_of(item, "answer")
        labels = several if isinstance(several, list | tuple) and several else [_expected_label(item)]
        return [label for each in labels if (label := str(each).strip())]

    def reference(self, text: str, options: Mapping[str, str] = MappingProxyType({}), _: object = None) -> Reference:
        if self.labels:
            return LabelReference(text, self.labels)
        return label_reference(text, options) or TextReference(text)

    def score_one(self, item: GraderInput) -> Verdict:
        if not self.accepted(item):
            return RewardScore("", 0.0, "the item has no label")
        return self.compared(item, _stated_text(item, require_answer=self.require_answer), "label")


@dataclass(frozen=True, slots=True)
class Choice(Options, ItemScorer):
    """1.0 when the answer states the right option of a multiple-choice question, by its letter or its text, else 0.0.

    The reference is a letter, the text of an option or its number. Options are lines of the prompt, else in the metadata.
    """

    first: Annotated[Literal[0, 1], accepts("0 or 1")] = 0
    """Number of the first option where references are numbers."""

    def score_one(self, item: GraderInput) -> Verdict:
        return GroundTruth("choice", first=self.first).score_one(item)

    def wanted(self, item: GraderInput) -> list[Reference]:
        return GroundTruth("choice", first=self.first).wanted(item)


@dataclass(frozen=True, slots=True)
class CategoryMatch(Options, ItemScorer):
    """The first rule that holds: equal 1.0, equal in lower case 0.8, contains it 0.5, another allowed label 0.3, else 0.0.

    The expected label is the record's ``answer``, else its ``expected_category``, and is not stripped; the response is.
    "Not Alpha" contains "Alpha" here; ``label_match`` has no such rule.
    """

    allowed_categories: Annotated[StrictStr | tuple[StrictStr, ...], accepts(LIST_OF_TEXTS)]
    """Labels that are a wrong answer rather than none. A plain string is read letter by letter."""
    require_answer: Flag = False
    """A completion without a final answer gets 0.0, instead of being searched as a whole."""

    def score_one(self, item: GraderInput) -> float:
        expected = _expected_label(item)
        response = (final_answer(item, or_completion=not self.require_answer) or "").strip()
        lowered, wanted = response.lower(), expected.lower()
        if not expected or not response:
            return 0.0
        if lowered == wanted:
            return 1.0 if response == expected else 0.8
        is_allowed = any(lowered == label.lower() for label in self.allowed_categories)
        return 0.5 if wanted in lowered else 0.3 if is_allowed else 0.0


def _expected_label(item: GraderInput) -> str:
    """Return ``answer`` of the record, else its ``expected_category``, as text and not stripped; empty without either."""
    expected = field_of(item, "answer") or field_of(item, "expected_category")
    return (str(expected) if isinstance(expected, bool) else answer_text(expected)) if expected else ""


@dataclass(frozen=True, slots=True)
class MathExact(Options, ItemScorer):
    """1.0 when any number of the final answer is written as the first number of the record's ``answer``, else 0.0.

    Without a final answer, or when the record's ``answer`` is no string with a number, the score is 0.0.
    """

    def score_one(self, item: GraderInput) -> float:
        gold, answer = field_of(item, "answer"), final_answer(item)
        first = _NUMBER.search(gold) if isinstance(gold, str) else None
        is_same = answer is not None and first is not None and first[0] in answer and first[0] in _NUMBER.findall(answer)
        return float(is_same)


@dataclass(frozen=True, slots=True)
class NumberOnly(Options, ItemScorer):
    """1.0 when the final answer is a single number; less for other characters around its first number.

    Up to 9, 19, 29, 39 and 49 other characters score 0.5, 0.4, 0.3, 0.2 and 0.1. The value is ignored.
    """

    def score_one(self, item: GraderInput) -> float:
        answer = final_answer(item) or ""
        first = _NUMBER.search(answer)
        others = len(answer.strip()) - len(first[0]) if first else 50
        return next((score for most, score in _LENGTH_STEPS if others <= most), 0.0)
