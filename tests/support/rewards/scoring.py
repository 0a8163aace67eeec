"""Groups of attempts and their verdicts by a scorer as a run gets them; single completions as a grader does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tfgrpo.rewarders.calling import perform
from tfgrpo.rewarders.composite import AnyScorer
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import GroupScores, ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, GraderInput, RewardContext, Scorer, Verdict, Verdicts, Weighted
from tfgrpo.stores.errors import RewardError


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


def verdict(
    name: str,
    completion: str,
    record: Any = None,
    *,
    tokens: int | None = None,
    attempt: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Verdict:
    """Return the verdict of the built-in scorer, called in this process."""
    item = GraderInput.of("set:0", {} if record is None else record, completion, completion_tokens=tokens)
    item = replace(item, attempt=attempt)
    found = perform(built(name, **options), [item])
    return found[0] if isinstance(found, tuple) else found


def score(name: str, completion: str, record: Any = None, *, tokens: int | None = None, **options: Any) -> float:
    """Return the score. Raises ``RewardError`` where there is none."""
    found = verdict(name, completion, record, tokens=tokens, **options)
    if isinstance(found, Abstained):
        raise RewardError(found.reason)
    return found.score


def answered(answer: str) -> str:
    """Return a completion with this final answer."""
    return f"<think>\nr\n</think>\n{answer}"


def with_schema(**schema: Any) -> dict[str, Any]:
    """Return a record with a schema."""
    return {"metadata": {"schema": json.dumps(schema)}}


def told(name: str, completion: str, record: Any = None, **options: Any) -> tuple[float | None, str]:
    """Return score and evidence; None and the reason where there is no score."""
    found = verdict(name, completion, record, **options)
    return (None, found.reason) if isinstance(found, Abstained) else (found.score, found.evidence)
