"""What does ``module:attr`` stand for? Imports it, and says as a problem why it cannot be; builds and calls nothing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Final

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.kolibrify_names import PACKAGE, kolibrify_names
from tfgrpo.stores.errors import PipelineError, Problem

_OUR_NAMES: Final = "from tfgrpo.rewarders.graders import Grader, GradeResult, GraderInput"


def imported(text: str, where: str) -> object:
    """The object that ``module:attr`` names; dots in ``attr`` reach into it. Raises ``PipelineError``.

    The module is imported, which runs it: whatever it raises is reported.
    """
    try:
        return referred_to(text)
    except ValueError as error:
        problem = import_problem(error.__cause__ or error, where, "module:attr that can be imported", str(error))
        raise PipelineError([problem]) from error


def referred_to(text: str) -> object:
    """The same for callers with messages of their own.

    Raises ``ValueError`` with what importing it raised, which is its cause. That may be ``SystemExit``: a module that
    ends in ``sys.exit()`` must not end ours.
    """
    module_name, _, attribute = text.rpartition(":")
    try:
        _look_in_working_directory()
        with kolibrify_names():
            found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise ValueError(described(error)) from error
    return found


def import_problem(error: BaseException, where: str, accepted: str, said: str = "") -> Problem:
    """Why a module could not be imported, with what to write instead where that is known; ``said`` instead of the error."""
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == PACKAGE:
        return Problem(where, f"{described(error)}; it is not installed", f"{_OUR_NAMES}, or its installation")
    return Problem(where, said or described(error), accepted)


def _look_in_working_directory() -> None:
    """Put the working directory first on the path, as ``python -m`` does; an installed script does not."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
