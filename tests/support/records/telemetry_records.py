"""Record one of each span and metric of telemetry."""

from __future__ import annotations

from tfgrpo.stores.outcomes import Phase
from tfgrpo.stores.telemetry import names as n
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions

OPTIONS = TelemetryOptions(service_version="0.1.0", run_id="run-1", task_id="task-1")


def one_rollout(telemetry: Telemetry) -> None:
    with (
        telemetry.workflow_span("tfgrpo-learning"),
        telemetry.epoch_span(epoch=1, phase="train", temperature=0.7, group_size=2, sample_size=100, seed=0),
        telemetry.group_span(epoch=1, phase="train", group_id="g1", item_id="q-1", group_size=2) as group,
    ):
        with telemetry.rollout_span(
            epoch=1, phase="train", group_id="g1", rollout_id="g1/0", index=0, group_size=2
        ) as rollout:
            with telemetry.chat_span(model="m", role="rollout", temperature=0.7, seed=7) as chat:
                chat.reply(model="m-1", response_id="r", finish_reason="stop", input_tokens=10, output_tokens=2)
            with telemetry.tool_span(tool="lookup", call_id="c1"):
                pass
            rollout.evaluation("gt", 1.0, label="pass", evidence="the answer is 7")
            rollout.rollout_result(outcome="scored", reward=1.0, relative_rank=0.5, tool_cost_usd=0.25, latency_ms=12.5)
        group.set({n.SPREAD: 0.5, "absent": None})


def record_everything(telemetry: Telemetry, *, epoch: int = 1, phase: Phase = "train", tool: str = "lookup") -> None:
    telemetry.record_tool_call(
        epoch=epoch, phase=phase, tool=tool, duration_s=0.02, tokens=5, cost_usd=0.25, group_size=2
    )
    telemetry.record_tool_call(epoch=epoch, phase=phase, tool=tool, duration_s=0.02, error_type="TimeoutError")
    telemetry.record_llm_call(
        epoch=epoch,
        phase=phase,
        role="rollout",
        model="m",
        duration_s=0.2,
        input_tokens=10,
        output_tokens=2,
        cost_usd=0.001,
    )
    telemetry.record_rollout(epoch=epoch, phase=phase, outcome="scored", duration_s=1.0, group_size=2)
    telemetry.record_reward(epoch=epoch, phase=phase, rewarder="gt", score=1.0)
    telemetry.record_group(epoch=epoch, phase=phase, signal="mixed", spread=0.5, group_size=2)
    telemetry.record_experience_op(epoch=epoch, domain="arithmetic", op="added")
    telemetry.record_experience_op(epoch=epoch, domain="arithmetic", op="rejected", reason="over-long")
    telemetry.record_library(domain="arithmetic", active=3)
    telemetry.record_injected(epoch=epoch, domain="arithmetic", count=3)
    telemetry.record_epoch(epoch=epoch, phase=phase, duration_s=4.0, reward_mean=0.5, solve_rate=0.25)
    telemetry.record_guardrail(rule="fan-out")
    telemetry.record_grades(grader="math_exact", scored=3, ungraded=1)
    telemetry.record_samples(dataset="sums", count=2)
    telemetry.record_request(method="POST", route="/grade", status=200, duration_s=0.1)
