"""Describe invalid values to people, and collect the problems of several checks into one error."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter
from typing import Final, ParamSpec, TypeVar

from tfgrpo.stores.errors import ConfigError, Problem, SettingsError
from tfgrpo.stores.text import did_you_mean

_MAX_PROBLEMS: Final = 50
_MAX_EQUAL: Final = 3
"""Most problems with equal words that are listed one by one."""
_DETAILS: Final = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\d[\d.,]*)(?:, )?")
_MAX_SHOWN = 80
_PYTHON_OPTIONS: Final = {"actor": "agent", "dataset": "items", "rewarder": "rewarders"}
_PYTHON_KEYS: Final = {"actor.kind": "agent", "actor.tools": "tools", "rewarders": "rewarders"}
"""Options, and keys of settings, that Python names otherwise."""
_T = TypeVar("_T")
_P = ParamSpec("_P")


class ProblemCollector:
    """Runs several checks and collects the problems of all."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    def run(self, check: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> list[_T]:
        """Return the check's result as the only element, or an empty list if it raised ``ConfigError``."""
        try:
            return [check(*args, **kwargs)]
        except ConfigError as error:
            self._errors.append(error)
            return []

    def refuse(self, problems: Sequence[Problem]) -> None:
        """Add problems of settings, if there are any."""
        if problems:
            self._errors.append(SettingsError(problems))

    def raise_problems(self) -> None:
        """Raise all problems as one error of the first one's class, if there are any."""
        if self._errors:
            problems = dict.fromkeys(problem for error in self._errors for problem in error.problems)
            raise type(self._errors[0])(tuple(problems)) from None


class CappedProblems:
    """The problems of one source: equal ones as one, the first fifty, and the number of all."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: Counter[tuple[str, str]] = Counter()
        """By the words of the problems, whatever the names and figures in them."""
        self._first: dict[tuple[str, str], list[tuple[int, Problem]]] = {}
        """The first ones of these words, with their numbers among all."""

    def add(self, problem: Problem) -> None:
        """Record a problem."""
        self.total += 1
        words = (problem.accepted, _DETAILS.sub("", problem.given))
        if words in self._first or len(self._first) < _MAX_PROBLEMS:
            self._counts[words] += 1
            if self._counts[words] <= _MAX_EQUAL:
                self._first.setdefault(words, []).append((self.total, problem))

    def raise_problems(self, error: type[ConfigError], source: str) -> None:
        """Raise the problems with one that counts the others, if there are any."""
        lines = list[tuple[int, Problem, int]]()
        for words, numbered in self._first.items():
            equal = [problem for _, problem in numbered]
            if more := self._counts[words] - len(equal):
                differ = " (the first)" * (len({each.given for each in equal}) > 1)
                several, given = _several([each.source for each in equal], more), equal[0].given + differ
                lines.append((numbered[0][0], replace(equal[0], source=several, given=given), self._counts[words]))
            else:
                lines += [(number, each, 1) for number, each in numbered]
        told = sorted(lines, key=itemgetter(0))[:_MAX_PROBLEMS]
        problems = [problem for _, problem, _ in told]
        if hidden := self.total - sum(count for *_, count in told):
            problems.append(Problem(source, f"{hidden} more problems", f"{self.total} problems fewer"))
        if problems:
            raise error(problems)


def _several(sources: Sequence[str], more: int) -> str:
    """Return several sources as one: ``items.csv: lines 2, 3, 4 and 17 more``."""
    files, _, lines = zip(*(source.rpartition(":") for source in sources), strict=True)
    if len({*files}) > 1 or not files[0] or not all(map(str.isdecimal, lines)):
        return f"{', '.join(sources)} and {more:,} more"
    numbers = [*dict.fromkeys(lines)]
    return f"{files[0]}: {'lines' if len(numbers) > 1 else 'line'} {', '.join(numbers)} and {more:,} more"


def shown_value(value: object) -> str:
    """Return a value for a message: a short scalar, or the size of a list or mapping."""
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def unknown(source: str, what: str, name: str, known: Iterable[str]) -> Problem:
    """Return the problem of an unknown name. Its value is not shown: it may be a misplaced secret."""
    return Problem(source, f"an unknown {what}", did_you_mean(name, known, listed_by="tfgrpo config"))


@contextmanager
def python_names() -> Iterator[None]:
    """Name arguments in messages as Python does, not as the command line does."""
    try:
        yield
    except ConfigError as error:
        problems = [each.spelled(_python_name) for each in error.problems]
        named = [replace(each, source=_renamed(each.source) or each.source) for each in problems]
        raise type(error)(named) from error.__cause__


def _python_name(name: str, assigned: str | None) -> str:
    if assigned is None:
        return _PYTHON_OPTIONS.get(name, name.replace("-", "_"))
    key, has_value, value = assigned.partition("=")
    return _renamed(key) or (f"settings={{{key!r}: {value!r}}}" if has_value else f"settings[{key!r}]")


def _renamed(key: str) -> str | None:
    """Return the argument of Python for a key, or for what is below it; None for any other text."""
    known = next((name for name in _PYTHON_KEYS if f"{key}.".startswith(f"{name}.")), None)
    return None if known is None else _PYTHON_KEYS[known] + key[len(known) :]
