"""Check that Prefect can keep its database, before importing Prefect, whose own message is a long traceback.

Not checked where the environment names a server: the database is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tfgrpo.flows.console.write_access import write_error
from tfgrpo.flows.orchestration.server.local_server import API_URL
from tfgrpo.stores.errors import Problem, SettingsError

_HOME: Final = "PREFECT_HOME"
_DEFAULT: Final = "~/.prefect"


def check_prefect_home(environment: Mapping[str, str], *, make: bool = False) -> None:
    """Raise ``SettingsError`` for a directory that is none or cannot be written; ``make`` it, with its parents, if missing."""
    if environment.get(API_URL):
        return
    home = Path(environment.get(_HOME) or _DEFAULT).expanduser()
    why = write_error(home)
    if why is None and make:
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            why = error.strerror
    if why is not None:
        raise SettingsError.one(_HOME, f"{str(home)!r} ({why})", "a directory that can be made and written")


@contextmanager
def prefect_settings() -> Iterator[None]:
    """Open while Prefect is imported, which reads its settings then: raise ``SettingsError`` for those it refuses."""
    try:
        yield
    except ValidationError as error:
        raise SettingsError([_prefects(problem) for problem in error.errors()]) from error


def _prefects(problem: ErrorDetails) -> Problem:
    """Prefect does not say where it found a setting, nor which it was where several do not fit together."""
    name = ".".join(map(str, problem["loc"]))
    if not name:
        return Problem("the settings of Prefect", problem["msg"], "what Prefect takes")
    return Problem(f"a setting of Prefect's, {name}", repr(problem["input"]), problem["msg"])
