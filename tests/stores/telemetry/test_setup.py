"""What arrives at a real receiver, and what happens when there is none."""

import threading
from collections import Counter
from dataclasses import replace

import pytest
from opentelemetry import trace

from tests.support.records.telemetry_records import OPTIONS, one_rollout, record_everything
from tfgrpo.stores.telemetry.setup import TelemetryOptions, all_metrics, configure


def test_spans_carry_the_literal_dimensions_with_their_types(otlp_receiver):
    """In a tree that arrives whole, by no provider that other libraries use."""
    before = trace.get_tracer_provider()
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    one_rollout(telemetry)
    assert telemetry.shutdown() is None
    assert trace.get_tracer_provider() is before
    names = ["invoke_workflow tfgrpo-learning", "tfgrpo.epoch", "tfgrpo.group", "invoke_agent chat"]
    chain = [otlp_receiver.span(name) for name in names]
    assert chain[0].parent_id == ""
    assert [span.parent_id for span in chain[1:]] == [span.span_id for span in chain[:-1]]
    for leaf in ("chat m", "execute_tool lookup"):
        assert otlp_receiver.span(leaf).parent_id == chain[-1].span_id
    assert otlp_receiver.span("chat m").kind == 3
    assert len({span.trace_id for span in otlp_receiver.spans()}) == 1
    rollout = chain[-1].attributes
    assert (rollout["tfgrpo_epoch"], rollout["group_size"]) == (1, 2)
    assert type(rollout["tfgrpo_epoch"]) is int
    assert (rollout["tool_cost_usd"], rollout["latency_ms"]) == (0.25, 12.5)
    assert (chain[1].attributes["tfgrpo.epoch"], chain[1].attributes["tfgrpo.group.size"]) == (1, 2)
    assert "gen_ai.prompt.name" not in chain[1].attributes, "what is not known is left out"
    assert "tfgrpo.arm" not in chain[2].attributes


@pytest.mark.parametrize("content", [False, True])
def test_prompts_reach_a_span_only_when_content_is_on(otlp_receiver, content):
    telemetry = configure(TelemetryOptions(content=content), otlp_receiver.environment())
    with telemetry.chat_span(model="m") as span:
        span.content("input", "s" * 10_000)
        span.content("output", "42")
        span.evaluation(scored_by="gt", score=1.0, evidence="42 = 42")
    telemetry.shutdown()
    received = otlp_receiver.span("chat m")
    assert ("gen_ai.input.messages" in received.attributes) is content
    assert ("gen_ai.evaluation.explanation" in received.events[0][1]) is content
    if content:
        assert len(received.attributes["gen_ai.input.messages"]) == 4096
        assert received.attributes["gen_ai.output.messages"] == "42"


def test_an_exception_marks_the_span_without_its_text(otlp_receiver):
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    with pytest.raises(ValueError, match="sk-secret"), telemetry.span("tfgrpo.store.write"):
        raise ValueError("sk-secret")
    telemetry.shutdown()
    span = otlp_receiver.span("tfgrpo.store.write")
    assert span.error
    assert span.attributes["error.type"] == "ValueError"
    assert "sk-secret" not in repr(span)


def test_metrics_have_epochs_and_units(otlp_receiver):
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    for epoch in (1, 2, 3):
        record_everything(telemetry, epoch=epoch, phase="eval" if epoch == 3 else "train")
    telemetry.collect(wait_s=10.0)
    assert {point.metric for point in otlp_receiver.points()} == {metric.name for metric in all_metrics()}, "before the end"
    telemetry.shutdown()
    telemetry.collect()
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
    assert duration.bounds == tuple(round(0.01 * 2**power, 2) for power in range(14))
    outcomes = Counter(point.attributes["tfgrpo.outcome"] for point in otlp_receiver.points("tfgrpo.tool.calls"))
    assert outcomes == {"ok": 3, "error": 3}


def test_a_full_run_stays_inside_the_series_budget_without_overflow(otlp_receiver):
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    for epoch in (1, 2, 3):
        for index in range(60):
            record_everything(telemetry, epoch=epoch, phase="eval" if epoch == 3 else "train", tool=f"tool-{index}")
    telemetry.shutdown()
    points = otlp_receiver.points()
    assert len(points) <= 1500
    assert not [point for point in points if "otel.metric.overflow" in point.attributes]
    tools = {point.attributes["gen_ai.tool.name"] for point in otlp_receiver.points("tfgrpo.tool.calls")}
    assert "other" in tools
    assert len(tools) == 25


def test_unknown_figures_and_attributes_are_not_recorded(otlp_receiver):
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    telemetry.record("group", epoch=1, item_id="q-1")
    telemetry.record("tool_call", epoch=1, phase="train", tool="t", duration_s=0.1)
    telemetry.record("llm_call", epoch=1, phase="train", role="invented", model="m", duration_s=0.1, error_type="ModelTimeout")
    telemetry.record("group", epoch=1, phase="train", signal="lost", spread=None)
    telemetry.record("epoch", epoch=1, phase="train", duration_s=1.0)
    telemetry.record("reward", epoch=1, phase="train", rewarder="gt", score=float("nan"))
    telemetry.record("rollout", epoch=1, phase="train", outcome="failed", duration_s=1.0, error_type="ModelTimeout")
    telemetry.shutdown()
    metrics = {point.metric for point in otlp_receiver.points()}
    absent = {"tool.cost", "tool.tokens", "llm.tokens", "llm.cost", "group.reward_spread", "epoch.reward.mean", "reward"}
    assert not metrics & {f"tfgrpo.{name}" for name in absent}
    (llm,) = otlp_receiver.points("tfgrpo.llm.duration")
    assert (llm.attributes["tfgrpo.role"], llm.attributes["error.type"]) == ("other", "ModelTimeout")
    assert {"tfgrpo.epoch": 1} in [point.attributes for point in otlp_receiver.points("tfgrpo.groups")]


def test_the_resource_has_run_and_task_and_the_users_service_name(otlp_receiver, monkeypatch):
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


@pytest.mark.parametrize(("several", "given"), [(False, ""), (True, ""), (False, "service.instance.id=night-box")])
def test_series_carry_no_id_that_changes_every_night(otlp_receiver, monkeypatch, several, given):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", given)
    env = {**otlp_receiver.environment(), "OTEL_RESOURCE_ATTRIBUTES": given}
    telemetry = configure(replace(OPTIONS, several_processes=several), env)
    telemetry.record("guardrail", rule="stamp")
    telemetry.shutdown()
    resource = otlp_receiver.series_resource()
    assert "tfgrpo.run.id" not in resource
    instance = resource.get("service.instance.id")
    assert (instance is not None) is (several or bool(given)), "only several processes of a run have to be told apart"
    assert instance == "night-box" or not given
    assert resource["tfgrpo.task.id"] == "task-1"
    (info,) = otlp_receiver.points("tfgrpo.run.info")
    assert info.attributes == {"tfgrpo.run.id": "run-1"}  # the task is in the resource, and nothing in both
    assert info.value == 1


def test_configuring_twice_gives_the_same_object_until_its_shutdown(otlp_receiver):
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


SOMEWHERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
OFF = (
    {},
    {**SOMEWHERE, "OTEL_SDK_DISABLED": "true"},
    {**SOMEWHERE, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
)


@pytest.mark.parametrize("env", OFF, ids=len)
def test_without_an_endpoint_or_switched_off_no_provider_is_built_and_every_method_works(env):
    threads = threading.active_count()
    telemetry = configure(OPTIONS, env)
    assert not telemetry.active
    one_rollout(telemetry)
    record_everything(telemetry)
    telemetry.collect()
    assert telemetry.carrier() == {}
    with telemetry.attached({"traceparent": "x"}):
        pass
    assert threading.active_count() == threads
    assert telemetry.shutdown() is None


def test_console_exporters_write_to_stderr_only(capfd):
    telemetry = configure(OPTIONS, {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"})
    one_rollout(telemetry)
    record_everything(telemetry)
    assert telemetry.shutdown() is None
    out, err = capfd.readouterr()
    assert out == ""
    assert "invoke_agent chat" in err
    assert "tfgrpo.tool.cost" in err


def test_headers_and_the_signal_endpoint_are_used_as_they_are(otlp_receiver):
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


def test_a_lone_surrogate_fails_neither_a_batch_nor_an_export(otlp_receiver):
    telemetry = configure(TelemetryOptions(content=True), otlp_receiver.environment())
    with telemetry.chat_span(model="m\ud800") as span:
        span.content("output", "it says \udc00")
        span.set(finish_reasons=("stop\ud800",))
        span.evaluation(scored_by="gt", score=1.0, evidence="\ud800")
    telemetry.record("tool_call", epoch=1, phase="train", tool="look\ud800up", duration_s=0.1)
    assert telemetry.shutdown() is None
    received = otlp_receiver.span("chat m?")
    assert received.attributes["gen_ai.output.messages"] == "it says ?"
    assert received.attributes["gen_ai.response.finish_reasons"] == ("stop?",)
    assert received.events[0][1]["gen_ai.evaluation.explanation"] == "?"
    (calls,) = otlp_receiver.points("tfgrpo.tool.calls")
    assert calls.attributes["gen_ai.tool.name"] == "look?up"
