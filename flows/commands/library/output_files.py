"""Check the file that an export or import writes: a new one, or one that it wrote before; never a record of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tfgrpo.flows.console.environment import write_error
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.files.layout import TaskPaths

_EXPORTS: Final = "exports"
_DIRECTORIES: Final = ("runs", "replays", _EXPORTS)


def check_output_file(path: Path, is_ours: Callable[[Path], bool], accepted: str) -> None:
    """Raise ``SettingsError`` for a file that may not be written.

    ``is_ours`` returns whether an existing file may be replaced; ``accepted`` describes those in a message.
    """
    why = _why_not(path)
    if why is not None:
        raise SettingsError.one("--file", f"{str(path)!r}, {why}", "a file of your own that can be written")
    if path.exists() and not is_ours(path):
        raise SettingsError.one("--file", f"{str(path)!r}, which is there already", f"a new file, or {accepted}")


def _why_not(path: Path) -> str | None:
    try:
        whole = path.resolve()
        if whole.is_dir():
            return "a directory"
        if _is_recorded(whole):
            return "which belongs to the records of a task"
    except (OSError, RuntimeError) as error:  # names too long, links in a circle
        return str(error)
    why = write_error(whole.parent)
    return None if why is None else f"where nothing can be written ({why})"


def _is_recorded(path: Path) -> bool:
    """Return whether a file is a record of a task, or in the directory of a run or replay other than its exports."""
    if path in TaskPaths(path.parent).own_files() and _is_task(path.parent):
        return True
    inside = (parent.name for parent in path.parents if parent.name in _DIRECTORIES and _is_task(parent.parent))
    return next(inside, _EXPORTS) != _EXPORTS


def _is_task(directory: Path) -> bool:
    return any(path.is_file() for path in TaskPaths(directory).own_files()) or any(
        directory.glob("runs/*/manifest.json")
    )
