"""Give the lines of a file that a test wrote by hand their checksums: it is the test of something else than damage."""

from __future__ import annotations

import json
from pathlib import Path

from tfgrpo.stores.files.lines import LineFile


def seal(path: Path) -> None:
    """Write every line of the file as a group with its checksum."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_bytes(b"")
    file = LineFile(path)
    for row in rows:
        file.append([{name: value for name, value in row.items() if name != "sum"}])
