"""Graders of labels: ``category_match`` with its known partial credit, ``label_match`` for the whole label only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import StrictStr
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.graders.base import answer_or_completion
from tfgrpo.rewarders.graders.builtin.number_match import stated_text
from tfgrpo.rewarders.options import Flag, Options, Texts, accepts
from tfgrpo.rewarders.scorer import GraderInput, ItemScorer, field_of
from tfgrpo.rewarders.text.references import label_reference
from tfgrpo.rewarders.text.words import LabelReference, Reference, TextReference, options_of

_LABELS: Final = "a list of texts; quote what YAML would read as a number or a truth value"


@dataclass(frozen=True, slots=True)
class CategoryMatch(Options, ItemScorer):
    """The first rule that holds: equal 1.0, equal in lower case 0.8, contains it 0.5, another allowed label 0.3, else 0.0.

    The expected label is the record's ``answer``, else its ``expected_category``, and is not stripped; the response is.
    "Not Alpha" contains "Alpha" here; ``label_match`` has no such rule.
    """

    allowed_categories: Annotated[StrictStr | tuple[StrictStr, ...], accepts(_LABELS)]
    """Labels that are a wrong answer rather than none. A plain string is read letter by letter."""
    require_answer: Flag = False
    """A completion without a final answer gets 0.0, instead of being searched as a whole."""

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
        expected = _expected_label(item)
        response = (answer_or_completion(item, require_answer=self.require_answer) or "").strip()
        if not expected or not response:
            return 0.0
        if response == expected:
            return 1.0
        lowered = response.lower()
        wanted = expected.lower()
        if lowered == wanted:
            return 0.8
        if wanted in lowered:
            return 0.5
        return 0.3 if any(lowered == label.lower() for label in self.allowed_categories) else 0.0


@dataclass(frozen=True, slots=True)
class LabelMatch(Options, ItemScorer):
    """1.0 when the answer states the expected label and no other, else 0.0.

    A letter is stated as ``(B)``, ``B) Paris``, "the answer is B", or by the text of its option in the prompt; yes and no
    also as true and false. Any other label is stated alone, or in a sentence that neither denies it nor offers another.
    Without a final answer, or without an expected label, the score is 0.0. Raises ``RewardError`` for two readings.
    """

    require_answer: Flag = True
    """When false, a completion without any reasoning tag is itself the answer. Unfinished reasoning never is."""
    labels: Texts = ()
    """The set of labels; with it an answer is right when exactly the expected one of them occurs."""

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
        several = field_of(item, "answer")
        accepted = several if isinstance(several, list | tuple) and several else [_expected_label(item)]
        wanted = [str(each).strip() for each in accepted]
        answer = stated_text(item, require_answer=self.require_answer)
        if answer is None:
            return 0.0
        options = options_of(str(field_of(item, "prompt") or ""), field_of(item, "metadata"))
        return 1.0 if any(self._reference(each, options).compare(answer).right for each in wanted if each) else 0.0

    def _reference(self, label: str, options: Mapping[str, str]) -> Reference:
        if self.labels:
            return LabelReference(label, self.labels)
        return label_reference(label, options) or TextReference(label)


def _expected_label(item: GraderInput) -> str:
    """Return ``answer`` of the record, else its ``expected_category``, as text and not stripped; empty without either."""
    expected = field_of(item, "answer") or field_of(item, "expected_category")
    try:
        return str(expected) if expected else ""
    except (ValueError, RecursionError):  # an integer of thousands of digits, extreme nesting
        return ""
