"""Index the lines of a large file by key, on disk, so that memory does not grow with the file.

A temporary database, gone with the process, has an eight-byte digest and an offset per line. Two keys may share a digest:
results are candidates, which the caller compares with the key.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from pathlib import Path

from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.line_file import LineReader, whole_until


@dataclass(frozen=True, slots=True)
class LineIndex:
    """Lines of one append-only file by a key in each line."""

    path: Path
    _reader: LineReader
    _database: sqlite3.Connection

    def lines(self, keys: Sequence[str]) -> dict[str, list[bytes]]:
        """Return the candidates for each key, in file order; keys without any are missing."""
        names = {_digest(key): key for key in keys}
        marks = ",".join("?" * len(names))
        query = f"SELECT digest, offset FROM line WHERE digest IN ({marks}) ORDER BY digest, offset"  # noqa: S608
        rows = self._database.execute(query, tuple(names)).fetchall()
        return {
            names[digest]: [self._reader.at(offset) for _, offset in members]
            for digest, members in groupby(rows, key=lambda row: row[0])
        }


@contextmanager
def line_index(path: Path, key_of: Callable[[bytes], str | None]) -> Iterator[LineIndex]:
    """Read the file once, and open the index of its lines. A line whose key is None is skipped.

    A missing file has no lines. Raise ``StoreError`` when the database fails.
    """
    known = path.exists()
    try:
        # SQLite takes the empty name for a private database on disk, deleted when it is closed.
        with (path if known else Path(os.devnull)).open("rb") as file, closing(sqlite3.connect("")) as database:
            reader = LineReader.of_fd(path, file.fileno())
            lines = reader.unread(whole_until(path) if known else 0)
            keys = ((key_of(line.data), line.offset) for line in lines)
            entries = ((_digest(key), offset) for key, offset in keys if key is not None)
            database.execute("CREATE TABLE line (digest INTEGER, offset INTEGER)")
            database.executemany("INSERT INTO line VALUES (?, ?)", entries)
            database.execute("CREATE INDEX by_digest ON line (digest, offset)")
            yield LineIndex(path, reader, database)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: its lines cannot be indexed: {error}") from error


def _digest(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True)
