"""What does ``module:attr`` stand for? Imports it, and says as a problem why it cannot be; builds and calls nothing."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from typing import Final

from rewarders.faults import described
from rewarders.kolibrify_names import PACKAGE, kolibrify_names
from stores.errors import PipelineError, Problem

_OUR_NAMES: Final = "from rewarders.graders import Grader, GradeResult, GraderInput"
_OWN: Final = frozenset({"flows", "pipelines", "prompt_packs", "rewarders", "stores", "tasks"})
_ROOT: Final = Path(__file__).resolve().parent.parent


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
        _refuse_mixed_up()
    except (Exception, SystemExit) as error:
        name = error.name or "" if isinstance(error, ImportError) else module_name
        raise ValueError(f"{described(error)}{_hidden(name.partition('.')[0])}") from error
    return found


def import_problem(error: BaseException, where: str, accepted: str, said: str = "") -> Problem:
    """Why a module could not be imported, with what to write instead where that is known; ``said`` instead of the error."""
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == PACKAGE:
        return Problem(where, f"{described(error)}; it is not installed", f"{_OUR_NAMES}, or its installation")
    return Problem(where, said or described(error), accepted)


def _hidden(name: str) -> str:
    """What to do about a user's module that one of our packages hides; empty when there is none of the name."""
    place = _beside(name)
    return f"; {place} is hidden by tfgrpo's own package {name!r}: give it another name" if place else ""


def _beside(name: str) -> Path | None:
    """A module or package in the working directory that has the name of one of ours, and is not ours."""
    here = Path.cwd().resolve()
    if name not in _OWN or here == _ROOT:
        return None
    return next((place for place in (here / f"{name}.py", here / name) if place.exists()), None)


def _refuse_mixed_up() -> None:
    """Raise ``ImportError`` where a module of the working directory imports another one there, and got our package."""
    hidden = {name for name in _OWN if _beside(name)}
    here = str(Path.cwd())
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())] if hidden else []
    for file in files:
        if file.endswith(".py") and str(Path(file).parent) == here:
            for name in _imported_names(Path(file)) & hidden:
                raise ImportError(f"{Path(file).name} imports {name!r}", name=name)


def _imported_names(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_bytes()))
    return {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def _look_in_working_directory() -> None:
    """An installed script does not search the directory it is called in, where a user's own module usually lies.

    Last on the path, so that a directory of the user's called like one of ours does not hide ours.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
