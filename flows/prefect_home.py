"""Is there a directory where Prefect can keep its database? Asked before Prefect is imported, which would say so at length.

Where the environment names a server nothing is asked: the database is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flows.local_server import API_URL
from flows.places import why_not_writable
from stores.errors import SettingsError

_HOME: Final = "PREFECT_HOME"
_DEFAULT: Final = "~/.prefect"


def check_prefect_home(environment: Mapping[str, str], *, make: bool = False) -> None:
    """Raise ``SettingsError`` for a directory that is none or cannot be written; ``make`` it, with its parents, if missing."""
    if environment.get(API_URL):
        return
    home = Path(environment.get(_HOME) or _DEFAULT).expanduser()
    why = why_not_writable(home)
    if why is None and make:
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            why = error.strerror
    if why is not None:
        raise SettingsError.one(_HOME, f"{str(home)!r} ({why})", "a directory that can be made and written")
