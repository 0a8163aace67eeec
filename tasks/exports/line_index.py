"""Index the lines of a large file by key, on disk, so that memory does not grow with the file.

A temporary database, gone with the process, has an eight-byte digest and an offset per line. Two keys may share a digest:
results are candidates, which the caller compares with the key.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.line_file import LineReader, whole_until


class LineIndex:
    """Lines of one append-only file by a key in each line. Close after use."""

    def __init__(self, path: Path, key_of: Callable[[bytes], str | None]) -> None:
        """Read the file once. A line whose key is None is skipped; a missing file has no lines."""
        self.path = path
        end = whole_until(path) if path.exists() else 0
        self._fd = os.open(path if path.exists() else os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._reader = LineReader.of_fd(path, self._fd)
        self._open = True
        try:
            # SQLite takes the empty name for a private database on disk, deleted when it is closed.
            self._database = sqlite3.connect("")
            self._database.execute("CREATE TABLE line (digest INTEGER, offset INTEGER)")
            self._database.executemany("INSERT INTO line VALUES (?, ?)", self._entries(key_of, end))
            self._database.execute("CREATE INDEX by_digest ON line (digest, offset)")
        except sqlite3.Error as error:
            self.close()
            raise StoreError(f"{path}: its lines cannot be indexed: {error}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def lines(self, keys: Sequence[str]) -> dict[str, list[bytes]]:
        """Return the candidates for each key, in file order; keys without any are missing."""
        names = {_digest(key): key for key in keys}
        marks = ",".join("?" * len(names))
        query = f"SELECT digest, offset FROM line WHERE digest IN ({marks}) ORDER BY digest, offset"  # noqa: S608
        try:
            rows = self._database.execute(query, tuple(names)).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: its index cannot be read: {error}") from error
        return {
            names[digest]: [self._reader.at(offset) for _, offset in members]
            for digest, members in groupby(rows, key=lambda row: row[0])
        }

    def close(self) -> None:
        """Delete the index; may be called again."""
        with contextlib.suppress(AttributeError):
            self._database.close()
        if self._open:
            self._open = False
            os.close(self._fd)

    def _entries(self, key_of: Callable[[bytes], str | None], end: int) -> Iterator[tuple[int, int]]:
        for line in self._reader.unread(end):
            key = key_of(line.data)
            if key is not None:
                yield _digest(key), line.offset


def _digest(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True)
