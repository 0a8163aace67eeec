"""OTLP/HTTP endpoint in this process that decodes the requests it receives, and can hang or refuse them."""

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

Mode: TypeAlias = Literal["ok", "hang", "401", "503"]


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span as it arrived. ``parent_id`` is empty for a root; ``error``: its status is ERROR."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    error: bool
    status_text: str


@dataclass(frozen=True, slots=True)
class ReceivedPoint:
    """One time series of one metric, as it arrived last."""

    metric: str
    unit: str
    kind: str
    attributes: dict[str, Any]
    value: float
    """The sum of a histogram, the value of anything else."""
    count: int
    """Observations of a histogram, 1 for anything else."""
    bounds: tuple[float, ...] = ()


class OtlpReceiver:
    """A context manager. ``url`` is the base endpoint; ``mode`` may be changed at any time."""

    def __init__(self, mode: Mode = "ok") -> None:
        self.mode = mode
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._traces: list[ExportTraceServiceRequest] = []
        self._metrics: list[ExportMetricsServiceRequest] = []
        self._leave = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Return the base endpoint, for ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """Return the ``OTEL_*`` variables to send here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}

    def spans(self) -> list[ReceivedSpan]:
        """Return every span that arrived, in order of arrival."""
        return [
            _span(span, _attributes(block.resource.attributes))
            for request in list(self._traces)
            for block in request.resource_spans
            for scope in block.scope_spans
            for span in scope.spans
        ]

    def span(self, name: str) -> ReceivedSpan:
        """Return the only span of this name."""
        (found,) = [span for span in self.spans() if span.name == name]
        return found

    def points(self, metric: str | None = None) -> list[ReceivedPoint]:
        """Return the latest state of every series (metrics are cumulative), of one metric or of all."""
        latest: dict[tuple[str, str], ReceivedPoint] = {}
        for request in list(self._metrics):
            for point in _points(request):
                latest[point.metric, repr(sorted(point.attributes.items()))] = point
        return [point for point in latest.values() if metric in {None, point.metric}]

    def series_resource(self) -> dict[str, Any]:
        """Return the resource of the metrics that arrived last."""
        return _attributes(self._metrics[-1].resource_metrics[-1].resource.attributes)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append(self.path)
                receiver.headers.append(dict(self.headers.items()))
                if receiver.mode == "hang":
                    receiver._leave.wait()
                    self.close_connection = True
                    return
                if receiver.mode == "ok":
                    receiver._take(self.path, gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
                self.send_response(200 if receiver.mode == "ok" else int(receiver.mode))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Log no requests."""

        return Handler

    def _take(self, path: str, body: bytes) -> None:
        if path.endswith("/v1/traces"):
            self._traces.append(ExportTraceServiceRequest.FromString(body))
        elif path.endswith("/v1/metrics"):
            self._metrics.append(ExportMetricsServiceRequest.FromString(body))


def _span(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        attributes=_attributes(span.attributes),
        resource=resource,
        events=tuple((event.name, _attributes(event.attributes)) for event in span.events),
        error=span.status.code == 2,
        status_text=span.status.message,
    )


def _points(request: ExportMetricsServiceRequest) -> list[ReceivedPoint]:
    points = []
    for block in request.resource_metrics:
        for scope in block.scope_metrics:
            for metric in scope.metrics:
                kind = str(metric.WhichOneof("data"))
                points += [_point(metric, kind, point) for point in getattr(metric, kind).data_points]
    return points


def _point(metric: Any, kind: str, point: Any) -> ReceivedPoint:
    attributes = _attributes(point.attributes)
    if kind in {"histogram", "exponential_histogram"}:
        bounds = tuple(point.explicit_bounds) if kind == "histogram" else ()
        return ReceivedPoint(metric.name, metric.unit, kind, attributes, point.sum, point.count, bounds)
    value = getattr(point, point.WhichOneof("value"))
    return ReceivedPoint(metric.name, metric.unit, kind, attributes, value, 1)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(element) for element in value.array_value.values)
    return None if kind is None else getattr(value, kind)
