"""Spans and metrics of a process over OpenTelemetry: ``configure`` makes one ``Telemetry`` of options and environment.

Providers are never made global, so that spans of other libraries do not join a run's tree, and the files of a run do not depend
on telemetry. Exception texts never reach a span, and names chosen by users or models are bounded on metrics.

Attributes have names in calls and keys in what is sent. Keys under ``gen_ai.`` follow the GenAI conventions, written out
because their Python constants are deprecated. Ids of items, groups, rollouts and seeds are attributes of spans only: on metrics
each would be a time series.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from time import time_ns
from types import TracebackType
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias, TypedDict, Unpack, get_args, get_type_hints

from opentelemetry.context import attach, detach
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, TracerProvider, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import TypeAdapter

from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.outcomes import Arm, OutcomeName, Phase, Signal
from tfgrpo.stores.packaged import packaged_yaml
from tfgrpo.stores.telemetry.export import Delivery, Environment, Pipe, SignalName, find_target, meter_provider, trace_provider
from tfgrpo.stores.text import replace_surrogates

RoleName: TypeAlias = Literal[
    "rollout", "agent", "gateway", "tool", "judge", "digest", "reflect", "curate", "second", "shorten", "other",
]  # fmt: skip
ToolOutcome: TypeAlias = Literal["ok", "error"]
ExperienceOp: TypeAlias = Literal["added", "changed", "merged", "rejected"]
TokenType: TypeAlias = Literal["input", "output", "total"]
SentArm: TypeAlias = Literal["lessons", "held-out", "off"]
"""What a request in production got. ``held-out``: no lessons, by lot; ``off``: none, because the client declined them."""
Event: TypeAlias = Literal[
    "tool_call", "llm_call", "rollout", "reward", "group", "experience", "library", "injected", "epoch", "run",
    "ended", "budget", "guardrail", "grades", "samples", "request",
]  # fmt: skip

ROLES: Final[frozenset[str]] = frozenset(get_args(RoleName))
OTHER: Final = "other"
NAMES_PER_KEY: Final = 24
"""Distinct names of one open attribute per process."""
CONTENT_CHARS: Final = 4096
_OPEN: Final = frozenset(
    {"tool", "model", "rewarder", "domain", "reason", "rule", "error_type", "agent", "provider", "grader", "dataset"}
)
_LOG: Final = logging.getLogger("tfgrpo.telemetry")
# Time to deliver the last batch to an endpoint that works; one that hangs delays the end of a run by no more.
_SHUTDOWN_S: Final = 2.0
_LAST_JOIN_S: Final = 0.2
_INSTANCE_ID: Final = "service.instance.id"
_SIGNALS: Final[tuple[SignalName, SignalName]] = ("traces", "metrics")
_PROPAGATOR: Final = TraceContextTextMapPropagator()
# Exporter threads belong to the process, so this registry does too: the one exception to the rule that modules keep no
# state. An entry is removed at its shutdown.
_CONFIGURED: Final[dict[_Key, Telemetry]] = {}
_CONFIGURING: Final = threading.Lock()


class Attributes(TypedDict, total=False):
    """The attributes of spans and metrics, each with its key. None is unknown and omitted."""

    epoch: Annotated[int, "tfgrpo.epoch"]
    phase: Annotated[Phase, "tfgrpo.phase"]
    group_size: Annotated[int | None, "tfgrpo.group.size"]
    role: Annotated[str | None, "tfgrpo.role"]
    outcome: Annotated[OutcomeName | ToolOutcome | None, "tfgrpo.outcome"]
    rewarder: Annotated[str, "tfgrpo.rewarder"]
    signal: Annotated[Signal, "tfgrpo.signal"]
    domain: Annotated[str, "tfgrpo.domain"]
    op: Annotated[ExperienceOp, "tfgrpo.op"]
    reason: Annotated[str | None, "tfgrpo.reason"]
    rule: Annotated[str, "tfgrpo.rule"]
    error_type: Annotated[str | None, "error.type"]
    tool: Annotated[str, "gen_ai.tool.name"]
    model: Annotated[str, "gen_ai.request.model"]
    token_type: Annotated[TokenType, "gen_ai.token.type"]
    operation: Annotated[str, "gen_ai.operation.name"]
    provider: Annotated[str, "gen_ai.provider.name"]
    agent: Annotated[str, "gen_ai.agent.name"]
    grader: Annotated[str, "tfgrpo.grader"]
    dataset: Annotated[str, "tfgrpo.dataset"]
    method: Annotated[str, "http.request.method"]
    route: Annotated[str, "http.route"]
    status: Annotated[int, "http.response.status_code"]
    run_id: Annotated[str | None, "tfgrpo.run.id"]
    task_id: Annotated[str | None, "tfgrpo.task.id"]

    arm: Annotated[Arm | SentArm | None, "tfgrpo.arm"]
    run_status: Annotated[str, "tfgrpo.run.status"]
    run_decision: Annotated[str | None, "tfgrpo.run.decision"]
    simulated: Annotated[bool, "tfgrpo.simulated"]
    cap: Annotated[str, "tfgrpo.budget.cap"]
    modality: Annotated[str, "gen_ai.token.modality"]
    workflow: Annotated[str, "gen_ai.workflow.name"]

    # Of spans only.
    item_id: Annotated[str, "tfgrpo.item.id"]
    group_id: Annotated[str, "tfgrpo.group.id"]
    rollout_id: Annotated[str, "tfgrpo.rollout.id"]
    index: Annotated[int | None, "tfgrpo.rollout.index"]
    batch: Annotated[int, "tfgrpo.batch"]
    records: Annotated[int, "tfgrpo.records"]
    run_calls: Annotated[int | None, "tfgrpo.run.calls"]
    run_tokens: Annotated[int | None, "tfgrpo.run.tokens"]
    run_cost_usd: Annotated[float | None, "tfgrpo.run.cost_usd"]
    sample_size: Annotated[int | None, "tfgrpo.sample_size"]
    seed: Annotated[int | None, "tfgrpo.seed"]
    pack_id: Annotated[str | None, "gen_ai.prompt.name"]
    pack_stamp: Annotated[str | None, "gen_ai.prompt.version"]
    temperature: Annotated[float | None, "gen_ai.request.temperature"]
    max_tokens: Annotated[int | None, "gen_ai.request.max_tokens"]
    request_seed: Annotated[int | None, "gen_ai.request.seed"]
    first_chunk_s: Annotated[float | None, "gen_ai.response.time_to_first_chunk"]
    response_id: Annotated[str | None, "gen_ai.response.id"]
    response_model: Annotated[str | None, "gen_ai.response.model"]
    finish_reasons: Annotated[tuple[str, ...] | None, "gen_ai.response.finish_reasons"]
    input_tokens: Annotated[int | None, "gen_ai.usage.input_tokens"]
    output_tokens: Annotated[int | None, "gen_ai.usage.output_tokens"]
    cached_tokens: Annotated[int | None, "gen_ai.usage.cache_read.input_tokens"]
    reasoning_tokens: Annotated[int | None, "gen_ai.usage.reasoning.output_tokens"]
    llm_cost_usd: Annotated[float | None, "tfgrpo.llm.cost_usd"]
    replayed: Annotated[bool | None, "tfgrpo.replayed"]
    tool_type: Annotated[str, "gen_ai.tool.type"]
    tool_call_id: Annotated[str | None, "gen_ai.tool.call.id"]
    tool_cost_usd: Annotated[float | None, "tfgrpo.tool.cost_usd"]
    reward: Annotated[float | None, "tfgrpo.reward"]
    relative_rank: Annotated[float | None, "tfgrpo.relative_rank"]
    spread: Annotated[float | None, "tfgrpo.group.reward_spread"]
    input_messages: Annotated[str, "gen_ai.input.messages"]
    output_messages: Annotated[str, "gen_ai.output.messages"]
    scored_by: Annotated[str, "gen_ai.evaluation.name"]
    score: Annotated[float | None, "gen_ai.evaluation.score.value"]
    label: Annotated[Literal["pass", "fail"] | None, "gen_ai.evaluation.score.label"]
    evidence: Annotated[str | None, "gen_ai.evaluation.explanation"]

    # The specification's spellings, on the spans of epochs and rollouts.
    literal_epoch: Annotated[int, "tfgrpo_epoch"]
    literal_group_size: Annotated[int | None, "group_size"]
    literal_tool_cost_usd: Annotated[float | None, "tool_cost_usd"]
    literal_latency_ms: Annotated[float | None, "latency_ms"]


class Facts(Attributes, total=False):
    """What is known of an event: attributes, and figures that are no attributes."""

    count: int
    """How many such events; 1 unless given."""
    duration_s: float
    tokens: int
    active: int
    reward_mean: float | None
    solve_rate: float | None
    scored: int
    ungraded: int
    used: float
    gain: float
    gain_low: float
    gain_high: float
    lost_share: float | None
    cost_usd: float | None
    nights_unchanged: int


KEYS: Final[Mapping[str, str]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Attributes, include_extras=True).items()
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument, and what it takes from an event."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    description: str
    event: Event
    values: Mapping[str, Mapping[str, str]]
    """The facts that it measures, each with the attributes that this fixes."""
    attributes: tuple[str, ...]
    """The only other attributes that it may carry."""
    boundaries: tuple[float, ...] | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The keys of its attributes."""
        return frozenset(KEYS[name] for name in chain(self.attributes, *self.values.values()))


@cache
def all_metrics() -> tuple[Metric, ...]:
    """Return the metrics of ``metrics.yaml``, in order."""
    declared = packaged_yaml(__file__, "metrics.yaml")
    return TypeAdapter(tuple[Metric, ...]).validate_python(declared["metrics"])


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


class SpanHandle:
    """A span, current inside its block. Values of None are omitted; every method is a no-op without a recorder.

    The SDK's context manager costs a third more.
    """

    __slots__ = ("_content", "_ended_at", "_keep_open", "_span", "_token")

    def __init__(self, span: Span, *, content: bool, keep_open: bool = False) -> None:
        self._span = span
        self._content = content
        self._keep_open = keep_open
        self._ended_at: int | None = None

    def __enter__(self) -> Self:
        self._token = attach(set_span_in_context(self._span))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.fail(kind.__name__)
        detach(self._token)
        if self._keep_open and kind is None:
            # The result follows before `end`.
            self._ended_at = time_ns()
        else:
            self._span.end()

    def set(self, **attributes: Unpack[Attributes]) -> None:
        """Set attributes."""
        if self._span.is_recording():
            self._span.set_attributes(_present(attributes))

    def fail(self, error_type: str) -> None:
        """Mark the span as failed; ``error_type`` is a class name or a short code."""
        self.set(error_type=error_type)
        self._span.set_status(Status(StatusCode.ERROR, error_type))

    def end(self) -> None:
        """End a span that was kept open, at the time its block ended."""
        self._span.end(self._ended_at)

    def evaluation(self, **attributes: Unpack[Attributes]) -> None:
        """Add a rewarder's score as an event; the evidence only with ``content``.

        ``index``: the scored rollout, on a span of several.
        """
        evidence = attributes.get("evidence")
        attributes["evidence"] = evidence[:CONTENT_CHARS] if evidence and self._content else None
        self._span.add_event("gen_ai.evaluation.result", _present(attributes))

    def content(self, side: Literal["input", "output"], text: str) -> None:
        """Set a prompt or answer, shortened; only with ``content``."""
        if self._content:
            name = KEYS["input_messages" if side == "input" else "output_messages"]
            self._span.set_attribute(name, replace_surrogates(text[:CONTENT_CHARS]))


OpenSpan: TypeAlias = AbstractContextManager[SpanHandle]
_SILENT: Final[OpenSpan] = nullcontext(SpanHandle(INVALID_SPAN, content=False))


class _Measure(NamedTuple):
    write: Callable[[float, dict[str, Any]], None]
    fact: str
    keys: tuple[str, ...]
    fixed: dict[str, str]
    adds: bool
    """Whether the instrument is a counter, for which zero is nothing."""


class Telemetry:
    """Spans and metrics of this process. Without providers every method is a cheap no-op.

    ``invoke_workflow`` > ``tfgrpo.epoch`` > ``tfgrpo.group`` > ``invoke_agent`` (one rollout) > ``chat``, ``execute_tool``.
    Attributes for samplers are set at the start of a span, results on its handle. Unknown figures are omitted from metrics,
    never recorded as zero.
    """

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
        """``pipes`` are what ``shutdown`` has to close."""
        self.options = options
        self.warnings = tuple(warnings)
        """Unsupported values of the environment, in sentences."""
        self._tracer = None if traces is None else traces.get_tracer("tfgrpo", options.service_version)
        self._metrics = metrics
        self._measures: defaultdict[Event, list[_Measure]] = defaultdict(list)
        if metrics is not None:
            meter = metrics.get_meter("tfgrpo", options.service_version)
            for metric in all_metrics():
                self._measures[metric.event] += _measures(meter, metric)
        # Names of each open attribute; the first ones keep their name.
        self._seen: dict[str, set[str]] = {attribute: set() for attribute in _OPEN}
        self._naming = threading.Lock()
        # Their threads wait from now on, as none can be started at the end of a process as of Python 3.12.
        self._ending = threading.Event()
        self._pipes = [(pipe, _in_background(partial(self._close, pipe))) for pipe in pipes]
        self._delivery = delivery or Delivery()
        self._collecting: threading.Thread | None = None
        self._closed = False

    @property
    def active(self) -> bool:
        """Whether anything is recorded."""
        return not self._closed and (self._tracer is not None or bool(self._measures))

    def span(
        self, name: str, *, keep_open: bool = False, kind: SpanKind = SpanKind.INTERNAL, **attributes: Unpack[Attributes]
    ) -> OpenSpan:
        """Any step, e.g. ``tfgrpo.store.write``. An exception marks the span as failed and propagates.

        ``keep_open``: only an exception or ``SpanHandle.end`` ends the span, not the end of the block.
        """
        if self._tracer is None:
            return _SILENT
        span = self._tracer.start_span(replace_surrogates(name), kind=kind, attributes=_present(attributes))
        return SpanHandle(span, content=self.options.content, keep_open=keep_open)

    def workflow_span(self, name: str, **attributes: Unpack[Attributes]) -> OpenSpan:
        """A whole run of the pipeline ``name``."""
        whole: Attributes = {**attributes, "operation": "invoke_workflow", "workflow": name}
        return self.span(f"invoke_workflow {name}", **whole)

    def epoch_span(self, **attributes: Unpack[Attributes]) -> OpenSpan:
        """One epoch. Exported at its end, so a killed epoch has only its rollouts."""
        return self.span("tfgrpo.epoch", **_with_literals(attributes))

    def rollout_span(self, *, keep_open: bool = False, **attributes: Unpack[Attributes]) -> OpenSpan:
        """One rollout of one ``agent``."""
        whole: Attributes = {**_with_literals(attributes), "operation": "invoke_agent"}
        return self.span(f"invoke_agent {attributes['agent']}", keep_open=keep_open, **whole)

    def chat_span(self, **attributes: Unpack[Attributes]) -> OpenSpan:
        """One call of a ``model``."""
        whole: Attributes = {**attributes, "operation": "chat"}
        return self.span(f"chat {attributes['model']}", kind=SpanKind.CLIENT, **whole)

    def tool_span(self, **attributes: Unpack[Attributes]) -> OpenSpan:
        """One call of a ``tool``."""
        whole: Attributes = {**attributes, "operation": "execute_tool", "tool_type": "function"}
        return self.span(f"execute_tool {attributes['tool']}", **whole)

    def carrier(self) -> dict[str, str]:
        """Return the current position in the trace as text, for another thread or process."""
        carrier: dict[str, str] = {}
        if self._tracer is not None:
            _PROPAGATOR.inject(carrier)
        return carrier

    @contextmanager
    def attached(self, carrier: Mapping[str, str]) -> Iterator[None]:
        """Continue the trace of ``carrier``; an empty one has no effect."""
        if self._tracer is None or not carrier:
            yield
            return
        token = attach(_PROPAGATOR.extract(carrier))
        try:
            yield
        finally:
            detach(token)

    def record(self, event: Event, **facts: Unpack[Facts]) -> None:
        """Record what is known of an event in every metric that measures any of it; None is unknown."""
        if not self._measures:
            return
        sent = {KEYS[name]: self._bounded(name, fact) for name, fact in facts.items() if name in KEYS and fact is not None}
        figures: dict[str, Any] = {"count": 1, **facts}
        for measure in self._measures.get(event, ()):
            figure = figures.get(measure.fact)
            if figure is not None and math.isfinite(figure) and (figure > 0 or not measure.adds):
                measure.write(figure, {key: sent[key] for key in measure.keys if key in sent} | measure.fixed)

    def _bounded(self, name: str, fact: Any) -> Any:
        if name == "role":
            return fact if fact in ROLES else OTHER
        if name not in _OPEN or fact in self._seen[name]:
            return fact
        # A lone surrogate would fail the whole export.
        fact, seen = replace_surrogates(fact), self._seen[name]
        # Two threads must not both add the last name.
        with self._naming:
            if fact not in seen and len(seen) >= NAMES_PER_KEY:
                return OTHER
            seen.add(fact)
        return fact

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
            for key in [key for key, telemetry in _CONFIGURED.items() if telemetry is self]:
                del _CONFIGURED[key]
        deadline = time.monotonic() + deadline_s
        self._ending.set()
        for _, thread in self._pipes:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = [pipe for pipe, thread in self._pipes if thread.is_alive()]
        # No thread can be started at the end of a process: they end with it.
        with suppress(RuntimeError):
            for thread in [_in_background(pipe.abandon) for pipe in late]:
                thread.join(_LAST_JOIN_S / len(late))
        spans = self._delivery.ended - self._delivery.delivered
        lost = [f"{spans} of {self._delivery.ended} spans"] if spans > 0 else []
        if self._delivery.metrics_failed or any(pipe.signal == "metrics" for pipe in late):
            lost.append("the last metrics")
        if not lost:
            return None
        receivers = ", ".join(sorted({pipe.where for pipe, _ in self._pipes}))
        return f"telemetry: {' and '.join(lost)} were not delivered to {receivers}{self._delivery.why}"

    def _close(self, pipe: Pipe) -> None:
        self._ending.wait()
        pipe.shutdown()

    def at_exit(self) -> None:
        """Shut down at the end of the process, where no caller is left to show what was not delivered: log it."""
        if (line := self.shutdown()) is not None:
            _LOG.warning("%s", line)


_Key: TypeAlias = tuple[TelemetryOptions, tuple[tuple[str, str], ...]]


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
    attributes = {"service.version": options.service_version} | _present({"run_id": options.run_id, "task_id": options.task_id})
    # Our service name only without the user's, since code takes precedence over environment.
    if not env.get("OTEL_SERVICE_NAME") and "service.name=" not in env.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes["service.name"] = "tfgrpo"
    resource = Resource.create(attributes)
    delivery = Delivery()
    pipes: list[Pipe] = []
    traces = metrics = None
    try:
        if to_traces is not None:
            traces, pipe = trace_provider(to_traces, env, resource, delivery)
            pipes.append(pipe)
        if to_metrics is not None:
            # Without run id and process id, which would make new series every night.
            volatile = {KEYS["run_id"]}
            if not options.several_processes and f"{_INSTANCE_ID}=" not in env.get("OTEL_RESOURCE_ATTRIBUTES", ""):
                volatile.add(_INSTANCE_ID)
            kept = {key: value for key, value in resource.attributes.items() if key not in volatile}
            metrics, pipe = meter_provider(to_metrics, env, Resource(kept, resource.schema_url), delivery)
            pipes.append(pipe)
    except ValueError as error:
        # Of a variable that the SDK reads itself.
        raise SettingsError.one("OTEL_*", " ".join(str(error).split()), "values that the OpenTelemetry SDK takes") from error
    telemetry = Telemetry(options, traces=traces, metrics=metrics, pipes=pipes, delivery=delivery, warnings=warnings)
    if options.run_id is not None:
        telemetry.record("run", run_id=options.run_id)
    atexit.register(telemetry.at_exit)
    return telemetry


def _in_background(work: Callable[[], object]) -> threading.Thread:
    def quietly() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the SDK raises plain Exception; a thread has no caller
            _LOG.debug("telemetry: %s", type(error).__name__)

    # A daemon: an endpoint that hangs must not keep the process alive.
    thread = threading.Thread(target=quietly, name="tfgrpo-telemetry", daemon=True)
    thread.start()
    return thread


def _present(attributes: Attributes) -> dict[str, Any]:
    sent = {KEYS[name]: value for name, value in attributes.items() if value is not None}
    for key, value in sent.items():
        # Tools and agents emit lone surrogates: one would fail the whole batch of its span.
        if isinstance(value, str | tuple):
            sent[key] = replace_surrogates(value) if isinstance(value, str) else tuple(map(replace_surrogates, value))
    return sent


def _with_literals(attributes: Attributes) -> Attributes:
    # Epoch and group size under the specification's names, too.
    return {**attributes, "literal_epoch": attributes["epoch"], "literal_group_size": attributes.get("group_size")}


def _measures(meter: Meter, metric: Metric) -> list[_Measure]:
    name, unit, description = metric.name, metric.unit, metric.description
    if metric.kind == "counter":
        write = meter.create_counter(name, unit, description).add
    elif metric.kind == "gauge":
        write = meter.create_gauge(name, unit, description).set
    else:
        boundaries = metric.boundaries
        write = meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=boundaries).record
    keys = tuple(KEYS[attribute] for attribute in metric.attributes)
    return [
        _Measure(write, fact, keys, {KEYS[attribute]: value for attribute, value in fixed.items()}, metric.kind == "counter")
        for fact, fixed in metric.values.items()
    ]
