"""Scorer of SQL by the rows that it returns from a SQLite database, which is read only, beside those of the reference query."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from itertools import repeat, zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

from pydantic import StrictStr, field_validator
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import Options, accepts, refusal
from tfgrpo.rewarders.scorer import GraderInput, ItemScorer, column, field_of, program, references
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.outcomes import RewardScore

# Instructions of the database between two looks at the limit, and most of one query: the same everywhere, unlike seconds
_STEPS: Final = 100_000
MOST_STEPS: Final = 200_000_000
_MOST_ROWS: Final = 100_000
# Most bytes of one value, and of a statement
_MOST_BYTES: Final = 10 << 20
_QUERIES: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_IGNORED: Final = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]", re.DOTALL)
_QUERY: Final = re.compile(r"[\s(;]*(?:select|with|values)\b", re.IGNORECASE)
# Words before a query: ``Answer: SELECT …``
_LABEL: Final = re.compile(r"\A(?!\s*(?:--|/\*|select\b))[^:;()=]{0,80}:[\s*]*(?=(?:select|with)\b)", re.IGNORECASE)
# A statement with prose around it: ``Use `SELECT …` here``, ``SELECT …; This returns …``
_IN_PROSE: Final = re.compile(
    r"`((?:select|with)\b[^`]+)`|(?:^|;)[^\S\n]*(?:<\w+>\s*)?("
    r"(?:select|with\s+(?:recursive\s+)?\w+\s*(?:\([^()]*\)\s*)?as\s*\(|(?:insert|delete|drop|create|alter|pragma)\b|update\s+\w+\s+set).*?)"
    r"(?=;|</|\n\s*\n|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_INNER: Final = re.compile(r"\([^()]*\)")
_ORDERED: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)
_Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SqlResult(Options, ItemScorer):
    """1.0 when the query of the output returns the rows of the reference query, the record's ``answer``, else 0.0.

    The database is the file ``database`` of the metadata, or is made of the SQL text in ``schema`` and ``rows``. Rows count in
    their order only if the reference has an ORDER BY; numbers are equal to ten digits.
    """

    folder: Annotated[StrictStr, accepts("a folder")] = "."
    """What ``database`` is relative to, and where it has to be."""

    @field_validator("folder")
    @classmethod
    def _exists(cls, value: str) -> str:
        if not Path(value).is_dir():
            raise refusal("a folder that exists")
        return value

    def score_one(self, item: GraderInput) -> RewardScore:
        source = self._source(item)
        where = f"file:{quote(str(source))}?mode=ro" if isinstance(source, Path) else ":memory:"
        with closing(sqlite3.connect(where, uri=isinstance(source, Path))) as database:
            if isinstance(source, str):
                try:
                    database.executescript(source)
                except sqlite3.Error as error:
                    raise RewardError(f"the database of the record cannot be made: {error}") from None
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
            database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _QUERIES else sqlite3.SQLITE_DENY)
            code = program(item, ("sql", "sqlite", "sqlite3"), _claims, partial(_is_query, database), _in_prose)
            query = _LABEL.sub("", code or "").strip()
            if not query:
                return RewardScore("", 0.0, "no query in the output")
            whys = [self._difference(database, query, each) for each in references(item)]
        return RewardScore("", float(None in whys), "the rows of the reference" if None in whys else str(whys[0]))

    def wanted(self, item: GraderInput) -> None:
        self._source(item)
        if not any(_claims(each) for each in references(item) if isinstance(each, str)):
            raise RewardError(f"{field_of(item, 'answer')!r:.60} is no SQL query")

    def _source(self, item: GraderInput) -> Path | str:
        name, schema = column(item, "database"), column(item, "schema")
        if isinstance(name, str) and name:
            folder = Path(self.folder).resolve()
            path = (folder / name).resolve()
            if not path.is_relative_to(folder) or not path.is_file():
                raise RewardError(f"the database {name!r} is no file of {self.folder}")
            return path
        if not isinstance(schema, str) or not schema.strip():
            raise RewardError("the record has no database: database, a file, or schema, as SQL")
        return f"{schema};\n{column(item, 'rows') or ''}"

    def _difference(self, database: sqlite3.Connection, query: str, reference: object) -> str | None:
        try:
            expected = self._rows(database, str(reference), _MOST_ROWS)
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
            raise RewardError(f"the reference query cannot be run: {error}") from None
        if len(expected) == _MOST_ROWS:
            raise RewardError(f"the reference query returns {_MOST_ROWS:,} rows or more")
        try:
            actual = self._rows(database, query, len(expected) + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
            endless = str(error) == "interrupted"
            return f"no end within {MOST_STEPS:,} instructions" if endless else f"{type(error).__name__}: {error}"
        outer, count = _IGNORED.sub(" ", str(reference)), 1
        while count:
            outer, count = _INNER.subn("", outer)
        if not _ORDERED.search(outer):
            missing, more = Counter(expected) - Counter(actual), Counter(actual) - Counter(expected)
            expected, actual = list(missing.elements()), list(more.elements())
        differing = (pair for pair in zip_longest(expected, actual) if pair[0] != pair[1])
        wanted, got = ("no further row" if row is None else f"{row!r:.200}" for row in next(differing, (None, None)))
        return None if wanted == got else f"expected {wanted}, got {got}"

    def _rows(self, database: sqlite3.Connection, query: str, most: int) -> list[_Row]:
        left = repeat(0, MOST_STEPS // _STEPS)
        database.set_progress_handler(lambda: next(left, 1), _STEPS)
        cursor = database.execute(query)
        if cursor.description is None:
            raise ValueError("it is no query")
        # Numbers to ten digits, so that sums in another order are equal.
        return [
            tuple(float(f"{each:.10g}") if isinstance(each, float) else each for each in row) for row in cursor.fetchmany(most)
        ]


def _claims(text: str) -> bool:
    return _QUERY.match(_IGNORED.sub(" ", _LABEL.sub("", text))) is not None


def _is_query(database: sqlite3.Connection, text: str) -> bool:
    try:
        database.execute(f"EXPLAIN {_LABEL.sub('', text)}")
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError):
        return False
    return _claims(text)


def _in_prose(text: str) -> list[str]:
    statements = {each[1] or each[2] for each in _IN_PROSE.finditer(text)}
    return [text, *(statements if len(statements) == 1 else ())]
