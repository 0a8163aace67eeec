"""Where in the store does a given experience stand? An index in memory that follows the file.

Only bytes that were appended since the last look are read, so a batch costs the batch. The first look goes through the
whole file once, without parsing it: a record's id stands at a fixed place of its line.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b

from stores.line_file import LineFile

_HEAD = re.compile(rb'\{"schema_version":\d+,"experience_id":("(?:[^"\\]|\\.)*")')


class ExperienceIndex:
    """Offsets of experiences by a digest of their ids; about 150 bytes of memory for each. Used under the file's lock."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}
        self._read_until = 0

    def catch_up(self, file: LineFile) -> None:
        """Take in what was appended since the last call, by anyone. Starts anew when the file was shortened by hand."""
        if file.size < self._read_until:
            self._offsets.clear()
            self._read_until = 0
        for line in file.lines(self._read_until):
            experience_id = _id_of(line.data)
            if experience_id is not None:
                self._offsets.setdefault(_digest(experience_id), line.offset)
        self._read_until = file.size

    def find(self, file: LineFile, experience_id: str) -> bytes | None:
        """The first line of this experience, None when it was never stored."""
        offset = self._offsets.get(_digest(experience_id))
        return None if offset is None else file.line_at(offset)


def _id_of(line: bytes) -> str | None:
    head = _HEAD.match(line)
    try:
        found = json.loads(head[1]) if head else json.loads(line)["experience_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _digest(experience_id: str) -> bytes:
    return blake2b(experience_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
