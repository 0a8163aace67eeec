"""Check that a directory, or one that is still to be made, can be written.

Done by writing, because permissions alone do not say it. Leaves nothing behind and makes no directory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path


def write_error(directory: Path) -> str | None:
    """Return the system's reason against writing in ``directory``, None when there is none."""
    try:
        nearest = next(path for path in (directory, *directory.parents) if path.exists())
        with tempfile.TemporaryDirectory(dir=nearest, prefix=".tfgrpo-"):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__
