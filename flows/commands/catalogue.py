"""The command line: the commands that ``commands.yaml`` declares, their parsers, and the functions that run them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser, named
from tfgrpo.stores.packaged import packaged_yaml


@cache
def commands() -> Mapping[str, Any]:
    """Return the declaration of each command, by its name."""
    declared = packaged_yaml(__file__, "commands.yaml")
    return {name: command for name, command in declared.items() if not name.startswith(".")}


def build_parser(command: str | None = None) -> Parser:
    """Return the parser of one command, or without a command the overview of all."""
    if command is None:
        helps = {name: {"help": each["help"]} for name, each in commands().items()}
        version = {"--version": {"type": "flag", "help": "print the version and exit"}}
        text = "A learning loop for LLM agents that changes no weights."
        return Parser(
            prog="tfgrpo", declared={"help": text, "metavar": "COMMAND", "options": version, "actions": helps}
        )
    declared = commands()[command]
    parser = Parser(prog=f"tfgrpo {command}", declared=declared)
    if "settings" in declared:
        from tfgrpo.flows.commands.options import add_settings  # noqa: PLC0415 - the settings are not every command's

        add_settings(parser, named(declared["settings"]).KEYS)
    return parser


def function_of(command: str, action: str | None) -> Callable[[argparse.Namespace, Console], int | None]:
    """Import and return the function that runs a command, or its action, and returns its exit code, None for 0."""
    declared = commands()[command]
    chosen = declared | declared["actions"][action] if action else declared
    function: Callable[[argparse.Namespace, Console], int | None] = named(chosen["run"])
    return function
