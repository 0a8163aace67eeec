"""What does the ``tfgrpo`` command do? Parses, dispatches, and turns failures into exit codes; decides nothing else.

Exit codes: 0 finished, 1 anything else, 2 configuration, 3 stopped early with all work saved.
Command modules are imported when they are called: Prefect alone takes most of a second to import.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from flows.console import Console
from flows.quiet import quiet_prefect
from stores.errors import ConfigError, TfgrpoError

COMMANDS = {
    "run": "learn: cohorts, groups, lessons, held-out sweep, gate",
    "doctor": "check everything a run needs without spending anything",
    "config": "show every setting and where its value came from",
    "estimate": "forecast calls, tokens and money of a run",
    "experiences": "look at what was learned: list, show, blame, diff, verify, export",
    "packs": "stamp, verify or render prompt packs",
    "report": "write a run's report again from its files",
    "serve-simulated": "serve the SIMULATED model over HTTP",
}


def build_parser(commands: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser of the ``tfgrpo`` command with the sub-commands named."""
    parser = argparse.ArgumentParser(
        prog="tfgrpo", description="A learning loop for LLM agents that changes no weights."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in commands:
        module = importlib.import_module(f"flows.commands.{name.replace('-', '_')}")
        subparser = subparsers.add_parser(name, help=COMMANDS[name], description=COMMANDS[name], allow_abbrev=False)
        subparser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
        module.add(subparser)
        subparser.set_defaults(execute=module.execute)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    quiet_prefect(os.environ)
    arguments = list(sys.argv[1:] if argv is None else argv)
    wanted = [name for name in arguments[:1] if name in COMMANDS]
    options = build_parser(wanted or tuple(COMMANDS)).parse_args(arguments)
    console = Console(as_json=options.json)
    try:
        code: int = options.execute(options, console)
    except ConfigError as error:
        console.problems(error)
        code = 2
    except TfgrpoError as error:
        console.say(f"tfgrpo: {type(error).__name__}: {error}", style="bold red")
        code = 1
    except BrokenPipeError:
        # The reader of our stdout went away (`| head`); point stdout elsewhere so that the exit stays silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    return code
