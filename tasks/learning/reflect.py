"""Reflect on one group: ask the learning model what separated good attempts from bad ones, and return proposals.

Whether a proposal enters the library is decided by curation.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tfgrpo.prompt_packs.safety import Rejection
from tfgrpo.rewarders.advantages.group import best_first
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.learning.ask import LESSONS, Spend, ask, screen_or_shorten
from tfgrpo.tasks.learning.summarize import transcript_of
from tfgrpo.tasks.rollout import FinishedRollout
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupSpec, Proposal

_ALL_TRANSCRIPTS_CHARS = 16_000
_MIN_TRANSCRIPT_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class RankedAttempt:
    """A scored attempt with its rank in the group."""

    rollout: FinishedRollout
    reward: float
    rank: float
    """1 best, 0 worst, ties share the mean."""


@dataclass(frozen=True, slots=True)
class Reflection:
    """Result and cost of reflection on one group."""

    proposals: tuple[Proposal, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    """Texts that broke a rule, with the reason."""
    spend: Spend = field(default_factory=Spend)


async def reflect_on_group(
    spec: GroupSpec, attempts: Sequence[RankedAttempt], spread: float, runtime: Runtime
) -> Reflection:
    """Contrast the attempts of an informative group. A call that fails is noted in the spend, never raised."""
    settings, spend = runtime.context.settings.tfgrpo, Spend()
    shown = attempts_to_show(attempts, everything=settings.reflection == "all")
    answer = await ask(LESSONS, _key(spec, "reflect", 0), _payload(spec, shown, runtime), runtime, spend)
    lessons, limit = answer.lessons if answer is not None else [], spec.lessons or settings.lessons_per_group
    accepted: dict[str, Proposal] = {}
    rejected = [(lesson.text, f"more than {pluralize(limit, 'lesson')} from one group") for lesson in lessons[limit:]]
    for turn, lesson in enumerate(lessons[:limit], start=1):
        screened = await screen_or_shorten(
            lesson.text, answers=(spec.item.answer,), key=_key(spec, "shorten", turn), runtime=runtime, spend=spend
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
            )
        elif runtime.context.rules < 2:
            rejected.append((screened.text, "said twice"))
    return Reflection(tuple(accepted.values()), tuple(rejected), spend)


def attempts_to_show(attempts: Sequence[RankedAttempt], *, everything: bool) -> tuple[RankedAttempt, ...]:
    """Return best and worst, or all from best to worst; among equals the cheaper comes first, then the earlier."""
    rewards = [attempt.reward for attempt in attempts]
    tokens = [attempt.rollout.usage.completion_tokens for attempt in attempts]
    order = best_first(rewards, tokens)
    if everything:
        return tuple(attempts[position] for position in order)
    # The cheapest of those with the least reward: tokens alone must not make the contrast.
    least = min(rewards)
    worst = next(position for position in order if rewards[position] == least)
    return (attempts[order[0]], attempts[worst])


def _payload(spec: GroupSpec, shown: Sequence[RankedAttempt], runtime: Runtime) -> dict[str, Any]:
    settings = runtime.context.settings.tfgrpo
    room = max(_MIN_TRANSCRIPT_CHARS, _ALL_TRANSCRIPTS_CHARS // len(shown))
    payload: dict[str, Any] = {
        "task": spec.item.prompt,
        "attempts": [
            {
                "label": _label(position),
                "reward": attempt.reward,
                "transcript": transcript_of(attempt.rollout.frames, attempt.rollout.output, room),
            }
            for position, attempt in enumerate(shown)
        ],
        "max_lessons": spec.lessons or settings.lessons_per_group,
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
