"""Curate one batch: merge its proposals, decide on each, return records and events of accounts for the caller to write.

Every proposal confirms a known lesson, contradicts one, is new, or is useless. What the words tell is not asked. A
contradiction counts against its lesson whether or not its own lesson is taken in, and a confirmation counts against the
known opposites of its lesson.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tfgrpo.pipelines.settings.learning import MAX_PROPOSALS, LearningSettings
from tfgrpo.stores.experiences.accounts import AccountEvent, EventKind
from tfgrpo.stores.experiences.record import ExperienceRecord, support_of
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import CURATION, ClassedAnswer, OperationAnswer, ask
from tfgrpo.tasks.learning.curation import UNUSED, Curation, CurationInput, CurationResult
from tfgrpo.tasks.learning.operations import Change, RejectedLesson, optimize_experience
from tfgrpo.tasks.learning.similarity import Candidate, lesson_words, merge_proposals, same_lesson
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import LessonJudgement, Proposal

_CLASSES: Final = frozenset({"keep", "confirm", "contradict", "useless"})
_USELESS: Final = "useless"
_SETTLED: Final = 3
"""How often a text was turned down before it is turned down unasked, unless several groups say it."""


async def curate_batch(batch: CurationInput, runtime: Runtime) -> CurationResult:
    """Decide on the proposals of a batch. Only cancellation is raised; see ``spend`` of the result."""
    settings = runtime.context.settings.tfgrpo
    proposals = [proposal for group in batch.groups for proposal in group.proposals]
    candidates, rejected = _eligible(proposals, settings)
    curation = (Curation if runtime.context.rules < 4 else SignedCuration)(batch, candidates, runtime)
    await curation.decide()
    return curation.result(rejected)


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


class SignedCuration(Curation):
    """One curation under way, with events of accounts: from learning rules 4 on."""

    def __init__(self, batch: CurationInput, candidates: Sequence[Candidate], runtime: Runtime) -> None:
        super().__init__(batch, candidates, runtime)
        self._noted: dict[tuple[str | None, ...], dict[int, AccountEvent]] = {}
        """What a group says of a lesson, by the contrast that says it."""
        self._speaks: dict[str, ExperienceRecord] = {}
        """The lesson that says what a proposal says, by the proposal's label."""
        self._all_failed = {each.group_id for group in batch.groups for each in group.proposals if each.unconfirmed}
        """Groups whose attempts all failed: what they say counts nothing."""

    async def decide(self) -> None:
        """Settle what the words tell, and ask the model about the rest."""
        known = {record.experience_id for record in self.batch.library}
        for group in self.batch.groups:
            for each in group.judgements:
                if each.experience_id in known:
                    said = {(group.group_id, each.contrast): group.key.item}
                    self._note(each.experience_id, "judged", said, judged=each, weight=each.weight)
        await self.ask_about([label for label in self.draft.candidates if not await self._settled(label)])

    async def answer(self, key: CallKey, payload: Mapping[str, object]) -> Sequence[ClassedAnswer] | None:
        """Ask for classes and operations."""
        answer = await ask(CURATION, key, payload, self.runtime, self.spend)
        return None if answer is None else answer.operations

    def events(self) -> tuple[AccountEvent, ...]:
        """Return what was noted, in that order."""
        return tuple(
            replace(next(iter(said.values())), weight=sum(each.weight for each in said.values())).named()
            for said in self._noted.values()
        )

    def payload(self, labels: Sequence[str]) -> dict[str, object]:
        """Return the question, with the accounts of the lessons and how often texts were turned down."""
        asked = super().payload(labels)
        return asked | {
            "library": [self._shown(label, record) for label, record in self.draft.library.items()],
            "rejected_before": dict(self.batch.rejected_before),
        }

    def memory(self, rejected: Sequence[tuple[str, str]]) -> dict[str, int]:
        """Remember what was turned down for what it says, not for want of room or evidence."""
        return super().memory([(text, reason) for text, reason in rejected if reason in {_USELESS, UNUSED}])

    async def carry_out(self, operation: OperationAnswer | ClassedAnswer) -> RejectedLesson | None:
        """Carry out an operation or a class; a reversal that may not be is a contradiction."""
        if operation.op in _CLASSES:
            return await self._class(operation)
        return await super().carry_out(operation)

    async def apply(self, change: Change) -> RejectedLesson | None:
        """Apply a change, or take it as the contradiction that it is."""
        if not self.draft.reversal_error(change):
            return await super().apply(change)
        turned = [record for record in change.targets if record.polarity != change.polarity]
        labels = [label for label, candidate in self.draft.candidates.items() if candidate in change.basis.sources]
        return await self._say(labels, [], turned) if labels else RejectedLesson(change.text, "rests on no proposal")

    def accepted(self, change: Change, record: ExperienceRecord) -> None:
        """Note what taught the lesson, and against what it speaks."""
        groups = _groups(change.basis.sources)
        if record.operation == "delete":
            self._note(record.experience_id, "retired", {("", 0): ""})
            return
        self._note(record.experience_id, "taught", groups or {("", 0): ""}, weight=1.0 if groups else 0.0)
        self._speaks |= {label: record for label, each in self.draft.candidates.items() if each in change.sources}
        turned = [target for target in change.targets if target.polarity != record.polarity]
        for other in [*turned, *self._same_words(record.summary32)]:
            if other.polarity != record.polarity:
                self._note(other.experience_id, "contradicted", groups, opposite=record, why=record.summary32)

    async def _settled(self, label: str) -> bool:
        """Settle a proposal by its words, if they tell enough."""
        candidate = self.draft.candidates[label]
        same = self._same_words(candidate.text)
        if same:
            agreeing = [record for record in same if record.polarity == candidate.polarity]
            rejected = await self._say([label], agreeing, [record for record in same if record not in agreeing])
        elif candidate.support < 2 and self.batch.rejected_before.get(candidate.text, 0) >= _SETTLED:
            self.draft.take([label])
            rejected = RejectedLesson(candidate.text, _USELESS, candidate.polarity)
        else:
            return False
        if rejected is not None:
            self.rejected.append(rejected)
        return True

    async def _class(self, answer: OperationAnswer | ClassedAnswer) -> RejectedLesson | None:
        unknown = [label for label in answer.sources if label not in self.draft.candidates]
        unknown += [label for label in answer.targets if label not in self.draft.library and label not in self._speaks]
        if unknown or not (answer.targets or answer.op == _USELESS):
            reason = f"unknown {', '.join(unknown)}" if unknown else "names no lesson"
            return RejectedLesson(answer.text, f"{answer.op}: {reason}", answer.polarity)
        targets = [self.draft.library.get(label) or self._speaks[label] for label in answer.targets]
        sources = [label for label in answer.sources if label not in self._speaks]
        if answer.op == "contradict":
            agreeing = [self._speaks[label] for label in answer.sources if label in self._speaks]
            return await self._say(answer.sources, agreeing, targets)
        if answer.op != _USELESS:
            return await self._say(sources, targets, [])
        self.draft.take(sources)
        useless = [self.draft.candidates[label] for label in sources]
        self.rejected.extend(RejectedLesson(each.text, _USELESS, each.polarity) for each in useless)
        return None

    async def _say(
        self, labels: Sequence[str], agreeing: Sequence[ExperienceRecord], opposed: Sequence[ExperienceRecord]
    ) -> RejectedLesson | None:
        """Note that proposals agree with some known lessons and contradict others.

        A contradiction without a lesson of its own confirms the known opposite, or its words become a lesson.
        """
        sources = [self.draft.candidates[label] for label in labels]
        if not sources:
            return None
        self.draft.take(labels)
        rejected = None
        speaker = self._strongest([*agreeing, *([] if agreeing else self._opposites(opposed))])
        if speaker is None:
            rejected = await self._add(sources)
            speaker = self._speaks.get(labels[0])
        else:
            self._speaks |= dict.fromkeys(labels, speaker)
            self._note(speaker.experience_id, "confirmed", _groups(sources), why=sources[0].text)
        against = [*opposed, *([] if speaker is None else self._opposites([speaker]))]
        for record in against:
            if speaker is None or record.experience_id != speaker.experience_id:
                self._note(
                    record.experience_id, "contradicted", _groups(sources), opposite=speaker, why=sources[0].text
                )
        return rejected

    async def _add(self, sources: Sequence[Candidate]) -> RejectedLesson | None:
        best = sources[0]
        if self.draft.edits_left < 1:
            return RejectedLesson(best.text, "add: over the edit budget", best.polarity)
        return await super().apply(Change("add", (), tuple(sources), best.polarity, best.text))

    def _same_words(self, text: str) -> list[ExperienceRecord]:
        """Lessons, those of this batch included, with the words of a text."""
        words = lesson_words(text)
        lessons = {each.experience_id: each for each in (*self.draft.kept.values(), *self.records) if each.summary32}
        return [each for each in lessons.values() if same_lesson(words, lesson_words(each.summary32))]

    def _note(
        self,
        experience_id: str,
        kind: EventKind,
        groups: Mapping[tuple[str, int], str],
        *,
        opposite: ExperienceRecord | None = None,
        judged: LessonJudgement | None = None,
        weight: float = 1.0,
        why: str = "",
    ) -> None:
        """Note one event for each group. ``groups`` maps their ids, each with a contrast, to the ids of their items."""
        batch, context = self.batch, self.runtime.context
        for (group, contrast), item in groups.items():
            event = AccountEvent(
                experience_id=experience_id,
                kind=kind,
                judgement=None if judged is None else judged.judgement,
                opposite=None if opposite is None else opposite.experience_id,
                weight=0.0 if group in self._all_failed else weight,
                run_id=context.run_id,
                simulated=context.models.simulated,
                night=context.settings.tfgrpo.night or 0,
                epoch=batch.epoch,
                batch=batch.batch,
                group_id=group,
                family=batch.families.get(item, ""),
                why=why if judged is None else judged.why,
                created_at=self.runtime.clock(),
            )
            said = self._noted.setdefault((experience_id, kind, event.judgement, event.opposite, group), {})
            said.setdefault(contrast, event)  # what one contrast says twice counts once

    def _opposites(self, records: Sequence[ExperienceRecord]) -> list[ExperienceRecord]:
        """Known lessons that contradict any of these, by their accounts."""
        accounts = self.batch.accounts
        of_these = [accounts[each.experience_id] for each in records if each.experience_id in accounts]
        return [
            record
            for record in self.draft.kept.values()
            if any(accounts[record.experience_id].opposes(one) for one in of_these if record.experience_id in accounts)
        ]

    def _strongest(self, records: Sequence[ExperienceRecord]) -> ExperienceRecord | None:
        accounts = self.batch.accounts
        return max(
            records,
            key=lambda each: accounts[each.experience_id].net if each.experience_id in accounts else 0.0,
            default=None,
        )

    def _shown(self, label: str, record: ExperienceRecord) -> dict[str, object]:
        account = self.batch.accounts.get(record.experience_id)
        shown: dict[str, object] = {"id": label, "polarity": record.polarity, "text": record.summary32}
        shown |= {"cause": record.cause} if record.cause else {}
        if account is None:  # added by a part of this batch
            return shown | {"for": support_of(record), "against": 0, "nights": 0}
        shown |= {"for": account.in_favour, "against": account.against, "nights": account.age}
        shown |= {"families": list(account.families)} if account.families else {}
        effect = self.batch.effects.get(record.experience_id)
        return shown | ({"effect": effect} if effect else {})


def _groups(sources: Sequence[Candidate]) -> dict[tuple[str, int], str]:
    """Return the groups and contrasts behind proposals, with their items."""
    return {(each.group_id, each.contrast): each.item_id for source in sources for each in source.sources}
