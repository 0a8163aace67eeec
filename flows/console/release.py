"""Which release of tfgrpo is this? The installed one; nothing else is looked at."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The installed version, or 0 when run from a source tree that was never installed."""
    try:
        return version("tfgrpo")
    except PackageNotFoundError:
        return "0"
