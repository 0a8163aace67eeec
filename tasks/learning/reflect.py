"""Reflect on one group: ask the learning model what separated good attempts from bad ones, and which lessons helped.

Returns proposals and judgements. What they change is decided by curation.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfgrpo.prompt_packs.safety import Rejection, attack_in
from tfgrpo.rewarders.advantages.group import best_first
from tfgrpo.rewarders.scorer import reference_text
from tfgrpo.stores.experiences.record import ExperienceRecord, Polarity
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.stores.text import clean_text, pluralize
from tfgrpo.tasks.learning.ask import (
    LESSONS,
    REFLECTION,
    LessonsAnswer,
    ReflectionAnswer,
    Spend,
    ask,
    screen_or_shorten,
)
from tfgrpo.tasks.learning.shown import grader_words, transcripts
from tfgrpo.tasks.learning.summarize import transcript_of
from tfgrpo.tasks.rollout import FinishedRollout
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupSpec, LessonJudgement, Proposal, ReflectionFailure

_ALL_TRANSCRIPTS_CHARS = 16_000
_MIN_TRANSCRIPT_CHARS = 1_000
_ACROSS = 0.5
"""Weight of a judgement on a lesson that only one of the contrasted attempts may have had."""


@dataclass(frozen=True, slots=True)
class RankedAttempt:
    """A scored attempt with its rank in the group."""

    rollout: FinishedRollout
    reward: float
    rank: float
    """1 best, 0 worst, ties share the mean."""
    scores: tuple[RewardScore, ...] = ()
    half: int = 0
    """Of a split group, by number: its attempts had one prompt."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """Attempts of one group that are held against each other."""

    spec: GroupSpec
    number: int
    """Among those of the group, from 0."""
    shown: tuple[RankedAttempt, ...]
    """Better ones first."""
    spread: float
    """Of the group's rewards; 0 if all failed."""
    most_lessons: int
    judges: float
    """Weight of what it says of a lesson in the prompts."""

    @property
    def key(self) -> CallKey:
        """That of the question about it."""
        return CallKey(self.spec.key, rollout=0, turn=self.number, role="reflect")

    def proposal(self, text: str, polarity: Polarity, cause: str) -> Proposal:
        """Return a lesson that follows from it."""
        return Proposal(
            text=text,
            polarity=polarity,
            group_id=self.spec.group_id,
            item_id=self.spec.item.id,
            evidence=tuple(attempt.rollout.rollout_id for attempt in self.shown),
            best_reward=self.shown[0].reward,
            best_rank=self.shown[0].rank,
            spread=self.spread,
            cause=cause,
            unconfirmed=not self.spread,
            contrast=self.number,
        )


@dataclass(frozen=True, slots=True)
class Reflection:
    """Result and cost of reflection on one group."""

    proposals: tuple[Proposal, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    """Texts that broke a rule, with the reason."""
    judgements: tuple[LessonJudgement, ...] = ()
    """Of lessons that the attempts were given."""
    spend: Spend = field(default_factory=Spend)


async def reflect_on_group(
    spec: GroupSpec, attempts: Sequence[RankedAttempt], spread: float, runtime: Runtime
) -> Reflection:
    """Contrast the attempts of an informative group. A call that fails is noted in the spend, never raised.

    Without a spread they all failed: they are held against the reference answer, and what comes of it is unconfirmed.
    """
    settings, spend = runtime.context.settings.tfgrpo, Spend()
    alike = runtime.context.rules > 5
    shown = contrasts_of(attempts, settings.reflection, alike=alike)
    limit = settings.lessons_of(len(shown))
    said: list[Reflection] = []
    lost: list[ReflectionFailure | None] = []
    for number, each in enumerate(shown):
        spend.failure = None
        # Any lesson seems to help where the half without lessons did worse, also one that does nothing.
        across = alike and each[0].half != each[-1].half
        contrast = Contrast(spec, number, each, spread, limit, _ACROSS if across else 1.0)
        said.append(await _reflect(contrast, runtime, spend))
        lost.append(spend.failure)
    spend.failure = lost[0] if all(lost) else None  # a contrast that fails costs only itself
    return Reflection(
        tuple(proposal for each in said for proposal in each.proposals),
        tuple(text for each in said for text in each.rejected),
        tuple(judgement for each in said for judgement in each.judgements),
        spend,
    )


async def _reflect(contrast: Contrast, runtime: Runtime, spend: Spend) -> Reflection:
    """Ask about one contrast, and screen the lessons of the answer."""
    if spend.budget_refused or spend.fatal:
        return Reflection()
    spec, known, limit = contrast.spec, lessons_in_force(contrast.spec), contrast.most_lessons
    answer: LessonsAnswer | None
    if runtime.context.rules < 4:
        answer = await ask(
            LESSONS, contrast.key, _payload(contrast, _shortened(contrast.shown), runtime), runtime, spend
        )
    else:
        answer = await _ask(contrast, known, runtime, spend)
    lessons = answer.lessons if answer is not None else []
    cause, judgements = _judged(answer, known) if isinstance(answer, ReflectionAnswer) else ("", ())
    accepted: dict[str, Proposal] = {}
    rejected = [
        (lesson.text, f"more than {pluralize(limit, 'lesson')} from one contrast") for lesson in lessons[limit:]
    ]
    for turn, lesson in enumerate(lessons[:limit], start=1 + contrast.number * limit):
        key, answers = replace(contrast.key, turn=turn, role="shorten"), spec.item.accepted
        screened = await screen_or_shorten(
            lesson.text, polarity=lesson.polarity, answers=answers, key=key, runtime=runtime, spend=spend
        )
        if isinstance(screened, Rejection):
            rejected.append((lesson.text, screened.reason))
        elif screened.text not in accepted:
            accepted[screened.text] = contrast.proposal(screened.text, lesson.polarity, cause)
        elif runtime.context.rules < 2:
            rejected.append((screened.text, "said twice"))
    judgements = tuple(
        replace(each, contrast=contrast.number, weight=contrast.judges) for each in judgements if contrast.spread
    )
    return Reflection(tuple(accepted.values()), tuple(rejected), judgements)


async def _ask(
    contrast: Contrast, known: Mapping[str, ExperienceRecord], runtime: Runtime, spend: Spend
) -> ReflectionAnswer | None:
    """Ask what separated the attempts, with the lessons in force at the end of the system message, which groups share."""
    spec, shown = contrast.spec, contrast.shown
    texts = await transcripts(spec, contrast.number, [attempt.rollout for attempt in shown], runtime, spend)
    if spend.budget_refused or spend.fatal:
        return None
    words = runtime.context.settings.tfgrpo.show_ground_truth or not spec.item.answer
    attempts = [
        {"label": _label(position), "reward": attempt.reward, **text}
        | ({"graders": grader_words(attempt.scores)} if words else {})
        | ({"lessons": _given(spec, attempt, known)} if spec.first_half else {})
        for position, (attempt, text) in enumerate(zip(shown, texts, strict=True))
    ]
    in_force = [
        {"lesson": label, "polarity": record.polarity, "text": record.summary32} for label, record in known.items()
    ]
    question, payload = replace(REFLECTION, labels=tuple(known)), _payload(contrast, attempts, runtime)
    return await ask(question, contrast.key, payload, runtime, spend, {"lessons_in_force": in_force})


def lessons_in_force(spec: GroupSpec) -> dict[str, ExperienceRecord]:
    """Return the lessons that any attempt of a group was given by their labels, in the order of the prompt."""
    texts = [text for text in (spec.first_half, spec.pack) if text is not None]
    records = {record.experience_id: record for text in texts for record in text.experiences}
    return {f"L{number}": record for number, record in enumerate(records.values(), start=1)}


def _given(spec: GroupSpec, attempt: RankedAttempt, known: Mapping[str, ExperienceRecord]) -> list[str]:
    """Return the labels of the lessons that an attempt of a split group was given."""
    ids = spec.halves[attempt.half].spec.pack.experience_ids
    return [label for label, record in known.items() if record.experience_id in ids]


def _judged(answer: ReflectionAnswer, known: Mapping[str, ExperienceRecord]) -> tuple[str, tuple[LessonJudgement, ...]]:
    """Return the cause, or nothing in place of one that gives orders or holds a secret; and the judgements."""
    cause = clean_text(answer.cause)
    attack = attack_in(cause)
    if attack is not None and attack.rule != "answer":
        cause = ""
    return cause, tuple(
        LessonJudgement(known[each.lesson].experience_id, each.judgement, cause) for each in answer.judgements
    )


def contrasts_of(
    attempts: Sequence[RankedAttempt], how: str, *, alike: bool = True
) -> tuple[tuple[RankedAttempt, ...], ...]:
    """Return the attempts of each contrast, better ones first; among equals the cheaper comes first, then the earlier.

    ``pairs``: the best with the worst, and the second best with the second worst. Where these have one reward, the best or
    the worst stands in both. ``extremes``: the first of these pairs. ``all``: every attempt.
    ``alike``: among equals two of one half, whose prompts are the same, make the first pair. Of attempts with one reward
    the first two.
    """
    rewards = [attempt.reward for attempt in attempts]
    tokens = [attempt.rollout.usage.completion_tokens for attempt in attempts]
    best = best_first(rewards, tokens)
    if how == "all":
        return (tuple(attempts[position] for position in best),)
    low, high = min(rewards), max(rewards)
    if low == high:
        return (tuple(attempts[position] for position in best[:2]),)
    # The cheaper of those with the same reward: tokens alone must not make the contrast.
    worst = sorted(best, key=lambda position: rewards[position])
    extremes = [(one, other) for one in best if rewards[one] == high for other in worst if rewards[other] == low]
    first = min(extremes, key=lambda pair: alike and attempts[pair[0]].half != attempts[pair[1]].half)
    better, lower = (
        next(each for each in order if each != used) for order, used in zip((best, worst), first, strict=True)
    )
    nexts = ((better, lower), (first[0], lower), (better, first[1]))
    second = next((pair for pair in nexts if rewards[pair[0]] > rewards[pair[1]]), None)
    pairs = [first]
    if how == "pairs" and second is not None and second != first:
        pairs.append(second)
    return tuple((attempts[one], attempts[other]) for one, other in pairs)


def _shortened(shown: Sequence[RankedAttempt]) -> list[dict[str, Any]]:
    """Return the attempts as they were shown before learning rules 4."""
    room = max(_MIN_TRANSCRIPT_CHARS, _ALL_TRANSCRIPTS_CHARS // len(shown))
    return [
        {
            "label": _label(position),
            "reward": attempt.reward,
            "transcript": transcript_of(attempt.rollout.frames, attempt.rollout.output, room),
        }
        for position, attempt in enumerate(shown)
    ]


def _payload(contrast: Contrast, attempts: Sequence[dict[str, Any]], runtime: Runtime) -> dict[str, Any]:
    item = contrast.spec.item
    payload: dict[str, Any] = {
        "task": item.prompt,
        "attempts": attempts,
        "max_lessons": contrast.most_lessons,
        "max_words": runtime.max_words,
    }
    if runtime.context.settings.tfgrpo.show_ground_truth and item.answer:
        payload["reference_answer"] = reference_text(item.answer, item.alternatives)
    return payload


def _label(position: int) -> str:
    """A to Z, then AA, AB and so on."""
    letters = string.ascii_uppercase
    return letters[position] if position < len(letters) else f"{_label(position // 26 - 1)}{letters[position % 26]}"
