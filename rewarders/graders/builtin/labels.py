"""Graders of labels: ``category_match`` with its known partial credit, ``label_match`` for the whole label only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader, answer_or_completion, flag, refuse
from tfgrpo.rewarders.graders.base import field as record_field
from tfgrpo.rewarders.graders.builtin.number_match import stated_text
from tfgrpo.stores.errors import Problem


@dataclass(frozen=True, slots=True)
class CategoryMatch(ItemGrader):
    """The first rule that holds: equal 1.0, equal in lower case 0.8, contains it 0.5, another allowed label 0.3, else 0.0.

    The expected label is the record's ``answer``, else its ``expected_category``, and is not stripped; the response is.
    "Not Alpha" contains "Alpha" here; ``label_match`` has no such rule.
    """

    allowed_categories: Sequence[str]
    """Labels that are a wrong answer rather than none. A plain string is read letter by letter."""
    require_answer: bool = False
    """A completion without a final answer gets 0.0, instead of being searched as a whole."""
    _allowed: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __post_init__(self) -> None:
        refuse(_labels("allowed_categories", self.allowed_categories), flag("require_answer", self.require_answer))
        object.__setattr__(self, "_allowed", frozenset(label.lower() for label in self.allowed_categories))

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
        return 0.3 if lowered in self._allowed else 0.0


@dataclass(frozen=True, slots=True)
class LabelMatch(ItemGrader):
    """1.0 when the answer is the expected label, except for outer white space and letter case, else 0.0.

    Letter case is Unicode case folding, so that ``STRASSE`` is ``Straße``. Without a final answer, or without an expected
    label, the score is 0.0.
    """

    require_answer: bool = True
    """When false, a completion without any reasoning tag is itself the answer. Unfinished reasoning never is."""

    def __post_init__(self) -> None:
        refuse(flag("require_answer", self.require_answer))

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
        wanted = _expected_label(item).strip().casefold()
        answer = stated_text(item, require_answer=self.require_answer)
        return 1.0 if wanted and answer is not None and answer.strip().casefold() == wanted else 0.0


def _labels(name: str, value: object) -> Iterator[Problem]:
    if not isinstance(value, str | Sequence) or not all(isinstance(label, str) for label in value):
        yield Problem(name, repr(value), "a list of texts; quote what YAML would read as a number or a truth value")


def _expected_label(item: GraderInput) -> str:
    """Return ``answer`` of the record, else its ``expected_category``, as text and not stripped; empty without either."""
    expected = record_field(item, "answer") or record_field(item, "expected_category")
    try:
        return str(expected) if expected else ""
    except (ValueError, RecursionError):  # an integer of thousands of digits, extreme nesting
        return ""
