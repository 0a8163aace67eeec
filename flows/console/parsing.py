"""Read a command line with argparse; every mistake is a ``SettingsError``.

So a mistake in an option has the same form, exit code and ``--json`` object as a mistake in a value. The value of an
unknown option is never repeated: it may be a secret in the wrong place.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

from tfgrpo.pipelines.problems import did_you_mean
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.text import pluralize

_OPTION = re.compile(r"--?[^-\s\d.][^\s=]*(?:=|$)")
"""A word that argparse takes for an option, and not for a negative number or a text that starts with a dash."""
_TYPE_NAMES: Mapping[object, str] = {int: "a whole number", float: "a number"}


class Positional(NamedTuple):
    """The positional arguments of a command: one list, with its limits."""

    dest: str
    metavar: str
    least: int
    most: int | None


class Parser(argparse.ArgumentParser):
    """An argument parser for ``parse``, which needs no message of argparse to describe a mistake."""

    def __init__(self, **how: Any) -> None:
        self.flags: dict[str, bool] = {}
        """The options by name, and whether they take a value."""
        self.positional: Positional | None = None
        self.commands: Mapping[str, Parser] = {}
        super().__init__(**how, allow_abbrev=False, exit_on_error=False)
        self.usage = f"{self.prog} [options]"
        self.add_argument("--json", action="store_true", help="print one JSON object on stdout")

    def add_argument(self, *names: str, group: argparse._ArgumentGroup | None = None, **how: Any) -> argparse.Action:
        """Add an option as argparse does; ``group`` is the section of the help that lists it."""
        if "type" in how or "choices" in how:
            how["type"] = partial(_converted, names[0], how.get("type", str), how.get("choices"))
        action = group.add_argument(*names, **how) if group else super().add_argument(*names, **how)
        self.flags.update(dict.fromkeys(names, action.nargs != 0))
        return action

    def add_positional(
        self,
        dest: str,
        metavar: str,
        *,
        least: int = 1,
        most: int | None = 1,
        help: str,  # noqa: A002 - argparse's word
    ) -> None:
        """Add the positional arguments: a list, or with ``most`` of 1 a text (None when absent)."""
        self.positional = Positional(dest, metavar, least, most)
        self.usage = f"{self.prog} {metavar if least else f'[{metavar}]'} [options]"
        super().add_argument(dest, nargs="*", metavar=metavar, help=help)

    def add_commands(self, helps: Mapping[str, str], metavar: str = "ACTION") -> Mapping[str, Parser]:
        """Add and return a sub-parser for each name. The name that was chosen is parsed as ``action``."""
        self.usage = f"{self.prog} {metavar} [options]"
        self.epilog = f"`{self.prog} {metavar} --help` lists the options of each."
        subparsers = self.add_subparsers(metavar=metavar, prog=self.prog, title=f"{metavar.lower()}s")
        self.commands = {name: subparsers.add_parser(name, help=text, description=text) for name, text in helps.items()}
        self.positional = Positional("action", metavar, 1, None)
        return self.commands

    def error(self, message: str) -> NoReturn:
        """Raise ``SettingsError`` for a mistake that only argparse knows of."""
        raise SettingsError.one(self.prog, message, f"what `{self.prog} --help` lists")


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line with options and positional arguments in any order. Raise ``SettingsError``."""
    given = list(_options_of(arguments))
    # First of all: argparse would take the value of an unknown option for a positional argument and repeat it.
    known = parser.flags | {flag: value for each in parser.commands.values() for flag, value in each.flags.items()}
    _raise(_unknown_options(given, known))
    if parser.commands:
        return _parse_action(parser, arguments, given, known)
    try:
        options, left = parser.parse_known_intermixed_args(arguments)
    except argparse.ArgumentError as error:  # types, choices and unknown options never get here
        raise SettingsError.one(str(error.argument_name), "nothing", "a value") from None
    if parser.positional is not None:
        dest, metavar, least, most = parser.positional
        values = getattr(options, dest)
        if len(values) < least:
            raise SettingsError.one(metavar, "nothing", f"a value; see `{parser.prog} --help`")
        left += values[most:] if most is not None else []
        if most == 1:
            setattr(options, dest, next(iter(values), None))
    if left:
        excess = f"{pluralize(len(left), 'word')} too many"
        raise SettingsError.one(parser.prog, excess, f"what `{parser.prog} --help` lists")
    return options


def _parse_action(
    parser: Parser, arguments: Sequence[str], given: Sequence[str], known: Mapping[str, bool]
) -> argparse.Namespace:
    index = _first_positional(arguments, known)
    metavar = parser.positional.metavar if parser.positional else ""
    accepted = ", ".join(parser.commands)
    if index is None:
        if {"-h", "--help"} & set(given):
            parser.parse_args(["--help"])
        raise SettingsError.one(metavar, "nothing", accepted)
    action = arguments[index]
    if action not in parser.commands:
        raise SettingsError.one(metavar, repr(action), accepted)
    chosen = parser.commands[action]
    _raise(
        Problem(name, f"it with {action}", f"{' or '.join(takers)} only")
        for name in (option.partition("=")[0] for option in given)
        if name not in chosen.flags
        and (takers := [other for other, each in parser.commands.items() if name in each.flags])
    )
    options = parse(chosen, [*arguments[:index], *arguments[index + 1 :]])
    options.action = action
    return options


def _first_positional(arguments: Sequence[str], known: Mapping[str, bool]) -> int | None:
    """Return the index of the first word that is neither an option nor the value of one."""
    is_value = False
    for index, word in enumerate(arguments):
        if not is_value and not _OPTION.match(word):
            return index
        is_value = not is_value and "=" not in word and known.get(word, False)
    return None


def _options_of(arguments: Sequence[str]) -> Iterator[str]:
    for word in arguments:
        if word == "--":
            return
        if _OPTION.match(word):
            yield word


def _unknown_options(given: Sequence[str], known: Mapping[str, bool]) -> Iterator[Problem]:
    for option in given:
        name, separator, _ = option.partition("=")
        if name not in known:
            yield Problem(name, "an unknown option", did_you_mean(name, [each for each in known if each[:2] == "--"]))
        elif separator and not known[name]:
            yield Problem(name, "a value", "it without a value")


def _raise(problems: Iterator[Problem]) -> None:
    if found := list(problems):
        raise SettingsError(found)


def _converted(name: str, kind: Callable[[str], Any], choices: Sequence[str] | None, text: str) -> Any:
    """Return the value of an option. ``SettingsError`` passes through argparse, which words only errors of its own."""
    try:
        value = kind(text)
    except ValueError:
        raise SettingsError.one(name, repr(text), _TYPE_NAMES[kind]) from None
    if choices is not None and value not in choices:
        raise SettingsError.one(name, repr(text), ", ".join(choices))
    return value
