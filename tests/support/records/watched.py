"""Telemetry whose spans and metrics stay in memory, to be read back."""

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions


class Watched:
    """``telemetry``, and what it has reported so far."""

    def __init__(self, *, content: bool = False) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        traces = TracerProvider(shutdown_on_exit=False)
        traces.add_span_processor(SimpleSpanProcessor(self._spans))
        metrics = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(TelemetryOptions(content=content), traces=traces, metrics=metrics)

    def spans(self, name: str | None = None) -> list[Any]:
        """Return the finished spans, or those of one name."""
        return [span for span in self._spans.get_finished_spans() if name in (None, span.name)]

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self._reader.get_metrics_data()
        found = [] if data is None else data.resource_metrics
        metrics = [metric for resource in found for scope in resource.scope_metrics for metric in scope.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]
