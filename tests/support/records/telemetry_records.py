"""Record one of each span and metric of telemetry."""

from tfgrpo.stores.outcomes import Phase
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions

OPTIONS = TelemetryOptions(service_version="0.1.0", run_id="run-1", task_id="task-1")


def one_rollout(telemetry: Telemetry) -> None:
    with (
        telemetry.workflow_span("tfgrpo-learning"),
        telemetry.epoch_span(epoch=1, phase="train", temperature=0.7, group_size=2, sample_size=100, seed=0),
        telemetry.span("tfgrpo.group", epoch=1, phase="train", group_id="g1", item_id="q-1", group_size=2) as group,
    ):
        with telemetry.rollout_span(
            epoch=1, phase="train", group_id="g1", rollout_id="g1/0", index=0, agent="chat", group_size=2
        ) as rollout:
            with telemetry.chat_span(model="m", role="rollout", temperature=0.7, request_seed=7) as chat:
                chat.set(response_model="m-1", response_id="r", finish_reasons=("stop",), input_tokens=10, output_tokens=2)
            with telemetry.tool_span(tool="lookup", tool_call_id="c1"):
                pass
            rollout.evaluation(scored_by="gt", score=1.0, label="pass", evidence="the answer is 7")
            rollout.set(outcome="scored", reward=1.0, relative_rank=0.5)
            rollout.set(literal_tool_cost_usd=0.25, literal_latency_ms=12.5)
        group.set(spread=0.5, arm=None)


def record_everything(telemetry: Telemetry, *, epoch: int = 1, phase: Phase = "train", tool: str = "lookup") -> None:
    telemetry.record(
        "tool_call",
        epoch=epoch,
        phase=phase,
        tool=tool,
        duration_s=0.02,
        outcome="ok",
        tokens=5,
        tool_cost_usd=0.25,
        group_size=2,
    )
    telemetry.record(
        "tool_call", epoch=epoch, phase=phase, tool=tool, duration_s=0.02, outcome="error", error_type="TimeoutError"
    )
    telemetry.record(
        "llm_call",
        epoch=epoch,
        phase=phase,
        role="rollout",
        model="m",
        provider="openai",
        duration_s=0.2,
        input_tokens=10,
        output_tokens=2,
        llm_cost_usd=0.001,
    )
    telemetry.record("rollout", epoch=epoch, phase=phase, outcome="scored", duration_s=1.0, agent="chat", group_size=2)
    telemetry.record("reward", epoch=epoch, phase=phase, arm="library", rewarder="gt", score=1.0)
    telemetry.record("group", epoch=epoch, phase=phase, signal="mixed", spread=0.5, group_size=2)
    telemetry.record("experience", epoch=epoch, domain="arithmetic", op="added")
    telemetry.record("experience", epoch=epoch, domain="arithmetic", op="rejected", reason="over-long")
    telemetry.record("library", domain="arithmetic", active=3)
    telemetry.record("injected", epoch=epoch, domain="arithmetic", count=3)
    telemetry.record("epoch", epoch=epoch, phase=phase, duration_s=4.0, reward_mean=0.5, solve_rate=0.25)
    telemetry.record(
        "ended",
        task_id="task-1",
        simulated=False,
        workflow="tfgrpo-learning",
        run_status="finished",
        run_decision="in force",
        duration_s=60.0,
        gain=6.2,
        gain_low=2.9,
        gain_high=9.5,
        lost_share=0.25,
        cost_usd=1.5,
        nights_unchanged=1,
    )
    telemetry.record("budget", task_id="task-1", simulated=False, cap="max_usd", used=0.5)
    telemetry.record("guardrail", rule="fan-out")
    telemetry.record("grades", grader="math_exact", scored=3, ungraded=1)
    telemetry.record("samples", dataset="sums", count=2)
    telemetry.record("request", method="POST", route="/grade", status=200, duration_s=0.1)
