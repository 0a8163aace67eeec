"""Curate one batch: merge its proposals, ask the model for operations on the library, check each, return records.

Without a usable answer a rule adds the best-supported lessons instead. The records are written by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfgrpo.pipelines.settings.learning import MAX_PROPOSALS, LearningSettings
from tfgrpo.prompt_packs.safety import Rejection
from tfgrpo.stores.experiences.record import ExperienceRecord, support_of
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import OPERATIONS, OperationAnswer, Spend, ask, screen_or_shorten
from tfgrpo.tasks.learning.operations import (
    ORDER,
    Change,
    LibraryDraft,
    Limits,
    RejectedLesson,
    optimize_experience,
    record_of,
    reversal_error,
)
from tfgrpo.tasks.learning.similarity import Candidate, lesson_words, merge_proposals, same_lesson
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupResult, Proposal

_MAX_REMEMBERED = 50
"""Rejected texts that the next curation is shown."""
_WHOLE_BATCH = "batch"
"""In place of the item in the keys of curation calls."""


@dataclass(frozen=True, slots=True)
class CurationInput:
    """One batch to be curated."""

    epoch: int
    batch: int
    groups: tuple[GroupResult, ...]
    """Groups of the batch, in any order."""
    library: tuple[ExperienceRecord, ...]
    """Entries of the library in force, in their stable order."""
    answers: Mapping[str, str]
    """Reference answers of the batch's items by item id, for the safety screen."""
    rejected_before: tuple[str, ...] = ()
    """``memory`` of the curation before."""


@dataclass(frozen=True, slots=True)
class CurationResult:
    """What one curation decided."""

    records: tuple[ExperienceRecord, ...]
    """Stamped, in the order in which they are to be applied."""
    rejected: tuple[tuple[str, str], ...]
    """Texts of proposals and operations that were not accepted, with the reason."""
    memory: tuple[str, ...]
    """Rejected texts, for the next curation."""
    asked: int
    """Questions to the curating model."""
    lost: int
    """Those of them without a usable answer, for which the deterministic rule decided."""
    spend: Spend
    """What stopped it, if anything: no decision was made then, and the batch can be curated again."""


async def curate_batch(batch: CurationInput, runtime: Runtime) -> CurationResult:
    """Decide on the proposals of a batch. Only cancellation is raised; see ``spend`` of the result."""
    settings = runtime.context.settings.tfgrpo
    proposals = [proposal for group in batch.groups for proposal in group.proposals]
    candidates, rejected = _eligible(proposals, settings)
    curation = _Curation(batch, candidates, runtime)
    await curation.decide()
    return curation.result(rejected)


def limits_for(settings: LearningSettings, slots: int, epoch: int) -> Limits:
    """Return the limits of one curation; the edit budget is in proportion to the learning epochs left, this one included."""
    learning = settings.epochs - 1  # the last epoch is the sweep
    left = max(1, learning - epoch + 1)
    return Limits(
        capacity=math.ceil(slots * settings.capacity_factor),
        edit_budget=max(1, math.ceil(settings.edit_budget * left / learning)),
        per_group=settings.lessons_per_group,
    )


def _eligible(
    proposals: Sequence[Proposal], settings: LearningSettings
) -> tuple[tuple[Candidate, ...], list[RejectedLesson]]:
    """Candidates above the thresholds, best supported first, and the rejected rest."""
    checks = [(proposal, optimize_experience(proposal, settings)) for proposal in proposals]
    below = [weak for _, weak in checks if weak is not None]
    below.sort(key=lambda each: (each.text, each.reason, each.polarity))
    candidates = merge_proposals(proposal for proposal, weak in checks if weak is None)
    reason = f"not among the {MAX_PROPOSALS} best supported"
    crowded_out = [RejectedLesson(each.text, reason, each.polarity) for each in candidates[MAX_PROPOSALS:]]
    return candidates[:MAX_PROPOSALS], below + crowded_out


class _Curation:
    """One curation under way."""

    def __init__(self, batch: CurationInput, candidates: Sequence[Candidate], runtime: Runtime) -> None:
        self._batch = batch
        self._runtime = runtime
        self._settings = runtime.context.settings.tfgrpo
        limits = limits_for(self._settings, runtime.pack.manifest.experience_slots, batch.epoch)
        self._draft = LibraryDraft(batch.library, candidates, limits)
        self._first_rules = runtime.context.rules < 2
        self._asked = self._lost = self._shortened = 0
        self._records: list[ExperienceRecord] = []
        self._rejected: list[RejectedLesson] = []
        self._spend = Spend()
        self._rollouts = {rollout.rollout_id: rollout for group in batch.groups for rollout in group.rollouts}

    async def decide(self) -> None:
        """Ask the model about the proposals, as many at once as a reply has room for, the best supported ones first."""
        labels = list(self._draft.candidates)
        size = self._runtime.context.settings.model.curation_size
        step = max(1, len(labels) if self._first_rules else size)
        for number, first in enumerate(range(0, len(labels), step)):
            if self._stopped or self._draft.edits_left < 1:
                return
            done = len(self._records)
            await self._decide_on(labels[first : first + step], number)
            self._draft.settle(self._records[done:])

    async def _decide_on(self, labels: Sequence[str], number: int) -> None:
        key, payload = self._key("curate", number), self._payload(labels)
        answer = await ask(OPERATIONS, key, payload, self._runtime, self._spend)
        if self._stopped:
            return
        self._asked += 1
        if answer is None:
            self._lost += 1
        operations = self._additions(labels) if answer is None else answer.operations
        for operation in sorted(operations, key=lambda each: ORDER.index(each.op)):
            change = self._draft.resolve(operation)
            rejected = await self._apply(change) if isinstance(change, Change) else change
            if rejected is not None:
                self._rejected.append(rejected)

    def result(self, rejected: Sequence[RejectedLesson]) -> CurationResult:
        stopped = self._stopped
        unused = [RejectedLesson(each.text, "not taken up", each.polarity) for each in self._draft.unused()]
        first_reasons: dict[str, str] = {}
        for text, reason in self._unconfirmed([*self._rejected, *unused]):
            first_reasons.setdefault(text, reason)
        every = (*self._unconfirmed(rejected), *first_reasons.items())
        return CurationResult(
            records=() if stopped else tuple(self._records),
            rejected=() if stopped else every,
            memory=self._batch.rejected_before if stopped else self._memory(every),
            asked=self._asked,
            lost=self._lost,
            spend=self._spend,
        )

    def _unconfirmed(self, rejected: Sequence[RejectedLesson]) -> list[tuple[str, str]]:
        """Texts and reasons without those that agree with a lesson: they confirm it."""
        confirms = self._draft.confirms
        return [
            (each.text, each.reason)
            for each in rejected
            if self._first_rules or not each.polarity or not confirms(each.polarity, each.text)
        ]

    def _memory(self, rejected: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Rejected texts, newest last, without those that are in the library by now."""
        before = self._batch.rejected_before
        if not self._first_rules:
            lessons = [lesson_words(record.summary32) for record in self._draft.library.values()]
            before = tuple(
                text for text in before if not any(same_lesson(lesson_words(text), lesson) for lesson in lessons)
            )
        return tuple(dict.fromkeys([*before, *(text for text, _ in rejected if text)]))[-_MAX_REMEMBERED:]

    @property
    def _stopped(self) -> bool:
        return self._spend.budget_refused is not None or self._spend.fatal is not None

    def _payload(self, labels: Sequence[str]) -> dict[str, object]:
        library = [
            {"id": label, "polarity": record.polarity, "text": record.summary32, "support": support_of(record)}
            for label, record in self._draft.library.items()
        ]
        proposals = [
            {
                "id": label,
                "polarity": candidate.polarity,
                "text": candidate.text,
                "support": candidate.support,
                "best_reward": candidate.best.best_reward,
            }
            for label, candidate in self._labelled(labels)
        ]
        return {
            "library": library,
            "proposals": proposals,
            "rejected_before": list(self._batch.rejected_before),
            "capacity": self._draft.limits.capacity,
            "edit_budget": self._draft.edits_left,
            "max_words": self._runtime.max_words,
        }

    def _additions(self, labels: Sequence[str]) -> list[OperationAnswer]:
        """The rule in place of an answer: add the candidates in the order of their support."""
        return [
            OperationAnswer(op="add", **{"from": [label]}, polarity=candidate.polarity, text=candidate.text)
            for label, candidate in self._labelled(labels)
        ]

    def _labelled(self, labels: Sequence[str]) -> list[tuple[str, Candidate]]:
        return [(label, self._draft.candidates[label]) for label in labels]

    async def _apply(self, change: Change) -> RejectedLesson | None:
        reversal = "" if self._first_rules else reversal_error(change)
        if reversal:
            return RejectedLesson(change.text, f"{change.operation}: {reversal}", change.polarity)
        text = change.text
        if change.operation != "delete":
            self._shortened += 1
            key = self._key("shorten", self._shortened)
            screened = await screen_or_shorten(
                text, answers=self._answers(change), key=key, runtime=self._runtime, spend=self._spend
            )
            if isinstance(screened, Rejection):
                return RejectedLesson(text, f"{change.operation}: {screened.reason}", change.polarity)
            text = screened.text
        batch = self._batch
        record = record_of(change, text, self._runtime, epoch=batch.epoch, batch=batch.batch, rollouts=self._rollouts)
        rejected = optimize_experience(record, self._settings) or self._draft.accept(change, text)
        if rejected is None:
            self._records.append(record)
        return rejected

    def _answers(self, change: Change) -> list[str]:
        items = dict.fromkeys(proposal.item_id for source in change.sources for proposal in source.sources)
        return [self._batch.answers[item] for item in items if self._batch.answers.get(item)]

    def _key(self, role: str, turn: int) -> CallKey:
        batch = self._batch
        group = GroupKey(batch.epoch, "train", "train", batch.batch, _WHOLE_BATCH)
        return CallKey(group, rollout=0, turn=turn, role=role)
