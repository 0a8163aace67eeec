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
from typing import Any, Final, Literal, Self, TypeAlias, Unpack

from opentelemetry.context import attach, detach
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tfgrpo.stores.telemetry.names import KEYS, Attributes
from tfgrpo.stores.text import replace_surrogates

CONTENT_CHARS: Final = 4096
_PROPAGATOR: Final = TraceContextTextMapPropagator()


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.fail(kind.__name__)
        detach(self._token)
        if self._keep_open and kind is None:
            self._ended_at = time_ns()  # the result follows before ``end``
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


class SpanMaker:
    """The spans of ``Telemetry``. ``tracer`` None: every span is one shared empty handle."""

    def __init__(self, tracer: Tracer | None, *, content: bool) -> None:
        self._tracer = tracer
        self._content = content

    def span(self, name: str, **attributes: Unpack[Attributes]) -> OpenSpan:
        """Any other step, e.g. ``tfgrpo.store.write``. An exception marks the span as failed and propagates."""
        return self._start(name, attributes)

    def workflow_span(self, name: str, **attributes: Unpack[Attributes]) -> OpenSpan:
        """A whole run of the pipeline ``name``."""
        return self._start(f"invoke_workflow {name}", {**attributes, "operation": "invoke_workflow", "workflow": name})

    def epoch_span(self, **attributes: Unpack[Attributes]) -> OpenSpan:
        """One epoch. Exported at its end, so a killed epoch has only its rollouts."""
        return self._start("tfgrpo.epoch", _with_literals(attributes))

    def rollout_span(self, *, keep_open: bool = False, **attributes: Unpack[Attributes]) -> OpenSpan:
        """One rollout of one ``agent``.

        ``keep_open``: only an exception or ``SpanHandle.end`` ends the span, not the end of the block.
        """
        whole: Attributes = {**_with_literals(attributes), "operation": "invoke_agent"}
        return self._start(f"invoke_agent {attributes['agent']}", whole, keep_open=keep_open)

    def chat_span(self, **attributes: Unpack[Attributes]) -> OpenSpan:
        """One call of a ``model``."""
        return self._start(f"chat {attributes['model']}", {**attributes, "operation": "chat"}, SpanKind.CLIENT)

    def tool_span(self, **attributes: Unpack[Attributes]) -> OpenSpan:
        """One call of a ``tool``."""
        whole: Attributes = {**attributes, "operation": "execute_tool", "tool_type": "function"}
        return self._start(f"execute_tool {attributes['tool']}", whole)

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
        self, name: str, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL, *, keep_open: bool = False
    ) -> OpenSpan:
        if self._tracer is None:
            return _SILENT
        span = self._tracer.start_span(replace_surrogates(name), kind=kind, attributes=_present(attributes))
        return SpanHandle(span, content=self._content, keep_open=keep_open)


def _present(attributes: Attributes) -> dict[str, Any]:
    return {KEYS[name]: _sendable(value) for name, value in attributes.items() if value is not None}


def _sendable(value: Any) -> Any:
    """Replace lone surrogates from tools and agents: one would fail the whole batch of its span."""
    if isinstance(value, str):
        return replace_surrogates(value)
    return tuple(map(replace_surrogates, value)) if isinstance(value, tuple) else value


def _with_literals(attributes: Attributes) -> Attributes:
    """Add epoch and group size under the specification's names."""
    return {**attributes, "literal_epoch": attributes["epoch"], "literal_group_size": attributes.get("group_size")}
