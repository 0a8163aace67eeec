"""Where in the store does a given experience stand? An index in memory that follows the file.

Only bytes that were appended since the last look are read, so a batch costs the batch. The first look goes through the
whole file once without parsing it: in a line that the store wrote, the id stands at a fixed place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from stores.line_file import Line, LineFile

# A long literal start without anchor: the search then runs four times as fast. Inside a JSON string it cannot occur.
_HEAD = re.compile(rb'\{"schema_version":[12],"experience_id":"([^"\\\n]*)",')


class ExperienceIndex:
    """Offsets of experiences by id; some 150 bytes of memory for each. Used under the file's lock."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}
        self._read_until = 0

    def catch_up(self, file: LineFile) -> None:
        """Take in what was appended since the last call, by anyone. Starts anew when the file was shortened by hand."""
        if file.size < self._read_until:
            self._offsets.clear()
            self._read_until = 0
        for block in file.blocks(self._read_until):
            heads = [(head[1], block.offset + head.start()) for head in _HEAD.finditer(block.data)]
            if len(heads) != block.data.count(b"\n"):  # some lines were written by other hands
                heads = list(_by_parsing(block))
            for name, offset in heads:
                self._offsets.setdefault(name, offset)
        self._read_until = file.size

    def find(self, file: LineFile, experience_id: str) -> bytes | None:
        """The first line of this experience, None when it was never stored."""
        offset = self._offsets.get(experience_id.encode("utf-8"))
        return None if offset is None else file.line_at(offset)


def _by_parsing(block: Line) -> Iterator[tuple[bytes, int]]:
    offset = block.offset
    for data in block.data[:-1].split(b"\n"):
        try:
            name = json.loads(data)["experience_id"]
        except (ValueError, KeyError, TypeError):
            name = None
        if isinstance(name, str):
            yield name.encode("utf-8", "surrogatepass"), offset
        offset += len(data) + 1
