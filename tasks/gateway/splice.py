"""Change single values of a JSON object and keep every other byte: order, spelling, white space, unknown fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODE = json.JSONDecoder().raw_decode
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Value(NamedTuple):
    """A value and where its text is."""

    start: int
    end: int
    value: Any


class Document:
    """A JSON object as text, and the changes to it. Raises ``ValueError`` for bytes that are no JSON object."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        """As it came in."""
        self._text = raw.decode("utf-8")
        self._edits: list[tuple[int, int, str]] = []
        try:
            start = self._skip(0)
            members = dict(self._members(start))
            # Not the end of the last one: of two members with one name the second is in the place of the first.
            end = self._skip(max((span.end for span in members.values()), default=start + 1)) + 1
            if self._text[end:].strip(" \t\n\r"):
                raise ValueError("text after the JSON object")
        except (IndexError, RecursionError) as error:
            raise ValueError("no JSON object") from error
        self._spans = members
        self.value: dict[str, Any] = {name: span.value for name, span in members.items()}
        self.root = Value(start, end, self.value)

    def member(self, name: str) -> Value | None:
        """Return a member; of several with one name the last, as parsers do."""
        return self._spans.get(name)

    def member_of(self, of: Value, name: str) -> Value | None:
        """Return a member of an object within."""
        return dict(self._members(of.start)).get(name)

    def elements(self, of: Value) -> Iterator[Value]:
        """Yield the elements of an array within."""
        at = self._skip(of.start + 1)
        while self._text[at] != "]":
            value, end = _DECODE(self._text, at)
            yield Value(at, end, value)
            at = self._after(end)

    def set(self, name: str, value: object) -> None:
        """Replace a member, or add it as the last."""
        known = self._spans.get(name)
        if known is None:
            self.insert(self.root, name, value)
        else:
            self.replace(known, value)

    def insert(self, of: Value, name: str, value: object) -> None:
        """Add a member at the end of an object."""
        self._grow(of, f"{_ENCODE(name)}:{_ENCODE(value)}")

    def append(self, array: Value, element: object) -> None:
        """Add an element at the end of an array."""
        self._grow(array, _ENCODE(element))

    def prepend(self, array: Value, element: object) -> None:
        """Add an element at the front of an array."""
        self._edits.append((array.start + 1, array.start + 1, _ENCODE(element) + ("," if array.value else "")))

    def extend(self, text: Value, more: str) -> None:
        """Append to a string, after a blank line unless it is empty."""
        self._edits.append((text.end - 1, text.end - 1, _ENCODE(f"\n\n{more}" if text.value else more)[1:-1]))

    def replace(self, old: Value, new: object) -> None:
        """Write another value in place of one."""
        self._edits.append((old.start, old.end, _ENCODE(new)))

    def copy(self) -> Document:
        """Return a document that is changed apart from this one."""
        other = copy(self)
        other._edits = [*self._edits]  # noqa: SLF001 - another one of its kind
        return other

    def encode(self) -> bytes:
        """Return the bytes with all changes; without any, the bytes that came in."""
        if not self._edits:
            return self.raw
        parts: list[str] = []
        at = 0
        # Sorting is stable: additions at one place stay in turn.
        for start, end, text in sorted(self._edits, key=lambda edit: edit[:2]):
            parts += (self._text[at:start], text)
            at = end
        parts.append(self._text[at:])
        return "".join(parts).encode("utf-8", "replace")  # lessons and names may hold lone surrogates

    def _grow(self, whole: Value, text: str) -> None:
        # Several members may be added to one empty object: only the first goes without a comma.
        comma = "," if whole.value or any(start == whole.end - 1 for start, _, _ in self._edits) else ""
        self._edits.append((whole.end - 1, whole.end - 1, comma + text))

    def _members(self, start: int) -> Iterator[tuple[str, Value]]:
        text = self._text
        if text[start] != "{":
            raise ValueError("no JSON object")
        at = self._skip(start + 1)
        while text[at] != "}":
            key, end = _DECODE(text, at)
            colon = self._skip(end)
            if not isinstance(key, str) or text[colon] != ":":
                raise ValueError("no JSON object")
            at = self._skip(colon + 1)
            value, end = _DECODE(text, at)
            yield key, Value(at, end, value)
            at = self._after(end)

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self._text, at)
        return at if space is None else space.end()

    def _after(self, end: int) -> int:
        """Return where the next member or element starts, or the closing bracket is. Raises ``ValueError``."""
        at = self._skip(end)
        if self._text[at] == ",":
            at = self._skip(at + 1)
            if self._text[at] not in "}]":
                return at
        elif self._text[at] in "}]":
            return at
        raise ValueError("no JSON object")
