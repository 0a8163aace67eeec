"""Lock one file that stays open, among threads and processes, for appending (POSIX ``flock``, one host).

For files that are appended to thousands of times, where opening and locking anew each time would be the cost.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tfgrpo.stores.errors import StoreError


class LockedFile:
    """An open file, created 0600 with its parents. Methods marked *under the lock* are called inside ``locked()``.

    Every ``OSError`` becomes a ``StoreError`` that names the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = threading.RLock()
        self._depth = 0
        self._open()

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise refused(self.path, error, "cannot be opened") from error
        self._pid = os.getpid()

    def locked(self) -> Self:
        """Return the lock among threads and processes, for ``with``. May be nested."""
        return self

    def __enter__(self) -> None:
        self._turn.acquire()
        try:
            if self._pid != os.getpid():  # a forked child would share its parent's lock
                os.close(self._fd)
                self._open()
            if self._depth == 0:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self._turn.release()
            raise refused(self.path, error, "cannot be locked") from error
        except BaseException:
            self._turn.release()
            raise
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        try:
            if self._depth == 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError as error:
            raise refused(self.path, error, "cannot be unlocked") from error
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
            self._truncate(start)
            raise refused(self.path, error, "cannot be written") from error
        if written != len(data):
            self._truncate(start)
            raise StoreError(f"{self.path}: the disk took {written} of {len(data)} bytes")
        return start

    def cut(self, size: int) -> None:
        """Truncate to ``size`` bytes and keep the rest in ``<name>.torn``. Under the lock."""
        self._keep(self.read_at(size, self.size() - size))
        self._truncate(size)

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

    def _truncate(self, size: int) -> None:
        with disk(self.path):
            os.ftruncate(self._fd, size)


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn every ``OSError`` of the block into a ``StoreError`` that names the file."""
    try:
        yield
    except OSError as error:
        raise refused(path, error) from error


def refused(path: Path, error: OSError, what: str = "") -> StoreError:
    """Return the ``StoreError`` for an ``OSError``; ``what`` is the failed action."""
    return StoreError(": ".join(part for part in (str(path), what, error.strerror or str(error)) if part))
