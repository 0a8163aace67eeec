"""Report groups and rollouts to telemetry, from what is recorded anyway; the run does not depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from tfgrpo.rewarders.scorer import UNIT, Weighted
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.telemetry.setup import SpanHandle, Telemetry
from tfgrpo.tasks.shapes import GroupResult, GroupSpec


def observe_group(telemetry: Telemetry, span: SpanHandle, spec: GroupSpec, result: GroupResult, agent: str) -> None:
    """Report one complete group."""
    if not telemetry.active:
        return
    span.set(spread=result.spread)
    record = partial(telemetry.record, epoch=spec.key.epoch, phase=spec.key.phase)
    for rollout in result.rollouts:
        outcome = rollout.outcome
        record(
            "rollout",
            outcome=outcome.name,
            duration_s=rollout.latency_s,
            agent=agent,
            error_type=outcome.error_type if outcome.name in ("failed", "ungraded") else None,
            group_size=spec.size,
        )
        for score in rollout.scores:
            record("reward", arm=spec.key.arm, rewarder=score.rewarder_id, score=score.score)
        for event in rollout.tools:
            record(
                "tool_call",
                tool=event.tool,
                duration_s=event.latency_ms / 1000.0,
                tokens=event.tokens,
                tool_cost_usd=event.cost_usd,
                outcome="ok" if event.ok else "error",
                error_type=None if event.ok else "tool_error",
                group_size=spec.size,
            )
    record("group", signal=result.signal, spread=result.spread, group_size=spec.size)


def observe_scores(
    span: SpanHandle,
    scores: Sequence[RewardScore],
    rewarders: Sequence[Weighted],
    rollout_index: int | None = None,
) -> None:
    """Add an event for every score, labelled where it is an end of the range that its rewarder declares.

    ``rollout_index`` names the attempt on a span of several attempts.
    """
    ranges = {each.scorer.rewarder_id: each.range for each in rewarders}
    for score in scores:
        label: Literal["pass", "fail"] | None = None
        if (
            score.rewarder_id != "relative"
        ):  # a rank orders the attempts of a group; the best of them may still be wrong
            least, most = ranges.get(score.rewarder_id, UNIT)
            label = "fail" if score.score == least else "pass" if score.score == most else None
        span.evaluation(
            scored_by=score.rewarder_id, score=score.score, label=label, index=rollout_index, evidence=score.evidence
        )
