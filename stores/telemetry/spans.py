"""Spans of a run as context managers.

``invoke_workflow`` > ``tfgrpo.epoch`` > ``tfgrpo.group`` > ``invoke_agent`` (one rollout) > ``chat``, ``execute_tool``.
Attributes for samplers are set at the start, results on the handle. Exception texts never reach a span: they may
contain what a user or an endpoint sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import time_ns
from types import TracebackType
from typing import Final, Literal, TypeAlias

from opentelemetry.context import attach, detach
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tfgrpo.stores.outcomes import Arm, Phase
from tfgrpo.stores.telemetry import names as n
from tfgrpo.stores.text import replace_surrogates

Value: TypeAlias = str | bool | int | float | tuple[str, ...] | None
CONTENT_CHARS: Final = 4096
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class SpanHandle:
    """An open span. Values of None are omitted; every method is a no-op without a recorder."""

    __slots__ = ("_content", "_ended_at", "_span")

    def __init__(self, span: Span, *, content: bool) -> None:
        self._span = span
        self._content = content
        self._ended_at: int | None = None

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Set attributes by full name."""
        self._span.set_attributes(_present(attributes))

    def fail(self, error_type: str) -> None:
        """Mark the span as failed; ``error_type`` is a class name or a short code."""
        self._span.set_attribute(n.ERROR_TYPE, error_type)
        self._span.set_status(Status(StatusCode.ERROR, error_type))

    def mark_ended(self) -> None:
        """Note the end time; the result follows before ``end``."""
        self._ended_at = time_ns()

    def end(self) -> None:
        """End a span that was kept open, at the time its block ended."""
        self._span.end(self._ended_at)

    def evaluation(
        self,
        name: str,
        score: float | None,
        *,
        label: Literal["pass", "fail"] | None = None,
        rollout_index: int | None = None,
        evidence: str | None = None,
    ) -> None:
        """Add a rewarder's score as an event; the evidence only with ``content``.

        ``rollout_index``: the scored rollout, on a span of several.
        """
        event = {
            n.EVALUATION_NAME: name,
            n.EVALUATION_SCORE: score,
            n.EVALUATION_LABEL: label,
            n.ROLLOUT_INDEX: rollout_index,
            n.EVALUATION_EXPLANATION: evidence[:CONTENT_CHARS] if evidence and self._content else None,
        }
        self._span.add_event(n.EVALUATION_EVENT, _present(event))

    def reply(  # noqa: PLR0913 - keyword-only; one reply has this many facts
        self,
        *,
        model: str | None = None,
        response_id: str | None = None,
        finish_reason: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        cost_usd: float | None = None,
        replayed: bool | None = None,
    ) -> None:
        """Set the attributes of a model's reply."""
        self.set(
            {
                n.RESPONSE_MODEL: model,
                n.RESPONSE_ID: response_id,
                n.FINISH_REASONS: None if finish_reason is None else (finish_reason,),
                n.INPUT_TOKENS: input_tokens,
                n.OUTPUT_TOKENS: output_tokens,
                n.CACHED_TOKENS: cached_tokens,
                n.REASONING_TOKENS: reasoning_tokens,
                n.LLM_COST: cost_usd,
                n.REPLAYED: replayed,
            }
        )

    def rollout_result(
        self,
        *,
        outcome: str | None = None,
        reward: float | None = None,
        relative_rank: float | None = None,
        tool_cost_usd: float | None = None,
        latency_ms: float | None = None,
    ) -> None:
        """Set the outcome of a rollout, with the specification's literal names for cost and latency."""
        self.set(
            {
                n.OUTCOME: outcome,
                n.REWARD: reward,
                n.RANK: relative_rank,
                n.LITERAL_TOOL_COST: tool_cost_usd,
                n.LITERAL_LATENCY: latency_ms,
            }
        )

    def run_result(
        self,
        *,
        status: str,
        gate: str | None = None,
        calls: int | None = None,
        tokens: int | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """Set the outcome and usage of a run."""
        self.set(
            {
                n.RUN_STATUS: status,
                n.RUN_GATE: gate,
                n.RUN_CALLS: calls,
                n.RUN_TOKENS: tokens,
                n.RUN_COST: cost_usd,
            }
        )

    def content(self, side: Literal["input", "output"], text: str) -> None:
        """Set a prompt or answer, shortened; only with ``content``."""
        if self._content:
            self.set({n.INPUT_MESSAGES if side == "input" else n.OUTPUT_MESSAGES: text[:CONTENT_CHARS]})


OpenSpan: TypeAlias = AbstractContextManager[SpanHandle]
_SILENT: Final[OpenSpan] = nullcontext(SpanHandle(INVALID_SPAN, content=False))


class SpanMaker:
    """The spans of ``Telemetry``. ``tracer`` None: every span is one shared empty handle."""

    def __init__(self, tracer: Tracer | None, *, content: bool) -> None:
        self._tracer = tracer
        self._content = content

    def span(self, name: str, attributes: Mapping[str, Value] | None = None) -> OpenSpan:
        """Any other step, e.g. ``tfgrpo.store.write``. An exception marks the span as failed and propagates."""
        return self._start(name, SpanKind.INTERNAL, attributes or {})

    def workflow_span(self, name: str, *, run_id: str | None = None, task_id: str | None = None) -> OpenSpan:
        """A whole run of the pipeline ``name``."""
        attributes = {n.OPERATION: "invoke_workflow", n.WORKFLOW: name, n.RUN_ID: run_id, n.TASK_ID: task_id}
        return self._start(f"invoke_workflow {name}", SpanKind.INTERNAL, attributes)

    def epoch_span(
        self,
        *,
        epoch: int,
        phase: Phase,
        temperature: float | None = None,
        group_size: int | None = None,
        sample_size: int | None = None,
        pack_id: str | None = None,
        pack_stamp: str | None = None,
        seed: int | None = None,
    ) -> OpenSpan:
        """One epoch. Exported at its end, so a killed epoch has only its rollouts."""
        attributes = {
            **_epoch_attributes(epoch, phase, group_size),
            n.TEMPERATURE: temperature,
            n.SAMPLE_SIZE: sample_size,
            n.PACK_ID: pack_id,
            n.PACK_STAMP: pack_stamp,
            n.SEED: seed,
        }
        return self._start(n.SPAN_EPOCH, SpanKind.INTERNAL, attributes)

    def group_span(
        self, *, epoch: int, phase: Phase, group_id: str, item_id: str, group_size: int, arm: Arm | None = None
    ) -> OpenSpan:
        """The rollouts of one item."""
        attributes: dict[str, Value] = {
            n.EPOCH: epoch,
            n.PHASE: phase,
            n.GROUP_ID: group_id,
            n.ITEM_ID: item_id,
            n.GROUP_SIZE: group_size,
            n.ARM: arm,
        }
        return self._start(n.SPAN_GROUP, SpanKind.INTERNAL, attributes)

    def rollout_span(
        self,
        *,
        epoch: int,
        phase: Phase,
        group_id: str,
        rollout_id: str,
        index: int,
        agent: str = "chat",
        group_size: int | None = None,
        keep_open: bool = False,
    ) -> OpenSpan:
        """One rollout of one actor.

        ``keep_open``: only an exception or ``SpanHandle.end`` ends the span, not the end of the block.
        """
        attributes = {
            **_epoch_attributes(epoch, phase, group_size),
            n.OPERATION: "invoke_agent",
            n.AGENT: agent,
            n.GROUP_ID: group_id,
            n.ROLLOUT_ID: rollout_id,
            n.ROLLOUT_INDEX: index,
        }
        return self._start(f"invoke_agent {agent}", SpanKind.INTERNAL, attributes, keep_open=keep_open)

    def chat_span(
        self,
        *,
        model: str,
        role: str | None = None,
        provider: str = "openai",
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        server_address: str | None = None,
        server_port: int | None = None,
    ) -> OpenSpan:
        """One model call."""
        attributes: dict[str, Value] = {
            n.OPERATION: "chat",
            n.PROVIDER: provider,
            n.MODEL: model,
            n.ROLE: role,
            n.TEMPERATURE: temperature,
            n.MAX_TOKENS: max_tokens,
            n.REQUEST_SEED: seed,
            n.SERVER_ADDRESS: server_address,
            n.SERVER_PORT: server_port,
        }
        return self._start(f"chat {model}", SpanKind.CLIENT, attributes)

    def tool_span(self, *, tool: str, call_id: str | None = None) -> OpenSpan:
        """One tool call."""
        attributes: dict[str, Value] = {
            n.OPERATION: "execute_tool",
            n.TOOL: tool,
            n.TOOL_TYPE: "function",
            n.TOOL_CALL_ID: call_id,
        }
        return self._start(f"execute_tool {tool}", SpanKind.INTERNAL, attributes)

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

    def _start(
        self, name: str, kind: SpanKind, attributes: Mapping[str, Value], *, keep_open: bool = False
    ) -> OpenSpan:
        if self._tracer is None:
            return _SILENT
        span = self._tracer.start_span(replace_surrogates(name), kind=kind, attributes=_present(attributes))
        return _Recorded(span, content=self._content, keep_open=keep_open)


class _Recorded(AbstractContextManager[SpanHandle]):
    """A span that is current inside the block. The SDK's context manager costs a third more."""

    __slots__ = ("_handle", "_keep_open", "_span", "_token")

    def __init__(self, span: Span, *, content: bool, keep_open: bool) -> None:
        self._span = span
        self._handle = SpanHandle(span, content=content)
        self._keep_open = keep_open

    def __enter__(self) -> SpanHandle:
        self._token = attach(set_span_in_context(self._span))
        return self._handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._handle.fail(kind.__name__)
        detach(self._token)
        if self._keep_open and kind is None:
            self._handle.mark_ended()
        else:
            self._span.end()


_Sendable: TypeAlias = str | bool | int | float | tuple[str, ...]


def _present(attributes: Mapping[str, Value]) -> dict[str, _Sendable]:
    return {key: _sendable(value) for key, value in attributes.items() if value is not None}


def _sendable(value: _Sendable) -> _Sendable:
    """Replace lone surrogates from tools and agents: one would fail the whole batch of its span."""
    if isinstance(value, str):
        return replace_surrogates(value)
    return tuple(map(replace_surrogates, value)) if isinstance(value, tuple) else value


def _epoch_attributes(epoch: int, phase: Phase, group_size: int | None) -> dict[str, Value]:
    return {
        n.EPOCH: epoch,
        n.LITERAL_EPOCH: epoch,
        n.PHASE: phase,
        n.GROUP_SIZE: group_size,
        n.LITERAL_GROUP_SIZE: group_size,
    }
