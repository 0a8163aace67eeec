"""Append-only journal of the answered calls of a run, read by key.

A reply is on disk before its caller sees it, so a killed and resumed run pays for no call twice. The journal never
drops or rewrites an entry; of entries with one key the latest counts. Every line has a checksum: a damaged line is
counted and moved to ``<name>.torn``, and its call counts as unanswered.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeVar, get_args

from tfgrpo.stores.canonical import key_digest
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import CorruptFile, RecordRejected, TfgrpoError, error_named
from tfgrpo.stores.files.line_file import LineReader, LockedFile
from tfgrpo.stores.frozen_json import json_of
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.text import pluralize

AnswerT = TypeVar("AnswerT")
GATEWAY = "gateway"
"""Role of an answer to an agent of the user's own that called a model through the gateway."""
UNFINISHED = "unfinished"
"""Role of the entry with what a failed attempt of an agent of the user's own did, beside its ``agent`` entry."""
EntryKind: TypeAlias = Literal["reply", "failure"]
_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_HEAD = re.compile(rb'\{"schema":2,"key":("(?:[^"\\]|\\.)*"),"kind":"(?:reply|failure)",')
_SUM_BYTES = len(',"sum":"0123456789abcdef"}')
_UNSUMMED = {"schema", "key", "kind", "at", "payload"}
"""Fields of an entry of schema 1."""


@dataclass(frozen=True, slots=True)
class CallKey:
    """Which call of a run this is. Arms and roles contain no slash, so the text form is unambiguous."""

    group: GroupKey
    rollout: int
    turn: int
    role: str
    """``rollout``, ``reflect``, ``curate``, ``tool``, ``agent``, ``judge`` and the like."""
    attempt: int = 0
    """Counts repairs of a structured answer, not retries of one request."""

    def text(self, digest: str) -> str:
        """Return the key as text, with 16 digits of the request's digest: another request is another call."""
        return f"{attempt_name(self.group, self.rollout)}/{self.turn}/{self.role}/{self.attempt}#{digest[:16]}"


def attempt_name(group: GroupKey, rollout: int) -> str:
    """Return the prefix of the key texts of an attempt; ``rollout`` is its index in the group."""
    return f"{group.epoch}/{group.arm}/{group.batch}/{group.draw_id}/{rollout}"


def attempt_and_role(key_text: str) -> tuple[str, str]:
    """Return the attempt and the role in a key text; item ids may contain slashes and hashes.

    Raises ``ValueError`` for a text that is no key.
    """
    name, _, role, _ = key_text.rpartition("#")[0].rsplit("/", 3)
    return name, role


class Journal:
    """The answered calls of one run. Safe for any number of threads and processes at once.

    An entry is a dictionary ``{"schema": 2, "key": …, "kind": "reply" | "failure", "at": …, "payload": {…}}``; in the
    file, ``sum`` follows, BLAKE2b over the bytes before it. Entries of schema 1, without ``sum``, are read too.
    In memory: a digest and an offset per key, some 130 bytes in Python, never a reply. A killed process loses no entry, a
    loss of power may (there is no ``fsync``).
    """

    def __init__(self, path: Path, *, clock: Clock = utc_now, repair: bool = True) -> None:
        """Open or create. Damaged lines and a torn last one go to ``<name>.torn``; without ``repair`` they stay."""
        self.path = path
        self._clock = clock
        self._repairs = repair
        self._file = LockedFile(path)
        self._lines = LineReader(path, self._file.read_at)
        self._offsets: dict[int, int] = {}
        self._reading = threading.Lock()
        self._damage: list[tuple[int, int]] = []
        self.damaged = 0
        """Damaged lines so far."""
        with self._file:
            self._catch_up_and_repair()

    def __len__(self) -> int:
        return len(self._offsets)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, key_text: str) -> dict[str, Any] | None:
        """Return the latest entry of this key, by any process, or None. Raises ``CorruptFile``."""
        digest = key_digest(_encode_key(key_text))
        if digest not in self._offsets:
            self._catch_up()
        offset = self._offsets.get(digest)
        if offset is None:
            return None
        line = self._lines.at(offset)
        if _key_in(line) != _encode_key(key_text):
            raise CorruptFile(f"{self.path}: the entry at byte {offset} changed while the journal was open")
        entry: dict[str, Any] = json.loads(line)
        entry.pop("sum", None)
        return entry

    def answer(
        self, key_text: str, decode: Callable[[Mapping[str, Any]], AnswerT], *, final: bool
    ) -> AnswerT | TfgrpoError | None:
        """Return the decoded payload of this key, the error of a recorded failure, or None.

        An entry that ``decode`` refuses is a damaged line; with ``final`` (the call cannot be repeated) it raises
        ``CorruptFile``.
        """
        entry = self.get(key_text)
        if entry is None:
            return None
        payload = entry["payload"]
        try:
            if entry["kind"] == "failure":
                return error_named(str(payload["error_type"]), str(payload["reason"]))
            return decode(payload)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if final:
                raise CorruptFile(f"{self.path}: the entry for call {key_text} is not a reply: {error!r}") from error
        with self._file:
            offset = self._offsets.pop(key_digest(_encode_key(key_text)))
            self._damage.append((offset, len(self._lines.at(offset))))
            self.damaged += 1
            self._catch_up_and_repair()
        return None

    def append(self, key_text: str, payload: Mapping[str, Any]) -> None:
        """Write the reply to a call.

        Raises ``RecordRejected`` when the payload is not JSON, ``StoreError`` when the disk refuses; the file stays intact.
        """
        self._append(key_text, "reply", payload)

    def append_failure(self, key_text: str, error_type: str, reason: str) -> None:
        """Write that a call failed for good, so that a resumed run does not repeat it."""
        self._append(key_text, "failure", {"error_type": error_type, "reason": reason})

    @property
    def warning(self) -> str | None:
        """Warning about damaged lines, or None."""
        name = self.path.name
        moved = f"{pluralize(self.damaged, 'damaged line')} of {name} moved to {name}.torn; those calls are asked again"
        return moved if self.damaged else None

    def close(self) -> None:
        """Close the file; harmless when repeated."""
        self._file.close()

    def _append(self, key_text: str, kind: EntryKind, payload: Mapping[str, Any]) -> None:
        key = _encode_key(key_text)
        at = self._clock().isoformat()
        try:
            body = _ENCODE(payload)
        except (TypeError, ValueError) as error:
            raise RecordRejected(f"journal entry {key_text}: {error}") from error
        # ASCII, with key and checksum at fixed positions: opening reads keys without parsing replies.
        line = f'{{"schema":2,"key":{key.decode()},"kind":"{kind}","at":"{at}","payload":{body}'.encode()
        line += _sum(line) + b"\n"
        with self._file:
            if self._file.size() != self._lines.end:
                self._catch_up_and_repair()
            start = self._file.append(line)
            self._offsets[key_digest(key)] = start
            with self._reading:  # a reader in another thread may be past this line already
                self._lines.end = max(self._lines.end, start + len(line))

    def _catch_up_and_repair(self) -> None:
        """Under the file lock no other process writes, so an incomplete last line will never be completed."""
        self._catch_up()
        torn = self._file.size() > self._lines.end
        self.damaged += torn
        if not self._repairs:
            return
        for offset, length in self._damage:
            self._file.set_aside(offset, length)
        self._damage.clear()
        if torn:
            self._file.cut(self._lines.end)

    def _catch_up(self) -> None:
        """Index the lines that any process appended since the last time."""
        with self._reading:
            if self._file.size() == self._lines.end:
                return
            for offset, data in self._lines.unread():
                if (key := _key_in(data)) is not None:
                    digest = key_digest(key)
                    self._offsets[digest] = max(offset, self._offsets.get(digest, 0))
                elif data.strip():  # else a line that was moved away, or an empty one
                    self.damaged += 1
                    self._damage.append((offset, len(data)))


def _key_in(line: bytes) -> bytes | None:
    """Return the encoded key of a whole entry, None for a damaged line."""
    line = line.removesuffix(b"\r")  # line ends that a tool has converted
    head = _HEAD.match(line)
    if head is None:
        return _key_in_unsummed(line)
    return head[1] if line[-_SUM_BYTES:] == _sum(line[:-_SUM_BYTES]) else None


def _key_in_unsummed(line: bytes) -> bytes | None:
    """Return the encoded key of an entry of schema 1, which has to be parsed."""
    entry = json_of(line)
    if not isinstance(entry, dict) or entry.keys() != _UNSUMMED or entry["schema"] != 1:
        return None
    whole = (
        isinstance(entry["key"], str) and entry["kind"] in get_args(EntryKind) and isinstance(entry["payload"], dict)
    )
    return _encode_key(entry["key"]) if whole else None


def _sum(body: bytes) -> bytes:
    """Return the end of the line after ``body``."""
    return b',"sum":"%b"}' % blake2b(body, digest_size=8).hexdigest().encode()


def _encode_key(key_text: str) -> bytes:
    return json.dumps(key_text).encode()
