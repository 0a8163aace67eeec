"""Which file may an export or import write? A new one, or the one it wrote itself before; never what a run recorded.

Asked before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tfgrpo.flows.console.write_access import write_error
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.files.layout import TaskPaths

_EXPORTS: Final = "exports"
_HELD: Final = ("runs", "replays", _EXPORTS)


def check_output_file(path: Path, is_ours: Callable[[Path], bool], accepted: str) -> None:
    """Raise ``SettingsError`` for a file that may not be written.

    ``is_ours`` says whether a file that is there may be replaced, ``accepted`` which ones may.
    """
    why = _against(path)
    if why is not None:
        raise SettingsError.one("--file", f"{str(path)!r}, {why}", "a file of your own that can be written")
    if path.exists() and not is_ours(path):
        raise SettingsError.one("--file", f"{str(path)!r}, which is there already", f"a new file, or {accepted}")


def _against(path: Path) -> str | None:
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
    """Whether a task keeps its records there: files of its own, or what its runs and replays hold but exports."""
    if path in TaskPaths(path.parent).own_files() and _is_task(path.parent):
        return True
    held = (place.name for place in path.parents if place.name in _HELD and _is_task(place.parent))
    return next(held, _EXPORTS) != _EXPORTS


def _is_task(directory: Path) -> bool:
    return any(path.is_file() for path in TaskPaths(directory).own_files()) or any(
        directory.glob("runs/*/manifest.json")
    )
