"""Which of the proposed operations may change the library? Each is judged against the limits and those before it.

Nothing is repaired or reinterpreted here: an operation is accepted as it is, or rejected with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, TypeAlias

from tfgrpo.stores.experiences.record import ExperienceRecord, Operation, Polarity, support_of
from tfgrpo.tasks.learning.merge import Candidate
from tfgrpo.tasks.learning.replies import OperationAnswer, OperationName
from tfgrpo.tasks.learning.similarity import Gist, alike, gist_of

_ORDER: Mapping[OperationName, int] = {"delete": 0, "merge": 1, "modify": 2, "add": 3, "keep": 4}
_TARGETS: Mapping[Operation, str] = {
    "add": "no target",
    "modify": "exactly one target",
    "merge": "at least two targets",
    "delete": "exactly one target",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one curation may change."""

    capacity: int
    """Lessons the library may hold."""
    edit_budget: int
    """Operations that may be applied."""
    per_group: int
    """Lessons that may rest on one source group."""


@dataclass(frozen=True, slots=True)
class Change:
    """An operation whose structure is sound: labels resolved, nothing used twice."""

    operation: Operation
    targets: tuple[ExperienceRecord, ...]
    sources: tuple[Candidate, ...]
    polarity: Polarity
    text: str

    @property
    def group_ids(self) -> tuple[str, ...]:
        """Groups of this batch that the change rests on."""
        return tuple(dict.fromkeys(group for source in self.sources for group in source.group_ids))

    @property
    def basis(self) -> Change:
        """What carries the change: of one that turns a lesson round, only the targets and sources of its own direction."""
        if self.operation == "delete" or all(record.polarity == self.polarity for record in self.targets):
            return self
        targets = tuple(record for record in self.targets if record.polarity == self.polarity)
        return replace(self, targets=targets, sources=tuple(s for s in self.sources if s.polarity == self.polarity))


@dataclass(frozen=True, slots=True)
class Refusal:
    """An operation that may not be applied."""

    text: str
    reason: str
    polarity: Polarity | Literal[""] = ""


Labelled: TypeAlias = Mapping[str, ExperienceRecord]


class Workbench:
    """The library while one batch is curated: what is taken, what is used up, what it would hold."""

    def __init__(self, library: Labelled, candidates: Mapping[str, Candidate], limits: Limits) -> None:
        self._library = dict(library)
        self._labels = count(len(library) + 1)
        self._candidates = candidates
        self._limits = limits
        self._gone: set[str] = set()
        self._used: set[str] = set()
        self._added: list[tuple[Polarity, Gist]] = []
        self._confirmed: set[str] = set()
        self._per_group: Counter[str] = Counter()
        self._edits = 0

    @property
    def size(self) -> int:
        """Lessons the library holds with the changes accepted so far."""
        return len(self._library) - len(self._gone) + len(self._added)

    def resolve(self, answer: OperationAnswer) -> Change | Refusal | None:
        """The change an answer asks for; None for ``keep``, which asks for none."""
        if answer.op == "keep":
            if answer.targets and self._library.keys() >= set(answer.targets):
                self._confirmed.update(self._candidates.keys() & answer.sources)
            return None
        reason = self._label_fault(answer) or self._shape_fault(answer.op, answer) or self._limit_fault(answer)
        if reason:
            return Refusal(answer.text, f"{answer.op}: {reason}", answer.polarity)
        targets = tuple(self._library[label] for label in answer.targets)
        sources = tuple(self._candidates[label] for label in answer.sources)
        text = "" if answer.op == "delete" else answer.text
        return Change(answer.op, targets, sources, _polarity(answer, targets, sources), text)

    def accept(self, change: Change, text: str) -> Refusal | None:
        """Enter a change with its final wording, or say why it may not be."""
        sources = {label for label, candidate in self._candidates.items() if candidate in change.sources}
        reason = self._wording_fault(change, text) if change.operation != "delete" else ""
        if reason:
            if self.confirms(change.polarity, text, leaving=change.targets):
                self._confirmed |= sources
            return Refusal(text, f"{change.operation}: {reason}", change.polarity)
        self._gone.update(label for label, record in self._library.items() if record in change.targets)
        self._used |= sources
        if change.operation != "delete":
            self._added.append((change.polarity, gist_of(text)))
            self._per_group.update(change.group_ids)
        self._edits += 1
        return None

    def unused(self) -> tuple[Candidate, ...]:
        """Candidates that no accepted change rests on."""
        return tuple(candidate for label, candidate in self._candidates.items() if label not in self._used)

    def confirms(self, polarity: str, text: str, *, leaving: Sequence[ExperienceRecord] = ()) -> bool:
        """Whether a text says what a lesson of the library says, or what a proposal does that confirmed one."""
        staying = [record for label, record in self._library.items() if label not in self._gone]
        said = [(record.polarity, gist_of(record.summary32)) for record in staying if record not in leaving]
        said += self._added
        said += [(self._candidates[label].polarity, gist_of(self._candidates[label].text)) for label in self._confirmed]
        gist = gist_of(text)
        return any(polarity == other and alike(gist, what) for other, what in said)

    def settle(self, records: Sequence[ExperienceRecord]) -> Labelled:
        """Make the records of accepted changes part of the library, under labels of their own, and return the library."""
        staying = {label: record for label, record in self._library.items() if label not in self._gone}
        fresh = (record for record in records if record.operation != "delete")
        self._library = staying | {f"L{next(self._labels)}": record for record in fresh}
        self._gone.clear()
        self._added.clear()
        return self._library

    @property
    def edits_left(self) -> int:
        """Operations that may still be applied."""
        return self._limits.edit_budget - self._edits

    def _label_fault(self, answer: OperationAnswer) -> str:
        labels = [*answer.targets, *answer.sources]
        if len(set(labels)) < len(labels):
            return "names something twice"
        unknown = [label for label in answer.targets if label not in self._library]
        unknown += [label for label in answer.sources if label not in self._candidates]
        if unknown:
            return f"unknown {', '.join(unknown)}"
        taken = [label for label in labels if label in self._gone or label in self._used]
        return f"{', '.join(taken)} already used by another operation" if taken else ""

    def _shape_fault(self, operation: OperationName, answer: OperationAnswer) -> str:
        count = len(answer.targets)
        fits = {"add": count == 0, "modify": count == 1, "merge": count >= 2, "delete": count == 1, "keep": True}
        if not fits[operation]:
            return f"takes {_TARGETS[operation]}, not {count}" if operation != "keep" else ""
        if operation == "add" and not answer.sources:
            return "rests on no proposal"
        return "no text" if operation != "delete" and not answer.text.strip() else ""

    def _limit_fault(self, answer: OperationAnswer) -> str:
        if self._edits >= self._limits.edit_budget:
            return f"over the edit budget of {self._limits.edit_budget}"
        if answer.op == "add" and self.size >= self._limits.capacity:
            return f"the library is full ({self._limits.capacity})"
        if answer.op == "delete":
            return ""
        groups = {group for label in answer.sources for group in self._candidates[label].group_ids}
        full = sorted(group for group in groups if self._per_group[group] >= self._limits.per_group)
        return f"more than {self._limits.per_group} lessons from one group" if full else ""

    def _wording_fault(self, change: Change, text: str) -> str:
        gist = gist_of(text)
        for polarity, other in self._added:
            if alike(gist, other):
                same = polarity == change.polarity
                return "says the same as another operation" if same else "contradicts another operation"
        for label, record in self._library.items():
            stays = label not in self._gone and record not in change.targets
            if stays and alike(gist, gist_of(record.summary32)):
                same = record.polarity == change.polarity
                return "already in the library" if same else "contradicts a lesson in the library"
        if change.operation != "modify" or change.sources:
            return ""
        [target] = change.targets
        return "changes nothing" if (target.summary32, target.polarity) == (text, change.polarity) else ""


def reversal_fault(change: Change) -> str:
    """Why a change may not turn a lesson's direction round; empty when it may.

    The new direction needs more support than the lesson has that it replaces.
    """
    basis = change.basis
    support = len(basis.group_ids)
    held = max((support_of(record) for record in change.targets if record not in basis.targets), default=-1)
    if support > held:
        return ""
    return f"changes the direction of a lesson on a support of {support}, and that lesson has {held}"


def in_order(operations: Sequence[OperationAnswer]) -> tuple[OperationAnswer, ...]:
    """What makes room comes first; otherwise as given."""
    return tuple(sorted(operations, key=lambda answer: _ORDER[answer.op]))


def _polarity(answer: OperationAnswer, targets: Sequence[ExperienceRecord], sources: Sequence[Candidate]) -> Polarity:
    if answer.polarity:
        return answer.polarity
    return sources[0].polarity if sources else targets[0].polarity
