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

from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.telemetry.export import (
    Delivery,
    Environment,
    Pipe,
    SignalName,
    find_target,
    meter_provider,
    trace_provider,
)
from tfgrpo.stores.telemetry.metrics import MetricsRecorder
from tfgrpo.stores.telemetry.names import KEYS
from tfgrpo.stores.telemetry.spans import OpenSpan, SpanHandle, SpanMaker

__all__ = ["OpenSpan", "SpanHandle", "Telemetry", "TelemetryOptions", "configure"]

_LOG: Final = logging.getLogger("tfgrpo.telemetry")
_SHUTDOWN_S: Final = 2.0
"""Time to deliver the last batch to an endpoint that works; one that hangs delays the end of a run by no more."""
_LAST_JOIN_S: Final = 0.2
_INSTANCE_ID: Final = "service.instance.id"
_SIGNALS: Final[tuple[SignalName, SignalName]] = ("traces", "metrics")


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """Options of a run; all others are in the environment."""

    service_version: str = "0"
    run_id: str | None = None
    task_id: str | None = None
    content: bool = False
    """Add prompts, answers and evidence to spans."""
    several_processes: bool = False
    """Whether several processes report for one run; only then series are split by process."""


class Telemetry(SpanMaker, MetricsRecorder):
    """Spans and metrics of this process. Without providers every method is a cheap no-op."""

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
        MetricsRecorder.__init__(self, meter)
        self.options = options
        self.warnings = tuple(warnings)
        """Unsupported values of the environment, in sentences."""
        self._metrics = metrics
        self._pipes = tuple(pipes)
        self._delivery = delivery or Delivery()
        self._collecting: threading.Thread | None = None
        self._closed = False

    @property
    def active(self) -> bool:
        """Whether anything is recorded."""
        return not self._closed and (self._tracer is not None or bool(self._measures))

    def collect(self, wait_s: float = 0.0) -> None:
        """Send the current metrics, at the end of an epoch, in a thread that is awaited for at most ``wait_s``."""
        metrics = self._metrics
        if not isinstance(metrics, SdkMeterProvider) or self._closed:
            return
        if self._collecting is None or not self._collecting.is_alive():
            self._collecting = _in_background(metrics.force_flush)
        self._collecting.join(wait_s)

    def shutdown(self, deadline_s: float = _SHUTDOWN_S) -> str | None:
        """Deliver the rest and stop, within ``deadline_s``, also when the endpoint hangs.

        Return one line about what was not delivered, or None. Harmless when repeated.
        """
        if self._closed:
            return None
        self._closed = True
        atexit.unregister(self.at_exit)
        with _CONFIGURING:
            for key in [key for key, known in _CONFIGURED.items() if known is self]:
                del _CONFIGURED[key]
        deadline = time.monotonic() + deadline_s
        closing = [(pipe, _in_background(pipe.shutdown)) for pipe in self._pipes]
        for _, thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = [pipe for pipe, thread in closing if thread.is_alive()]
        for thread in [_in_background(pipe.abandon) for pipe in late]:
            thread.join(_LAST_JOIN_S / len(late))
        return self._losses(late)

    def _losses(self, late: Sequence[Pipe]) -> str | None:
        spans = self._delivery.ended - self._delivery.delivered
        lost = [f"{spans} of {self._delivery.ended} spans"] if spans > 0 else []
        if self._delivery.metrics_failed or any(pipe.signal == "metrics" for pipe in late):
            lost.append("the last metrics")
        if not lost:
            return None
        receivers = ", ".join(sorted({pipe.where for pipe in self._pipes}))
        return f"telemetry: {' and '.join(lost)} were not delivered to {receivers}{self._delivery.why}"

    def at_exit(self) -> None:
        """Shut down at the end of the process, where no caller is left to show what was not delivered: log it."""
        if (line := self.shutdown()) is not None:
            _LOG.warning("%s", line)


_Key: TypeAlias = tuple[TelemetryOptions, tuple[tuple[str, str], ...]]
# Exporter threads belong to the process, so this registry does too: the one exception to the rule that modules keep no
# state. An entry is removed at its shutdown.
_CONFIGURED: Final[dict[_Key, Telemetry]] = {}
_CONFIGURING: Final = threading.Lock()


def configure(options: TelemetryOptions, env: Mapping[str, str]) -> Telemetry:
    """Return the telemetry for these options and this ``OTEL_*`` environment; the same object until its shutdown.

    Exporters are built only when an endpoint is configured, or for ``OTEL_*_EXPORTER=console`` (to stderr). Raises
    ``SettingsError`` for an invalid endpoint, and for what the SDK refuses; other unsupported values are in ``warnings``,
    for the caller to show. At the end of the process ``shutdown`` is called, unless it was before.
    """
    key = (options, tuple(sorted(item for item in env.items() if item[0].startswith("OTEL_"))))
    with _CONFIGURING:
        if key not in _CONFIGURED:
            _CONFIGURED[key] = _build(options, env)
        return _CONFIGURED[key]


def _build(options: TelemetryOptions, env: Environment) -> Telemetry:
    problems: list[str] = []
    to_traces, to_metrics = (find_target(env, signal, problems.append) for signal in _SIGNALS)
    warnings = tuple(dict.fromkeys(problems))
    if to_traces is None and to_metrics is None:
        return Telemetry(options, warnings=warnings)
    resource = _resource(options, env)
    delivery = Delivery()
    pipes: list[Pipe] = []
    traces = metrics = None
    try:
        if to_traces is not None:
            traces, pipe = trace_provider(to_traces, env, resource, delivery)
            pipes.append(pipe)
        if to_metrics is not None:
            metrics, pipe = meter_provider(to_metrics, env, _resource_of_series(resource, options, env), delivery)
            pipes.append(pipe)
    except ValueError as error:  # of a variable that the SDK reads itself
        given = " ".join(str(error).split())
        raise SettingsError.one("OTEL_*", given, "values that the OpenTelemetry SDK takes") from error
    telemetry = Telemetry(options, traces=traces, metrics=metrics, pipes=pipes, delivery=delivery, warnings=warnings)
    if options.run_id is not None:
        telemetry.record("run", run_id=options.run_id)
    atexit.register(telemetry.at_exit)
    return telemetry


def _resource(options: TelemetryOptions, env: Environment) -> Resource:
    """Return the resource. Our service name only without the user's, since code takes precedence over environment."""
    attributes = {"service.version": options.service_version}
    if not env.get("OTEL_SERVICE_NAME") and "service.name=" not in env.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes["service.name"] = "tfgrpo"
    for name, value in (("run_id", options.run_id), ("task_id", options.task_id)):
        if value is not None:
            attributes[KEYS[name]] = value
    return Resource.create(attributes)


def _resource_of_series(resource: Resource, options: TelemetryOptions, env: Environment) -> Resource:
    """Return the resource of metrics: without run id and process id, which would make new series every night."""
    volatile = {KEYS["run_id"]}
    if not options.several_processes and f"{_INSTANCE_ID}=" not in env.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        volatile.add(_INSTANCE_ID)
    kept = {key: value for key, value in resource.attributes.items() if key not in volatile}
    return Resource(kept, resource.schema_url)


def _in_background(work: Callable[[], object]) -> threading.Thread:
    """Run in a daemon thread: an endpoint that hangs must not keep the process alive."""

    def quietly() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the SDK raises plain Exception; a thread has no caller
            _LOG.debug("telemetry: %s", type(error).__name__)

    thread = threading.Thread(target=quietly, name="tfgrpo-telemetry", daemon=True)
    thread.start()
    return thread
