"""Rewrite a small state thousands of times without losing it: one file with two slots, written in turn.

A slot is a number, a text and the number again; the newer complete slot counts. A writer killed half-way leaves the
older slot intact. Much cheaper than a new file and a rename each time. The caller serialises access.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from tfgrpo.stores.errors import CorruptFile, StoreError

SLOT: Final = 8192
_DIGITS: Final = 20


class Stored(NamedTuple):
    """Content of a slot. ``number`` grows by one with every write; 0 is a file that was never written."""

    number: int
    text: str


class TwoSlots:
    """The file, created 0600 with its parents. Not for use by two writers at the same moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened: {error.strerror}") from error

    def unchanged_since(self, number: int) -> bool:
        """Return whether no write started after this number. Reads 40 bytes."""
        heads = (os.pread(self._fd, _DIGITS, 0), os.pread(self._fd, _DIGITS, SLOT))
        return number > 0 and max(heads) == _head(number)

    def read(self) -> Stored:
        """Return the newer complete slot. Raises ``CorruptFile`` when there was a state and no slot is complete."""
        slots = [slot for slot in (self._slot(0), self._slot(1)) if slot is not None]
        if slots:
            return max(slots)
        if os.pread(self._fd, SLOT, 0).strip(b"\0"):
            raise CorruptFile(f"{self.path}: no whole state")
        return Stored(0, "")  # the first write goes to the second slot; an incomplete one was never acknowledged

    def write(self, number: int, text: str) -> None:
        """Write a text to the older slot; ``number`` is the last one plus 1. Raises ``StoreError``; the newer slot stays."""
        data = _head(number) + b" " + text.encode()
        if len(data) + _DIGITS + 2 > SLOT:
            raise StoreError(f"{self.path}: the state has {len(data)} bytes, more than a slot takes")
        data = data.ljust(SLOT - _DIGITS - 1) + _head(number) + b"\n"
        try:
            written = os.pwrite(self._fd, data, SLOT * (number % 2))
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {error.strerror}") from error
        if written != SLOT:
            raise StoreError(f"{self.path}: the disk took {written} of {SLOT} bytes")

    def close(self) -> None:
        """Close the file; harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _slot(self, index: int) -> Stored | None:
        data = os.pread(self._fd, SLOT, SLOT * index)
        head, tail = data[:_DIGITS], data[-_DIGITS - 1 : -1]
        if len(data) != SLOT or head != tail or not head.isdigit() or data[-1:] != b"\n":
            return None
        try:
            return Stored(int(head), data[_DIGITS + 1 : -_DIGITS - 1].decode().rstrip(" "))
        except UnicodeDecodeError:
            return None


def _head(number: int) -> bytes:
    return b"%0*d" % (_DIGITS, number)
