"""How is a command line read? Like argparse reads it, except that a mistake is a ``SettingsError`` like any other.

So a slip in an option is told in the same words, with the same exit code and, under ``--json``, in the same object as a
slip in a value. An unknown option is never repeated with its value, which may be a secret that went to the wrong place.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NoReturn

from pipelines.problems import did_you_mean
from stores.counted import counted
from stores.errors import Problem, SettingsError

_SAYINGS = (
    (r"argument (?P<source>.+?): invalid choice: (?P<given>.+) \(choose from (?P<accepted>.+)\)", "{accepted}"),
    (r"argument (?P<source>.+?): invalid int value: (?P<given>.+)", "a whole number"),
    (r"argument (?P<source>.+?): invalid float value: (?P<given>.+)", "a number"),
    (r"argument (?P<source>.+?): expected (?P<accepted>.+)", "{accepted}"),
    (r"argument (?P<source>.+?): not allowed with argument (?P<other>.+)", "only one of it and {other}"),
    (r"the following arguments are required: (?P<source>.+)", "a value; see `{prog} --help`"),
)
"""What argparse says, and what of it is said to be accepted."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of printing its usage and ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise ``SettingsError`` saying what argparse found wrong."""
        for pattern, accepted in _SAYINGS:
            if match := re.fullmatch(pattern, message, re.DOTALL):
                parts = match.groupdict()
                given = parts.get("given") or ("it" if "other" in parts else "nothing")
                raise SettingsError.one(
                    parts["source"], given, accepted.format(prog=self.prog, **parts).replace("'", "")
                )
        raise SettingsError.one(self.prog, message, f"what `{self.prog} --help` lists")


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a whole command line. Raises ``SettingsError`` with every option that nobody knows."""
    options, left = parser.parse_known_args(arguments)
    if left:
        command = f"{parser.prog} {options.command}"
        known = _options_of(parser, options.command)
        raise SettingsError(tuple(_unknown(left, command, known)))
    return options


def refuse_idle(options: argparse.Namespace, chosen: str, taken_by: Mapping[str, Collection[str]]) -> None:
    """Raise ``SettingsError`` for options that were given and mean nothing for what was ``chosen``.

    ``taken_by`` names, for an option of some choices only, those that take it. An option is given when it is neither
    absent nor false.
    """
    problems = [
        Problem(f"--{name.replace('_', '-')}", f"it with {chosen}", f"{' or '.join(choices)} only")
        for name, choices in taken_by.items()
        if chosen not in choices and not _absent(getattr(options, name))
    ]
    if problems:
        raise SettingsError(problems)


def _absent(value: object) -> bool:
    return value is None or value is False  # a zero was given


def _unknown(left: Sequence[str], command: str, known: Sequence[str]) -> Iterator[Problem]:
    named = [word.partition("=")[0] for word in left if word.startswith("-") and word != "-"]
    for name in named:
        yield Problem(name, "an option nobody knows", did_you_mean(name, known))
    if not named:
        yield Problem(command, f"{counted(len(left), 'word')} too many", f"what `{command} --help` lists")


def _options_of(parser: Parser, command: str) -> list[str]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list what it knows
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            below = action.choices[command]._actions  # noqa: SLF001 - as above
            return [name for each in below for name in each.option_strings if name.startswith("--")]
    return []
