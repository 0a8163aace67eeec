"""The installed version of tfgrpo."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Return the installed version, or 0 in a source tree that was never installed."""
    try:
        return version("tfgrpo")
    except PackageNotFoundError:
        return "0"
