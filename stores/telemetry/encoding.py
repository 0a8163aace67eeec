"""What do spans look like on the wire? The OTLP bytes of a batch, made several times faster than the SDK makes them.

Most attributes of our spans have a value that came before. The protobuf format allows fields to be put behind each other
already encoded, so each attribute is encoded once and remembered. Spans with anything that ours do not have (links,
trace state, nested values) are left to the SDK's own encoder. It sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.sdk.trace import ReadableSpan

_REMEMBERED: Final = 4096
_LONGEST: Final = 128
# Field numbers of trace.proto and common.proto, as tags of length-delimited fields.
_REQUEST_RESOURCE_SPANS: Final = b"\x0a"
_RESOURCE_SPANS_SCOPE_SPANS: Final = b"\x12"
_SCOPE_SPANS_SPAN: Final = b"\x12"
_SPAN_ATTRIBUTE: Final = b"\x4a"
_HAS_IS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200


class SpanEncoder:
    """Encodes batches of one process; remembers attributes. For one thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, type, object], bytes] = {}

    def encode(self, spans: Sequence[ReadableSpan]) -> bytes:
        """An ``ExportTraceServiceRequest``: what the SDK's ``encode_spans`` says of the same spans, in other words."""
        try:
            if all(map(_is_plain, spans)):
                return b"".join([self._group(list(group)) for _, group in groupby(spans, key=_origin)])
        except TypeError:  # a value unlike ours, which may not even be hashable
            pass
        return bytes(encode_spans(spans).SerializeToString())

    def _group(self, spans: Sequence[ReadableSpan]) -> bytes:
        """Spans of one resource and scope. Both are encoded by the SDK, around no span."""
        shell = encode_spans(spans[:1]).resource_spans[0]
        scope = shell.scope_spans[0]
        del scope.spans[:], shell.scope_spans[:]
        body = scope.SerializeToString() + b"".join(_field(_SCOPE_SPANS_SPAN, self._span(span)) for span in spans)
        return _field(_REQUEST_RESOURCE_SPANS, shell.SerializeToString() + _field(_RESOURCE_SPANS_SCOPE_SPANS, body))

    def _span(self, span: ReadableSpan) -> bytes:
        context, parent = span.get_span_context(), span.parent
        if context is None:
            raise TypeError("a span without a context")
        fields: dict[str, Any] = {
            "trace_id": context.trace_id.to_bytes(16, "big"),
            "span_id": context.span_id.to_bytes(8, "big"),
            "name": span.name,
            "kind": span.kind.value + 1,
            "start_time_unix_nano": span.start_time,
            "end_time_unix_nano": span.end_time,
            "status": {"code": span.status.status_code.value, "message": span.status.description or ""},
            "flags": _HAS_IS_REMOTE | (_IS_REMOTE if parent is not None and parent.is_remote else 0),
        }
        if parent is not None:
            fields["parent_span_id"] = parent.span_id.to_bytes(8, "big")
        if span.events:
            fields["events"] = [
                WireSpan.Event(
                    name=event.name, time_unix_nano=event.timestamp, attributes=_pairs((event.attributes or {}).items())
                )
                for event in span.events
            ]
        attributes = span.attributes or {}
        return b"".join((WireSpan(**fields).SerializeToString(), *map(self._attribute, attributes.items())))

    def _attribute(self, item: tuple[str, Any]) -> bytes:
        key, value = item
        place = key, type(value), value
        known = self._known.get(place)
        if known is None:
            known = _field(_SPAN_ATTRIBUTE, KeyValue(key=key, value=_wire(value)).SerializeToString())
            if len(known) <= _LONGEST:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[place] = known
        return known


def _is_plain(span: ReadableSpan) -> bool:
    """Whether the span has, values aside, nothing but what ours have."""
    context = span.get_span_context()
    if span.links or (context is not None and context.trace_state) or span.instrumentation_scope is None:
        return False
    if span.dropped_attributes or span.dropped_events or span.dropped_links:
        return False
    return not any(event.dropped_attributes for event in span.events)


def _origin(span: ReadableSpan) -> tuple[int, int]:
    return id(span.resource), id(span.instrumentation_scope)


def _pairs(items: Iterable[tuple[str, Any]]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_wire(value)) for key, value in items]


def _wire(value: object) -> AnyValue:
    """Raises ``TypeError`` for what none of our attributes is."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, tuple):
        return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=part) for part in value]))
    raise TypeError(type(value).__name__)


def _field(tag: bytes, body: bytes) -> bytes:
    """A length-delimited field: tag, length as a varint of seven bits a byte, body."""
    length, size = bytearray(), len(body)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"".join((tag, length, body))
