"""What a journal holds, as it stands in its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.runs.journal import Journal


def written(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the file."""
    return list(read_objects(path))


def entries(journal: Journal) -> list[dict[str, Any]]:
    """Return the entries in file order, also those replaced by a later one, without damaged lines and checksums."""
    return list(read_objects(journal.path))
