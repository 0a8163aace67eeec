"""What arrives at a real receiver, and what happens when there is none."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry import trace

from stores import telemetry_names as n
from stores.telemetry import Telemetry, TelemetryOptions, configure
from stores.telemetry_export import Pipe
from stores.telemetry_metrics import NameBounds
from tests.otlp_receiver import OtlpReceiver

ROOT = Path(__file__).resolve().parents[2]
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


def record_everything(telemetry: Telemetry, *, epoch: int = 1, phase: n.Phase = "train", tool: str = "lookup") -> None:
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


def test_the_span_tree_of_a_rollout_arrives_whole(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    one_rollout(telemetry)
    assert telemetry.shutdown() is None
    names = ["invoke_workflow tfgrpo-learning", "tfgrpo.epoch", "tfgrpo.group", "invoke_agent chat"]
    chain = [otlp_receiver.span(name) for name in names]
    assert chain[0].parent_id == ""
    assert [span.parent_id for span in chain[1:]] == [span.span_id for span in chain[:-1]]
    for leaf in ("chat m", "execute_tool lookup"):
        assert otlp_receiver.span(leaf).parent_id == chain[-1].span_id
    assert otlp_receiver.span("chat m").kind == 3
    assert len({span.trace_id for span in otlp_receiver.spans()}) == 1


def test_spans_carry_the_literal_dimensions_with_their_types(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    one_rollout(telemetry)
    telemetry.shutdown()
    rollout = otlp_receiver.span("invoke_agent chat").attributes
    assert (rollout["tfgrpo_epoch"], rollout["group_size"]) == (1, 2)
    assert type(rollout["tfgrpo_epoch"]) is int
    assert (rollout["tool_cost_usd"], rollout["latency_ms"]) == (0.25, 12.5)
    epoch = otlp_receiver.span("tfgrpo.epoch").attributes
    assert (epoch["tfgrpo.epoch"], epoch["tfgrpo.group.size"]) == (1, 2)
    assert "gen_ai.prompt.name" not in epoch, "what is not known is left out"
    assert "absent" not in otlp_receiver.span("tfgrpo.group").attributes


def test_an_evaluation_is_an_event_and_its_evidence_is_content(otlp_receiver: OtlpReceiver) -> None:
    quiet = configure(OPTIONS, otlp_receiver.environment())
    one_rollout(quiet)
    quiet.shutdown()
    ((name, event),) = otlp_receiver.span("invoke_agent chat").events
    assert name == "gen_ai.evaluation.result"
    assert event == {
        "gen_ai.evaluation.name": "gt",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.score.label": "pass",
    }


@pytest.mark.parametrize("content", [False, True])
def test_prompts_reach_a_span_only_when_content_is_on(otlp_receiver: OtlpReceiver, content: bool) -> None:
    telemetry = configure(TelemetryOptions(content=content), otlp_receiver.environment())
    with telemetry.chat_span(model="m") as span:
        span.content("input", "s" * 10_000)
        span.content("output", "42")
        span.evaluation("gt", 1.0, evidence="42 = 42")
    telemetry.shutdown()
    received = otlp_receiver.span("chat m")
    assert ("gen_ai.input.messages" in received.attributes) is content
    assert ("gen_ai.evaluation.explanation" in received.events[0][1]) is content
    if content:
        assert len(received.attributes["gen_ai.input.messages"]) == 4096
        assert received.attributes["gen_ai.output.messages"] == "42"


def test_an_exception_marks_the_span_without_its_text(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    with pytest.raises(ValueError, match="sk-secret"), telemetry.span("tfgrpo.store.write"):
        raise ValueError("sk-secret")
    telemetry.shutdown()
    span = otlp_receiver.span("tfgrpo.store.write")
    assert span.error
    assert span.attributes["error.type"] == "ValueError"
    assert "sk-secret" not in repr(span)


def test_every_metric_of_the_catalogue_arrives(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    record_everything(telemetry)
    telemetry.shutdown()
    expected = {metric.name for metric in (*n.OURS, *n.GENAI["latest"])}
    assert {point.metric for point in otlp_receiver.points()} == expected


def test_metrics_are_found_by_epoch_and_keep_their_units(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    for epoch in (1, 2, 3):
        record_everything(telemetry, epoch=epoch, phase="eval" if epoch == 3 else "train")
    telemetry.shutdown()
    cost = {point.attributes["tfgrpo.epoch"]: point for point in otlp_receiver.points("tfgrpo.tool.cost")}
    assert sorted(cost) == [1, 2, 3]
    assert all(type(epoch) is int for epoch in cost)
    assert cost[2].attributes == {
        "tfgrpo.epoch": 2,
        "tfgrpo.phase": "train",
        "tfgrpo.group.size": 2,
        "gen_ai.tool.name": "lookup",
    }
    assert (cost[2].value, cost[2].unit) == (0.25, "USD")
    duration = otlp_receiver.points("tfgrpo.tool.duration")[0]
    assert duration.unit == "s"
    assert duration.bounds == n.CALL_SECONDS
    outcomes = Counter(point.attributes["tfgrpo.outcome"] for point in otlp_receiver.points("tfgrpo.tool.calls"))
    assert outcomes == {"ok": 3, "error": 3}


def test_a_full_run_stays_inside_the_series_budget_without_overflow(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(TelemetryOptions(genai_metrics="v1.41"), otlp_receiver.environment())
    for epoch in (1, 2, 3):
        for index in range(200):
            record_everything(telemetry, epoch=epoch, phase="eval" if epoch == 3 else "train", tool=f"tool-{index}")
    telemetry.shutdown()
    points = otlp_receiver.points()
    assert len(points) <= n.SERIES_BUDGET
    assert not [point for point in points if "otel.metric.overflow" in point.attributes]
    tools = {point.attributes["gen_ai.tool.name"] for point in otlp_receiver.points("tfgrpo.tool.calls")}
    assert "other" in tools
    assert len(tools) == 25


def test_an_attribute_that_is_not_in_the_catalogue_is_dropped(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    telemetry._count(n.GROUPS, 1, {n.EPOCH: 1, "tfgrpo.item.id": "q-1"})
    telemetry.shutdown()
    (point,) = otlp_receiver.points("tfgrpo.groups")
    assert point.attributes == {"tfgrpo.epoch": 1}


def test_unknown_figures_make_no_points(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    telemetry.record_tool_call(epoch=1, phase="train", tool="t", duration_s=0.1)
    telemetry.record_llm_call(
        epoch=1, phase="train", role="invented", model="m", duration_s=0.1, error_type="ModelTimeout"
    )
    telemetry.record_group(epoch=1, phase="train", signal="lost", spread=None)
    telemetry.record_epoch(epoch=1, phase="train", duration_s=1.0)
    telemetry.record_reward(epoch=1, phase="train", rewarder="gt", score=float("nan"))
    telemetry.record_rollout(epoch=1, phase="train", outcome="failed", duration_s=1.0, error_type="ModelTimeout")
    telemetry.shutdown()
    metrics = {point.metric for point in otlp_receiver.points()}
    absent = {
        "tool.cost",
        "tool.tokens",
        "llm.tokens",
        "llm.cost",
        "group.reward_spread",
        "epoch.reward.mean",
        "reward",
    }
    assert not metrics & {f"tfgrpo.{name}" for name in absent}
    (llm,) = otlp_receiver.points("tfgrpo.llm.duration")
    assert llm.attributes["tfgrpo.role"] == "other"
    assert llm.attributes["error.type"] == "ModelTimeout"


@pytest.mark.parametrize("choice", ["off", "v1.41", "latest"])
def test_the_convention_switch_chooses_the_names(otlp_receiver: OtlpReceiver, choice: n.GenaiMetrics) -> None:
    telemetry = configure(TelemetryOptions(genai_metrics=choice), otlp_receiver.environment())
    record_everything(telemetry)
    telemetry.shutdown()
    found = {point.metric for point in otlp_receiver.points() if point.metric.startswith("gen_ai.")}
    assert found == {metric.name for metric in n.GENAI[choice]}


def test_collecting_sends_metrics_before_the_end(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    record_everything(telemetry)
    telemetry.collect(wait_s=10.0)
    assert otlp_receiver.points("tfgrpo.rollouts")
    telemetry.shutdown()
    telemetry.collect()


def test_the_resource_names_run_and_task_and_lets_the_user_name_the_service(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    with telemetry.span("ours"):
        pass
    telemetry.shutdown()
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,deployment.environment.name=lab")
    env = {**otlp_receiver.environment(), "OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs"}
    telemetry = configure(TelemetryOptions(), env)
    with telemetry.span("theirs"):
        pass
    telemetry.shutdown()
    ours, theirs = otlp_receiver.span("ours").resource, otlp_receiver.span("theirs").resource
    assert (ours["service.name"], ours["service.version"]) == ("tfgrpo", "0.1.0")
    assert (ours["tfgrpo.run.id"], ours["tfgrpo.task.id"]) == ("run-1", "task-1")
    assert (theirs["service.name"], theirs["deployment.environment.name"]) == ("theirs", "lab")
    assert "tfgrpo.run.id" not in theirs


def test_a_carrier_joins_a_thread_to_the_trace(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())

    def work(carrier: dict[str, str]) -> None:
        with telemetry.attached(carrier), telemetry.span("child"):
            pass

    with telemetry.span("parent"):
        carrier = telemetry.carrier()
    thread = threading.Thread(target=work, args=(carrier,))
    thread.start()
    thread.join()
    with telemetry.attached({}), telemetry.span("alone"):
        pass
    telemetry.shutdown()
    assert otlp_receiver.span("child").parent_id == otlp_receiver.span("parent").span_id
    assert otlp_receiver.span("alone").parent_id == ""


def test_configuring_twice_gives_the_same_object_until_its_shutdown(otlp_receiver: OtlpReceiver) -> None:
    env = otlp_receiver.environment()
    first = configure(OPTIONS, env)
    assert configure(OPTIONS, env) is first
    other = configure(TelemetryOptions(run_id="run-2"), env)
    assert other is not first
    other.shutdown()
    first.shutdown()
    assert first.shutdown() is None
    again = configure(OPTIONS, env)
    assert again is not first
    again.shutdown()


def test_no_global_provider_is_set(otlp_receiver: OtlpReceiver) -> None:
    before = trace.get_tracer_provider()
    configure(OPTIONS, otlp_receiver.environment()).shutdown()
    assert trace.get_tracer_provider() is before


def test_without_an_endpoint_nothing_is_built_and_everything_still_works() -> None:
    threads = threading.active_count()
    telemetry = configure(OPTIONS, {})
    assert not telemetry.active
    one_rollout(telemetry)
    record_everything(telemetry)
    telemetry.collect()
    assert telemetry.carrier() == {}
    with telemetry.attached({"traceparent": "x"}):
        pass
    assert threading.active_count() == threads
    assert telemetry.shutdown() is None


@pytest.mark.parametrize(
    "env",
    [
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        },
    ],
)
def test_telemetry_can_be_switched_off(env: dict[str, str]) -> None:
    assert not configure(OPTIONS, env).active


def test_one_signal_can_be_sent_without_the_other(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, {**otlp_receiver.environment(), "OTEL_TRACES_EXPORTER": "none"})
    one_rollout(telemetry)
    record_everything(telemetry)
    telemetry.shutdown()
    assert otlp_receiver.spans() == []
    assert otlp_receiver.points()


def test_console_exporters_write_to_stderr_only(capfd: pytest.CaptureFixture[str]) -> None:
    telemetry = configure(OPTIONS, {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"})
    one_rollout(telemetry)
    record_everything(telemetry)
    assert telemetry.shutdown() is None
    out, err = capfd.readouterr()
    assert out == ""
    assert "invoke_agent chat" in err
    assert "tfgrpo.tool.cost" in err


def test_headers_and_the_signal_endpoint_are_used_as_they_are(otlp_receiver: OtlpReceiver) -> None:
    env = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{otlp_receiver.url}/custom/v1/traces",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=blue",
    }
    telemetry = configure(OPTIONS, env)
    one_rollout(telemetry)
    telemetry.shutdown()
    assert otlp_receiver.requests == ["/custom/v1/traces"]
    assert otlp_receiver.headers[0]["x-tenant"] == "blue"
    assert otlp_receiver.span("chat m")


def test_half_a_surrogate_pair_costs_neither_a_batch_nor_an_export(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(TelemetryOptions(content=True), otlp_receiver.environment())
    with telemetry.chat_span(model="m\ud800") as span:
        span.content("output", "it says \udc00")
        span.reply(finish_reason="stop\ud800")
        span.evaluation("gt", 1.0, evidence="\ud800")
    telemetry.record_tool_call(epoch=1, phase="train", tool="look\ud800up", duration_s=0.1)
    assert telemetry.shutdown() is None
    received = otlp_receiver.span("chat m?")
    assert received.attributes["gen_ai.output.messages"] == "it says ?"
    assert received.attributes["gen_ai.response.finish_reasons"] == ("stop?",)
    assert received.events[0][1]["gen_ai.evaluation.explanation"] == "?"
    (calls,) = otlp_receiver.points("tfgrpo.tool.calls")
    assert calls.attributes["gen_ai.tool.name"] == "look?up"


def test_a_provider_that_breaks_at_its_end_breaks_nothing_else() -> None:
    def broken() -> None:
        raise RuntimeError("no")

    telemetry = Telemetry(OPTIONS, pipes=[Pipe("traces", "nowhere", broken, broken)])
    assert telemetry.shutdown() is None


@pytest.mark.parametrize("mode", ["503", "hang"])
def test_shutdown_keeps_its_deadline_and_says_what_was_lost_once(
    otlp_receiver: OtlpReceiver, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    otlp_receiver.mode = mode  # type: ignore[assignment]
    telemetry = configure(OPTIONS, {**otlp_receiver.environment(), "OTEL_EXPORTER_OTLP_TIMEOUT": "30"})
    one_rollout(telemetry)
    record_everything(telemetry)
    with caplog.at_level(logging.WARNING):
        before = time.monotonic()
        line = telemetry.shutdown(0.3)
        took = time.monotonic() - before
    assert took < 3.0
    assert line is not None
    assert line.startswith("telemetry: 6 of 6 spans and the last metrics")
    assert line.endswith(f" were not delivered to {otlp_receiver.url.removeprefix('http://')}")
    assert [record.message for record in caplog.records].count(line) == 1
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry.exporter")]


def test_the_first_failed_delivery_is_reported_once_while_running(
    otlp_receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    otlp_receiver.mode = "503"
    telemetry = configure(OPTIONS, {**otlp_receiver.environment(), "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2"})
    with caplog.at_level(logging.WARNING, "tfgrpo.telemetry"):
        for _ in range(2):
            record_everything(telemetry)
            telemetry.collect(wait_s=10.0)
        line = telemetry.shutdown()
    address = otlp_receiver.environment()["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://")
    # Another test's provider may still be failing against a receiver of its own.
    assert caplog.text.count(f"delivered to {address}; the run goes on without it") == 1
    assert line is not None
    assert "the last metrics were not delivered" in line


def test_names_beyond_the_bound_share_one() -> None:
    bounds = NameBounds(2)
    assert [bounds.admit(n.TOOL, name) for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
    assert bounds.admit(n.MODEL, "c") == "c"


SCRIPT = """
    import logging, os, sys, time
    sys.path.insert(0, {root!r})
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    from stores.telemetry import TelemetryOptions, configure
    telemetry = configure(TelemetryOptions(run_id="r"), os.environ)
    for index in range(3000):
        with telemetry.span("work", {{"index": index}}):
            telemetry.record_guardrail(rule="r")
    {ending}
    print(time.time(), flush=True)
"""


@pytest.mark.parametrize("ending", ["telemetry.shutdown()", "pass"])
@pytest.mark.parametrize("fault", ["dead", "hang"])
def test_a_process_ends_within_four_seconds_of_its_work(otlp_receiver: OtlpReceiver, fault: str, ending: str) -> None:
    otlp_receiver.mode = "hang"
    endpoint = otlp_receiver.url if fault == "hang" else "http://127.0.0.1:9"
    script = textwrap.dedent(SCRIPT).format(root=str(ROOT), ending="work_ended = time.time(); " + ending)
    script = script.replace("print(time.time()", "print(work_ended")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ended = time.time()
    assert done.returncode == 0, done.stderr
    assert ended - float(done.stdout) <= 4.0
    assert done.stderr.count("were not delivered") == 1
    assert len(done.stderr.splitlines()) <= 2, done.stderr


def test_spans_of_a_spawned_process_join_the_trace_through_the_carrier(otlp_receiver: OtlpReceiver) -> None:
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    with telemetry.span("flow"):
        carrier = telemetry.carrier()
    script = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        from stores.telemetry import TelemetryOptions, configure
        telemetry = configure(TelemetryOptions(), os.environ)
        with telemetry.attached({carrier!r}), telemetry.span("worker"):
            pass
        assert telemetry.shutdown() is None
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"PATH": "/usr/bin:/bin", **otlp_receiver.environment()},
        timeout=60,
        check=True,
    )
    telemetry.shutdown()
    flow, worker = otlp_receiver.span("flow"), otlp_receiver.span("worker")
    assert (worker.trace_id, worker.parent_id) == (flow.trace_id, flow.span_id)
