"""Curate one batch: what each proposal means for the known lessons, and what recurs in the causes of the whole batch.

Every proposal confirms a known lesson, contradicts one, is new, or is useless. What the words alone decide is not asked. Its
results are support, which never takes a lesson out of a prompt or adds one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.tree import MAX_PROPOSALS, MOST_REMEMBERED
from tfgrpo.prompt_packs.safety import Prompts, Rejection, said_by_itself
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.experiences.credit import Said, Word
from tfgrpo.stores.experiences.store import (
    ExperienceRecord,
    LessonWords,
    Operation,
    Polarity,
    Reward,
    ToolStat,
    lesson_words,
    same_lesson,
    stamp_record,
)
from tfgrpo.stores.json_values import canonical_json, sha256_hex
from tfgrpo.stores.metrics import ToolUse
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs import CallKey
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.learning.ask import CURATION, RECURRING, SECOND, AnswerT, ClassAnswer, Question, Spend, ask, screen_or_shorten
from tfgrpo.tasks.learning.credit import KnownLesson
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import Contrast, GroupResult, Proposal

CurationOutcome: TypeAlias = Literal["confirmed", "contradicted", "new", "useless"]
# What may name an added lesson comes last.
_ORDER: Final = ("merge", "new", "confirms", "contradicts", "useless")
_USELESS: Final = "useless"
_UNUSED: Final = "not taken up"
_NO_ADVICE: Final = "no advice about the work, by a second reading"
# How often a text was turned down before it is turned down unasked, unless several groups say it.
_SETTLED: Final = 3
_MAX_CAUSES: Final = 200
_SIGNS: Final[Mapping[str, float]] = {"helped": 1.0, "misled": -1.0}
# By the number of lessons that a text is in place of; the last for two and more.
_OPERATIONS: Final[tuple[Operation, ...]] = ("add", "modify", "merge")
_ID_DIGITS: Final = 24
_NO_CONTRAST: Final = Contrast("", "", 0, (), 0.0, 0.0, 0.0)
# In place of the item in the keys of calls about a batch.
_WHOLE_BATCH: Final = "batch"


class ProposedLesson(NamedTuple):
    """One lesson as several groups proposed it, in the words of the group with the widest spread."""

    text: str
    polarity: Polarity
    sources: tuple[Proposal, ...]

    @property
    def support(self) -> float:
        """Number of groups that proposed it; one in which all attempts fail counts half."""
        return sum({each.contrast.group_id: each.contrast.amount for each in self.sources}.values())


def merge_proposals(proposals: Iterable[Proposal]) -> list[ProposedLesson]:
    """Return candidates, best supported first; the order in which groups came back does not matter.

    A proposal joins the first candidate of its polarity that says the same.
    """
    clusters: list[tuple[LessonWords, list[Proposal]]] = []
    order = attrgetter("contrast.item_id", "contrast.group_id", "contrast.number", "polarity", "text")
    for proposal in sorted(proposals, key=lambda each: (-each.contrast.spread, order(each))):
        words = lesson_words(proposal.text)
        for first, cluster in clusters:
            if cluster[0].polarity == proposal.polarity and same_lesson(first, words):
                cluster.append(proposal)
                break
        else:
            clusters.append((words, [proposal]))
    candidates = (ProposedLesson(each[0].text, each[0].polarity, tuple(each)) for _, each in clusters)
    return sorted(candidates, key=lambda candidate: -candidate.support)


@dataclass(frozen=True, slots=True)
class CurationInput:
    """One batch to be curated."""

    epoch: int
    batch: int
    groups: tuple[GroupResult, ...]
    known: Mapping[str, KnownLesson]
    items: Mapping[str, Item]
    """Items of the batch by id, whose answers and words no lesson may repeat."""
    rejected_before: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationResult:
    """What one curation decided."""

    records: tuple[ExperienceRecord, ...] = ()
    words: tuple[Word, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    memory: Mapping[str, int]
    """Rejected texts with how often they were, the newest last, for the next curation."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Proposals by what became of them: confirmed, contradicted, new, or useless, which is turned down for any reason."""
    asked: int
    """Questions about the batch."""
    lost: int
    """Those of them without a usable answer; of curation the deterministic rule decided then."""
    spend: Spend
    """What stopped it, if anything: no decision was made then, and the batch can be curated again."""
    refused: Mapping[str, int] = field(default_factory=dict)


async def curate_batch(batch: CurationInput, runtime: Runtime) -> CurationResult:
    """Decide on the proposals of a batch. Only cancellation is raised; see ``spend`` of the result."""
    return await _Curation(batch, runtime).decide()


class _Curation:
    def __init__(self, batch: CurationInput, runtime: Runtime) -> None:
        self.batch, self.runtime, self.spend = batch, runtime, Spend()
        self._groups = sorted(batch.groups, key=lambda each: (each.key.item, each.group_id))
        self._rollouts = {rollout.rollout_id: rollout for group in self._groups for rollout in group.rollouts}
        self._prompts = tuple(item.prompt for item in batch.items.values())
        # What items share is no secret of one of them.
        systems = [item.system_prompt for item in batch.items.values() if not item.foreign]
        self._ordinary = "\n".join((*runtime.pack.bodies.values(), *(each for each, n in Counter(systems).items() if n > 1)))
        # Known lessons by label, with those of this batch.
        self._lessons = {f"L{number}": each.record for number, each in enumerate(batch.known.values(), start=1)}
        self._opposites = {name: set(each.opposites) for name, each in batch.known.items()}
        self._candidates: dict[str, ProposedLesson] = {}
        # The lesson that says what a proposal or a replaced lesson says, by its label.
        self._speaks: dict[str, ExperienceRecord] = {}
        self._outcome: dict[str, CurationOutcome] = {}
        self._records, self._words = list[ExperienceRecord](), list[Word]()
        self._rejected: dict[str, str] = {}
        self._noted: set[tuple[object, ...]] = set()
        self._refused: Counter[str] = Counter()
        self._questions = self._unanswered = self._shortened = 0

    async def decide(self) -> CurationResult:
        """Find what recurs, settle what the words tell, and ask the model about the rest."""
        proposals = [proposal for group in self._groups for proposal in group.proposals] + await self._recurring()
        self._candidates = {f"P{number}": each for number, each in enumerate(merge_proposals(proposals), start=1)}
        labels = list(self._candidates)
        for label in labels[MAX_PROPOSALS:]:
            self._turn_down(label, f"not among the {MAX_PROPOSALS} best supported")
        unsettled = [label for label in labels[:MAX_PROPOSALS] if not await self._settle(label)]
        size = self.runtime.context.settings.model.curation_size
        for turn, first in enumerate(range(0, len(unsettled), size)):
            if not self.spend.stopped:
                await self._ask_about(unsettled[first : first + size], turn)
        for label in unsettled:
            # A lesson of this batch may say it by now.
            if label not in self._outcome and not await self._settle(label):
                self._turn_down(label, _UNUSED)
        if not self.spend.stopped:
            await self._read_again()
        for each in (judgement for group in self._groups for judgement in group.judgements):
            if each.experience_id in self.batch.known and each.judgement != "unused":
                amount = _SIGNS[each.judgement] * each.weight * each.contrast.amount
                self._note(self.batch.known[each.experience_id].record, each.judgement, amount, each.contrast)
        return self._result()

    def _result(self) -> CurationResult:
        before = self.batch.rejected_before
        if self.spend.stopped:
            return CurationResult(memory=before, asked=self._questions, lost=self._unanswered, spend=self.spend)
        counts: Counter[str] = Counter()
        for label, outcome in self._outcome.items():
            counts[outcome] += len(self._candidates[label].sources)
        # How often texts were turned down for what they say, without those that a lesson says by now.
        memory = {text: times for text, times in before.items() if not self._same_words(text)}
        turned_down = (text for text, reason in self._rejected.items() if reason in {_USELESS, _UNUSED})
        memory |= {text: before.get(text, 0) + 1 for text in turned_down}
        return CurationResult(
            records=tuple(self._records),
            words=tuple(self._words),
            rejected=tuple(self._rejected.items()),
            memory=dict(list(memory.items())[-MOST_REMEMBERED:]),
            counts=dict(counts),
            asked=self._questions,
            lost=self._unanswered,
            spend=self.spend,
            refused=self._refused,
        )

    async def _ask(self, question: Question[AnswerT], role: str, turn: int, payload: Mapping[str, object]) -> AnswerT | None:
        answer = await ask(question, self._key(role, turn), payload, self.runtime, self.spend)
        if not self.spend.stopped:
            self._questions += 1
            self._unanswered += answer is None
        return answer

    async def _recurring(self) -> list[Proposal]:
        """Ask what recurs in the causes of at least two groups; each lesson is proposed by every group that it names."""
        contrasts = [each for group in self._groups for each in group.contrasts if each.cause]
        contrasts = sorted(contrasts, key=lambda each: -each.spread)[:_MAX_CAUSES]
        groups = dict.fromkeys(each.group_id for each in contrasts)
        if len(groups) < 2:
            return []
        labels = {group_id: f"G{number}" for number, group_id in enumerate(groups, start=1)}
        causes = [{"group": labels[each.group_id], "cause": each.cause} for each in contrasts]
        most = self.runtime.context.settings.tfgrpo.LESSONS_PER_GROUP
        payload = {"causes": causes, "max_lessons": most, "max_words": self.runtime.pack.max_words}
        answer = await self._ask(RECURRING, "reflect", 0, payload)
        proposals: list[Proposal] = []
        for lesson in answer.lessons[:most] if answer is not None else ():
            # Of several contrasts of a group the one with the widest spread, which is the first.
            named = {each.group_id: each for each in reversed(contrasts) if labels[each.group_id] in lesson.groups}
            if len(named) < 2:
                self._rejected.setdefault(lesson.text, "recurs in fewer than two groups")
            elif text := await self._screened(lesson.text, lesson.polarity, tuple(named.values())):
                proposals += [Proposal(text, lesson.polarity, each, "recurs") for each in named.values()]
        return proposals

    async def _read_again(self) -> None:
        """Drop what is no advice about the work by its text alone. Without an answer, and of a simulated model, all stay."""
        if not self._records or self.runtime.context.models.simulated:
            return
        labels = {f"N{number}": each for number, each in enumerate(self._records, start=1)}
        lessons = [{"id": name, "polarity": each.polarity, "text": each.summary32} for name, each in labels.items()]
        answer = await self._ask(SECOND, "second", 0, {"work": self.runtime.pack.manifest.domain, "lessons": lessons})
        dropped = {labels[name].experience_id for name in answer.refused if name in labels} if answer else set()
        for each in (each for each in self._records if each.experience_id in dropped):
            self._rejected.setdefault(each.summary32, _NO_ADVICE)
        for label, lesson in self._speaks.items():
            if label in self._outcome and lesson.experience_id in dropped:
                self._outcome[label] = "useless"
        self._records = [each for each in self._records if each.experience_id not in dropped]
        self._words = [each for each in self._words if dropped.isdisjoint({each.experience_id, each.opposite})]

    async def _settle(self, label: str) -> bool:
        candidate = self._candidates[label]
        same = self._same_words(candidate.text)
        if same:
            agreeing = [each for each in same if each.polarity == candidate.polarity]
            opposed = [each for each in same if each.polarity != candidate.polarity]
            self._speak([label], *await self._lesson_for([label], agreeing, opposed), opposed)
        elif (
            len({each.contrast.group_id for each in candidate.sources}) < 2
            and self.batch.rejected_before.get(candidate.text, 0) >= _SETTLED
        ):
            self._turn_down(label, _USELESS)
        return label in self._outcome

    async def _ask_about(self, labels: Sequence[str], turn: int) -> None:
        """Ask about as many proposals as a reply has room for; without a usable answer the best supported are new."""
        proposals = [
            {"id": label, "polarity": each.polarity, "text": each.text, "support": each.support}
            for label, each in self._candidates.items()
            if label in labels
        ]
        payload = {
            "known": [self._shown(label, record) for label, record in self._lessons.items()],
            "proposals": proposals,
            "rejected_before": dict(self.batch.rejected_before),
            "max_words": self.runtime.pack.max_words,
        }
        answer = await self._ask(CURATION, "curate", turn, payload)
        if self.spend.stopped:
            return
        if answer is None:
            for label in labels[: self.runtime.pack.manifest.experience_slots]:
                self._speak([label], *await self._lesson_for([label]))
            for label in (each for each in labels if each not in self._outcome):
                self._turn_down(label, "no usable answer")
            return
        for one in sorted(answer.answers, key=lambda each: _ORDER.index(each.class_)):
            if reason := await self._carry_out(one):
                self._rejected.setdefault(one.text or ", ".join(one.proposals), f"{one.class_}: {reason}")

    def _shown(self, label: str, record: ExperienceRecord) -> dict[str, object]:
        shown: dict[str, object] = {"id": label, "polarity": record.polarity, "text": record.summary32}
        shown |= {"cause": record.cause} if record.cause else {}
        lesson = self.batch.known.get(record.experience_id)
        # Of one that this batch taught there are no figures yet.
        if lesson is None:
            return shown
        shown |= {"for": lesson.groups_for, "against": lesson.groups_against, "nights": lesson.nights}
        effect = lesson.effect.interval(lesson.attempts)
        points = f"{effect.estimate:+.1f} points ({effect.low:+.1f} … {effect.high:+.1f})"
        return shown | ({"effect": f"{points}, {pluralize(lesson.attempts, 'attempt')}"} if lesson.attempts else {})

    async def _carry_out(self, answer: ClassAnswer) -> str:
        # Why it may not be carried out is returned, and an empty text otherwise.
        unknown = [label for label in answer.proposals if label not in self._candidates]
        unknown += [label for label in answer.targets if label not in self._lessons and label not in self._speaks]
        if unknown:
            return f"unknown {', '.join(unknown)}"
        still_open = [label for label in dict.fromkeys(answer.proposals) if label not in self._outcome]
        named = [self._lessons.get(label) or self._speaks[label] for label in answer.targets]
        targets = list({each.experience_id: each for each in named}.values())
        if answer.class_ in {"new", "merge"}:
            return await self._write(answer, still_open, targets)
        if answer.class_ == "useless":
            for label in still_open:
                self._turn_down(label, _USELESS)
        elif not targets or not answer.proposals:
            return f"names no {'proposal' if targets else 'lesson'}"
        elif answer.class_ == "confirms":
            self._speak(still_open, *await self._lesson_for(still_open, targets))
        else:
            agreeing = [self._speaks[label] for label in answer.proposals if label in self._speaks]
            self._speak(answer.proposals, *await self._lesson_for(answer.proposals, agreeing, targets), targets)
        return ""

    async def _write(self, answer: ClassAnswer, labels: Sequence[str], targets: Sequence[ExperienceRecord]) -> str:
        if answer.class_ == "merge" and len(targets) < 2:
            return "takes at least two lessons"
        if answer.class_ == "new" and not labels:
            return "names no open proposal"
        polarity = answer.polarity or (self._candidates[labels[0]] if labels else targets[0]).polarity
        if any(target.polarity != polarity for target in targets):
            return "changes the direction of a lesson"
        if not answer.text.strip():
            return "no text"
        self._speak(labels, *await self._made(labels, polarity, answer.text, targets))
        return ""

    async def _lesson_for(
        self, labels: Sequence[str], agreeing: Sequence[ExperienceRecord] = (), opposed: Sequence[ExperienceRecord] = ()
    ) -> tuple[ExperienceRecord | None, Said]:
        """Return the strongest lesson that agrees, else the known opposite of those opposed, else one of the first's words."""
        if lesson := self._strongest(agreeing or self._opposites_of(opposed)):
            return lesson, "confirmed"
        first = self._candidates[labels[0]]
        return await self._made(labels, first.polarity, first.text)

    def _speak(
        self, labels: Sequence[str], lesson: ExperienceRecord | None, kind: Said, opposed: Sequence[ExperienceRecord] = ()
    ) -> None:
        """Note that proposals speak for a lesson, and against those opposed and the known opposites of that lesson."""
        for label in labels if lesson or opposed else ():
            self._outcome.setdefault(label, "contradicted" if opposed else "new" if kind == "taught" else "confirmed")
            if lesson is not None:
                self._speaks.setdefault(label, lesson)
        against = {each.experience_id: each for each in (*opposed, *(self._opposites_of([lesson]) if lesson else ()))}
        name = None if lesson is None else lesson.experience_id
        for source in self._sources(labels):
            amount = source.contrast.amount
            if lesson is not None:
                self._note(lesson, "recurs" if source.said == "recurs" else kind, amount, source.contrast)
            for other in (each for each in against.values() if each is not lesson):
                self._note(other, "contradicted", -amount, source.contrast, name)

    async def _made(
        self, labels: Sequence[str], polarity: Polarity, text: str, targets: Sequence[ExperienceRecord] = ()
    ) -> tuple[ExperienceRecord | None, Said]:
        """Return None for a text that may not be stored. A text that a known lesson has is that lesson."""
        sources = self._sources(labels)
        screened = await self._screened(text, polarity, [source.contrast for source in sources])
        if screened is None:
            self._refused[self._rejected[text].partition(":")[0]] += len(sources)
            return None, "confirmed"
        unchanged = [each.summary32 for each in targets] == [screened]
        same = [each for each in self._same_words(screened) if unchanged or each not in targets]
        if lesson := self._strongest([each for each in same if each.polarity == polarity]):
            return lesson, "confirmed"
        lesson = optimize_experience(self._record(screened, polarity, sources, targets))
        if lesson is None:
            self._rejected.setdefault(screened, "its best attempt is in the worse half of its group")
            return None, "confirmed"
        self._records.append(lesson)
        label = f"L{len(self.batch.known) + len(self._records)}"
        replaced = {name: lesson for name, each in (self._lessons | self._speaks).items() if each in targets}
        self._speaks |= replaced
        self._lessons = {name: each for name, each in self._lessons.items() if name not in replaced} | {label: lesson}
        links = {name for each in targets for name in self._opposites.get(each.experience_id, ())}
        self._opposites[lesson.experience_id] = links | {each.experience_id for each in same}
        if targets:  # so that later nights know of it, also if no contrast speaks for it
            self._note(lesson, "confirmed", 0.0, _NO_CONTRAST)
        return lesson, "confirmed" if targets else "taught"

    def _record(
        self, text: str, polarity: Polarity, sources: Sequence[Proposal], targets: Sequence[ExperienceRecord]
    ) -> ExperienceRecord:
        batch, context, manifest = self.batch, self.runtime.context, self.runtime.pack.manifest
        contrasts = [source.contrast for source in sources]
        fresh = dict.fromkeys(name for contrast in contrasts for name in contrast.evidence)
        # A lesson that is reworded keeps its evidence.
        evidence = tuple(dict.fromkeys([*fresh, *(name for target in targets for name in target.evidence)]))
        operation, supersedes = _OPERATIONS[min(len(targets), 2)], tuple(sorted(each.experience_id for each in targets))
        # A digest of content and origin: the same lesson of the same run has the same id in every replay.
        origin = [context.settings.task_id, context.run_id, batch.epoch, batch.batch]
        identity = canonical_json([*origin, operation, polarity, text, list(supersedes), list(evidence)])
        rewards = [(contrast.best_reward, contrast.best_rank) for contrast in contrasts]
        rewards += [(target.reward.gt_score, target.reward.relative_rank) for target in targets]
        score, rank = max(rewards)
        causes = [*(contrast.cause for contrast in contrasts), *(target.cause for target in targets)]
        uses = [each.use for name in fresh if name in self._rollouts for each in self._rollouts[name].tools]
        summed, names = set(fresh), ToolStat.model_fields
        for target in targets:
            if summed.isdisjoint(target.evidence):  # each rollout once
                uses += (ToolUse(**each.model_dump()) for each in target.tool_stats)
                summed.update(target.evidence)
        record = ExperienceRecord(
            experience_id=f"exp-{sha256_hex(identity)[:_ID_DIGITS]}",
            run_id=context.run_id,
            task_id=context.settings.task_id,
            domain=manifest.domain,
            pack_id=manifest.id,
            tags=manifest.tags,
            epoch=batch.epoch,
            batch=batch.batch,
            group_id=contrasts[0].group_id if contrasts else targets[0].group_id,
            operation=operation,
            supersedes=supersedes,
            summary32=text,
            cause=next(filter(None, causes), None),
            polarity=polarity,
            reward=Reward(gt_score=score, relative_rank=rank),
            tool_stats=tuple(ToolStat(**{name: getattr(use, name) for name in names}) for use in ToolUse.by_tool(uses)),
            evidence=evidence,
            stamp_signature="",
            created_at=self.runtime.clock(),
        )
        return stamp_record(record, pack_stamp(self.runtime.pack))

    def _note(
        self, lesson: ExperienceRecord, kind: Said, amount: float, contrast: Contrast, opposite: str | None = None
    ) -> None:
        """Note a word of a contrast. What it says twice of a lesson counts once; a second opposite is noted all the same."""
        name = lesson.experience_id
        if opposite is not None:
            self._opposites[name].add(opposite)
        of_group = (name, amount > 0.0, contrast.group_id)
        key = of_group if kind == "recurs" else (*of_group, contrast.number)
        if key in self._noted:
            if opposite is None or (name, opposite) in self._noted:
                return
            amount = 0.0
        self._noted |= {of_group, (*of_group, contrast.number), (name, opposite)}
        context, item = self.runtime.context, self.batch.items.get(contrast.item_id)
        word = Word(
            run_id=context.run_id,
            night=context.settings.tfgrpo.night or 0,
            experience_id=name,
            said=kind,
            amount=amount,
            opposite=opposite,
            epoch=self.batch.epoch,
            batch=self.batch.batch,
            group_id=contrast.group_id,
            contrast=contrast.number,
            item_id=contrast.item_id,
            # An item that dictates a lesson is no witness for it.
            foreign=item is not None and (item.foreign or said_by_itself(lesson.summary32, item.prompt, self._ordinary)),
            why=contrast.cause,
            simulated=context.models.simulated,
            created_at=self.runtime.clock(),
        )
        self._words.append(word.named())

    def _turn_down(self, label: str, reason: str) -> None:
        self._outcome[label] = "useless"
        self._rejected.setdefault(self._candidates[label].text, reason)

    async def _screened(self, text: str, polarity: Polarity, contrasts: Iterable[Contrast]) -> str | None:
        names = dict.fromkeys(contrast.item_id for contrast in contrasts)
        items = [self.batch.items[name] for name in names if name in self.batch.items]
        self._shortened += 1
        screened = await screen_or_shorten(
            text,
            polarity=polarity,
            answers=[answer for item in items for answer in item.accepted],
            prompts=Prompts(tuple(item.prompt for item in items), self._prompts, self._ordinary),
            key=self._key("shorten", self._shortened),
            runtime=self.runtime,
            spend=self.spend,
        )
        if isinstance(screened, Rejection):
            self._rejected.setdefault(text, screened.reason)
            return None
        return screened

    def _sources(self, labels: Sequence[str]) -> list[Proposal]:
        return [source for label in labels for source in self._candidates[label].sources]

    def _same_words(self, text: str) -> list[ExperienceRecord]:
        words = lesson_words(text)
        return [each for each in self._lessons.values() if same_lesson(words, lesson_words(each.summary32))]

    def _opposites_of(self, lessons: Sequence[ExperienceRecord]) -> list[ExperienceRecord]:
        links, names = self._opposites, {each.experience_id for each in lessons}
        # A link may be known from either end.
        links_back = {other for name in names for other in links[name]}
        return [
            each for each in self._lessons.values() if links[each.experience_id] & names or each.experience_id in links_back
        ]

    def _strongest(self, lessons: Sequence[ExperienceRecord]) -> ExperienceRecord | None:
        net = {name: each.net for name, each in self.batch.known.items()}
        return max(lessons, key=lambda each: net.get(each.experience_id, 0.0), default=None)

    def _key(self, role: str, turn: int) -> CallKey:
        group = GroupKey(self.batch.epoch, "train", "group", self.batch.batch, _WHOLE_BATCH)
        return CallKey(group, rollout=0, turn=turn, role=role)


class ExperiencePolicy(NamedTuple):
    """Thresholds of a lesson's evidence: the least reward of its best attempt, and its least rank in its group."""

    # Any reward: where all attempts fail, the reference answer teaches. What the worse half did is no evidence.
    min_reward: float = -math.inf
    min_rank: float = 0.5


_POLICY: Final = ExperiencePolicy()


def optimize_experience(record: ExperienceRecord, policy: ExperiencePolicy = _POLICY) -> ExperienceRecord | None:
    """Return the record if its evidence reaches both thresholds, before it is written; else None."""
    reward = record.reward
    weak = reward.gt_score < policy.min_reward or reward.relative_rank < policy.min_rank
    return None if weak else record
