"""Ask the model for operations on the library, check each, and make records of those that are accepted.

Without a usable answer a rule adds the best-supported lessons instead. ``curate`` says what learning rules 4 add.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.prompt_packs.safety import Rejection
from tfgrpo.stores.experiences.accounts import Account, AccountEvent
from tfgrpo.stores.experiences.record import ExperienceRecord, support_of
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import (
    OPERATIONS,
    ClassedAnswer,
    OperationAnswer,
    Spend,
    ask,
    screen_or_shorten,
)
from tfgrpo.tasks.learning.operations import (
    ORDER,
    Change,
    LibraryDraft,
    Limits,
    RejectedLesson,
    optimize_experience,
    record_of,
)
from tfgrpo.tasks.learning.similarity import Candidate, lesson_words, same_lesson
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupResult

_MAX_REMEMBERED = 50
"""Rejected texts that the next curation is shown."""
UNUSED = "not taken up"
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
    rejected_before: Mapping[str, int] = field(default_factory=dict)
    """``memory`` of the curation before."""
    accounts: Mapping[str, Account] = field(default_factory=dict)
    """Of the known lessons, by id."""
    effects: Mapping[str, str] = field(default_factory=dict)
    """Measured effects of lessons in words, by id."""
    alternatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further reference answers by item id."""
    families: Mapping[str, str] = field(default_factory=dict)
    """Domains of the batch's items by item id, as far as the dataset names them."""


@dataclass(frozen=True, slots=True)
class CurationResult:
    """What one curation decided."""

    records: tuple[ExperienceRecord, ...]
    """Stamped, in the order in which they are to be applied."""
    rejected: tuple[tuple[str, str], ...]
    """Texts of proposals and operations that were not accepted, with the reason."""
    memory: Mapping[str, int]
    """Rejected texts with how often they were, the newest last, for the next curation."""
    asked: int
    """Questions to the curating model."""
    lost: int
    """Those of them without a usable answer, for which the deterministic rule decided."""
    spend: Spend
    """What stopped it, if anything: no decision was made then, and the batch can be curated again."""
    events: tuple[AccountEvent, ...] = ()
    """What the batch says of lessons, known and new ones."""


def limits_for(settings: LearningSettings, slots: int, epoch: int) -> Limits:
    """Return the limits of one curation; the edit budget is in proportion to the learning epochs left, this one included."""
    learning = settings.epochs - 1  # the last epoch is the sweep
    left = max(1, learning - epoch + 1)
    return Limits(
        capacity=math.ceil(slots * settings.capacity_factor),
        edit_budget=max(1, math.ceil(settings.edit_budget * left / learning)),
        per_group=settings.lessons_per_group,
    )


class Curation:
    """One curation under way."""

    def __init__(self, batch: CurationInput, candidates: Sequence[Candidate], runtime: Runtime) -> None:
        self.batch = batch
        self.runtime = runtime
        self._settings = runtime.context.settings.tfgrpo
        limits = limits_for(self._settings, runtime.pack.manifest.experience_slots, batch.epoch)
        accounts = None if runtime.context.rules < 4 else batch.accounts
        self.draft = LibraryDraft(batch.library, candidates, limits, accounts)
        self._first_rules = runtime.context.rules < 2
        self._asked = self._lost = self._shortened = 0
        self.records: list[ExperienceRecord] = []
        self.rejected: list[RejectedLesson] = []
        self.spend = Spend()
        self._rollouts = {rollout.rollout_id: rollout for group in batch.groups for rollout in group.rollouts}

    async def decide(self) -> None:
        """Ask the model about all proposals."""
        await self.ask_about(list(self.draft.candidates))

    async def ask_about(self, labels: Sequence[str]) -> None:
        """Ask about as many proposals at once as a reply has room for, the best supported ones first."""
        size = self.runtime.context.settings.model.curation_size
        step = max(1, len(labels) if self._first_rules else size)
        for number, first in enumerate(range(0, len(labels), step)):
            if self.stopped or self.draft.edits_left < 1:
                return
            done = len(self.records)
            await self._decide_on(labels[first : first + step], number)
            self.draft.settle(self.records[done:])

    async def _decide_on(self, labels: Sequence[str], number: int) -> None:
        key, payload = self._key("curate", number), self.payload(labels)
        operations = await self.answer(key, payload)
        if self.stopped:
            return
        self._asked += 1
        if operations is None:
            self._lost += 1
            operations = self._additions(labels)
        for operation in sorted(operations, key=lambda each: ORDER.index(each.op)):
            rejected = await self.carry_out(operation)
            if rejected is not None:
                self.rejected.append(rejected)

    async def answer(
        self, key: CallKey, payload: Mapping[str, object]
    ) -> Sequence[OperationAnswer | ClassedAnswer] | None:
        """Ask the model one question and return its operations; None without a usable answer."""
        answer = await ask(OPERATIONS, key, payload, self.runtime, self.spend)
        return None if answer is None else answer.operations

    async def carry_out(self, operation: OperationAnswer | ClassedAnswer) -> RejectedLesson | None:
        """Carry out one operation of an answer; return why it may not be."""
        plain = OperationAnswer.model_validate(operation.model_dump(by_alias=True))
        change = self.draft.resolve(plain)
        return await self.apply(change) if isinstance(change, Change) else change

    def result(self, rejected: Sequence[RejectedLesson]) -> CurationResult:
        """Return what was decided; ``rejected`` is what never came up for a decision."""
        stopped = self.stopped
        unused = [RejectedLesson(each.text, UNUSED, each.polarity) for each in self.draft.unused()]
        first_reasons: dict[str, str] = {}
        for text, reason in self._unconfirmed([*self.rejected, *unused]):
            first_reasons.setdefault(text, reason)
        every = (*self._unconfirmed(rejected), *first_reasons.items())
        return CurationResult(
            records=() if stopped else tuple(self.records),
            rejected=() if stopped else every,
            memory=self.batch.rejected_before if stopped else self.memory(every),
            asked=self._asked,
            lost=self._lost,
            spend=self.spend,
            events=() if stopped else self.events(),
        )

    def events(self) -> tuple[AccountEvent, ...]:
        """Return events of accounts; none before learning rules 4."""
        return ()

    def _unconfirmed(self, rejected: Sequence[RejectedLesson]) -> list[tuple[str, str]]:
        """Texts and reasons without those that agree with a lesson: they confirm it."""
        confirms = self.draft.confirms
        return [
            (each.text, each.reason)
            for each in rejected
            if self._first_rules or not each.polarity or not confirms(each.polarity, each.text)
        ]

    def memory(self, rejected: Sequence[tuple[str, str]]) -> dict[str, int]:
        """Rejected texts, newest last, without those that are in the library by now."""
        before = self.batch.rejected_before
        if not self._first_rules:
            lessons = [lesson_words(record.summary32) for record in self.draft.library.values()]
            before = {
                text: times
                for text, times in before.items()
                if not any(same_lesson(lesson_words(text), lesson) for lesson in lessons)
            }
        texts = dict(before) | {text: before.get(text, 0) + 1 for text, _ in rejected if text}
        return dict(list(texts.items())[-_MAX_REMEMBERED:])

    @property
    def stopped(self) -> bool:
        """Whether nothing can be decided any more."""
        return self.spend.budget_refused is not None or self.spend.fatal is not None

    def payload(self, labels: Sequence[str]) -> dict[str, object]:
        """Return what the model is asked about these proposals."""
        library = [
            {"id": label, "polarity": record.polarity, "text": record.summary32, "support": support_of(record)}
            for label, record in self.draft.library.items()
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
            "rejected_before": list(self.batch.rejected_before),
            "capacity": self.draft.limits.capacity,
            "edit_budget": self.draft.edits_left,
            "max_words": self.runtime.max_words,
        }

    def _additions(self, labels: Sequence[str]) -> list[OperationAnswer]:
        """The rule in place of an answer: add the candidates in the order of their support."""
        return [
            OperationAnswer(op="add", **{"from": [label]}, polarity=candidate.polarity, text=candidate.text)
            for label, candidate in self._labelled(labels)
        ]

    def _labelled(self, labels: Sequence[str]) -> list[tuple[str, Candidate]]:
        return [(label, self.draft.candidates[label]) for label in labels]

    async def apply(self, change: Change) -> RejectedLesson | None:
        """Screen, shorten and accept a change; return why it may not be accepted."""
        reversal = "" if self._first_rules else self.draft.reversal_error(change)
        if reversal:
            return RejectedLesson(change.text, f"{change.operation}: {reversal}", change.polarity)
        text = change.text
        if change.operation != "delete":
            self._shortened += 1
            key = self._key("shorten", self._shortened)
            screened = await screen_or_shorten(
                text,
                polarity=change.polarity,
                answers=self._answers(change),
                key=key,
                runtime=self.runtime,
                spend=self.spend,
            )
            if isinstance(screened, Rejection):
                return RejectedLesson(text, f"{change.operation}: {screened.reason}", change.polarity)
            text = screened.text
        batch = self.batch
        record = record_of(change, text, self.runtime, epoch=batch.epoch, batch=batch.batch, rollouts=self._rollouts)
        # Proposals that count nothing yet need no reward.
        unconfirmed = all(each.unconfirmed for source in change.sources for each in source.sources)
        rejected = optimize_experience(record, self._settings, unconfirmed=unconfirmed and bool(change.sources))
        rejected = rejected or self.draft.accept(change, text)
        if rejected is None:
            self.records.append(record)
            self.accepted(change, record)
        return rejected

    def accepted(self, change: Change, record: ExperienceRecord) -> None:
        """Take note of an accepted change."""

    def _answers(self, change: Change) -> list[str]:
        items = dict.fromkeys(proposal.item_id for source in change.sources for proposal in source.sources)
        batch = self.batch
        return [
            text for item in items for text in (batch.answers.get(item, ""), *batch.alternatives.get(item, ())) if text
        ]

    def _key(self, role: str, turn: int) -> CallKey:
        batch = self.batch
        group = GroupKey(batch.epoch, "train", "train", batch.batch, _WHOLE_BATCH)
        return CallKey(group, rollout=0, turn=turn, role=role)
