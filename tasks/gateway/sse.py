"""Split a byte stream into server-sent events, no matter what its chunks are. No byte is changed or dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_OVERLAP = 3
"""A blank line has at most four bytes, so that all but its last one may be in earlier chunks."""


class EventReader:
    """Collects chunks, and gives whole events: those that end with a blank line."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the events that are complete by now, as they came."""
        if not self._pieces and chunk.endswith(b"\n\n"):  # nearly every chunk
            return chunk
        self._pieces.append(chunk)
        recent = self._tail + chunk
        self._tail = recent[-_OVERLAP:]
        end = max(_ends(recent), default=0)
        if not end:
            return b""
        whole = b"".join(self._pieces)
        end += len(whole) - len(recent)
        self._pieces, self._tail = [whole[end:]] if end < len(whole) else [], whole[end:][-_OVERLAP:]
        return whole[:end]

    def rest(self) -> bytes:
        """Return what follows the last whole event."""
        return b"".join(self._pieces)


def events_in(body: bytes) -> list[bytes]:
    """Return the events of a stream; the last one may lack its blank line."""
    if b"\r" not in body:  # nearly every stream, at a quarter of the cost
        *whole, rest = body.split(b"\n\n")
        return [event + b"\n\n" for event in whole] + [rest] * (rest != b"")
    places = [0, *_ends(body), len(body)]
    return [body[start:end] for start, end in pairwise(places) if start < end]


def _ends(text: bytes) -> Iterator[int]:
    """Yield the places after blank lines."""
    if b"\r" in text:
        yield from (match.end() for match in _BLANK_LINE.finditer(text))
        return
    at = 0  # nearly every stream, at a tenth of the cost
    while (at := text.find(b"\n\n", at) + 2) >= 2:
        yield at


def is_events(content_type: str) -> bool:
    """Whether a body of this content type is a stream of events."""
    return content_type.lower().startswith("text/event-stream")


def data_of(event: bytes) -> bytes:
    """Return the data of an event; empty for comments and events without any."""
    if event[:6] == b"data: " and event[-2:] == b"\n\n" and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        return event[6:-2]  # nearly every event
    lines = _LINE_END.split(event)
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
