"""The ``tfgrpo`` command: parse, dispatch, and turn failures into exit codes.

Exit codes: 0 finished, 1 anything else, 2 configuration, 3 stopped early with all work saved.
Command modules are imported when they are called: Prefect alone takes most of a second to import.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Final, NoReturn

import click

from tfgrpo.flows.commands.table import TFGRPO
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import installed_version, quiet_prefect
from tfgrpo.flows.console.parsing import flag, problem_of
from tfgrpo.flows.orchestration.interrupts import run_signals
from tfgrpo.flows.orchestration.second_signal import kill_after_second_signal
from tfgrpo.stores.errors import ConfigError, TfgrpoError

# Commands that SIGTERM stops as Ctrl-C does.
_STOPPABLE = frozenset({"grade", "run", "select", "test"})
# Commands that a signal ends, SIGHUP, too; each sets its own handlers.
_SERVERS = frozenset({"gateway", "serve-data", "serve-simulated"})
_HELP: Final = frozenset({"-h", "--help"})
_STOPPED = 3
CHECKING: Final = "checking settings, data and endpoint …"
# Seconds at the end of the process before it reports that it is waiting.
_SILENT_S: Final = 2.0
# Seconds after that before the process is ended by force.
_EXIT_S: Final = 5.0
# Open files to ask for: what macOS allows at most. Its default of 256 is too few for a server.
_FILES: Final = 10_240
_LOG = logging.getLogger("tfgrpo.cli")


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    # Not ``click.version_option``, which raises in a source tree that was never installed.
    if asked:
        click.echo(f"tfgrpo {installed_version()}")
        ctx.exit()


TFGRPO.params.append(flag("--version", "print the version and exit", is_eager=True, expose_value=False, callback=_show_version))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    quiet_prefect(os.environ)
    # The console reports what the floors log about bad input; without a handler Python would print it a second time.
    logging.getLogger("tfgrpo").addHandler(logging.NullHandler())
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    console = Console(as_json="--json" in arguments)
    try:
        code = _execute(arguments, console)
    except ConfigError as error:
        console.problems(error)
        code = 2
    except BrokenPipeError:
        # The reader of our stdout went away (`| head`): without a stdout that works the exit would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except (TfgrpoError, OSError) as error:
        console.failure(f"{type(error).__name__}: {error}")
        code = 1
    except Exception as error:  # noqa: BLE001 - one line for people, the traceback for the log
        _LOG.debug("unexpected error", exc_info=True)
        console.failure(f"unexpected error: {type(error).__name__}: {' '.join(str(error).split())}")
        code = 1
    except KeyboardInterrupt:
        console.failure("interrupted", status="stopped")
        code = _STOPPED
    return code


def _execute(arguments: list[str], console: Console) -> int:
    if arguments[0] in {"run", "test"} and not _HELP & set(arguments):
        console.say(CHECKING)  # before its modules are imported, which takes a second
    # Not ``TFGRPO.main``, which has its own words for an interrupt and ends the process at a broken pipe.
    try:
        stoppable = run_signals() if _STOPPABLE & set(arguments) else nullcontext()
        with TFGRPO.make_context("tfgrpo", arguments, obj=console) as context, stoppable:
            code: int | None = TFGRPO.invoke(context)
    except click.exceptions.Exit as ended:  # after a page of help
        return ended.exit_code
    except click.UsageError as error:
        raise problem_of(error) from None
    return code or 0


def entry_point(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code, within a time limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    words = {*(sys.argv[1:] if argv is None else argv)}
    if words & (_STOPPABLE | _SERVERS) and not words & _HELP:
        kill_after_second_signal(hangup_ends=bool(words & _SERVERS))
    code = main(argv)
    # Prefect still sends its last events; where its server is gone it tries for minutes, and logs each failure.
    logging.disable(logging.CRITICAL)
    threading.Thread(target=_force_exit, args=(code,), daemon=True).start()
    sys.exit(code)


def _force_exit(code: int) -> None:
    time.sleep(_SILENT_S)
    Console().say(f"waiting for background work to end, at most {_EXIT_S:g} s …")
    time.sleep(_EXIT_S)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    entry_point()
