"""How does a batch of lines reach a file whole or not at all? Appending under a lock, with a note of what is under way.

Before a batch of several lines is written, ``<name>.pending`` says where it will begin and end and what its digest is;
after the write the note is removed. Whoever holds the lock and finds a note knows that its writer died: the batch
counts when every byte of it is there, otherwise it never happened. A single line needs no note, since a line counts
only when it ends in a newline. What a dead writer left behind is kept in ``<name>.torn`` by the next writer, and no
reader sees it.

It knows bytes and lines, never records. A kill of the process is survived always, a loss of power with ``fsync``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.files.locked_file import LockedFile, disk

_CHUNK = 1 << 20
_TAIL = 1 << 16
_LINE = 1 << 13
_NOTE = 1 << 10


class Line(NamedTuple):
    """One complete line of a file."""

    offset: int
    """Byte at which it begins."""
    data: bytes
    """Without the newline."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch that is being written: bytes ``old`` to ``new`` of the file, and their SHA-256."""

    old: int
    new: int
    digest: str

    def holds(self, fd: int) -> bool:
        """Whether the whole batch is in the file."""
        return sha256_hex(os.pread(fd, self.new - self.old, self.old)) == self.digest


class LineFile:
    """A file of lines, held alone: what ``exclusively`` yields."""

    def __init__(self, file: LockedFile) -> None:
        self._file = file
        self.path = file.path

    @property
    def size(self) -> int:
        """Bytes in the file; all of them are complete lines."""
        return self._file.size()

    def append(self, lines: Sequence[str], *, fsync: bool = False) -> int:
        """Append all lines with one write, or none, and return where the first begins.

        A disk that refuses leaves the file as it was and raises ``StoreError``. Raises ``ValueError`` for a line with
        a newline in it.
        """
        text = "".join(f"{line}\n" for line in lines)
        if text.count("\n") != len(lines):
            raise ValueError("a line cannot hold a newline")
        data = text.encode("utf-8")
        start = self.size
        with self._announced(data, start, several=len(lines) > 1, fsync=fsync):
            self._file.append(data)
            if fsync:
                self._settle(start)
        return start

    def lines(self, start: int = 0) -> Iterator[Line]:
        """The lines from byte ``start``, one at a time."""
        with disk(self.path):
            yield from _split(self._file.read_at, start, self.size)

    def undo(self, size: int) -> None:
        """Cut the file back to an earlier size: a batch that this holder wrote, and that nobody can have read, is void."""
        with disk(self.path):
            os.truncate(self.path, size)

    def repair(self) -> None:
        """Cut off what a dead writer left unfinished, and keep it beside the file."""
        with disk(self.path), _read_only(self.path) as fd:
            whole = _whole_until(fd, self.path)
            if whole < self.size:
                self._file.cut(whole)
            _note_of(self.path).unlink(missing_ok=True)

    def _settle(self, start: int) -> None:
        """Wait until the disk holds what was appended from ``start``; what it does not take is cut off again."""
        try:
            with disk(self.path):
                _sync(self.path)
        except StoreError:
            self.undo(start)
            raise

    @contextlib.contextmanager
    def _announced(self, data: bytes, start: int, *, several: bool, fsync: bool) -> Iterator[None]:
        if not several:
            yield
            return
        note = _note_of(self.path)
        try:
            with disk(note):
                _write_note(note, _Pending(start, start + len(data), sha256_hex(data)), fsync=fsync)
            yield
        finally:
            # Also after a failed write: the file was cut back, so nothing is pending. A kill skips this.
            with disk(note):
                note.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusively(path: Path) -> Iterator[LineFile]:
    """Hold a file of lines alone among threads and processes; created 0600 with its parents, repaired before use."""
    with contextlib.closing(LockedFile(path)) as file, file.locked():
        lines = LineFile(file)
        lines.repair()
        yield lines


def read_whole_lines(path: Path) -> Iterator[Line]:
    """The complete lines of complete batches, one at a time; none when the file does not exist.

    What is appended after the first line was asked for is not seen. Nothing is repaired, and only reading rights are needed.
    """
    if not path.exists():
        return
    end = whole_until(path)
    with disk(path), _read_only(path) as fd:
        yield from lines_between(fd, 0, end)


def whole_until(path: Path) -> int:
    """Return the byte at which the last complete line of the last complete batch ends."""
    with disk(path), _read_only(path) as fd:
        fcntl.flock(fd, fcntl.LOCK_SH)
        try:
            return _whole_until(fd, path)
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)


def lines_between(fd: int, start: int, end: int) -> Iterator[Line]:
    """The lines from byte ``start`` to byte ``end``, one at a time."""
    return _split(lambda at, length: os.pread(fd, length, at), start, end)


def line_at(fd: int, path: Path, offset: int) -> bytes:
    """The one line that begins at this byte, without its newline. Raises ``CorruptFile`` when it does not end."""
    parts: list[bytes] = []
    while not parts or b"\n" not in parts[-1]:
        chunk = os.pread(fd, _LINE << min(len(parts), 10), offset + sum(map(len, parts)))
        if not chunk:
            raise CorruptFile(f"{path}: the line at byte {offset} was cut off while it was read")
        parts.append(chunk)
    return b"".join(parts).partition(b"\n")[0]


def _whole_until(fd: int, path: Path) -> int:
    """Byte at which the last complete line of the last complete batch ends. Nobody may be writing."""
    size = os.fstat(fd).st_size
    note = _read_note(path)
    if note is not None and note.old < size <= note.new and not note.holds(fd):
        size = note.old
    while size:
        start = max(0, size - _TAIL)
        newline = os.pread(fd, size - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        size = start
    return 0


def _split(read: Callable[[int, int], bytes], start: int, end: int) -> Iterator[Line]:
    """Whole lines between two bytes, read in chunks. A rest without newline is left out."""
    rest, at = b"", start
    while at < end and (chunk := read(at, min(_CHUNK, end - at))):
        at += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for data in lines:
            yield Line(start, data)
            start += len(data) + 1


def _note_of(path: Path) -> Path:
    return path.with_name(path.name + ".pending")


def _write_note(path: Path, pending: _Pending, *, fsync: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as note:
        note.write(canonical_json(asdict(pending)))
        note.flush()
        if fsync:
            os.fsync(note.fileno())


def _read_note(path: Path) -> _Pending | None:
    """The batch that a dead writer had begun. A note that is itself incomplete was left before its batch was begun."""
    try:
        with _read_only(_note_of(path)) as fd:
            return _Pending(**json.loads(os.read(fd, _NOTE)))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _sync(path: Path) -> None:
    for target in (path, path.parent):
        with _read_only(target) as fd:
            os.fsync(fd)


@contextlib.contextmanager
def _read_only(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
