"""Check the proposed operations on the library, each against limits, evidence and the operations accepted before it.

An operation is accepted as it is, as a stamped record, or rejected with a reason, never repaired or reinterpreted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.experiences.accounts import Account
from tfgrpo.stores.experiences.record import (
    ExperienceRecord,
    Operation,
    Polarity,
    Reward,
    ToolStat,
    stamp_record,
    support_of,
)
from tfgrpo.stores.ledger.state import add_costs
from tfgrpo.tasks.learning.ask import OperationAnswer
from tfgrpo.tasks.learning.similarity import Candidate, LessonWords, lesson_words, same_lesson
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import Proposal, RolloutRecord, ToolMetricEvent

ORDER = ("delete", "merge", "modify", "add", "keep", "confirm", "contradict", "useless")
"""What makes room comes first, and what may name an added lesson last."""
_TARGETS: Mapping[Operation, tuple[int, float, str]] = {
    "add": (0, 0, "no target"),
    "modify": (1, 1, "exactly one target"),
    "merge": (2, math.inf, "at least two targets"),
    "delete": (1, 1, "exactly one target"),
}
_ID_DIGITS = 24


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one curation may change."""

    capacity: int
    """Most lessons in the library."""
    edit_budget: int
    """Most operations that may be applied."""
    per_group: int
    """Most lessons that may rest on one source group."""


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
        """The change itself, or, if it reverses a lesson, with only the targets and sources of its new polarity."""
        if self.operation == "delete" or all(record.polarity == self.polarity for record in self.targets):
            return self
        targets = tuple(record for record in self.targets if record.polarity == self.polarity)
        return replace(self, targets=targets, sources=tuple(s for s in self.sources if s.polarity == self.polarity))


@dataclass(frozen=True, slots=True)
class RejectedLesson:
    """The text of a proposal or operation that may not be applied."""

    text: str
    reason: str
    polarity: Polarity | Literal[""] = ""


class LibraryDraft:
    """The library while one batch is curated: labels in use, and what the accepted changes make of it."""

    def __init__(
        self,
        library: Iterable[ExperienceRecord],
        candidates: Iterable[Candidate],
        limits: Limits,
        accounts: Mapping[str, Account] | None = None,
    ) -> None:
        self._labels = count(1)
        self.library = {f"L{next(self._labels)}": record for record in library}
        """Lessons by label, without the changes since the last ``settle``."""
        self.candidates = {f"P{number}": candidate for number, candidate in enumerate(candidates, start=1)}
        """Proposals by label, best supported first."""
        self.limits = limits
        self._accounts = accounts
        self._removed: set[str] = set()
        self._used: set[str] = set()
        self._added: list[tuple[Polarity, LessonWords]] = []
        self._confirmed: set[str] = set()
        self._per_group: Counter[str] = Counter()
        self._edits = 0

    @property
    def edits_left(self) -> int:
        """Operations that may still be applied."""
        return self.limits.edit_budget - self._edits

    @property
    def kept(self) -> dict[str, ExperienceRecord]:
        """Lessons by label that no accepted change has removed."""
        return {label: record for label, record in self.library.items() if label not in self._removed}

    def take(self, labels: Iterable[str]) -> None:
        """Note that something became of these proposals."""
        self._used.update(labels)

    def resolve(self, answer: OperationAnswer) -> Change | RejectedLesson | None:
        """Return the change an answer asks for; None for ``keep``, which asks for none."""
        if answer.op == "keep":
            if answer.targets and self.library.keys() >= set(answer.targets):
                self._confirmed.update(self.candidates.keys() & answer.sources)
            return None
        reason = self._label_error(answer) or _form_error(answer.op, answer) or self._limit_error(answer)
        if reason:
            return RejectedLesson(answer.text, f"{answer.op}: {reason}", answer.polarity)
        targets = tuple(self.library[label] for label in answer.targets)
        sources = tuple(self.candidates[label] for label in answer.sources)
        polarity = answer.polarity or (sources[0].polarity if sources else targets[0].polarity)
        return Change(answer.op, targets, sources, polarity, "" if answer.op == "delete" else answer.text)

    def accept(self, change: Change, text: str) -> RejectedLesson | None:
        """Apply a change with its final wording, or return why it may not be applied."""
        sources = {label for label, candidate in self.candidates.items() if candidate in change.sources}
        if change.operation != "delete":
            if reason := self._wording_error(change, text):
                if self.confirms(change.polarity, text, without=change.targets):
                    self._confirmed |= sources
                return RejectedLesson(text, f"{change.operation}: {reason}", change.polarity)
            self._added.append((change.polarity, lesson_words(text)))
            self._per_group.update(change.group_ids)
        self._removed.update(label for label, record in self.library.items() if record in change.targets)
        self._used |= sources
        self._edits += 1
        return None

    def unused(self) -> tuple[Candidate, ...]:
        """Return the candidates that no accepted change rests on."""
        return tuple(candidate for label, candidate in self.candidates.items() if label not in self._used)

    def confirms(self, polarity: str, text: str, *, without: Sequence[ExperienceRecord] = ()) -> bool:
        """Whether a text agrees with a lesson of the library, or with a proposal that confirmed one."""
        lessons = [
            (record.polarity, lesson_words(record.summary32)) for record in self.kept.values() if record not in without
        ]
        candidates = (self.candidates[label] for label in self._confirmed)
        confirmed = [(candidate.polarity, lesson_words(candidate.text)) for candidate in candidates]
        words = lesson_words(text)
        return any(
            polarity == other and same_lesson(words, known) for other, known in [*lessons, *self._added, *confirmed]
        )

    def settle(self, records: Sequence[ExperienceRecord]) -> None:
        """Add the records of accepted changes to the library, under new labels."""
        added = (record for record in records if record.operation != "delete")
        self.library = self.kept | {f"L{next(self._labels)}": record for record in added}
        self._removed.clear()
        self._added.clear()

    def _label_error(self, answer: OperationAnswer) -> str:
        labels = [*answer.targets, *answer.sources]
        if len(set(labels)) < len(labels):
            return "names something twice"
        unknown = [label for label in answer.targets if label not in self.library]
        unknown += [label for label in answer.sources if label not in self.candidates]
        if unknown:
            return f"unknown {', '.join(unknown)}"
        taken = [label for label in labels if label in self._removed or label in self._used]
        return f"{', '.join(taken)} already used by another operation" if taken else ""

    def _limit_error(self, answer: OperationAnswer) -> str:
        if self.edits_left < 1:
            return f"over the edit budget of {self.limits.edit_budget}"
        size = len(self.library) - len(self._removed) + len(self._added)
        # With accounts, the lesson of which least is known makes room.
        if answer.op == "add" and size >= self.limits.capacity and self._accounts is None:
            return f"the library is full ({self.limits.capacity})"
        if answer.op == "delete":
            net = self._net(self.library[answer.targets[0]])
            return f"more groups are for that lesson than against it (net support {net:.2g})" if net > 0.0 else ""
        groups = {group for label in answer.sources for group in self.candidates[label].group_ids}
        full = any(self._per_group[group] >= self.limits.per_group for group in groups)
        return f"more than {self.limits.per_group} lessons from one group" if full else ""

    def _wording_error(self, change: Change, text: str) -> str:
        words = lesson_words(text)
        for polarity, other in self._added:
            if same_lesson(words, other):
                if polarity == change.polarity:
                    return "says the same as another operation"
                if self._accounts is None:
                    return "contradicts another operation"
        for record in self.kept.values():
            if record not in change.targets and same_lesson(words, lesson_words(record.summary32)):
                if record.polarity == change.polarity:
                    return "already in the library"
                if self._accounts is None:
                    return "contradicts a lesson in the library"
        if change.operation != "modify" or change.sources:
            return ""
        [target] = change.targets
        return "changes nothing" if (target.summary32, target.polarity) == (text, change.polarity) else ""

    def reversal_error(self, change: Change) -> str:
        """Return why a change may not reverse a lesson's polarity; empty when it may.

        The new polarity needs more support than the lesson that it replaces: by its account, or by its groups.
        """
        basis = change.basis
        support = len(basis.group_ids)
        turned = [record for record in change.targets if record not in basis.targets]
        replaced = max((support_of(each) if self._accounts is None else self._net(each) for each in turned), default=-1)
        if not turned or support > replaced:
            return ""
        return f"changes the direction of a lesson on a support of {support}, and that lesson has {replaced:g}"

    def _net(self, record: ExperienceRecord) -> float:
        """Net support of a lesson; none without accounts, or for one that this batch added."""
        account = (self._accounts or {}).get(record.experience_id)
        return 0.0 if account is None else account.net


def _form_error(operation: Operation, answer: OperationAnswer) -> str:
    least, most, accepted = _TARGETS[operation]
    if not least <= len(answer.targets) <= most:
        return f"takes {accepted}, not {len(answer.targets)}"
    if operation == "add" and not answer.sources:
        return "rests on no proposal"
    return "no text" if operation != "delete" and not answer.text.strip() else ""


def optimize_experience(
    lesson: Proposal | ExperienceRecord, policy: LearningSettings, *, unconfirmed: bool = False
) -> RejectedLesson | None:
    """Return the rejection of a proposal, or of a record before it is written, whose evidence is too weak; else None.

    ``min_rank`` and ``min_reward`` decide; deletions pass. Only lessons of polarity *do* must exceed the reward: what to
    avoid is also learned from attempts that all failed. An ``unconfirmed`` record counts nothing, so it needs no reward.
    """
    if isinstance(lesson, Proposal):
        text, reward, rank, unconfirmed = lesson.text, lesson.best_reward, lesson.best_rank, lesson.unconfirmed
    elif lesson.operation == "delete":
        return None
    else:
        text, reward, rank = lesson.summary32, lesson.reward.gt_score, lesson.reward.relative_rank
    if rank < policy.min_rank:
        reason = f"best attempt ranks {rank:.3g}, below {policy.min_rank:.3g}"
    elif lesson.polarity == "do" and reward <= policy.min_reward and not unconfirmed:
        reason = f"best reward {reward:.3g} does not exceed {policy.min_reward:.3g}"
    else:
        return None
    return RejectedLesson(text, reason, lesson.polarity)


def record_of(
    change: Change, text: str, runtime: Runtime, *, epoch: int, batch: int, rollouts: Mapping[str, RolloutRecord]
) -> ExperienceRecord:
    """Return the stamped record of a change whose final wording is ``text``. ``rollouts``: those of the batch by id.

    Its id is a digest of content and origin: the same change of the same run has the same id in every replay. The run is
    part of it, because two runs may delete the same lesson.
    """
    context = runtime.context
    manifest = runtime.pack.manifest
    # Under the first learning rules a reversed lesson inherited the evidence of the one it replaced.
    basis = change.basis if context.rules > 1 else change
    evidence = _evidence(basis)
    supersedes = tuple(sorted(record.experience_id for record in change.targets))
    identity = {
        "task": context.settings.task_id,
        "run": context.run_id,
        "epoch": epoch,
        "batch": batch,
        "operation": change.operation,
        "polarity": change.polarity,
        "text": text,
        "supersedes": list(supersedes),
        "evidence": list(evidence),
    }
    record = ExperienceRecord(
        experience_id=f"exp-{sha256_hex(canonical_json(identity))[:_ID_DIGITS]}",
        run_id=context.run_id,
        task_id=context.settings.task_id,
        domain=manifest.domain,
        pack_id=manifest.id,
        tags=manifest.tags,
        epoch=epoch,
        batch=batch,
        group_id=basis.group_ids[0] if basis.group_ids else change.targets[0].group_id,
        operation=change.operation,
        supersedes=supersedes,
        summary32=text,
        cause=_cause(basis),
        polarity=change.polarity,
        reward=_reward(basis),
        tool_stats=_tool_stats(basis, rollouts),
        evidence=evidence,
        stamp_signature="",
        created_at=runtime.clock(),
    )
    return stamp_record(record, pack_stamp(runtime.pack))


def _proposals(change: Change) -> list[Proposal]:
    return [proposal for source in change.sources for proposal in source.sources]


def _cause(change: Change) -> str | None:
    """Of the first proposal that has one, or else of the first target."""
    causes = [each.cause for each in _proposals(change)] + [each.cause for each in change.targets]
    return next(filter(None, causes), None) if change.operation != "delete" else None


def _evidence(change: Change) -> tuple[str, ...]:
    """Rollouts of this batch, then those of the targets: a lesson that is rewritten keeps its support."""
    fresh = [name for proposal in _proposals(change) for name in proposal.evidence]
    kept = [name for record in change.targets for name in record.evidence]
    return tuple(dict.fromkeys(fresh + kept))


def _reward(change: Change) -> Reward:
    """Of the best attempt that the change rests on."""
    known = [(proposal.best_reward, proposal.best_rank) for proposal in _proposals(change)]
    known += [(record.reward.gt_score, record.reward.relative_rank) for record in change.targets]
    score, rank = max(known)
    return Reward(gt_score=score, relative_rank=rank)


def _tool_stats(change: Change, rollouts: Mapping[str, RolloutRecord]) -> tuple[ToolStat, ...]:
    """Summed over the evidence, each rollout once: targets that share rollouts with others add no statistics."""
    names = dict.fromkeys(name for proposal in _proposals(change) for name in proposal.evidence)
    stats: list[ToolStat | ToolMetricEvent] = []
    for name in filter(rollouts.__contains__, names):
        stats.extend(rollouts[name].tools)
    summed = set(names)
    for record in change.targets:
        if summed.isdisjoint(record.evidence):
            stats.extend(record.tool_stats)
            summed.update(record.evidence)
    return sum_by_tool(stats)


def sum_by_tool(stats: Iterable[ToolStat | ToolMetricEvent]) -> tuple[ToolStat, ...]:
    """Return one entry per tool, by name; one unknown cost makes the tool's cost unknown."""
    by_tool: dict[str, list[ToolStat | ToolMetricEvent]] = {}
    for stat in stats:
        by_tool.setdefault(stat.tool, []).append(stat)
    return tuple(
        ToolStat(
            tool=tool,
            tokens=sum(stat.tokens for stat in of_tool),
            latency_ms=sum(stat.latency_ms for stat in of_tool),
            cost_usd=add_costs(stat.cost_usd for stat in of_tool),
        )
        for tool, of_tool in sorted(by_tool.items())
    )
