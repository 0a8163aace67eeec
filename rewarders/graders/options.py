"""Checks of options of graders; all problems of a grader are reported at once.

The source of a problem is the option's name; the caller prefixes the location in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from tfgrpo.stores.errors import PipelineError, Problem
from tfgrpo.stores.numeric import is_finite


def refuse(*checks: Iterable[Problem]) -> None:
    """Raise ``PipelineError`` with the problems of all checks, if any."""
    problems = [problem for check in checks for problem in check]
    if problems:
        raise PipelineError(problems)


def flag(name: str, value: object) -> Iterator[Problem]:
    """Check for a boolean."""
    if not isinstance(value, bool):
        yield Problem(name, repr(value), "true or false")


def number(name: str, value: object, *, least: float = -math.inf, most: float = math.inf) -> Iterator[Problem]:
    """Check for a finite number within bounds, both included."""
    if not is_number(value) or not least <= value <= most:
        bounds = f" of at least {least:g}" * (least > -math.inf) + f" and at most {most:g}" * (most < math.inf)
        yield Problem(name, repr(value), f"a finite number{bounds}")


def above_zero(name: str, value: object) -> Iterator[Problem]:
    """Check for a finite number greater than zero."""
    if not is_number(value) or value <= 0:
        yield Problem(name, repr(value), "a finite number greater than 0")


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)
