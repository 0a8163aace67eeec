"""Read a command line with argparse, from the declaration of a command; every mistake is a ``SettingsError``.

So a mistake in an option has the same form, exit code and ``--json`` object as a mistake in a value. The value of an
unknown option is never repeated: it may be a secret in the wrong place.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn, get_args

from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.text import did_you_mean, pluralize, suggested

_OPTION = re.compile(r"--?[^-\s\d.][^\s=]*(?:=|$)")
"""A word that argparse takes for an option, and not for a negative number or a text that starts with a dash."""
_TYPES: Mapping[str, Callable[[str], Any]] = {"int": int, "float": float, "text": str}
_TYPE_NAMES = {"int": "a whole number", "float": "a number"}


class Positional(NamedTuple):
    """The positional arguments of a command: a list, or with ``at_most`` of 1 a text (None when absent)."""

    dest: str
    metavar: str
    help: str = ""
    at_least: int = 1
    at_most: int | None = 1


class Bounds(NamedTuple):
    """The range of an option; its ends belong to it, except ``above``."""

    type: str
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf

    def hold(self, value: float) -> bool:
        """Return whether a number is finite and in the range; a whole one may be too large for a float."""
        return self.least <= value <= self.most and self.above < value < math.inf

    def __str__(self) -> str:
        least = f"above {self.above}" if math.isfinite(self.above) else f"of at least {self.least}"
        range_ = f"from {self.least} to {self.most}" if math.isfinite(self.most) else least
        return f"{_TYPE_NAMES[self.type]} {range_}"


class Parser(argparse.ArgumentParser):
    """An argument parser for ``parse``, which needs no message of argparse to describe a mistake."""

    def __init__(self, *, prog: str, declared: Mapping[str, Any]) -> None:
        self.flags: dict[str, bool] = {}
        """The options by name, those of the actions too, and whether they take a value."""
        self.bounds: dict[str, Bounds] = {}
        self.commands: dict[str, Parser] = {}
        self.positional: Positional | None = None
        super().__init__(prog=prog, description=declared["help"], allow_abbrev=False, exit_on_error=False)
        usage, self.epilog = declared.get("usage", "[options]"), declared.get("epilog")
        self.add_option("--json", type="flag", help="print one JSON object on stdout")
        for name, how in {**declared.get("options", {}), **declared.get("also", {})}.items():
            self.add_option(name, **how)
        if "positional" in declared:
            taken = self.positional = Positional(**declared["positional"])
            usage = f"{taken.metavar if taken.at_least else f'[{taken.metavar}]'} {usage}"
            super().add_argument(taken.dest, nargs="*", metavar=taken.metavar, help=taken.help)
        if "actions" in declared:
            taken = self.positional = Positional("action", declared.get("metavar", "ACTION"), at_most=None)
            usage = f"{taken.metavar} {usage}"
            self.epilog = f"`{prog} {taken.metavar} --help` lists the options of each."
            actions = self.add_subparsers(metavar=taken.metavar, prog=prog, title=f"{taken.metavar.lower()}s")
            for name, action in declared["actions"].items():
                self.commands[name] = actions.add_parser(name, help=action["help"], declared=action)
                self.flags |= self.commands[name].flags
        self.usage = f"{prog} {usage}"

    def add_argument(self, *names: str, group: argparse._ArgumentGroup | None = None, **how: Any) -> argparse.Action:
        """Add an option as argparse does; ``group`` is the section of the help that lists it."""
        action = group.add_argument(*names, **how) if group else super().add_argument(*names, **how)
        self.flags.update(dict.fromkeys(names, action.nargs != 0))
        return action

    def add_option(self, name: str, **how: Any) -> None:
        """Add an option as ``flows/commands.yaml`` declares it."""
        kind = how.pop("type", "text")
        bounds = {word: how.pop(word) for word in ("least", "most", "above") if word in how}
        choices = _words(how.get("choices", ()))
        how["help"] = how["help"].replace("{words}", ", ".join(_words(how.pop("words", ())) or choices))
        if how.get("default") is not None:
            how["help"] += f" [{how['default']}]"
        if kind == "flag":
            how["action"] = "store_true"
        elif how.pop("repeat", False):
            how |= {"action": "append", "default": []}
        elif kind != "text" or choices:
            how |= {"type": partial(_converted, name, kind, choices), "choices": choices or None}
        action = self.add_argument(name, **how)
        if bounds:
            self.bounds[action.dest] = Bounds(kind, **bounds)

    def error(self, message: str) -> NoReturn:
        """Raise ``SettingsError`` for a mistake that only argparse knows of."""
        raise SettingsError.one(self.prog, message, f"what `{self.prog} --help` lists")


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line with options and positional arguments in any order. Raise ``SettingsError``.

    Numbers outside of their bounds are in ``out_of_bounds``, for the command to report with what else is wrong.
    """
    given = [word for word in takewhile(lambda word: word != "--", arguments) if _OPTION.match(word)]
    # First of all: argparse would take the value of an unknown option for a positional argument and repeat it.
    if problems := list(_unknown_options(given, parser.flags)):
        raise SettingsError(problems)
    if parser.commands:
        return _parse_action(parser, arguments, given)
    try:
        options, left = parser.parse_known_intermixed_args(arguments)
    except argparse.ArgumentError as error:  # types, choices and unknown options never get here
        raise SettingsError.one(str(error.argument_name), "nothing", "a value") from None
    if parser.positional is not None:
        dest, metavar, _, least, most = parser.positional
        values = getattr(options, dest)
        if len(values) < least:
            raise SettingsError.one(metavar, "nothing", f"a value; see `{parser.prog} --help`")
        left += values[most:] if most is not None else []
        if most == 1:
            setattr(options, dest, next(iter(values), None))
    if left:
        excess = f"{pluralize(len(left), 'word')} too many"
        raise SettingsError.one(parser.prog, excess, f"what `{parser.prog} --help` lists")
    options.out_of_bounds = [
        Problem(f"--{dest.replace('_', '-')}", f"{value:g}" if bounds.type == "float" else str(value), str(bounds))
        for dest, bounds in parser.bounds.items()
        if (value := getattr(options, dest)) is not None and not bounds.hold(value)
    ]
    return options


def _parse_action(parser: Parser, arguments: Sequence[str], given: Sequence[str]) -> argparse.Namespace:
    index = _first_positional(arguments, parser.flags)
    metavar = parser.positional.metavar if parser.positional else ""
    if index is None:
        if {"-h", "--help"} & set(given):
            parser.parse_args(["--help"])
        raise SettingsError.one(metavar, "nothing", ", ".join(parser.commands))
    action = arguments[index]
    if action not in parser.commands:
        raise SettingsError.one(metavar, repr(action), suggested(action, parser.commands, ", ".join(parser.commands)))
    chosen = parser.commands[action]
    if problems := [
        Problem(name, f"it with {action}", f"{' or '.join(takers)} only")
        for name in (option.partition("=")[0] for option in given)
        if name not in chosen.flags
        and (takers := [other for other, each in parser.commands.items() if name in each.flags])
    ]:
        raise SettingsError(problems)
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


def _unknown_options(given: Sequence[str], known: Mapping[str, bool]) -> Iterator[Problem]:
    for option in given:
        name, separator, _ = option.partition("=")
        if name not in known:
            options = [each for each in known if each[:2] == "--"]
            yield Problem(name, "an unknown option", did_you_mean(name, options, listed_by="--help"))
        elif separator and not known[name]:
            yield Problem(name, "a value", "it without a value")


def named(name: str) -> Any:
    """Import and return what ``module:name`` of a declaration names, below ``tfgrpo``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"tfgrpo.{module}"), attribute)


def _words(given: str | Sequence[str]) -> Sequence[str]:
    """Return the words of a list, or those that it names: a tuple, a type, or a function without arguments."""
    if not isinstance(given, str):
        return given
    words = named(given)
    return get_args(words) or tuple(words() if callable(words) else words)


def _converted(name: str, kind: str, choices: Sequence[str], text: str) -> Any:
    """Return the value of an option. ``SettingsError`` passes through argparse, which words only errors of its own."""
    try:
        value = _TYPES[kind](text)
    except ValueError:
        raise SettingsError.one(name, repr(text), _TYPE_NAMES[kind]) from None
    if choices and value not in choices:
        raise SettingsError.one(name, repr(text), suggested(text, choices, ", ".join(choices)))
    return value
