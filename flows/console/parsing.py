"""Commands, options and arguments on click, whose mistakes are problems as those of settings are.

So a mistake in an option has the same form, exit code and ``--json`` object as a mistake in a value, and all bad values are
reported at once. A value of an unknown option, and a word too many, are never repeated: they may be secrets in the wrong place.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Final, get_args

import click

from tfgrpo.flows.console.environment import prefect_settings
from tfgrpo.stores.errors import ConfigError, Problem, ProblemCollector, SettingsError, shown_value
from tfgrpo.stores.text import did_you_mean, suggested

_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
_CHECKS: Final = "tfgrpo.checks"


def named(name: str) -> Any:
    """Import and return what ``module:name`` names, below ``tfgrpo``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"tfgrpo.{module}"), attribute)


class NumberParameter(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.4
    """A number in a range; its ends belong to it, except ``above``."""

    def __init__(self, kind: type, *, least: float = -math.inf, most: float = math.inf, above: float = -math.inf) -> None:
        self.kind, self.least, self.most, self.above = kind, least, most, above
        self.name = "n" if kind is int else "x"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the number; refuse text that is none, and one out of the range."""
        with suppress(ValueError):
            number = self.kind(value)
            if self.least <= number <= self.most and self.above < number < math.inf:
                return number
        return _refused(value, param, ctx, str(self))

    def __str__(self) -> str:
        name = "a whole number" if self.kind is int else "a number"
        if math.isfinite(self.most):
            return f"{name} from {self.least} to {self.most}"
        if math.isfinite(self.above):
            return f"{name} above {self.above}"
        return f"{name} of at least {self.least}" if math.isfinite(self.least) else name


class Words(click.ParamType):  # type: ignore[type-arg]
    """One of several words: a list, or ``module:name`` of one, or of a type of literals, imported when it is needed."""

    name = "word"

    def __init__(self, words: Sequence[str] | str) -> None:
        self._words = words

    @cached_property
    def words(self) -> Sequence[str]:
        """The accepted words."""
        words = named(self._words) if isinstance(self._words, str) else self._words
        return get_args(words) or tuple(words)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the word; refuse any other."""
        if value in self.words:
            return value
        return _refused(value, param, ctx, suggested(str(value), self.words, ", ".join(self.words)))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - click's
        """Return the words for the help."""
        return f"[{'|'.join(self.words)}]"


def _refused(value: object, param: click.Parameter, ctx: click.Context, accepted: str) -> Any:
    """Collect the problem of a value, and return the default: click would stop at the first."""
    ctx.meta[_CHECKS].refuse([Problem(param.opts[0], shown_value(value), accepted)])
    return param.get_default(ctx)


class Option(click.Option):
    """An option. ``name``: of the parameter that gets its value, by default that of the option. ``key``: of its setting.

    ``section`` is the part of the help that lists it. Its default is shown at the end of its help.
    """

    def __init__(
        self,
        option: str,
        help: str = "",  # noqa: A002 - click's
        *,
        name: str | None = None,
        section: str = "Options",
        key: str | None = None,
        **how: Any,
    ) -> None:
        self.section, self.key = section, key
        default = how.get("default")
        text = help if default is None or how.get("is_flag") or how.get("multiple") else f"{help} [{default}]"
        super().__init__([option, name] if name else [option], help=text, **how)


class Argument(click.Argument):
    """An argument with a line of help."""

    section = "Arguments"

    def __init__(self, name: str, help: str, **how: Any) -> None:  # noqa: A002 - click's
        super().__init__([name], **how)
        self.text = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return what the help lists."""
        return self.make_metavar(ctx), self.text


flag = partial(Option, is_flag=True)


class Command(click.Command):
    """A command; the function ``where`` gets its values as keywords, and ``console``.

    With ``settings``, a request, it has the options of the request's settings, or of ``only`` some. A function that takes
    ``checks`` continues with the problems of the options, to report them with those that it finds.
    """

    def __init__(
        self,
        where: str,
        help: str,  # noqa: A002 - click's
        *params: click.Parameter,
        settings: str | None = None,
        only: Sequence[str] | None = None,
        usage: str = "[OPTIONS]",
        epilog: str | None = None,
    ) -> None:
        super().__init__(None, help=help, epilog=epilog, context_settings=_CONTEXT, options_metavar=usage)
        self.where, self._settings, self._only = where, settings, only
        self.params = [*params, flag("--json", "print one JSON object on stdout", expose_value=False)]

    @cached_property
    def function(self) -> Any:
        """The function. Its module may import Prefect, which reads its settings then: raises ``SettingsError`` for them."""
        with prefect_settings():
            return named(f"flows.commands.{self.where}")

    @cached_property
    def setting_options(self) -> list[Option]:
        """The options of settings, which are made when they are needed: the settings take a while to import."""
        if self._settings is None:
            return []
        return list(named("flows.commands.options:options_of_settings")(named(self._settings).KEYS, self._only))

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all options and arguments."""
        return [*self.setting_options, *super().get_params(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read options and arguments in any order."""
        ctx.meta[_CHECKS] = ProblemCollector()
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function. Raise ``ConfigError`` with every refused value, unless it continues the checks itself."""
        values = named("flows.commands.options:grouped")(ctx.params, self.setting_options)
        checks: ProblemCollector = ctx.meta[_CHECKS]
        if "checks" in inspect.signature(self.function).parameters:
            return self.function(**values, console=ctx.obj, checks=checks)
        checks.raise_problems()
        return self.function(**values, console=ctx.obj)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of arguments and options, section by section."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def problem_of(error: click.UsageError) -> ConfigError:
    """Return a mistake that click found as a problem."""
    ctx = error.ctx
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        names = sorted(name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("--"))
        accepted = did_you_mean(error.option_name, names, listed_by="--help")
        return SettingsError.one(error.option_name, "an unknown option", accepted)
    if isinstance(error, click.BadOptionUsage):
        lacks = "requires" in error.message
        accepted = "a value" if lacks else "it without a value"
        return SettingsError.one(error.option_name, "nothing" if lacks else "a value", accepted)
    command = "tfgrpo" if ctx is None else ctx.command_path
    if isinstance(error, click.MissingParameter) and error.param is not None and ctx is not None:
        name = error.param.make_metavar(ctx).strip("[].")
        return SettingsError.one(name, "nothing", f"a value; see `{command} --help`")
    return SettingsError.one(command, "a word too many", f"what `{command} --help` lists")


class Commands(click.Group):
    """Commands, or actions of one, by name."""

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002 - click's
        table: Mapping[str, Command | Commands],
        section: str = "Actions",
    ) -> None:
        self.table, self.section, self.kind = table, section, section[:-1].upper()
        epilog = f"`{name} {self.kind} --help` lists the options of each."
        super().__init__(None, {**table}, help=help, epilog=epilog, context_settings=_CONTEXT, subcommand_metavar=self.kind)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the name of a command. Raise ``SettingsError`` without one."""
        if not args:
            raise SettingsError.one(self.kind, "nothing", ", ".join(self.table))
        return super().parse_args(ctx, args)

    def resolve_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first word. Raise ``SettingsError`` for an unknown one, with the closest."""
        name, *rest = args
        if name not in self.table:
            raise SettingsError.one(self.kind, repr(name), suggested(name, self.table, ", ".join(self.table)))
        return name, self.table[name], rest

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """Return the names, in the order of the table."""
        return list(self.table)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the help of the commands, whole."""
        with formatter.section(self.section):
            formatter.write_dl([(name, each.help or "") for name, each in self.table.items()])
