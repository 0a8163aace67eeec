"""Index the records of a JSONL file by byte offset, and read them on access.

Every line is parsed once to refuse what is not JSON. A record without a prompt can be graded but not served; it is kept
and reported.
"""

from __future__ import annotations

import codecs
import json
import os
import weakref
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfgrpo.pipelines.datasets.sources import other_encoding
from tfgrpo.pipelines.problems import CappedProblems
from tfgrpo.stores.canonical import key_digest
from tfgrpo.stores.errors import DatasetError, Problem

_RARE = (b"NaN", b"Infinity", b"\\ud", b"\\uD")
"""Texts in lines that are JSON for Python and for few other readers."""
_ACCEPTED = "JSON lines in UTF-8: one object on each line"


class Records:
    """The records of one file by number from 0, without blank lines, each parsed on access; thread-safe.

    The file stays open, so that replacing it has no effect. The index takes 28 bytes a record, 8 of them a digest of its
    line: a record that is overwritten is refused.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raise ``OSError``."""
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.fd)
        self.malformed: dict[int, str] = {}
        """Records that can be graded but not served, with the reason; they are never drawn."""
        self._starts, self._lengths, self._lines, self._digests = array("Q"), array("Q"), array("I"), array("Q")

    def add(self, start: int, raw: bytes, line: int) -> None:
        """Append a record to the index."""
        self._starts.append(start)
        self._lengths.append(len(raw))
        self._lines.append(line)
        self._digests.append(key_digest(raw) >> 64)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Any:
        raw = os.pread(self.fd, self._lengths[index], self._starts[index])
        with suppress(ValueError, RecursionError):  # of a line that was not checked
            if key_digest(raw) >> 64 == self._digests[index]:
                return json.loads(raw.decode().strip())
        given = "a line that changed since the file was opened"
        raise DatasetError.one(self.where(index), given, "a file that stays unchanged")

    @property
    def servable(self) -> range | tuple[int, ...]:
        """Numbers of the records that can be drawn."""
        numbers = range(len(self))
        return tuple(number for number in numbers if number not in self.malformed) if self.malformed else numbers

    def line(self, index: int) -> int:
        """Return the line of a record, from 1."""
        return self._lines[index]

    def where(self, index: int) -> str:
        """Return ``path:line`` of a record."""
        return f"{self.path}:{self.line(index)}"


def index_records(path: Path, *, check: bool = True, visit: Callable[[str, object], None] | None = None) -> Records:
    """Index a file. Raise ``DatasetError`` if it is unreadable, and for every line that is not JSON.

    ``check=False`` parses no line, after an earlier check. ``visit`` gets ``path:line`` and value of each parsed line.
    """
    first = b""
    problems = CappedProblems()
    try:
        records = Records(path)
        if other := other_encoding(os.pread(records.fd, 64, 0)):
            raise DatasetError.one(str(path), other, _ACCEPTED)
        with open(records.fd, "rb", closefd=False) as stream:
            for line, start, raw in _lines(stream):
                first = first or raw
                records.add(start, raw, line)
                if check and (unreadable := _check(records, raw, visit)):
                    problems.add(Problem(f"{path}:{line}", unreadable, "one JSON object on the line"))
    except OSError as error:
        given = error.strerror or type(error).__name__
        raise DatasetError.one(str(path), given, "a JSONL file that can be read") from None
    if other := _other_form(path, first, broken=problems.total > 0, alone=len(records) == 1):
        raise DatasetError.one(str(path), other, _ACCEPTED)
    problems.raise_problems(DatasetError, str(path))
    return records


def _check(records: Records, raw: bytes, visit: Callable[[str, object], None] | None) -> str:
    """Parse the line of the last record. Return why it is no JSON; empty when it is."""
    try:
        record = json.loads(raw.decode("utf-8").strip())
    except UnicodeDecodeError as error:
        return f"no UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg} at column {error.colno}"
    except RecursionError:
        return "JSON nested without end"
    except ValueError as error:
        return str(error)
    number = len(records) - 1
    if reason := unservable(record) or _unsendable(raw, record):
        records.malformed[number] = reason
    if visit is not None:
        visit(records.where(number), record)
    return ""


def unservable(record: object) -> str:
    """Return why a record cannot be shown to an actor; empty if it can."""
    if not isinstance(record, dict):
        return "no JSON object"
    for name, kind, needed in (("prompt", str, True), ("system_prompt", str, False), ("metadata", dict, False)):
        value = record.get(name)
        if not isinstance(value, kind) and (needed or value is not None):
            return f"no {name!r}" if value is None else f"{type(value).__name__} in {name!r}"
    return ""


def _lines(stream: Iterator[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yield number from 1, first byte and content of the lines that are not blank."""
    at = 0
    for number, raw in enumerate(stream, start=1):
        mark = len(codecs.BOM_UTF8) if number == 1 and raw.startswith(codecs.BOM_UTF8) else 0
        if not _blank(raw[mark:]):
            yield number, at + mark, raw[mark:]
        at += len(raw)


def _blank(raw: bytes) -> bool:
    """Return whether a line is only white space, Unicode's included."""
    rest = raw.strip()
    if rest and rest[:1].isascii() and rest[0] >= ord(" "):  # nearly every line, without decoding it
        return False
    return not rest.decode(errors="replace").strip()


def _other_form(path: Path, first: bytes, *, broken: bool, alone: bool) -> str:
    """Name the format of a file that is not JSON lines, by its first line; empty if it may be."""
    if broken and path.suffix.lower() in {".csv", ".tsv"}:
        return "a table of separated values"
    if broken and first.strip() == b"{":
        return "a JSON object over several lines"
    whole = alone and b"{" in first
    return "a JSON array" if first.strip().startswith(b"[") and (broken or whole) else ""


def _unsendable(raw: bytes, record: dict[str, Any]) -> str:
    """Return why a record is no JSON for other readers than Python; empty when it is."""
    if not any(rare in raw for rare in _RARE):
        return ""
    try:
        served = [record.get(name) for name in ("prompt", "system_prompt", "metadata")]
        json.dumps(served, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return "half a surrogate pair, which is no character"
    except ValueError:
        return "NaN or infinity, which is no JSON number"
    return ""
