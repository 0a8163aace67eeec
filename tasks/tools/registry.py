"""Load the tools that the settings name; an actor may call no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tfgrpo.rewarders.importing import load_callable
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.tasks.tools.schema import Tool, tool_from_function

_SOURCE = "actor.tools"
_ACCEPTED = "module:attr or path/to/file.py:attr of a Python function whose parameters are all annotated"


def load_tools(references: Sequence[str]) -> tuple[Tool, ...]:
    """Return the tools in the order named. Raise ``SettingsError`` with every problem."""
    problems = check_tools(references)
    if problems:
        raise SettingsError(problems)
    return tuple(tool_from_function(load_callable(reference)) for reference in references)


def check_tools(references: Sequence[str]) -> tuple[Problem, ...]:
    """Return every problem of the names; call nothing."""
    problems: list[Problem] = []
    names: list[str] = []
    for reference in references:
        try:
            names.append(tool_from_function(load_callable(reference)).spec.name)
        except ValueError as error:
            problems.append(Problem(_SOURCE, f"{reference!r} ({error})", _ACCEPTED))
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    problems.extend(Problem(_SOURCE, f"two tools named {name!r}", "tools with different names") for name in twice)
    return tuple(problems)
