"""Change files atomically: append whole batches of lines, replace whole files, append JSON rows once per key."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfgrpo.stores.canonical import canonical_json, key_digest
from tfgrpo.stores.errors import CorruptFile, RecordRejected
from tfgrpo.stores.files.line_file import LineFile, disk, exclusively, read_whole_lines


def append_lines(path: Path, lines: Sequence[str], *, fsync: bool = False) -> None:
    """Append a batch of lines, all or none; the file is created 0600 with its parents.

    Raises ``StoreError`` when the disk refuses (the file is then as before), ``ValueError`` for a line with a newline in it.
    """
    if lines:
        with exclusively(path) as file:
            file.append_lines(lines, fsync=fsync)


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of complete batches; none without a file. Raises ``CorruptFile`` when one is not UTF-8."""
    for line in read_whole_lines(path):
        try:
            yield line.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptFile(f"{path}: the line at byte {line.offset} is not UTF-8") from error


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of complete batches as JSON objects; none without a file. Raises ``CorruptFile`` with the number."""
    for number, line in enumerate(read_lines(path), start=1):
        if line.isspace():  # what a damaged line of the journal leaves
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorruptFile(f"{path}: line {number} is no JSON") from error
        if not isinstance(row, dict):
            raise CorruptFile(f"{path}: line {number} is no JSON object")
        yield row


def read_json(path: Path, what: str) -> dict[str, Any] | None:
    """Return a file that is one JSON object; None without a file. Raises ``CorruptFile`` when it is not ``what``."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path}: is not {what}: {error}") from error
    if not isinstance(value, dict):
        raise CorruptFile(f"{path}: is not {what}: not an object")
    return value


def replace_json(path: Path, value: Any) -> None:
    """Replace a file by this value as indented JSON with sorted keys. Raises ``RecordRejected`` for values outside JSON."""
    try:
        text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordRejected(f"{path}: {error}") from error
    replace_text(path, text + "\n")


def replace_text(path: Path, text: str) -> None:
    """Replace a file: a reader sees the old text or the new one. 0600, parents are created.

    Raises ``RecordRejected`` when the text is not Unicode, ``StoreError`` when the disk refuses (the old file stays).
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordRejected(f"{path}: {error}") from error
    with replacing(path, "cannot be replaced") as temporary, temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path, refusal: str = "cannot be written") -> Iterator[Path]:
    """Yield a new empty file that replaces ``path`` after the block, 0600; an error in the block removes it.

    Raises ``StoreError`` with the ``refusal`` for every ``OSError``. Parents are created.
    """
    with disk(path, refusal):
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder: only within one file system is a replacement atomic.
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(fd)
        temporary = Path(name)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


class KeyedJsonl:
    """A file of JSON objects with unique keys: a row whose key is in the file is not written again.

    Keeps a digest per key in memory, and reads only what any process appended since the last call.
    """

    def __init__(self, path: Path, key: Callable[[dict[str, Any]], str]) -> None:
        self.path = path
        self._key = key
        self._known: set[int] = set()
        self._read_until = 0

    def append(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Append the rows with new keys, all or none, and return how many. Of rows with equal keys the first counts.

        Raises ``RecordRejected`` when a row is not JSON, ``StoreError`` when the disk refuses; the file is then as before.
        """
        offered = self._by_key(rows)
        if not offered:
            return 0
        with exclusively(self.path) as file:  # among threads too
            self._catch_up(file)
            fresh = {key: line for key, line in offered.items() if key not in self._known}
            if fresh:
                file.append_lines(tuple(fresh.values()))
                self._known.update(fresh)
                self._read_until = file.size()
        return len(fresh)

    def _by_key(self, rows: Iterable[Mapping[str, Any]]) -> dict[int, str]:
        offered: dict[int, str] = {}
        for row in rows:
            try:
                line = canonical_json(row)
                line.encode()  # lone surrogates are JSON, but cannot be encoded
                offered.setdefault(self._digest(dict(row)), line)
            except (TypeError, ValueError) as error:
                raise RecordRejected(f"{self.path}: {error}") from error
        return offered

    def _digest(self, row: dict[str, Any]) -> int:
        return key_digest(str(self._key(row)))

    def _catch_up(self, file: LineFile) -> None:
        if file.size() < self._read_until:  # the file was shortened by hand
            self._known.clear()
            self._read_until = 0
        for line in file.lines(self._read_until):
            # A line damaged by hand has no key, so its row may be written again.
            with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
                self._known.add(self._digest(json.loads(line.data)))
        self._read_until = file.size()
