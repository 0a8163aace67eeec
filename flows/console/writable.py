"""Can something be written at a place that need not be there yet? Tried, because permissions alone do not tell.

Nothing stays behind, and no directory is made.
"""

from __future__ import annotations

import tempfile
from pathlib import Path


def why_not_writable(directory: Path) -> str | None:
    """What the system says against writing there, or making it where it is missing; None when it says nothing."""
    try:
        nearest = next(place for place in (directory, *directory.parents) if place.exists())
        with tempfile.TemporaryDirectory(dir=nearest, prefix=".tfgrpo-"):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__
