"""Write ``state.json``, a view of a task for people and other programs; no decision reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.files.atomic import replace_json

SCHEMA_VERSION = 1


def write_state(
    path: Path,
    task_id: str,
    champion: Library,
    *,
    last_run: str | None,
    simulated: bool = False,
    clock: Clock = utc_now,
) -> None:
    """Replace the view. ``simulated``: the champion was learned with the simulated model.

    Raises ``StoreError`` when the disk refuses; the old view then stays.
    """
    lessons = [
        {"experience_id": entry.experience_id, "polarity": entry.polarity, "text": entry.summary32}
        for entry in champion.entries
    ]
    replace_json(
        path,
        {
            "schema_version": SCHEMA_VERSION,
            "task_id": task_id,
            "champion": {"library_id": champion.library_id, "simulated": simulated, "experiences": lessons},
            "last_run": last_run,
            "updated_at": clock().isoformat(),
        },
    )


def read_state(path: Path) -> dict[str, Any] | None:
    """Return the view, or None without a file. Raises ``CorruptFile`` when it is not a JSON object."""
    try:
        state = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptFile(f"{path}: {error}") from error
    if not isinstance(state, dict):
        raise CorruptFile(f"{path}: not an object")
    return state
