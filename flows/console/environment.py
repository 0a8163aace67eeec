"""The environment of a command: the installed version, where it can and may write, and what Prefect reads when it is imported.

Prefect's defaults keep it quiet and offline, and the environment overrides them. What is about Prefect is to be called before
Prefect is imported, whose own messages are long tracebacks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.files.layout import TaskPaths

API_URL: Final = "PREFECT_API_URL"
_HOME: Final = "PREFECT_HOME"
PREFECT_DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    # An interrupt would be told once for every group under way; a group that crashes for other reasons fails the flow.
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "CRITICAL",
    # The run reports its own end; what keeps Prefect from taking it is one warning.
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "CRITICAL",
    # One error of a page for every event that a server that is gone does not take.
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    # The first start of the embedded server creates its database, 12 s on a small machine and more on a busy one.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # Prefect's own spans would interleave with ours as orphan roots; see docs/observability.md.
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    # Dask tells of every connection it opens and closes.
    "DASK_LOGGING__DISTRIBUTED": "error",
}


def installed_version() -> str:
    """Return the installed version, or 0 in a source tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 12 ms, for `--version` and runs

    try:
        return version("tfgrpo")
    except PackageNotFoundError:
        return "0"


def write_error(directory: Path) -> str | None:
    """Return the system's reason against writing in a directory, or in one that is still to be made; None without any."""
    # By writing, because permissions alone do not say it; nothing is left behind, and no directory made.
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
    if why := _why_not(path):
        raise SettingsError.one(option, f"{str(path)!r}, {why}", "a file of your own that can be written")
    if path.exists() and not is_ours(path):
        raise SettingsError.one(option, f"{str(path)!r}, which is there already", f"a new file, or {accepted}")


def _why_not(path: Path) -> str:
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
    return f"where nothing can be written ({why})" if why else ""


def quiet_prefect(environment: MutableMapping[str, str]) -> None:
    """Set each default that the environment does not set itself."""
    for name, value in PREFECT_DEFAULTS.items():
        environment.setdefault(name, value)


def check_prefect_home(environment: Mapping[str, str], *, make: bool = False) -> None:
    """Raise ``SettingsError`` for a home that cannot be written; ``make`` one that is missing, with its parents."""
    # Where the environment names a server, the database is there.
    if environment.get(API_URL):
        return
    home = Path(environment.get(_HOME) or "~/.prefect").expanduser()
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
    except ValueError as error:
        errors = getattr(error, "errors", None)  # of pydantic, whose import `--version` and `--help` do without
        if errors is None:
            raise
        # Prefect does not say where it found a setting, nor which it was where several do not fit together.
        problems = [
            Problem(f"a setting of Prefect's, {'.'.join(map(str, each['loc']))}", repr(each["input"]), each["msg"])
            if each["loc"]
            else Problem("the settings of Prefect", each["msg"], "what Prefect takes")
            for each in errors()
        ]
        raise SettingsError(problems) from error
