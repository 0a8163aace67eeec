"""Append batches of lines to a file, each batch whole or not at all, under a lock; read lines by their byte offsets.

Before a batch of several lines, ``<name>.pending`` records where it starts and ends, and its digest; after the write it
is removed. A writer that finds one under the lock knows that its author was killed: the batch counts when all its bytes
are there, else it never happened. A single line needs no such file: a line counts once it ends in a newline. The next
writer moves what is incomplete to ``<name>.torn``; readers never see it.

A killed process loses no complete batch; surviving a loss of power takes ``fsync``.
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

_BLOCK = 1 << 20
_FIRST_READ = 1 << 13
"""Bytes read for one line at first; doubled until its end is found."""
_TAIL = 1 << 16
_NOTE = 1 << 10


class Line(NamedTuple):
    """One line of a file."""

    offset: int
    """Byte of its first character."""
    data: bytes
    """Without the newline."""


class LineReader:
    """Lines of a file by byte offset, for indexes that keep such offsets.

    ``read(offset, length)`` reads bytes, fewer at the end of the file.
    ``unended``: a last line without newline is a line; by default it is one that is still being written.
    """

    def __init__(self, path: Path, read: Callable[[int, int], bytes], *, start: int = 0, unended: bool = False) -> None:
        self.path = path
        self.end = start
        """Byte after the last line that ``unread`` gave."""
        self._read = read
        self._unended = unended

    @classmethod
    def of_fd(cls, path: Path, fd: int, *, start: int = 0, unended: bool = False) -> LineReader:
        """Return a reader on an open descriptor, which stays the caller's."""
        return cls(path, lambda offset, length: os.pread(fd, length, offset), start=start, unended=unended)

    def unread(self, until: int | None = None) -> Iterator[Line]:
        """Yield the lines from ``end`` on that end before byte ``until`` (None: the end of the file); ``end`` follows."""
        rest, start = b"", self.end
        at = start
        while block := self._read(at, _BLOCK if until is None else min(_BLOCK, until - at)):
            at += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for data in lines:
                line = Line(start, data)
                start += len(data) + 1
                self.end = start
                yield line
        if rest and self._unended:
            self.end = at
            yield Line(start, rest)

    def at(self, offset: int) -> bytes:
        """Return the line at a byte, without its newline. Raises ``CorruptFile`` when its end is missing."""
        parts: list[bytes] = []
        length = _FIRST_READ
        while not parts or b"\n" not in parts[-1]:
            block = self._read(offset + sum(map(len, parts)), length)
            if not block:
                if parts and self._unended:
                    break
                raise CorruptFile(f"{self.path}: the line at byte {offset} was cut off while the file was open")
            parts.append(block)
            length = min(2 * length, _BLOCK)
        return b"".join(parts).partition(b"\n")[0]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch that is being written: bytes ``old`` to ``new`` of the file, and their SHA-256."""

    old: int
    new: int
    digest: str

    def is_complete(self, fd: int) -> bool:
        return sha256_hex(os.pread(fd, self.new - self.old, self.old)) == self.digest


class LineFile:
    """A file of lines under its exclusive lock: what ``exclusively`` yields."""

    def __init__(self, file: LockedFile) -> None:
        self._file = file
        self.path = file.path

    @property
    def size(self) -> int:
        """Bytes in the file; all of them are complete lines."""
        return self._file.size()

    def append(self, lines: Sequence[str], *, fsync: bool = False) -> int:
        """Append all lines with one write, or none, and return the offset of the first.

        Raises ``StoreError`` when the disk refuses (the file is then as before), ``ValueError`` for a line with a
        newline in it.
        """
        text = "".join(f"{line}\n" for line in lines)
        if text.count("\n") != len(lines):
            raise ValueError("a line cannot contain a newline")
        data = text.encode("utf-8")
        start = self.size
        with self._announced(data, start, several=len(lines) > 1, fsync=fsync):
            self._file.append(data)
            if fsync:
                self._settle(start)
        return start

    def lines(self, start: int = 0) -> Iterator[Line]:
        """Yield the lines from byte ``start`` on."""
        yield from LineReader(self.path, self._file.read_at, start=start).unread(self.size)

    def undo(self, size: int) -> None:
        """Truncate to an earlier size: undo a batch written under this lock, which no reader can have seen."""
        with disk(self.path):
            os.truncate(self.path, size)

    def repair(self) -> None:
        """Move what a killed writer left incomplete to ``<name>.torn``."""
        with disk(self.path), _read_only(self.path) as fd:
            whole = _whole_until(fd, self.path)
            if whole < self.size:
                self._file.cut(whole)
            _note_of(self.path).unlink(missing_ok=True)

    def _settle(self, start: int) -> None:
        """Sync the file and its directory; undo what was appended from ``start`` when that fails."""
        try:
            with disk(self.path):
                for target in (self.path, self.path.parent):
                    with _read_only(target) as fd:
                        os.fsync(fd)
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
    """Open a file of lines alone among threads and processes; created 0600 with its parents, repaired before use."""
    with contextlib.closing(LockedFile(path)) as file, file.locked():
        lines = LineFile(file)
        lines.repair()
        yield lines


def read_whole_lines(path: Path) -> Iterator[Line]:
    """Yield the complete lines of complete batches; none when the file does not exist.

    Lines appended after the first was read are not seen. Makes no repair, and needs only the right to read.
    """
    if not path.exists():
        return
    end = whole_until(path)
    with disk(path), _read_only(path) as fd:
        yield from LineReader.of_fd(path, fd).unread(end)


def whole_until(path: Path) -> int:
    """Return the byte after the last complete line of the last complete batch."""
    with disk(path), _read_only(path) as fd:
        fcntl.flock(fd, fcntl.LOCK_SH)
        try:
            return _whole_until(fd, path)
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)


def _whole_until(fd: int, path: Path) -> int:
    """Byte after the last complete line of the last complete batch. Call under the lock."""
    size = os.fstat(fd).st_size
    note = _read_note(path)
    if note is not None and note.old < size <= note.new and not note.is_complete(fd):
        size = note.old
    while size:
        start = max(0, size - _TAIL)
        newline = os.pread(fd, size - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        size = start
    return 0


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
    """The batch of a killed writer. A note that is incomplete itself was left before its batch was started."""
    try:
        with _read_only(_note_of(path)) as fd:
            return _Pending(**json.loads(os.read(fd, _NOTE)))
    except (FileNotFoundError, ValueError, TypeError):
        return None


@contextlib.contextmanager
def _read_only(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
