"""How do threads and processes take turns on one file that stays open? An append descriptor with an advisory lock.

For files that are appended to thousands of times, where opening and locking anew each time would be the cost. It knows
bytes only; lines and their meaning are its users' business. POSIX only (``flock``), one host.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Self

from stores.errors import StoreError


class LockedFile:
    """An open file, created 0600 with its parents. Methods marked *under the lock* are called inside ``locked()``."""

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
            raise StoreError(f"{self.path}: cannot be opened: {error.strerror}") from error
        self._pid = os.getpid()

    def locked(self) -> Self:
        """For ``with``: alone among the threads of this process and among processes. May be nested."""
        return self

    def __enter__(self) -> None:
        self._turn.acquire()
        try:
            if self._pid != os.getpid():  # a forked child would share its parent's lock
                os.close(self._fd)
                self._open()
            if self._depth == 0:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
        except BaseException:
            self._turn.release()
            raise
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        try:
            if self._depth == 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._turn.release()

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self._fd).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer at the end of the file. Needs no lock."""
        return os.pread(self._fd, length, offset)

    def append(self, data: bytes) -> int:
        """Write all of ``data`` at the end with one system call and return where it starts. Under the lock.

        A full disk leaves the file as it was and raises ``StoreError``.
        """
        start = self.size()
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            os.ftruncate(self._fd, start)
            raise StoreError(f"{self.path}: cannot be written: {error.strerror}") from error
        if written != len(data):
            os.ftruncate(self._fd, start)
            raise StoreError(f"{self.path}: the disk took {written} of {len(data)} bytes")
        return start

    def cut(self, size: int) -> None:
        """Cut the file back to ``size`` bytes; what is cut off is kept beside it in ``<name>.torn``. Under the lock."""
        torn = self.read_at(size, self.size() - size)
        beside = self.path.with_name(self.path.name + ".torn")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab") as keep:
            keep.write(torn + b"\n")
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        """Close the descriptor; harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
