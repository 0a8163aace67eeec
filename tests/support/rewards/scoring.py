"""Groups of attempts, and their verdicts by a scorer as a run gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tfgrpo.rewarders.composite import AnyScorer
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import GroupScores, ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Scorer, Verdict, Verdicts, Weighted


def group(*outputs: str, answer: str = "42", **more: Any) -> RewardContext:
    """Return a context with these outputs."""
    attempts = tuple(Attempt(f"r{index}", index, output, tokens=index) for index, output in enumerate(outputs))
    return RewardContext("items.jsonl#q1", "q1", more.pop("prompt", "How many?"), answer, attempts, **more)


def built(name: str, **options: Any) -> Scorer:
    """Return a single scorer by name."""
    scorer = build_scorer(name, options)
    assert isinstance(scorer, Scorer)
    return scorer


def verdicts(scorer: AnyScorer | str, *outputs: str, limit: float | None = None, **more: Any) -> Verdicts:
    """Return the verdicts on a group of these outputs."""
    made = built(scorer) if isinstance(scorer, str) else scorer
    with ScoreRunner() as runner:
        (found,) = asyncio.run(runner.score(made, [group(*outputs, **more)], limit))
    return found


def numbers(found: Sequence[Verdict]) -> list[float | None]:
    """Return the scores, None where there is none."""
    return [None if isinstance(verdict, Abstained) else verdict.score for verdict in found]


def scores(scorer: AnyScorer | str, *outputs: str, **more: Any) -> list[float | None]:
    """Return the scores of these outputs, None where there is none."""
    return numbers(verdicts(scorer, *outputs, **more))


async def totalled(context: RewardContext, *scorers: Weighted, timeout_s: float | None = None) -> GroupScores:
    """Return verdicts and totals of a group."""
    with ScoreRunner(timeout_s=timeout_s) as runner:
        return await runner.score_group(scorers, context)
