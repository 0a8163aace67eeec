"""Is a grader's option usable? One small check per kind of option; every problem of a grader is reported at once.

The source of a problem is the option's name; whoever knows the file puts it in front.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from tfgrpo.stores.errors import PipelineError, Problem
from tfgrpo.stores.numeric import is_finite


def refuse(*checks: Iterable[Problem]) -> None:
    """Raise ``PipelineError`` with the problems of all checks, if there are any."""
    problems = [problem for check in checks for problem in check]
    if problems:
        raise PipelineError(problems)


def flag(name: str, value: object) -> Iterator[Problem]:
    """A truth value, not a word or a number that looks like one."""
    if not isinstance(value, bool):
        yield Problem(name, repr(value), "true or false")


def number(name: str, value: object, *, least: float = -math.inf, most: float = math.inf) -> Iterator[Problem]:
    """A finite number within bounds, both included."""
    if not is_number(value) or not least <= value <= most:
        bounds = f" of at least {least:g}" * (least > -math.inf) + f" and at most {most:g}" * (most < math.inf)
        yield Problem(name, repr(value), f"a finite number{bounds}")


def above_zero(name: str, value: object) -> Iterator[Problem]:
    """A finite number greater than zero."""
    if not is_number(value) or value <= 0:
        yield Problem(name, repr(value), "a finite number greater than 0")


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)
