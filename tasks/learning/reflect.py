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
from tfgrpo.stores.experiences.record import ExperienceRecord
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
from tfgrpo.tasks.shapes import GroupSpec, LessonJudgement, Proposal

_ALL_TRANSCRIPTS_CHARS = 16_000
_MIN_TRANSCRIPT_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class RankedAttempt:
    """A scored attempt with its rank in the group."""

    rollout: FinishedRollout
    reward: float
    rank: float
    """1 best, 0 worst, ties share the mean."""
    scores: tuple[RewardScore, ...] = ()


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
    shown = attempts_to_show(attempts, everything=settings.reflection == "all")
    known = lessons_in_force(spec)
    answer: LessonsAnswer | None
    if runtime.context.rules < 4:
        payload = _payload(spec, _shortened(shown), runtime)
        answer = await ask(LESSONS, _key(spec, "reflect", 0), payload, runtime, spend)
    else:
        answer = await _contrast(spec, shown, known, runtime, spend)
    cause, judgements = _judged(answer, known) if isinstance(answer, ReflectionAnswer) else ("", ())
    lessons, limit = answer.lessons if answer is not None else [], settings.lessons_per_group
    accepted: dict[str, Proposal] = {}
    rejected = [(lesson.text, f"more than {pluralize(limit, 'lesson')} from one group") for lesson in lessons[limit:]]
    for turn, lesson in enumerate(lessons[:limit], start=1):
        key, answers = _key(spec, "shorten", turn), (spec.item.answer,)
        screened = await screen_or_shorten(
            lesson.text, polarity=lesson.polarity, answers=answers, key=key, runtime=runtime, spend=spend
        )
        if isinstance(screened, Rejection):
            rejected.append((lesson.text, screened.reason))
        elif screened.text not in accepted:
            accepted[screened.text] = Proposal(
                text=screened.text,
                polarity=lesson.polarity,
                group_id=spec.group_id,
                item_id=spec.item.id,
                evidence=tuple(attempt.rollout.rollout_id for attempt in shown),
                best_reward=shown[0].reward,
                best_rank=shown[0].rank,
                spread=spread,
                cause=cause,
                unconfirmed=not spread,
            )
        elif runtime.context.rules < 2:
            rejected.append((screened.text, "said twice"))
    return Reflection(tuple(accepted.values()), tuple(rejected), judgements if spread else (), spend)


async def _contrast(
    spec: GroupSpec,
    shown: Sequence[RankedAttempt],
    known: Mapping[str, ExperienceRecord],
    runtime: Runtime,
    spend: Spend,
) -> ReflectionAnswer | None:
    """Ask what separated the attempts, with the lessons in force at the end of the system message, which groups share."""
    texts = await transcripts(spec, [attempt.rollout for attempt in shown], runtime, spend)
    if spend.budget_refused or spend.fatal:
        return None
    words = runtime.context.settings.tfgrpo.show_ground_truth or not spec.item.answer
    attempts = [
        {"label": _label(position), "reward": attempt.reward, **text}
        | ({"graders": grader_words(attempt.scores)} if words else {})
        | ({"lessons": _given(spec, attempt, known)} if spec.champion else {})
        for position, (attempt, text) in enumerate(zip(shown, texts, strict=True))
    ]
    in_force = [
        {"lesson": label, "polarity": record.polarity, "text": record.summary32} for label, record in known.items()
    ]
    question, payload = replace(REFLECTION, labels=tuple(known)), _payload(spec, attempts, runtime)
    return await ask(question, _key(spec, "reflect", 0), payload, runtime, spend, {"lessons_in_force": in_force})


def lessons_in_force(spec: GroupSpec) -> dict[str, ExperienceRecord]:
    """Return the lessons that any attempt of a group was given by their labels, in the order of the prompt."""
    texts = [text for text in (spec.champion, spec.pack) if text is not None]
    records = {record.experience_id: record for text in texts for record in text.experiences}
    return {f"L{number}": record for number, record in enumerate(records.values(), start=1)}


def _given(spec: GroupSpec, attempt: RankedAttempt, known: Mapping[str, ExperienceRecord]) -> list[str]:
    """Return the labels of the lessons that an attempt of a split group was given."""
    ids = next(half.pack.experience_ids for half, indices in spec.halves if attempt.rollout.index in indices)
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


def attempts_to_show(attempts: Sequence[RankedAttempt], *, everything: bool) -> tuple[RankedAttempt, ...]:
    """Return best and worst, or all from best to worst; among equals the cheaper comes first, then the earlier.

    Of attempts with one reward the first two.
    """
    rewards = [attempt.reward for attempt in attempts]
    tokens = [attempt.rollout.usage.completion_tokens for attempt in attempts]
    order = best_first(rewards, tokens)
    if everything:
        return tuple(attempts[position] for position in order)
    # The cheapest of those with the least reward: tokens alone must not make the contrast.
    least = min(rewards)
    if least == max(rewards):
        return tuple(attempts[position] for position in order[:2])
    worst = next(position for position in order if rewards[position] == least)
    return (attempts[order[0]], attempts[worst])


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


def _payload(spec: GroupSpec, attempts: Sequence[dict[str, Any]], runtime: Runtime) -> dict[str, Any]:
    settings = runtime.context.settings.tfgrpo
    payload: dict[str, Any] = {
        "task": spec.item.prompt,
        "attempts": attempts,
        "max_lessons": settings.lessons_per_group,
        "max_words": runtime.max_words,
    }
    if settings.show_ground_truth and spec.item.answer:
        payload["reference_answer"] = spec.item.answer
    return payload


def _key(spec: GroupSpec, role: str, turn: int) -> CallKey:
    return CallKey(spec.key, rollout=0, turn=turn, role=role)


def _label(position: int) -> str:
    """A to Z, then AA, AB and so on."""
    letters = string.ascii_uppercase
    return letters[position] if position < len(letters) else f"{_label(position // 26 - 1)}{letters[position % 26]}"
