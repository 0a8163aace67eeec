"""Configure traces and metrics over OpenTelemetry, once per process: options in, one ``Telemetry`` out.

Providers are never made global, so that spans of other libraries do not join a run's tree. The files of a run do not
depend on telemetry.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import TracerProvider

from tfgrpo.stores.telemetry import names as n
from tfgrpo.stores.telemetry.export import Delivery, Environment, Pipe, find_target, meter_provider, trace_provider
from tfgrpo.stores.telemetry.metrics import Instruments, Recorder
from tfgrpo.stores.telemetry.spans import SpanHandle, SpanMaker

__all__ = ["SpanHandle", "Telemetry", "TelemetryOptions", "configure"]

_LOG: Final = logging.getLogger("tfgrpo.telemetry")
_LAST_JOIN_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """What the run knows about its own telemetry; the rest is in the environment."""

    service_version: str = "0"
    run_id: str | None = None
    task_id: str | None = None
    genai_metrics: n.GenaiMetrics = "latest"
    """Names of the convention's metrics beside ours."""
    content: bool = False
    """Put prompts, answers and evidence on spans."""
    several_processes: bool = False
    """Whether other processes report for the same run; only then series tell processes apart."""
    shutdown_s: float = 2.0
    """Most seconds the end of the process waits for deliveries."""


class Telemetry(SpanMaker, Recorder):
    """Spans and metrics of this process. Without providers every method is nearly free and nothing leaves."""

    def __init__(
        self,
        options: TelemetryOptions,
        *,
        traces: TracerProvider | None = None,
        metrics: MeterProvider | None = None,
        pipes: Sequence[Pipe] = (),
        delivery: Delivery | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        """``configure`` builds the providers; tests pass their own. ``pipes`` are what ``shutdown`` has to close."""
        tracer = None if traces is None else traces.get_tracer("tfgrpo", options.service_version)
        meter = None if metrics is None else metrics.get_meter("tfgrpo", options.service_version)
        SpanMaker.__init__(self, tracer, content=options.content)
        Recorder.__init__(self, None if meter is None else Instruments.of(meter, options.genai_metrics))
        self.options = options
        self.warnings = tuple(warnings)
        """What the environment asks for and this program does not do, in sentences."""
        self._metrics = metrics
        self._pipes = tuple(pipes)
        self._delivery = delivery or Delivery()
        self._collecting: threading.Thread | None = None
        self._closed = False

    @property
    def active(self) -> bool:
        """Whether anything is recorded."""
        return self._tracer is not None or self._instruments is not None

    def collect(self, wait_s: float = 0.0) -> None:
        """Send the metrics as they stand, at the end of an epoch: in a thread, awaited ``wait_s`` at most."""
        metrics = self._metrics
        if not isinstance(metrics, SdkMeterProvider) or self._closed:
            return
        if self._collecting is None or not self._collecting.is_alive():
            self._collecting = _in_background(metrics.force_flush)
        self._collecting.join(wait_s)

    def shutdown(self, deadline_s: float | None = None) -> str | None:
        """Deliver what is left and stop, within ``deadline_s`` (default: the option), whatever the endpoint does.

        Returns (and logs) one line that says what was not delivered, or None when all was. Harmless when repeated.
        """
        if self._closed:
            return None
        self._closed = True
        _forget(self)
        deadline = time.monotonic() + (self.options.shutdown_s if deadline_s is None else deadline_s)
        closing = [(pipe, _in_background(pipe.shutdown)) for pipe in self._pipes]
        for _, thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = [pipe for pipe, thread in closing if thread.is_alive()]
        for thread in [_in_background(pipe.abandon) for pipe in late]:
            thread.join(_LAST_JOIN_S / len(late))
        return self._say_what_was_lost(late)

    def _say_what_was_lost(self, late: Sequence[Pipe]) -> str | None:
        spans = self._delivery.ended - self._delivery.delivered
        lost = [f"{spans} of {self._delivery.ended} spans"] if spans > 0 else []
        if self._delivery.metrics_failed or any(pipe.signal == "metrics" for pipe in late):
            lost.append("the last metrics")
        if not lost:
            return None
        places = ", ".join(sorted({pipe.where for pipe in self._pipes}))
        line = f"telemetry: {' and '.join(lost)} were not delivered to {places}"
        _LOG.warning("%s", line)
        return line


_Key: TypeAlias = tuple[TelemetryOptions, tuple[tuple[str, str], ...]]
# Exporter threads belong to the process, so the process has to know which it has: the one deliberate exception to the
# rule that modules keep no state. An entry leaves at its shutdown.
_CONFIGURED: Final[dict[_Key, Telemetry]] = {}
_CONFIGURING: Final = threading.Lock()


def configure(options: TelemetryOptions, env: Mapping[str, str]) -> Telemetry:
    """The process's telemetry for these options and this ``OTEL_*`` environment; the same object until its shutdown.

    Exporters are built only when an endpoint is configured, or for ``OTEL_*_EXPORTER=console`` (to stderr). Raises
    ``SettingsError`` for an endpoint that is none; other values that are not understood are logged, and in ``warnings``.
    If nobody calls ``shutdown``, the end of the process does, with the same deadline.
    """
    key = (options, tuple(sorted(item for item in env.items() if item[0].startswith("OTEL_"))))
    with _CONFIGURING:
        if key not in _CONFIGURED:
            _CONFIGURED[key] = _build(options, env)
        return _CONFIGURED[key]


def _build(options: TelemetryOptions, env: Environment) -> Telemetry:
    both: list[str] = []
    to_traces, to_metrics = find_target(env, "traces", both.append), find_target(env, "metrics", both.append)
    said = tuple(dict.fromkeys(both))
    for warning in said:
        _LOG.warning("%s", warning)
    if to_traces is None and to_metrics is None:
        return Telemetry(options, warnings=said)
    resource = _resource(options, env)
    delivery = Delivery()
    pipes: list[Pipe] = []
    traces = metrics = None
    if to_traces is not None:
        traces, pipe = trace_provider(to_traces, env, resource, delivery)
        pipes.append(pipe)
    if to_metrics is not None:
        metrics, pipe = meter_provider(to_metrics, env, _resource_of_series(resource, options, env), delivery)
        pipes.append(pipe)
    telemetry = Telemetry(options, traces=traces, metrics=metrics, pipes=pipes, delivery=delivery, warnings=said)
    if options.run_id is not None:
        telemetry.record_run(run_id=options.run_id, task_id=options.task_id)
    atexit.register(telemetry.shutdown)
    return telemetry


def _resource(options: TelemetryOptions, env: Environment) -> Resource:
    """Who is speaking. The service name is ours only when the user gave none, since code would win over environment."""
    attributes = {"service.version": options.service_version}
    if not env.get("OTEL_SERVICE_NAME") and "service.name=" not in env.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes["service.name"] = "tfgrpo"
    if options.run_id is not None:
        attributes[n.RUN_ID] = options.run_id
    if options.task_id is not None:
        attributes[n.TASK_ID] = options.task_id
    return Resource.create(attributes)


def _resource_of_series(resource: Resource, options: TelemetryOptions, env: Environment) -> Resource:
    """The same without what would make new series of every run: its id, and the id of the process."""
    passing = {n.RUN_ID}
    if not options.several_processes and f"{n.INSTANCE_ID}=" not in env.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        passing.add(n.INSTANCE_ID)
    kept = {key: value for key, value in resource.attributes.items() if key not in passing}
    return Resource(kept, resource.schema_url)


def _forget(telemetry: Telemetry) -> None:
    atexit.unregister(telemetry.shutdown)
    with _CONFIGURING:
        for key in [key for key, known in _CONFIGURED.items() if known is telemetry]:
            del _CONFIGURED[key]


def _in_background(work: Callable[[], object]) -> threading.Thread:
    """A daemon thread: an endpoint that hangs must not keep the process alive."""
    thread = threading.Thread(target=_quietly, args=(work,), name="tfgrpo-telemetry", daemon=True)
    thread.start()
    return thread


def _quietly(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the SDK raises plain Exception; a thread has nobody to raise to
        _LOG.debug("telemetry: %s", type(error).__name__)
