"""What does a batch change in the library? Proposals are merged, put to one model call, and each answer is checked.

When no usable answer comes, a rule adds the best-supported lessons instead. It returns records and writes none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfgrpo.pipelines.settings.learning import MAX_PROPOSALS, LearningSettings
from tfgrpo.stores.experiences.record import ExperienceRecord, support_of
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import Question, Spend, ask
from tfgrpo.tasks.learning.merge import Candidate, merge_proposals
from tfgrpo.tasks.learning.operations import Change, Labelled, Limits, Refusal, Workbench, in_order, reversal_fault
from tfgrpo.tasks.learning.record import Origin, record_of
from tfgrpo.tasks.learning.replies import OPERATIONS, OperationAnswer, OperationsAnswer
from tfgrpo.tasks.learning.similarity import alike, gist_of
from tfgrpo.tasks.learning.thresholds import LessonPolicy, optimize_experience
from tfgrpo.tasks.learning.wording import accept_wording
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupResult, Proposal, ReflectionFailure

_MEMORY = 50
"""Rejected texts that are remembered, newest last."""
_WHOLE_BATCH = "batch"
"""Stands for the item in the keys of curation calls."""


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
    """Rejected texts, to be shown to the next curation."""
    rule_used: bool
    """True when no usable answer came and the deterministic rule decided."""
    asked: int
    """Questions put to the curating model."""
    lost: int
    """Those of them that brought no usable answer."""
    failure: ReflectionFailure | None
    """Why the last of those brought none."""
    broken_calls: tuple[ReflectionFailure, ...]
    """Calls that brought no answer, to be recorded when the batch is accepted."""
    budget_refused: str | None
    """Set when the ledger refused a call: nothing was decided, and the batch can be curated again."""
    fatal: str | None
    """Set when the run cannot go on: nothing was decided."""


async def curate_batch(batch: CurationInput, runtime: Runtime) -> CurationResult:
    """Decide on the proposals of a batch. Raises nothing but cancellation; see the last fields of the result."""
    settings = runtime.context.settings.tfgrpo
    proposals = [proposal for group in batch.groups for proposal in group.proposals]
    candidates, rejected = _eligible(proposals, LessonPolicy.of(settings))
    curation = _Curation(batch, candidates, runtime)
    await curation.decide()
    return curation.result(rejected)


def limits_for(settings: LearningSettings, slots: int, epoch: int) -> Limits:
    """Limits of one curation; the edit budget is in proportion to the learning epochs left, this one included."""
    learning = settings.epochs - 1
    left = max(1, learning - epoch + 1)
    return Limits(
        capacity=math.ceil(slots * settings.capacity_factor),
        edit_budget=max(1, math.ceil(settings.edit_budget * left / learning)),
        per_group=settings.lessons_per_group,
    )


def _eligible(proposals: Sequence[Proposal], policy: LessonPolicy) -> tuple[tuple[Candidate, ...], list[Refusal]]:
    """Candidates above the thresholds, best supported first, and what is left out."""
    verdicts = [(proposal, optimize_experience(proposal, policy)) for proposal in proposals]
    refused = sorted(
        (proposal.text, verdict.reason, proposal.polarity) for proposal, verdict in verdicts if not verdict.accepted
    )
    rejected = [Refusal(*each) for each in refused]
    candidates = merge_proposals(proposal for proposal, verdict in verdicts if verdict.accepted)
    reason = f"not among the {MAX_PROPOSALS} best supported"
    rejected += [Refusal(candidate.text, reason, candidate.polarity) for candidate in candidates[MAX_PROPOSALS:]]
    return candidates[:MAX_PROPOSALS], rejected


class _Curation:
    """One curation under way."""

    def __init__(self, batch: CurationInput, candidates: Sequence[Candidate], runtime: Runtime) -> None:
        settings = runtime.context.settings.tfgrpo
        self._batch = batch
        self._runtime = runtime
        self._policy = LessonPolicy.of(settings)
        self._limits = limits_for(settings, runtime.pack.manifest.experience_slots, batch.epoch)
        self._library: Labelled = {f"L{number}": record for number, record in enumerate(batch.library, start=1)}
        self._candidates = {f"P{number}": candidate for number, candidate in enumerate(candidates, start=1)}
        self._bench = Workbench(self._library, self._candidates, self._limits)
        self._first_rules = runtime.context.rules < 2
        self._asked = self._lost = 0
        self._records: list[ExperienceRecord] = []
        self._refused: list[Refusal] = []
        self._spend = Spend()
        self._turn = 0
        rollouts = {rollout.rollout_id: rollout for group in batch.groups for rollout in group.rollouts}
        self._origin = Origin(batch.epoch, batch.batch, rollouts)

    async def decide(self) -> None:
        """Put the proposals to the model, as many at once as the reply has room for, the best supported ones first."""
        labels = list(self._candidates)
        size = self._runtime.context.settings.model.curation_size
        step = max(1, len(labels) if self._first_rules else size)
        for number, first in enumerate(range(0, len(labels), step)):
            if self._stopped or self._bench.edits_left < 1:
                return
            done = len(self._records)
            await self._decide_on(labels[first : first + step], number)
            self._library = self._bench.settle(self._records[done:])

    async def _decide_on(self, labels: Sequence[str], number: int) -> None:
        payload = self._payload(labels)
        question = Question(self._key("curate", number), "curate", payload, OPERATIONS, OperationsAnswer)
        answer = await ask(question, self._runtime, self._spend)
        if self._stopped:
            return
        self._asked += 1
        if answer is not None:
            await self._apply(answer.operations)
        else:
            self._lost += 1
            await self._apply_rule(labels)

    def result(self, rejected: Sequence[Refusal]) -> CurationResult:
        spend, stopped = self._spend, self._stopped
        left = [Refusal(candidate.text, "not taken up", candidate.polarity) for candidate in self._bench.unused()]
        every = [*self._turned_down(rejected), *_first_reason(self._turned_down([*self._refused, *left]))]
        return CurationResult(
            records=() if stopped else tuple(self._records),
            rejected=() if stopped else tuple(every),
            memory=self._batch.rejected_before if stopped else self._memory(every),
            rule_used=self._lost > 0,
            asked=self._asked,
            lost=self._lost,
            failure=spend.failure,
            broken_calls=tuple(spend.broken),
            budget_refused=spend.budget_refused,
            fatal=spend.fatal,
        )

    def _turned_down(self, refused: Sequence[Refusal]) -> list[tuple[str, str]]:
        """Texts and reasons of what was refused and does not confirm a lesson."""
        confirms = self._bench.confirms
        return [
            (each.text, each.reason)
            for each in refused
            if self._first_rules or not each.polarity or not confirms(each.polarity, each.text)
        ]

    def _memory(self, rejected: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Refused texts, newest last, without those that the library says by now."""
        before = self._batch.rejected_before
        if not self._first_rules:
            said = [gist_of(record.summary32) for record in self._library.values()]
            before = tuple(text for text in before if not any(alike(gist_of(text), gist) for gist in said))
        return tuple(dict.fromkeys([*before, *(text for text, _ in rejected if text)]))[-_MEMORY:]

    @property
    def _stopped(self) -> bool:
        return self._spend.budget_refused is not None or self._spend.fatal is not None

    def _payload(self, labels: Sequence[str]) -> dict[str, object]:
        return {
            "library": [
                {
                    "id": label,
                    "polarity": record.polarity,
                    "text": record.summary32,
                    "support": support_of(record),
                }
                for label, record in self._library.items()
            ],
            "proposals": [
                {
                    "id": label,
                    "polarity": candidate.polarity,
                    "text": candidate.text,
                    "support": candidate.support,
                    "best_reward": candidate.best.best_reward,
                }
                for label, candidate in ((label, self._candidates[label]) for label in labels)
            ],
            "rejected_before": list(self._batch.rejected_before),
            "capacity": self._limits.capacity,
            "edit_budget": self._bench.edits_left,
            "max_words": self._runtime.max_words,
        }

    async def _apply(self, operations: Sequence[OperationAnswer]) -> None:
        for operation in in_order(operations):
            change = self._bench.resolve(operation)
            if isinstance(change, Refusal):
                self._refused.append(change)
            elif change is not None:
                await self._enter(change)

    async def _apply_rule(self, labels: Sequence[str]) -> None:
        """Add the candidates in the order of their support, as far as the limits allow."""
        chosen = [(label, self._candidates[label]) for label in labels]
        await self._apply(
            [
                OperationAnswer(op="add", **{"from": [label]}, polarity=candidate.polarity, text=candidate.text)
                for label, candidate in chosen
            ]
        )

    async def _enter(self, change: Change) -> None:
        text = change.text
        fault = "" if self._first_rules else reversal_fault(change)
        if fault:
            self._refused.append(Refusal(text, f"{change.operation}: {fault}", change.polarity))
            return
        if change.operation != "delete":
            self._turn += 1
            wording = await accept_wording(
                change.text,
                answers=self._answers(change),
                key=self._key("shorten", self._turn),
                runtime=self._runtime,
                spend=self._spend,
            )
            if not wording.accepted:
                self._refused.append(Refusal(wording.text, f"{change.operation}: {wording.reason}", change.polarity))
                return
            text = wording.text
        record = record_of(change, text, self._origin, self._runtime)
        verdict = optimize_experience(record, self._policy)
        refusal = (
            self._bench.accept(change, text) if verdict.accepted else Refusal(text, verdict.reason, change.polarity)
        )
        if refusal is not None:
            self._refused.append(refusal)
        else:
            self._records.append(record)

    def _answers(self, change: Change) -> tuple[str, ...]:
        items = dict.fromkeys(proposal.item_id for source in change.sources for proposal in source.sources)
        return tuple(self._batch.answers[item] for item in items if self._batch.answers.get(item))

    def _key(self, role: str, turn: int = 0) -> CallKey:
        return CallKey(
            epoch=self._batch.epoch,
            arm="train",
            batch=self._batch.batch,
            item_id=_WHOLE_BATCH,
            rollout=0,
            turn=turn,
            role=role,
        )


def _first_reason(rejected: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """One line per text: the first reason is the one that decided."""
    reasons: dict[str, str] = {}
    for text, reason in rejected:
        reasons.setdefault(text, reason)
    return list(reasons.items())
