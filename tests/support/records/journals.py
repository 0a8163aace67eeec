"""What a journal holds, as it stands in its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfgrpo.stores.files.atomic import read_rows
from tfgrpo.stores.runs.journal import Journal


def written(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def entries(journal: Journal) -> list[dict[str, Any]]:
    """Return the entries in file order, also those replaced by a later one, without damaged lines and checksums."""
    return [{name: value for name, value in row.items() if name != "sum"} for row in read_rows(journal.path)]
