"""What does ``module:attr`` stand for? Imports it, and says as a problem why it cannot be; builds and calls nothing."""

from __future__ import annotations

import importlib
from typing import Final

from stores.errors import PipelineError, Problem

_EXISTING_HOME: Final = "kolibrify"
_LONGEST: Final = 300
_OUR_NAMES: Final = "from rewarders.graders import Grader, GradeResult, GraderInput"


def imported(text: str, where: str) -> object:
    """The object that ``module:attr`` names; dots in ``attr`` reach into it. Raises ``PipelineError``.

    The module is imported, which runs it: whatever it raises is reported.
    """
    module_name, _, attribute = text.rpartition(":")
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise PipelineError([import_problem(error, where, "module:attr that can be imported")]) from error
    return found


def import_problem(error: BaseException, where: str, accepted: str) -> Problem:
    """Why a module could not be imported, with what to write instead where that is known."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == _EXISTING_HOME:
        return Problem(
            where, f"an import of {error.name}, which is not installed", f"{_OUR_NAMES}, or its installation"
        )
    return Problem(where, told(error), accepted)


def told(error: BaseException) -> str:
    """What a user's code raised, in one line that is not endless."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'}".rstrip(": ")
