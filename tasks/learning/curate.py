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
from typing import Final, Literal, TypeAlias

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
from tfgrpo.tasks.learning.ask import CURATION, RECURRING, SECOND, ClassAnswer, Spend, ask, screen_or_shorten
from tfgrpo.tasks.learning.credit import KnownLesson
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import Contrast, GroupResult, Proposal

CurationOutcome: TypeAlias = Literal["confirmed", "contradicted", "new", "useless"]
_ORDER: Final = ("merge", "new", "confirms", "contradicts", "useless")
"""What may name an added lesson comes last."""
_USELESS: Final = "useless"
_UNUSED: Final = "not taken up"
_NO_ADVICE: Final = "no advice about the work, by a second reading"
_SETTLED: Final = 3
"""How often a text was turned down before it is turned down unasked, unless several groups say it."""
_MAX_CAUSES: Final = 200
_SIGNS: Final[Mapping[str, float]] = {"helped": 1.0, "misled": -1.0}
_OPERATIONS: Final[tuple[Operation, ...]] = ("add", "modify", "merge")
"""By the number of lessons that a text is in place of; the last for two and more."""
_ID_DIGITS: Final = 24
_NO_CONTRAST: Final = Contrast("", "", 0, (), 0.0, 0.0, 0.0)
_WHOLE_BATCH: Final = "batch"
"""In place of the item in the keys of calls about a batch."""


@dataclass(frozen=True, slots=True)
class ProposedLesson:
    """One lesson as several groups proposed it, in the words of the group with the widest spread."""

    sources: tuple[Proposal, ...]

    @property
    def text(self) -> str:
        """Its wording."""
        return self.sources[0].text

    @property
    def polarity(self) -> Polarity:
        """That of all its sources."""
        return self.sources[0].polarity

    @property
    def support(self) -> float:
        """Number of groups that proposed it; one in which all attempts fail counts half."""
        return sum({each.contrast.group_id: each.contrast.amount for each in self.sources}.values())

    @property
    def group_ids(self) -> tuple[str, ...]:
        """Groups that proposed it, the one with the widest spread first."""
        return tuple(dict.fromkeys(proposal.contrast.group_id for proposal in self.sources))


def merge_proposals(proposals: Iterable[Proposal]) -> tuple[ProposedLesson, ...]:
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
    candidates = (ProposedLesson(tuple(cluster)) for _, cluster in clusters)
    return tuple(sorted(candidates, key=lambda candidate: -candidate.support))


@dataclass(frozen=True, slots=True)
class CurationInput:
    """One batch to be curated."""

    epoch: int
    batch: int
    groups: tuple[GroupResult, ...]
    """Groups of the batch, in any order."""
    known: Mapping[str, KnownLesson]
    items: Mapping[str, Item]
    """Items of the batch by id, whose answers and words no lesson may repeat."""
    rejected_before: Mapping[str, int] = field(default_factory=dict)
    """``memory`` of the curation before."""


@dataclass(frozen=True, slots=True)
class CurationResult:
    """What one curation decided."""

    records: tuple[ExperienceRecord, ...]
    """Stamped, in the order in which they were made."""
    words: tuple[Word, ...]
    rejected: tuple[tuple[str, str], ...]
    memory: Mapping[str, int]
    """Rejected texts with how often they were, the newest last, for the next curation."""
    counts: Mapping[str, int]
    """Proposals by what became of them: confirmed, contradicted, new, or useless, which is turned down for any reason."""
    asked: int
    """Questions about the batch."""
    lost: int
    """Those of them without a usable answer; of curation the deterministic rule decided then."""
    spend: Spend
    """What stopped it, if anything: no decision was made then, and the batch can be curated again."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Proposals that the screening refused, by reason."""


async def curate_batch(batch: CurationInput, runtime: Runtime) -> CurationResult:
    """Decide on the proposals of a batch. Only cancellation is raised; see ``spend`` of the result."""
    curation = _Curation(batch, runtime)
    await curation.decide()
    return curation.result()


class _Curation:
    def __init__(self, batch: CurationInput, runtime: Runtime) -> None:
        self.batch = batch
        self.runtime = runtime
        self.spend = Spend()
        self._groups = sorted(batch.groups, key=lambda each: (each.key.item, each.group_id))
        self._rollouts = {rollout.rollout_id: rollout for group in self._groups for rollout in group.rollouts}
        self._prompts = tuple(item.prompt for item in batch.items.values())
        systems = [item.system_prompt for item in batch.items.values() if not item.foreign]
        self._ordinary = "\n".join((*runtime.pack.bodies.values(), *(each for each, n in Counter(systems).items() if n > 1)))
        self._lessons = {f"L{number}": each.record for number, each in enumerate(batch.known.values(), start=1)}
        """Known lessons by label, with those of this batch."""
        self._opposites = {name: set(each.opposites) for name, each in batch.known.items()}
        self._candidates: dict[str, ProposedLesson] = {}
        self._speaks: dict[str, ExperienceRecord] = {}
        """The lesson that says what a proposal or a replaced lesson says, by its label."""
        self._outcome: dict[str, CurationOutcome] = {}
        self._records: list[ExperienceRecord] = []
        self._rejected: dict[str, str] = {}
        self._words: list[Word] = []
        self._said: set[tuple[object, ...]] = set()
        self._refused: Counter[str] = Counter()
        self._asked = self._lost = self._shortened = 0

    async def decide(self) -> None:
        """Find what recurs, settle what the words tell, and ask the model about the rest."""
        proposals = [proposal for group in self._groups for proposal in group.proposals] + await self._recurring()
        candidates = merge_proposals(proposals)
        self._candidates = {f"P{number}": each for number, each in enumerate(candidates, start=1)}
        labels = list(self._candidates)
        for label in labels[MAX_PROPOSALS:]:
            self._turn_down(label, f"not among the {MAX_PROPOSALS} best supported")
        asked = [label for label in labels[:MAX_PROPOSALS] if not await self._settle(label)]
        size = self.runtime.context.settings.model.curation_size
        for number, first in enumerate(range(0, len(asked), size)):
            if not self.spend.stopped:
                await self._ask_about(asked[first : first + size], number)
        for label in asked:
            if label not in self._outcome and not await self._settle(label):  # a lesson of this batch may say it by now
                self._turn_down(label, _UNUSED)
        if not self.spend.stopped:
            await self._read_again()
        for each in (judgement for group in self._groups for judgement in group.judgements):
            if each.experience_id in self.batch.known and each.judgement != "unused":
                amount = _SIGNS[each.judgement] * each.weight * each.contrast.amount
                self._note(self.batch.known[each.experience_id].record, each.judgement, amount, each.contrast)

    def result(self) -> CurationResult:
        if self.spend.stopped:
            return CurationResult((), (), (), self.batch.rejected_before, {}, self._asked, self._lost, self.spend)
        counts: Counter[str] = Counter()
        for label, outcome in self._outcome.items():
            counts[outcome] += len(self._candidates[label].sources)
        # How often texts were turned down for what they say, without those that a lesson says by now.
        before, rejected = self.batch.rejected_before, tuple(self._rejected.items())
        memory = {text: times for text, times in before.items() if not self._same_words(text)}
        memory |= {text: before.get(text, 0) + 1 for text, reason in rejected if reason in {_USELESS, _UNUSED}}
        memory = dict(list(memory.items())[-MOST_REMEMBERED:])
        said = tuple(self._records), tuple(self._words)
        return CurationResult(*said, rejected, memory, dict(counts), self._asked, self._lost, self.spend, self._refused)

    def _count(self, answer: object) -> None:
        if not self.spend.stopped:
            self._asked += 1
            self._lost += answer is None

    async def _recurring(self) -> list[Proposal]:
        """Ask what recurs in the causes of at least two groups; each lesson is proposed by every group that it names."""
        contrasts = [each for group in self._groups for each in group.contrasts if each.cause]
        contrasts = sorted(contrasts, key=lambda each: -each.spread)[:_MAX_CAUSES]
        groups = dict.fromkeys(each.group_id for each in contrasts)
        if len(groups) < 2:
            return []
        labels = {group_id: f"G{number}" for number, group_id in enumerate(groups, start=1)}
        most = self.runtime.context.settings.tfgrpo.LESSONS_PER_GROUP
        payload = {
            "causes": [{"group": labels[each.group_id], "cause": each.cause} for each in contrasts],
            "max_lessons": most,
            "max_words": self.runtime.max_words,
        }
        answer = await ask(RECURRING, self._key("reflect", 0), payload, self.runtime, self.spend)
        self._count(answer)
        proposals: list[Proposal] = []
        for lesson in answer.lessons[:most] if answer is not None else ():
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
        payload = {"work": self.runtime.pack.manifest.domain, "lessons": lessons}
        answer = await ask(SECOND, self._key("second", 0), payload, self.runtime, self.spend)
        self._count(answer)
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
            await self._say([label], agreeing, [each for each in same if each not in agreeing])
        elif len(candidate.group_ids) < 2 and self.batch.rejected_before.get(candidate.text, 0) >= _SETTLED:
            self._turn_down(label, _USELESS)
        return label in self._outcome

    async def _ask_about(self, labels: Sequence[str], number: int) -> None:
        """Ask about as many proposals as a reply has room for; without a usable answer the best supported are new."""
        proposals = [(label, self._candidates[label]) for label in labels]
        payload = {
            "known": [self._shown(label, record) for label, record in self._lessons.items()],
            "proposals": [
                {"id": label, "polarity": each.polarity, "text": each.text, "support": each.support}
                for label, each in proposals
            ],
            "rejected_before": dict(self.batch.rejected_before),
            "max_words": self.runtime.max_words,
        }
        answer = await ask(CURATION, self._key("curate", number), payload, self.runtime, self.spend)
        self._count(answer)
        if self.spend.stopped:
            return
        if answer is None:
            for label in labels[: self.runtime.pack.manifest.experience_slots]:
                await self._say([label])
            for label in labels:
                if label not in self._outcome:
                    self._turn_down(label, "no usable answer")
            return
        for one in sorted(answer.answers, key=lambda each: _ORDER.index(each.class_)):
            if reason := await self._carry_out(one):
                self._rejected.setdefault(one.text or ", ".join(one.proposals), f"{one.class_}: {reason}")

    def _shown(self, label: str, record: ExperienceRecord) -> dict[str, object]:
        """Return what the curator sees of a lesson; of one that this batch taught there are no figures yet."""
        shown: dict[str, object] = {"id": label, "polarity": record.polarity, "text": record.summary32}
        shown |= {"cause": record.cause} if record.cause else {}
        lesson = self.batch.known.get(record.experience_id)
        if lesson is None:
            return shown
        shown |= {"for": lesson.groups_for, "against": lesson.groups_against, "nights": lesson.nights}
        effect = lesson.effect.interval(lesson.attempts)
        points = f"{effect.estimate:+.1f} points ({effect.low:+.1f} … {effect.high:+.1f})"
        return shown | ({"effect": f"{points}, {pluralize(lesson.attempts, 'attempt')}"} if lesson.attempts else {})

    async def _carry_out(self, answer: ClassAnswer) -> str:
        """Carry out one answer. Return why it may not be, or an empty text."""
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
            await self._say(still_open, targets)
        else:
            agreeing = [self._speaks[label] for label in answer.proposals if label in self._speaks]
            await self._say(answer.proposals, agreeing, targets)
        return ""

    async def _write(self, answer: ClassAnswer, labels: Sequence[str], targets: Sequence[ExperienceRecord]) -> str:
        """Make a lesson of an answer's text, in place of known lessons of its direction. Return why it may not be."""
        if answer.class_ == "merge" and len(targets) < 2:
            return "takes at least two lessons"
        if answer.class_ == "new" and not labels:
            return "names no open proposal"
        polarity = answer.polarity or (self._candidates[labels[0]] if labels else targets[0]).polarity
        if any(target.polarity != polarity for target in targets):
            return "changes the direction of a lesson"
        if not answer.text.strip():
            return "no text"
        await self._say(labels, text=answer.text, polarity=polarity, targets=targets)
        return ""

    async def _say(
        self,
        labels: Sequence[str],
        agreeing: Sequence[ExperienceRecord] = (),
        opposed: Sequence[ExperienceRecord] = (),
        *,
        text: str = "",
        polarity: Polarity = "do",
        targets: Sequence[ExperienceRecord] = (),
    ) -> None:
        """Note that proposals speak for a lesson, and against those opposed and the known opposites of that lesson.

        They speak for the strongest that agrees; else for one that is made of the text, in place of the targets; without a
        text for the known opposite of those opposed, else for one that is made of their words.
        """
        sources = [source for label in labels for source in self._candidates[label].sources]
        said: Said = "confirmed"
        lesson = self._strongest(agreeing or ([] if text else self._opposites_of(opposed)))
        if lesson is None and (text or labels):
            if not text:
                text, polarity = self._candidates[labels[0]].text, self._candidates[labels[0]].polarity
            lesson, said = await self._made(sources, targets, polarity, text)
        for label in labels if lesson or opposed else ():
            self._outcome.setdefault(label, "contradicted" if opposed else "new" if said == "taught" else "confirmed")
            if lesson is not None:
                self._speaks.setdefault(label, lesson)
        against = [*opposed, *(self._opposites_of([lesson]) if lesson else ())]
        against = [each for each in {each.experience_id: each for each in against}.values() if each is not lesson]
        for source in sources:
            amount = source.contrast.amount
            if lesson is not None:
                self._note(lesson, "recurs" if source.said == "recurs" else said, amount, source.contrast)
            for other in against:
                self._note(other, "contradicted", -amount, source.contrast, None if lesson is None else lesson.experience_id)

    async def _made(
        self, sources: Sequence[Proposal], targets: Sequence[ExperienceRecord], polarity: Polarity, text: str
    ) -> tuple[ExperienceRecord | None, Said]:
        """Return None for a text that may not be stored. A text that a known lesson has is that lesson."""
        screened = await self._screened(text, polarity, [source.contrast for source in sources])
        if screened is None:
            self._refused[self._rejected[text].partition(":")[0]] += len(sources)
            return None, "confirmed"
        unchanged = [each.summary32 for each in targets] == [screened]
        same = [each for each in self._same_words(screened) if unchanged or each not in targets]
        if known := self._strongest([each for each in same if each.polarity == polarity]):
            return known, "confirmed"
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
        """Make the id a digest of content and origin: the same lesson of the same run has the same id in every replay."""
        batch, context, manifest = self.batch, self.runtime.context, self.runtime.pack.manifest
        contrasts = [source.contrast for source in sources]
        fresh = dict.fromkeys(name for contrast in contrasts for name in contrast.evidence)
        # A lesson that is reworded keeps its evidence.
        evidence = tuple(dict.fromkeys([*fresh, *(name for target in targets for name in target.evidence)]))
        operation, supersedes = _OPERATIONS[min(len(targets), 2)], tuple(sorted(each.experience_id for each in targets))
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
        self, lesson: ExperienceRecord, said: Said, amount: float, contrast: Contrast, opposite: str | None = None
    ) -> None:
        """Note a word of a contrast. What it says twice of a lesson counts once; a second opposite is noted all the same."""
        name = lesson.experience_id
        if opposite is not None:
            self._opposites[name].add(opposite)
        of_group = (name, amount > 0.0, contrast.group_id)
        key = of_group if said == "recurs" else (*of_group, contrast.number)
        if key in self._said:
            if opposite is None or (name, opposite) in self._said:
                return
            amount = 0.0
        self._said |= {of_group, (*of_group, contrast.number), (name, opposite)}
        context = self.runtime.context
        word = Word(
            run_id=context.run_id,
            night=context.settings.tfgrpo.night or 0,
            experience_id=name,
            said=said,
            amount=amount,
            opposite=opposite,
            epoch=self.batch.epoch,
            batch=self.batch.batch,
            group_id=contrast.group_id,
            contrast=contrast.number,
            item_id=contrast.item_id,
            foreign=self._no_witness(lesson, contrast.item_id),
            why=contrast.cause,
            simulated=context.models.simulated,
            created_at=self.runtime.clock(),
        )
        self._words.append(word.named())

    def _no_witness(self, lesson: ExperienceRecord, item_id: str) -> bool:
        item = self.batch.items.get(item_id)
        return item is not None and (item.foreign or said_by_itself(lesson.summary32, item.prompt, self._ordinary))

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
        return screened.text

    def _same_words(self, text: str) -> list[ExperienceRecord]:
        words = lesson_words(text)
        return [each for each in self._lessons.values() if same_lesson(words, lesson_words(each.summary32))]

    def _opposites_of(self, lessons: Sequence[ExperienceRecord]) -> list[ExperienceRecord]:
        links, names = self._opposites, {each.experience_id for each in lessons}
        return [
            each
            for each in self._lessons.values()
            if links[each.experience_id] & names or any(each.experience_id in links[name] for name in names)
        ]

    def _strongest(self, lessons: Sequence[ExperienceRecord]) -> ExperienceRecord | None:
        net = {name: each.net for name, each in self.batch.known.items()}
        return max(lessons, key=lambda each: net.get(each.experience_id, 0.0), default=None)

    def _key(self, role: str, turn: int) -> CallKey:
        group = GroupKey(self.batch.epoch, "train", "group", self.batch.batch, _WHOLE_BATCH)
        return CallKey(group, rollout=0, turn=turn, role=role)


@dataclass(frozen=True, slots=True)
class ExperiencePolicy:
    """Thresholds of a lesson's evidence."""

    min_reward: float = -math.inf
    """Least reward of its best attempt. Any: where all attempts fail, the reference answer teaches."""
    min_rank: float = 0.5
    """Least rank of its best attempt in its group: what the worse half did is no evidence."""


def optimize_experience(record: ExperienceRecord, policy: ExperiencePolicy = ExperiencePolicy()) -> ExperienceRecord | None:
    """Return the record if its evidence reaches both thresholds, before it is written; else None."""
    reward = record.reward
    weak = reward.gt_score < policy.min_reward or reward.relative_rank < policy.min_rank
    return None if weak else record
