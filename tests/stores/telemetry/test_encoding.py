"""Our bytes say what the SDK's bytes say, for every span there can be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from tests.support.records.otlp_receiver import OtlpReceiver
from tfgrpo.stores.telemetry import encoding as telemetry_encoding
from tfgrpo.stores.telemetry.encoding import SpanEncoder
from tfgrpo.stores.telemetry.export import Target, _LeanSpanExporter
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions, configure


class Collected:
    def __init__(self, limits: SpanLimits | None = None) -> None:
        self.memory = InMemorySpanExporter()
        self.provider = TracerProvider(resource=Resource({"service.name": "x"}), span_limits=limits)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracer = self.provider.get_tracer("one", "1")
        self.telemetry = Telemetry(TelemetryOptions(content=True), traces=self.provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.memory.get_finished_spans()


def assert_same(spans: Any, encoder: SpanEncoder | None = None) -> None:
    ours, theirs = ExportTraceServiceRequest(), encode_spans(spans)
    ours.ParseFromString((encoder or SpanEncoder()).encode(spans))
    assert ours == theirs


VALUES = st.one_of(
    st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.lists(st.text())
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.text(min_size=1), VALUES, max_size=6), min_size=1, max_size=4))
def test_any_attributes_are_encoded_as_the_sdk_encodes_them(given_attributes: list[dict[str, Any]]) -> None:
    use, encoder = Collected(), SpanEncoder()
    for attributes in given_attributes:
        with use.tracer.start_as_current_span("outer \N{SNOWMAN}" * 30, attributes=attributes) as span:
            span.add_event("happened", attributes)
            use.tracer.start_span("inner", attributes=attributes).end()
    assert_same(use.spans, encoder)
    assert_same(use.spans, encoder)  # from memory


def test_equal_values_of_different_types_are_kept_apart() -> None:
    use, encoder = Collected(), SpanEncoder()
    for value in (1, True, 1.0, 0, False, 0.0, "1"):
        use.tracer.start_span("s", attributes={"k": value}).end()
    assert_same(use.spans, encoder)


def test_the_tree_of_a_run_is_encoded_as_the_sdk_encodes_it() -> None:
    use = Collected()
    with use.telemetry.workflow_span("w"), use.telemetry.epoch_span(epoch=1, phase="train", group_size=2):
        with use.telemetry.rollout_span(epoch=1, phase="train", group_id="g", rollout_id="r", index=0) as rollout:
            with use.telemetry.chat_span(model="m", temperature=0.7) as chat:
                chat.reply(finish_reason="stop", input_tokens=3)
            rollout.evaluation("gt", 1.0, evidence="because")
        with pytest.raises(ValueError, match="no"), use.telemetry.tool_span(tool="t"):
            raise ValueError("no")
    assert_same(use.spans)


REMOTE = SpanContext(5, 6, True, TraceFlags(1), TraceState([("k", "v")]))


@pytest.mark.parametrize(
    "unusual",
    [
        {"links": [Link(SpanContext(1, 2, False))]},
        {"attributes": {"numbers": [1, 2]}},
        {"context": set_span_in_context(NonRecordingSpan(REMOTE))},
        {"context": set_span_in_context(NonRecordingSpan(SpanContext(5, 6, True, TraceFlags(1))))},
    ],
)
def test_a_span_unlike_ours_is_encoded_all_the_same(unusual: dict[str, Any]) -> None:
    use = Collected()
    use.tracer.start_span("plain").end()
    use.tracer.start_span("unusual", **unusual).end()
    assert_same(use.spans)


def test_what_limits_dropped_is_told() -> None:
    use = Collected(SpanLimits(max_span_attributes=1, max_events=1, max_event_attributes=1))
    use.tracer.start_span("s", attributes={"a": 1, "b": 2}).end()
    use.tracer.start_span("t").add_event("e", {"a": 1, "b": 2})
    assert_same(use.spans)


def test_spans_of_different_scopes_and_resources_stay_apart() -> None:
    one, two = Collected(), Collected()
    for tracer in (one.tracer, one.provider.get_tracer("two"), two.tracer):
        tracer.start_span("s").end()
    ours = ExportTraceServiceRequest()
    ours.ParseFromString(SpanEncoder().encode([*one.spans, *two.spans]))
    assert [len(part.scope_spans[0].spans) for part in ours.resource_spans] == [1, 1, 1]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_encoding, "_REMEMBERED", 10)
    use, encoder = Collected(), SpanEncoder()
    for number in range(100):
        use.tracer.start_span("s", attributes={"n": number, "long": "x" * 500 + str(number)}).end()
    assert_same(use.spans, encoder)
    assert len(encoder._known) <= 10


def test_the_exporter_sends_our_bytes_with_the_tested_version_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    encode = SpanEncoder.encode

    def counted(self: SpanEncoder, spans: Any) -> bytes:
        asked.append(len(spans))
        return encode(self, spans)

    monkeypatch.setattr(SpanEncoder, "encode", counted)
    with OtlpReceiver() as receiver:
        telemetry = configure(TelemetryOptions(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.url}/v1/traces"})
        with telemetry.span("s"):
            pass
        assert telemetry.shutdown(5.0) is None
    assert asked == [1]


def test_an_exporter_that_is_not_what_it_was_goes_the_sdks_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Any] = []

    def export(self: OTLPSpanExporter, spans: Any) -> SpanExportResult:
        handed.append(spans)
        return SpanExportResult.SUCCESS

    monkeypatch.setattr(OTLPSpanExporter, "export", export)
    exporter = _LeanSpanExporter(Target("otlp", "http://127.0.0.1:1/v1/traces"))
    client, exporter._client = exporter._client, object()
    exporter.export(())
    exporter._client = client
    exporter.shutdown()
    exporter.export(())
    assert len(handed) == 2
