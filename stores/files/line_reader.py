"""Read the lines of one file with their byte offsets, and any line again by its offset.

The journal, the index of an experience store and the index of an export keep such offsets, in a dictionary or a
database; this reader computes and uses them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfgrpo.stores.errors import CorruptFile

_BLOCK = 1 << 20
_FIRST_READ = 1 << 13
"""Bytes read for one line at first; doubled until its end is found."""


class Line(NamedTuple):
    """One line of a file."""

    offset: int
    """Byte of its first character."""
    data: bytes
    """Without the newline."""


class LineReader:
    """Lines of a file by byte offset. ``read(offset, length)`` reads bytes, fewer at the end of the file.

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
