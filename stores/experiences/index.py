"""SQLite index of an experience store: offset of each record, and the ranked records in force by domain.

``experiences.index`` follows the store and reads only what was appended since the last time. It is a view: rebuilt when
it does not fit the file or the packs in force, and every line it points to is parsed again by its reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.experiences.record import ExperienceRecord, Skipped, parse, support_of, text_in
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.line_file import Line, LineReader, whole_until
from tfgrpo.stores.text import count_words

ResultT = TypeVar("ResultT")
_VERSION: Final = 1
_PATIENCE_S: Final = 600.0
_SCHEMA: Final = (
    "CREATE TABLE record (offset INTEGER PRIMARY KEY, id, status, domain, support INTEGER, score REAL, rank REAL, words)",
    "CREATE INDEX by_id ON record (id)",
    "CREATE INDEX ranked ON record (domain, support DESC, score DESC, rank DESC, id) WHERE status = 'live'",
    "CREATE TABLE gone (domain TEXT, id TEXT, PRIMARY KEY (domain, id)) WITHOUT ROWID",
    "CREATE TABLE pack (pack_id TEXT PRIMARY KEY, version TEXT)",
    "CREATE TABLE seen (until INTEGER, last INTEGER, digest TEXT, inode INTEGER, size INTEGER, mtime INTEGER)",
    f"PRAGMA user_version = {_VERSION}",
)
_RANKED: Final = (
    "SELECT offset, id FROM record WHERE domain = ? AND status = 'live' AND words <= ? AND score >= ?"
    " ORDER BY support DESC, score DESC, rank DESC, id"
)
# INDEXED BY, because the planner would scan all lessons of the domain.
_KNOWN: Final = "SELECT 1 FROM record INDEXED BY by_id WHERE domain = ? AND id = ? AND status IN ('live', 'out')"
_SUPERSEDED: Final = "UPDATE record INDEXED BY by_id SET status = 'out' WHERE domain = ? AND id = ? AND status = 'live'"
_COUNTS: Final = (
    "SELECT total(status = 'unreadable'), total(status = 'over_long' OR (status = 'live' AND domain = ?1 AND words > ?2)),"
    " total(status = 'unverified' AND domain = ?1), total(status = 'repeated' AND domain = ?1) FROM record"
)


class _Seen(NamedTuple):
    """How far the index has read, and the file at that time."""

    until: int = 0
    last: int = 0
    """Offset of the last line."""
    digest: str = ""
    """SHA-256 of that line."""
    inode: int = 0
    size: int = 0
    mtime: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """The open index, up to date with the file."""

    database: sqlite3.Connection
    lines: LineReader

    def find(self, ids: Iterable[str]) -> list[ExperienceRecord]:
        """Return all records with these ids, in file order."""
        asked = "SELECT offset, id FROM record WHERE id IN (SELECT value FROM json_each(?)) ORDER BY offset"
        return self._records(asked, json.dumps(list(ids)))

    def first(self, experience_id: str) -> ExperienceRecord | Literal["unreadable", "over_long"] | None:
        """Return the record of the first line with this id, or why there is none; None without such a line."""
        asked = "SELECT offset, id FROM record WHERE id = ? ORDER BY offset LIMIT 1"
        row = self.database.execute(asked, (experience_id,)).fetchone()
        return None if row is None else self._parsed(*row)

    def by_prefix(self, prefix: str, limit: int) -> list[ExperienceRecord]:
        """Return at most ``limit`` records with ids that start with ``prefix``, by id."""
        asked = "SELECT offset, id FROM record WHERE id >= ? AND substr(id, 1, ?) = ? ORDER BY id, offset LIMIT ?"
        return self._records(asked, prefix, len(prefix), prefix, limit)

    def ranked(self, domain: str, min_reward: float | None, max_words: int) -> Iterator[ExperienceRecord]:
        """Yield the records of a domain that are in force, the most valuable first."""
        least = float("-inf") if min_reward is None else min_reward
        for row in self.database.execute(_RANKED, (domain, max_words, least)):
            record = self._parsed(*row)
            if not isinstance(record, ExperienceRecord):
                raise self.unfit()
            yield record

    def skipped(self, domain: str, max_words: int) -> Skipped:
        """Return how many records of the domain, and unreadable lines, are skipped, by reason."""
        return Skipped(*map(int, self.database.execute(_COUNTS, (domain, max_words)).fetchone()))

    def unfit(self) -> CorruptFile:
        """Return the error that makes the reader rebuild the index."""
        return CorruptFile(f"{self.lines.path}: its index does not fit it")

    def _records(self, asked: str, *values: str | int) -> list[ExperienceRecord]:
        lines = [self._parsed(*row) for row in self.database.execute(asked, values)]
        return [record for record in lines if isinstance(record, ExperienceRecord)]

    def _parsed(self, offset: int, name: str) -> ExperienceRecord | Literal["unreadable", "over_long"]:
        line = self.lines.at(offset)
        if _id_of(line) != name:
            raise self.unfit()
        return parse(line)


class ExperienceIndex:
    """The index of one store. No file is open between two readings.

    ``verify``: whether the stamp of a record is valid. ``version``: version of the pack that stamps are checked against.
    """

    def __init__(self, path: Path, verify: Callable[[ExperienceRecord], bool], version: Callable[[str], str]) -> None:
        self._path = path
        self._index_path = TaskPaths(path.parent).experiences_index
        self._verify = verify
        self._version = version

    def read(self, work: Callable[[View], ResultT], *, end: int | None = None) -> ResultT:
        """Return the result of ``work`` on the index. ``end``: size of the file, from a caller with its lock.

        Uses a temporary index where none can be kept. Raises ``StoreError`` when that fails too, ``CorruptFile`` when
        the file changes while it is read.
        """
        end = whole_until(self._path) if end is None else end
        for rebuild in (False, True):
            try:
                return self._on(str(self._index_path), work, end, rebuild=rebuild)
            except (OSError, sqlite3.OperationalError):  # a directory that is read-only, a full disk
                break
            except CorruptFile:
                continue
            except sqlite3.DatabaseError:  # no database any more
                self._remove()
        try:
            return self._on("", work, end, rebuild=True)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self._path}: cannot be indexed: {error}") from error

    def _on(self, path: str, work: Callable[[View], ResultT], end: int, *, rebuild: bool) -> ResultT:
        if path:
            # SQLite would create it readable for others.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # The empty name is a temporary database.
        connection = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
        with contextlib.closing(connection) as database, self._path.open("rb", buffering=0) as file:
            fd = file.fileno()
            # A view that can be rebuilt needs no sync for each transaction.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA cache_size = -64000")
            if rebuild or not self._is_current(database, fd, end):
                self._catch_up(database, fd, end, rebuild=rebuild)
            database.execute("BEGIN")  # another process may rebuild it meanwhile
            if not self._is_current(database, fd, end):
                raise CorruptFile(f"{self._path}: its index is rebuilt by another process, or the file changes")
            return work(View(database, LineReader.of_fd(self._path, fd)))

    def _remove(self) -> None:
        for name in (self._index_path.name, f"{self._index_path.name}-journal"):
            with contextlib.suppress(OSError):
                self._index_path.with_name(name).unlink()

    def _catch_up(self, database: sqlite3.Connection, fd: int, end: int, *, rebuild: bool) -> None:
        """Index the lines before byte ``end`` that any process appended since the last time, in one transaction."""
        with database:
            database.execute("BEGIN IMMEDIATE")
            if rebuild or not _has_tables(database) or not self._fits(database, _seen(database), fd):
                _create(database)
            seen = _seen(database)
            if seen.until >= end:  # another process was faster
                return
            status, last = os.fstat(fd), seen.last
            reader = LineReader.of_fd(self._path, fd, start=seen.until)
            for line in reader.unread(end):
                self._add(database, line)
                last = line.offset
            if reader.end == seen.until:
                raise CorruptFile(f"{self._path}: was cut off while it was read")
            digest = sha256_hex(os.pread(fd, reader.end - last, last))
            row = (reader.end, last, digest, status.st_ino, status.st_size, status.st_mtime_ns)
            database.execute("DELETE FROM seen")
            database.execute("INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?)", row)

    def _is_current(self, database: sqlite3.Connection, fd: int, end: int) -> bool:
        return _has_tables(database) and (seen := _seen(database)).until >= end and self._fits(database, seen, fd)

    def _fits(self, database: sqlite3.Connection, seen: _Seen, fd: int) -> bool:
        """Whether the indexed lines are still in the file, and were checked against the packs in force."""
        status = os.fstat(fd)
        if not seen.until:
            return True
        if seen.inode != status.st_ino or status.st_size < seen.until:
            return False
        if seen.size == status.st_size and seen.mtime != status.st_mtime_ns:  # changed in place
            return False
        if sha256_hex(os.pread(fd, seen.until - seen.last, seen.last)) != seen.digest:
            return False
        return all(version == self._version(name) for name, version in database.execute("SELECT * FROM pack"))

    def _add(self, database: sqlite3.Connection, line: Line) -> None:
        record = parse(line.data)
        if isinstance(record, str):
            unread = (line.offset, _id_of(line.data), record)
            database.execute("INSERT INTO record (offset, id, status) VALUES (?, ?, ?)", unread)
            return
        database.execute("INSERT OR IGNORE INTO pack VALUES (?, ?)", (record.pack_id, self._version(record.pack_id)))
        reward = record.reward
        worth = (support_of(record), reward.gt_score, reward.relative_rank, count_words(record.summary32))
        values = (line.offset, record.experience_id, self._status(database, record), record.domain, *worth)
        database.execute("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def _status(self, database: sqlite3.Connection, record: ExperienceRecord) -> str:
        """Return the status of a record, and mark what it supersedes. Only records with a valid stamp take part."""
        if not self._verify(record):
            return "unverified"
        key = (record.domain, record.experience_id)
        if database.execute(_KNOWN, key).fetchone():
            return "repeated"
        targets = [(record.domain, name) for name in record.supersedes]
        database.executemany("INSERT OR IGNORE INTO gone VALUES (?, ?)", targets)
        database.executemany(_SUPERSEDED, targets)
        superseded = database.execute("SELECT 1 FROM gone WHERE domain = ? AND id = ?", key).fetchone()
        return "out" if superseded or record.operation == "delete" else "live"


def _has_tables(database: sqlite3.Connection) -> bool:
    return bool(database.execute("PRAGMA user_version").fetchone()[0] == _VERSION)


def _create(database: sqlite3.Connection) -> None:
    """Create the tables anew."""
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        database.execute(f'DROP TABLE "{name}"')
    for statement in _SCHEMA:
        database.execute(statement)


def _seen(database: sqlite3.Connection) -> _Seen:
    return _Seen(*(database.execute("SELECT * FROM seen").fetchone() or ()))


def _id_of(line: bytes) -> str:
    return text_in(line, "experience_id").encode("utf-8", "replace").decode()
