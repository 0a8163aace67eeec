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
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import CorruptFile, StoreError

_BLOCK = 1 << 17
_FIRST_READ = 1 << 13
"""Bytes read for one line at first; doubled until its end is found."""
_TAIL = 1 << 16
_NOTE = 1 << 10


@contextlib.contextmanager
def disk(path: Path, what: str = "") -> Iterator[None]:
    """Turn every ``OSError`` of the block into a ``StoreError`` that names the file; ``what`` is the failed action."""
    try:
        yield
    except OSError as error:
        raise refused(path, error, what) from error


def refused(path: Path, error: OSError, what: str) -> StoreError:
    """Return the ``StoreError`` for an ``OSError``, as ``disk``."""
    return StoreError(": ".join(part for part in (str(path), what, error.strerror or str(error)) if part))


class LockedFile:
    """A file that stays open and is locked among threads and processes (POSIX ``flock``, one host), for appending.

    Created 0600 with its parents. ``with file:`` locks it, not nested, and does not close it; methods marked
    *under the lock* are called inside. Every ``OSError`` becomes a ``StoreError`` that names the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = threading.Lock()
        self._open()

    def _open(self) -> None:
        with disk(self.path, "cannot be opened"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()

    def __enter__(self) -> None:
        self._turn.acquire()
        try:
            with disk(self.path, "cannot be locked"):
                if self._pid != os.getpid():  # a forked child would share its parent's lock
                    os.close(self._fd)
                    self._open()
                fcntl.flock(self._fd, fcntl.LOCK_EX)
        except BaseException:  # also Ctrl-C while it waits
            self._turn.release()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            with disk(self.path, "cannot be unlocked"):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._turn.release()

    def size(self) -> int:
        """Return the bytes in the file now."""
        # try and except here and below, because the context manager ``disk`` would cost as much as the system call.
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise refused(self.path, error, "cannot be examined") from error

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``offset``, fewer at the end of the file. Needs no lock."""
        try:
            return os.pread(self._fd, length, offset)
        except OSError as error:
            raise refused(self.path, error, "cannot be read") from error

    def append(self, data: bytes) -> int:
        """Write all of ``data`` at the end with one system call and return its offset. Under the lock.

        Raises ``StoreError`` when the disk is full; the file is then as before.
        """
        start = self.size()
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self.truncate(start)
            raise refused(self.path, error, "cannot be written") from error
        if written != len(data):
            self.truncate(start)
            raise StoreError(f"{self.path}: the disk took {written} of {len(data)} bytes")
        return start

    def cut(self, size: int) -> None:
        """Truncate to ``size`` bytes and keep the rest in ``<name>.torn``. Under the lock."""
        self._keep(self.read_at(size, self.size() - size))
        self.truncate(size)

    def set_aside(self, offset: int, length: int) -> None:
        """Move bytes to ``<name>.torn`` and leave spaces in their place. Under the lock."""
        self._keep(self.read_at(offset, length))
        # Another descriptor: one opened with O_APPEND writes at the end of the file only.
        with disk(self.path), self.path.open("r+b") as file:
            file.seek(offset)
            file.write(b" " * length)

    def _keep(self, data: bytes) -> None:
        torn = self.path.with_name(self.path.name + ".torn")
        with disk(torn):
            fd = os.open(torn, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "ab") as keep:
                keep.write(data + b"\n")

    def close(self) -> None:
        """Close the descriptor; harmless when repeated."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1  # the descriptor is gone even when closing it fails
            with disk(self.path):
                os.close(fd)

    def truncate(self, size: int) -> None:
        """Truncate to ``size`` bytes. Under the lock."""
        with disk(self.path):
            os.ftruncate(self._fd, size)


class Line(NamedTuple):
    """One line of a file."""

    offset: int
    """Byte of its first character."""
    data: bytes
    """Without the newline."""


class LineReader:
    """Lines of a file by byte offset, for indexes that keep such offsets.

    ``read(offset, length)`` reads bytes, fewer at the end of the file. A last line without newline is no line yet.
    """

    def __init__(self, path: Path, read: Callable[[int, int], bytes], *, start: int = 0) -> None:
        self.path = path
        self.end = start
        """Byte after the last line that ``unread`` gave."""
        self._read = read

    @classmethod
    def of_fd(cls, path: Path, fd: int, *, start: int = 0) -> LineReader:
        """Return a reader on an open descriptor, which stays the caller's."""
        return cls(path, lambda offset, length: os.pread(fd, length, offset), start=start)

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

    def at(self, offset: int) -> bytes:
        """Return the line at a byte, without its newline. Raises ``CorruptFile`` when its end is missing."""
        read = b""
        while b"\n" not in read:
            block = self._read(offset + len(read), max(_FIRST_READ, len(read)))
            if not block:
                raise CorruptFile(f"{self.path}: the line at byte {offset} was cut off while the file was open")
            read += block
        return read.partition(b"\n")[0]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch that is being written: bytes ``old`` to ``new`` of the file, and their SHA-256."""

    old: int
    new: int
    digest: str


class LineFile(LockedFile):
    """A file of lines under its exclusive lock: what ``exclusively`` yields."""

    def append_lines(self, lines: Sequence[str], *, fsync: bool = False) -> int:
        """Append all lines with one write, or none, and return the offset of the first.

        Raises ``StoreError`` when the disk refuses (the file is then as before), ``ValueError`` for a line with a
        newline in it.
        """
        text = "".join(f"{line}\n" for line in lines)
        if text.count("\n") != len(lines):
            raise ValueError("a line cannot contain a newline")
        data, start, note = text.encode("utf-8"), self.size(), _note_of(self.path)
        try:
            if len(lines) > 1:
                _write_note(note, _Pending(start, start + len(data), sha256_hex(data)), fsync=fsync)
            self.append(data)
            if fsync:
                self._settle(start)
        finally:
            # Also after a failed write: the file was cut back, so nothing is pending. A kill skips this.
            if len(lines) > 1:
                with disk(note):
                    note.unlink(missing_ok=True)
        return start

    def lines(self, start: int = 0) -> Iterator[Line]:
        """Yield the lines from byte ``start`` on."""
        yield from LineReader(self.path, self.read_at, start=start).unread(self.size())

    def repair(self) -> None:
        """Move what a killed writer left incomplete to ``<name>.torn``."""
        with disk(self.path), _read_only(self.path) as fd:
            whole = _whole_until(fd, self.path)
            if whole < self.size():
                self.cut(whole)
            _note_of(self.path).unlink(missing_ok=True)

    def _settle(self, start: int) -> None:
        """Sync the file and its directory; undo what was appended from ``start`` when that fails."""
        try:
            with disk(self.path):
                # The directory too, or a new file may be gone after a loss of power.
                for target in (self.path, self.path.parent):
                    with _read_only(target) as fd:
                        os.fsync(fd)
        except StoreError:
            self.truncate(start)
            raise


@contextlib.contextmanager
def exclusively(path: Path) -> Iterator[LineFile]:
    """Open a file of lines alone among threads and processes; created 0600 with its parents, repaired before use."""
    with contextlib.closing(LineFile(path)) as file, file:
        file.repair()
        yield file


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
    if note is not None and note.old < size <= note.new:
        written = os.pread(fd, note.new - note.old, note.old)
        size = size if sha256_hex(written) == note.digest else note.old
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
    with disk(path):
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
