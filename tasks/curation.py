"""What does a batch change in the library? Proposals are merged, put to one model call, and each answer is checked.

When no usable answer comes, a rule adds the best-supported lessons instead. It returns records and writes none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.settings_learning import LearningSettings
from stores.experience_store import support_of
from stores.journal import CallKey
from stores.models import ExperienceRecord
from tasks.answers import OPERATIONS, OperationAnswer, OperationsAnswer
from tasks.asking import Question, Spend, ask
from tasks.merging import Candidate, merge_proposals
from tasks.operations import Change, Limits, Refusal, Workbench, in_order
from tasks.optimize import LessonPolicy, optimize_experience
from tasks.recording import Origin, record_of
from tasks.runtime import Runtime
from tasks.shapes import GroupResult, Proposal, ReflectionFailure
from tasks.wording import accept_wording

_MOST_CANDIDATES = 80
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
    failure: ReflectionFailure | None
    """Why no usable answer came."""
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
    if candidates:
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


def _eligible(
    proposals: Sequence[Proposal], policy: LessonPolicy
) -> tuple[tuple[Candidate, ...], list[tuple[str, str]]]:
    """Candidates above the thresholds, best supported first, and the texts left out."""
    verdicts = [(proposal, optimize_experience(proposal, policy)) for proposal in proposals]
    rejected = sorted((proposal.text, verdict.reason) for proposal, verdict in verdicts if not verdict.accepted)
    candidates = merge_proposals(proposal for proposal, verdict in verdicts if verdict.accepted)
    beyond = candidates[_MOST_CANDIDATES:]
    rejected += [(candidate.text, f"not among the {_MOST_CANDIDATES} best supported") for candidate in beyond]
    return candidates[:_MOST_CANDIDATES], rejected


class _Curation:
    """One curation under way."""

    def __init__(self, batch: CurationInput, candidates: Sequence[Candidate], runtime: Runtime) -> None:
        settings = runtime.context.settings.tfgrpo
        self._batch = batch
        self._runtime = runtime
        self._policy = LessonPolicy.of(settings)
        self._limits = limits_for(settings, runtime.pack.manifest.experience_slots, batch.epoch)
        self._library = {f"L{number}": record for number, record in enumerate(batch.library, start=1)}
        self._candidates = {f"P{number}": candidate for number, candidate in enumerate(candidates, start=1)}
        self._bench = Workbench(self._library, self._candidates, self._limits)
        self._records: list[ExperienceRecord] = []
        self._refused: list[Refusal] = []
        self._spend = Spend()
        self._turn = 0
        self._rule_used = False
        rollouts = {rollout.rollout_id: rollout for group in batch.groups for rollout in group.rollouts}
        self._origin = Origin(batch.epoch, batch.batch, rollouts)

    async def decide(self) -> None:
        question = Question(self._key("curate"), "curate", self._payload(), OPERATIONS, OperationsAnswer)
        answer = await ask(question, self._runtime, self._spend)
        if answer is not None:
            await self._apply(answer.operations)
        elif not self._stopped:
            self._rule_used = True
            await self._apply_rule()

    def result(self, rejected: Sequence[tuple[str, str]]) -> CurationResult:
        spend, stopped = self._spend, self._stopped
        refused = [(refusal.text, refusal.reason) for refusal in self._refused]
        left = [(candidate.text, "not taken up") for candidate in self._bench.unused()]
        every = (*rejected, *_first_reason(refused + left))
        return CurationResult(
            records=() if stopped else tuple(self._records),
            rejected=() if stopped else every,
            memory=self._batch.rejected_before if stopped else _remember(self._batch.rejected_before, every),
            rule_used=self._rule_used,
            failure=spend.failure,
            broken_calls=tuple(spend.broken),
            budget_refused=spend.budget_refused,
            fatal=spend.fatal,
        )

    @property
    def _stopped(self) -> bool:
        return self._spend.budget_refused is not None or self._spend.fatal is not None

    def _payload(self) -> dict[str, object]:
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
                for label, candidate in self._candidates.items()
            ],
            "rejected_before": list(self._batch.rejected_before),
            "capacity": self._limits.capacity,
            "edit_budget": self._limits.edit_budget,
            "max_words": self._runtime.max_words,
        }

    async def _apply(self, operations: Sequence[OperationAnswer]) -> None:
        for operation in in_order(operations):
            change = self._bench.resolve(operation)
            if isinstance(change, Refusal):
                self._refused.append(change)
            elif change is not None:
                await self._enter(change)

    async def _apply_rule(self) -> None:
        """Add the candidates in the order of their support, as far as the limits allow."""
        await self._apply(
            [
                OperationAnswer(op="add", **{"from": [label]}, polarity=candidate.polarity, text=candidate.text)
                for label, candidate in self._candidates.items()
            ]
        )

    async def _enter(self, change: Change) -> None:
        text = change.text
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
                self._refused.append(Refusal(wording.text, f"{change.operation}: {wording.reason}"))
                return
            text = wording.text
        record = record_of(change, text, self._origin, self._runtime)
        verdict = optimize_experience(record, self._policy)
        refusal = self._bench.accept(change, text) if verdict.accepted else Refusal(text, verdict.reason)
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


def _remember(before: Sequence[str], rejected: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    texts = [text for text, _ in rejected if text]
    return tuple(dict.fromkeys([*before, *texts]))[-_MEMORY:]
