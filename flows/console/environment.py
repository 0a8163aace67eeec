"""What a command finds on this machine: the installed version of tfgrpo, and directories that can be written."""

from __future__ import annotations

import tempfile
from pathlib import Path


def installed_version() -> str:
    """Return the installed version, or 0 in a source tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 20 ms, and few commands need it

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
