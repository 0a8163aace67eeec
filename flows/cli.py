"""What does the ``tfgrpo`` command do? Parses, dispatches, and turns failures into exit codes; decides nothing else.

Exit codes: 0 finished, 1 anything else, 2 configuration, 3 stopped early with all work saved.
Command modules are imported when they are called: Prefect alone takes most of a second to import.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Final, NoReturn

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser, parse
from tfgrpo.flows.console.version import installed_version
from tfgrpo.flows.orchestration.interrupts import run_signals
from tfgrpo.flows.orchestration.quiet import quiet_prefect
from tfgrpo.stores.errors import ConfigError, TfgrpoError

COMMANDS = {
    "run": "learn: cohorts, groups, lessons, held-out sweep, gate",
    "doctor": "check everything a run needs without spending anything",
    "config": "show every setting and where its value came from",
    "deploy": "set a Prefect server up for nightly runs: work pool, deployments, schedule; check each",
    "estimate": "forecast calls, tokens and money of a run",
    "experiences": "look at what was learned: list, show, blame, diff, verify, export, import",
    "export": "take the groups of a run along to a trainer: TRL, verl, OpenRLHF, JSONL",
    "import": "bring in groups that were collected elsewhere",
    "packs": "stamp, verify or render prompt packs",
    "powl": "process models: parse, validate, footprint, score, draw",
    "report": "write a run's report again from its files",
    "runs": "list the runs that there are, newest first",
    "select": "best of K: ask several times, grade, hand out the best answer",
    "serve-data": "serve samples of a staged data mix over HTTP, and grade completions of them",
    "serve-simulated": "serve the SIMULATED model over HTTP",
}
_MODULES = {
    "experiences": "library.experiences",
    "export": "library.export",
    "import": "library.import_batch",
    "packs": "library.packs",
}
"""Modules of commands, where they are not called like the command."""
_STOPPABLE = frozenset({"run", "select"})
"""Commands that stop at a termination as at Ctrl-C. Those that serve have ways of their own."""
_STOPPED = 3
_HELP = frozenset({"-h", "--help"})
CHECKING: Final = "checking settings, data and endpoint …"
_UNSEEN_S: Final = 2.0
"""Seconds of waiting at the end of the process of which nothing is said."""
_LEAVING_S: Final = 5.0
"""Seconds more before the process ends whatever keeps it."""
_LOG = logging.getLogger("tfgrpo.cli")


def build_parser(command: str | None = None) -> Parser:
    """The parser of one command, whose module is imported for it; without a command, the overview of them all."""
    if command is not None:
        parser = _parser(f"tfgrpo {command}", COMMANDS[command])
        module = importlib.import_module(f"tfgrpo.flows.commands.{_MODULES.get(command, command.replace('-', '_'))}")
        module.add(parser)
        parser.set_defaults(execute=module.execute)
        return parser
    parser = _parser("tfgrpo", "A learning loop for LLM agents that changes no weights.")
    parser.epilog = "`tfgrpo COMMAND --help` lists the options of a command."
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for name, says in COMMANDS.items():
        subparsers.add_parser(name, help=says)
    return parser


def _parser(prog: str, says: str) -> Parser:
    parser = Parser(prog=prog, description=says, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    return parser


def _command_of(arguments: Sequence[str]) -> str | None:
    """The command: the first word; behind options, the first word that is a command."""
    words = arguments if arguments and arguments[0].startswith("-") else arguments[:1]
    return next((word for word in words if word in COMMANDS), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    quiet_prefect(os.environ)
    # What the floors log about bad input is said by the console; without a handler Python would say it again.
    logging.getLogger("tfgrpo").addHandler(logging.NullHandler())
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in ([], ["--version"]):
        sys.stdout.write(f"tfgrpo {installed_version()}\n" if arguments else build_parser().format_help())
        return 0
    console = Console(as_json="--json" in arguments)
    command = _command_of(arguments)
    if command is not None:
        arguments.remove(command)
    if command == "run" and not _HELP & set(arguments):
        console.say(CHECKING)  # before its module is imported, which takes a second
    try:
        options = parse(build_parser(command), arguments, intermixed=command is not None)
        with run_signals() if command in _STOPPABLE else nullcontext():
            code: int = options.execute(options, console)
    except ConfigError as error:
        console.problems(error)
        code = 2
    except BrokenPipeError:
        # The reader of our stdout went away (`| head`); point stdout elsewhere so that the exit stays silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except (TfgrpoError, OSError) as error:
        console.failure(f"{type(error).__name__}: {error}")
        code = 1
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told in a line and not in a page
        _LOG.debug("an error that nobody foresaw", exc_info=True)
        console.failure(f"an error that nobody foresaw: {type(error).__name__}: {' '.join(str(error).split())}")
        code = 1
    except KeyboardInterrupt:
        console.failure("interrupted", status="stopped")
        code = _STOPPED
    return code


def entry_point(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code, within a limit."""
    code = main(argv)
    # What is left is to send Prefect its last events, which it tries for minutes where its server is gone, and says so.
    logging.disable(logging.CRITICAL)
    threading.Thread(target=_leave, args=(code,), daemon=True).start()
    sys.exit(code)


def _leave(code: int) -> None:
    time.sleep(_UNSEEN_S)
    Console().say(f"waiting for background work to end, at most {_LEAVING_S:g} s …")
    time.sleep(_LEAVING_S)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    entry_point()
