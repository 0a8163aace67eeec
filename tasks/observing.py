"""What does the outside see of a group? Its rollouts, rewards and tool calls, as metrics and on the spans.

Values come from what was recorded anyway; nothing here feeds back into a run.
"""

from __future__ import annotations

from stores.telemetry import SpanHandle, Telemetry
from tasks.shapes import GroupResult, GroupSpec, RolloutRecord
from tasks.tool_metrics import add_costs


def observe_group(telemetry: Telemetry, span: SpanHandle, spec: GroupSpec, result: GroupResult, agent: str) -> None:
    """Report one complete group."""
    if not telemetry.active:
        return
    for rollout in result.rollouts:
        _observe_rollout(telemetry, span, spec, rollout, agent)
    telemetry.record_group(
        epoch=spec.epoch, phase=spec.phase, signal=result.signal, spread=result.spread, group_size=spec.size
    )


def observe_rollout_end(span: SpanHandle, loss: str | None, tool_costs: list[float | None], latency_s: float) -> None:
    """What the span of a rollout carries when it closes, before anything is graded."""
    span.rollout_result(outcome=loss or "ended", tool_cost_usd=add_costs(tool_costs), latency_ms=latency_s * 1000.0)


def _observe_rollout(
    telemetry: Telemetry, span: SpanHandle, spec: GroupSpec, rollout: RolloutRecord, agent: str
) -> None:
    outcome = rollout.outcome
    telemetry.record_rollout(
        epoch=spec.epoch,
        phase=spec.phase,
        outcome=outcome.name,
        duration_s=rollout.latency_s,
        agent=agent,
        error_type=outcome.error_type if outcome.name in ("failed", "ungraded") else None,
        group_size=spec.size,
    )
    for score in rollout.scores:
        telemetry.record_reward(epoch=spec.epoch, phase=spec.phase, rewarder=score.rewarder_id, score=score.score)
        span.evaluation(score.rewarder_id, score.score, label=f"attempt {rollout.index}", evidence=score.evidence)
    for event in rollout.tools:
        telemetry.record_tool_call(
            epoch=event.epoch,
            phase=spec.phase,
            tool=event.tool,
            duration_s=event.latency_ms / 1000.0,
            tokens=event.tokens,
            cost_usd=event.cost_usd,
            error_type=None if event.ok else "tool_error",
            group_size=spec.size,
        )
