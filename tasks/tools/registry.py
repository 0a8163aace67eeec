"""Which tools may an actor call? Those that the settings name as ``module:attr``, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.tasks.runtime.references import import_callable
from tfgrpo.tasks.tools.schema import Tool, tool_from_function

_SOURCE = "actor.tools"
_ACCEPTED = "module:attr of a Python function whose parameters are all annotated"


def load_tools(references: Sequence[str]) -> tuple[Tool, ...]:
    """The tools, in the order named. Raises ``SettingsError`` with every problem found."""
    problems = check_tools(references)
    if problems:
        raise SettingsError(problems)
    return tuple(tool_from_function(import_callable(reference)) for reference in references)


def check_tools(references: Sequence[str]) -> tuple[Problem, ...]:
    """Everything wrong with the references; nothing is called."""
    problems: list[Problem] = []
    names: list[str] = []
    for reference in references:
        try:
            names.append(tool_from_function(import_callable(reference)).spec.name)
        except ValueError as error:
            problems.append(Problem(_SOURCE, f"{reference!r} ({error})", _ACCEPTED))
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    problems.extend(Problem(_SOURCE, f"two tools named {name!r}", "tools with different names") for name in twice)
    return tuple(problems)
