from __future__ import annotations

from dataclasses import replace

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stores.errors import ModelServerFault
from stores.telemetry import Telemetry, TelemetryOptions
from tasks.actors.tools import ToolActor
from tasks.group import run_group
from tasks.models.base import ToolCall
from tasks.tools.schema import tool_from_function
from tests.tasks import agents
from tests.tasks.kit import reply, runtime, spec


def script(_, key):
    if key.role != "rollout":
        return {"lessons": []}
    if key.rollout == 2:
        return ModelServerFault("503")
    if key.turn == 0:
        call = ToolCall("c", "add", '{"left": 1}' if key.rollout else "{oops")
        return reply(None, finish="tool_calls", calls=(call,))
    return f"Answer: {7 + key.rollout}"


async def test_a_group_is_visible_from_outside_as_spans_and_metrics(tmp_path):
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    traces, metrics = TracerProvider(), MeterProvider([reader])
    traces.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(TelemetryOptions(), traces=traces, metrics=metrics)
    made = runtime(script, tmp_path, actor=ToolActor([tool_from_function(agents.add)], max_turns=3))
    result = await run_group(spec(3), replace(made, telemetry=telemetry))
    assert result.signal == "mixed"

    finished = {span.context.span_id: span for span in spans.get_finished_spans()}
    parents = {(span.name, finished[span.parent.span_id].name if span.parent else None) for span in finished.values()}
    assert ("tfgrpo.group", None) in parents
    assert ("invoke_agent chat", "tfgrpo.group") in parents
    assert ("execute_tool add", "invoke_agent chat") in parents
    assert sum(name == "execute_tool add" for name in (span.name for span in finished.values())) == 2

    recorded = {
        metric.name: metric.data.data_points
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert sum(point.value for point in recorded["tfgrpo.tool.calls"]) == 2
    assert sum(point.value for point in recorded["tfgrpo.rollouts"]) == 3
    assert sum(point.count for point in recorded["tfgrpo.reward"]) == 2
    assert sum(point.value for point in recorded["tfgrpo.groups"]) == 1
    telemetry.shutdown()
    traces.shutdown()
    metrics.shutdown()
