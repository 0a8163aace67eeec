"""What a command finds on this machine: the installed version of tfgrpo, and where it can and may write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.files.layout import TaskPaths


def installed_version() -> str:
    """Return the installed version, or 0 in a source tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 12 ms, for `--version` and runs

    try:
        return version("tfgrpo")
    except PackageNotFoundError:
        return "0"


def write_error(directory: Path) -> str | None:
    """Return the system's reason against writing in a directory, or in one that is still to be made; None without any.

    Found by writing, because permissions alone do not say it. Leaves nothing behind and makes no directory.
    """
    try:
        nearest = next(path for path in (directory, *directory.parents) if path.exists())
        with tempfile.TemporaryDirectory(dir=nearest, prefix=".tfgrpo-"):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__


def check_output_file(
    path: Path, is_ours: Callable[[Path], bool], accepted: str, *, option: str = "--file", endings: Sequence[str] = ()
) -> None:
    """Raise ``SettingsError`` for a file that may not be written.

    ``is_ours`` returns whether an existing file may be replaced; ``accepted`` describes those in a message.
    """
    if endings and path.suffix not in endings:
        raise SettingsError.one(option, str(path), f"a {endings[0]} file")
    why = _why_not(path)
    if why is not None:
        raise SettingsError.one(option, f"{str(path)!r}, {why}", "a file of your own that can be written")
    if path.exists() and not is_ours(path):
        raise SettingsError.one(option, f"{str(path)!r}, which is there already", f"a new file, or {accepted}")


def _why_not(path: Path) -> str | None:
    try:
        whole = path.resolve()
        if whole.is_dir():
            return "a directory"
        own = TaskPaths(whole.parent).own_files()
        # Also one that the task has not written yet, or in the directory of a run.
        if (whole in own and any(each.is_file() for each in own)) or (whole.parent / "manifest.json").is_file():
            return "which belongs to the records of a task"
    except (OSError, RuntimeError) as error:  # names too long, links in a circle
        return str(error)
    why = write_error(whole.parent)
    return None if why is None else f"where nothing can be written ({why})"
