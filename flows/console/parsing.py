"""How is a command line read? Like argparse reads it, except that a mistake is a ``SettingsError`` like any other.

So a slip in an option is told in the same words, with the same exit code and, under ``--json``, in the same object as a
slip in a value. An unknown option is never repeated with its value, which may be a secret that went to the wrong place.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from tfgrpo.pipelines.problems import did_you_mean
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.text import pluralize

_SAYINGS = (
    (r"argument (?P<source>.+?): invalid choice: (?P<given>.+) \(choose from (?P<accepted>.+)\)", "{accepted}"),
    (r"argument (?P<source>.+?): invalid int value: (?P<given>.+)", "a whole number"),
    (r"argument (?P<source>.+?): invalid float value: (?P<given>.+)", "a number"),
    (r"argument (?P<source>.+?): expected (?P<accepted>.+)", "{accepted}"),
    (r"argument (?P<source>.+?): not allowed with argument (?P<other>.+)", "only one of it and {other}"),
    (r"the following arguments are required: (?P<source>.+)", "a value; see `{prog} --help`"),
)
"""What argparse says, and what of it is said to be accepted."""
_OPTION = re.compile(r"--?[^-\s\d.][^\s=]*(?:=|$)")
"""A word that argparse takes for an option, and not for a negative number or a text that begins with a dash."""


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


def parse(parser: Parser, arguments: Sequence[str], *, intermixed: bool = True) -> argparse.Namespace:
    """Parse a command line with options and words in any order. Raises ``SettingsError``, above all for unknown options.

    ``intermixed`` is off for a parser with subcommands, for which argparse has no such order.
    """
    _refuse_unknown(parser, arguments)
    read = parser.parse_known_intermixed_args if intermixed else parser.parse_known_args
    options, left = read(arguments)
    if left:
        raise SettingsError.one(
            parser.prog, f"{pluralize(len(left), 'word')} too many", f"what `{parser.prog} --help` lists"
        )
    return options


def _refuse_unknown(parser: Parser, arguments: Sequence[str]) -> None:
    """Raise ``SettingsError`` with every unknown option, before a value of one is taken for a word and repeated."""
    # argparse has no other way to list what it knows
    known = [name for action in parser._actions for name in action.option_strings]  # noqa: SLF001
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    names = (word.partition("=")[0] for word in options if _OPTION.match(word))
    problems = [
        Problem(name, "an unknown option", did_you_mean(name, [each for each in known if each.startswith("--")]))
        for name in names
        if name not in known
    ]
    if problems:
        raise SettingsError(problems)


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
