"""Build built-in graders by name, and a user's grader that an entry of a data mix names; try that on one item.

Anything with a ``grade_batch`` is a grader: objects, instances of classes, what a factory makes, and functions of one item.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.graders.base import Grader, GraderInput, NotGraded, grader
from tfgrpo.rewarders.graders.builtin.formats import CompletionLengthCap, JsonValid, LatexOnly, ReasoningFormat
from tfgrpo.rewarders.graders.builtin.labels import CategoryMatch, LabelMatch
from tfgrpo.rewarders.graders.builtin.math_verify import MathVerify
from tfgrpo.rewarders.graders.builtin.number_match import MathExact, NumberMatch, NumberOnly
from tfgrpo.rewarders.graders.builtin.schema_grader import JsonSchema, XmlSchema
from tfgrpo.rewarders.graders.calling import is_built_in, isolated_inputs, item_function
from tfgrpo.rewarders.graders.grades import matched
from tfgrpo.rewarders.importing import load_from_file, load_object
from tfgrpo.rewarders.options import constructed, fits
from tfgrpo.rewarders.threads import RewarderThreads, is_async
from tfgrpo.stores.errors import PipelineError, Problem, RewardError

_SOURCES: Final = ("import", "path", "builtin")
_KEYS: Final = (*_SOURCES, "init_kwargs")
ACCEPTED: Final = (
    "an object with grade_batch(inputs), a class of such objects, a factory of one, or a function of one GraderInput"
)

_LIMIT_S: Final = 5.0
_RECORD: Final[dict[str, object]] = {"prompt": "What is 6 * 7?", "answer": "42", "system_prompt": None, "metadata": {}}
ITEM: Final = GraderInput.of(
    "trial:0", _RECORD, "<think>\n6 * 7 = 42\n</think>\n42", completion_tokens=16, completion_index=0
)
"""The made-up item."""
_RETURNS: Final = "a grader: called with a GraderInput, or grade_batch with a list of them, it returns numbers"
BUILT_IN: Final[Mapping[str, Callable[..., Grader]]] = MappingProxyType(
    {
        "category_match": CategoryMatch,
        "completion_length_cap": CompletionLengthCap,
        "json_schema": JsonSchema,
        "json_valid": JsonValid,
        "label_match": LabelMatch,
        "latex_only": LatexOnly,
        "math-verify": MathVerify,
        "math_exact": MathExact,
        "math_verify": MathVerify,
        "number_match": NumberMatch,
        "number_only": NumberOnly,
        "reasoning_format": ReasoningFormat,
        "xml_schema": XmlSchema,
    }
)
"""Constructors by name; ``math-verify`` and ``math_verify`` are one grader."""


def load_python_grader(spec: Mapping[str, Any], *, name: str, folder: Path, source: str) -> Grader:
    """Return the grader that an entry of ``python_graders`` describes.

    ``spec`` holds exactly one of ``import: module:attr``, ``path: file.py:attr`` and ``builtin: alias``, and possibly
    ``init_kwargs``. A file is relative to ``folder``; it may import its siblings, and is run once for each entry that names
    it. ``source`` is the place of the entry in messages. Raises ``PipelineError`` with everything that is wrong.
    """
    problems = [Problem(f"{source}.{key}", "an unknown key", ", ".join(_KEYS)) for key in spec if key not in _KEYS]
    options = spec.get("init_kwargs")
    if options is not None and not (isinstance(options, Mapping) and all(isinstance(key, str) for key in options)):
        problems.append(Problem(f"{source}.init_kwargs", _kind(options), "options by name"))
        options = {}
    chosen = [key for key in _SOURCES if spec.get(key)]
    if len(chosen) != 1:
        given = " and ".join(chosen) or "none of them"
        raise PipelineError([*problems, Problem(source, given, f"exactly one of {', '.join(_SOURCES)}")])
    key, text = chosen[0], spec[chosen[0]]
    try:
        found = _found(key, text, dict(options or {}), name=name, folder=folder, source=source)
    except PipelineError as error:
        raise PipelineError([*problems, *error.problems]) from error
    if problems:
        raise PipelineError(problems)
    return found


def as_grader(found: object, options: Mapping[str, Any], where: str, key: str = ": init_kwargs") -> Grader:
    """Return a grader made of a user's object. Raise ``PipelineError`` when it is none and makes none.

    A class or factory is called with the options, the ``key`` within ``where``. A function that needs one argument more
    than the options fill is itself the grader of one item, with the options filled in.
    """
    if is_grader(found):
        if options:
            raise PipelineError.one(where + key, ", ".join(sorted(options)), "no options: it is an object already")
        return cast("Grader", found)
    if not callable(found):
        raise PipelineError.one(where, _kind(found), ACCEPTED)
    if not isinstance(found, type) and not fits(found, options) and fits(found, options, arguments=1):
        return grader(partial(found, **options) if options else found)
    built: object = constructed(found, options, where, key)
    if inspect.iscoroutine(built):
        built.close()
    if not is_grader(built):
        raise PipelineError.one(where, f"something that makes {_kind(built)}", ACCEPTED)
    return cast("Grader", built)


def is_grader(found: object) -> bool:
    """Return whether an object, not a class, grades batches."""
    return not isinstance(found, type) and callable(getattr(found, "grade_batch", None))


def _found(key: str, text: object, options: dict[str, Any], *, name: str, folder: Path, source: str) -> Grader:
    where = f"{source}.{key}"
    if key == "builtin":
        return build_grader(text, options, source=where)
    shape = "module:attr" if key == "import" else "file.py:attr"
    if not isinstance(text, str) or not all(text.rpartition(":")):
        raise PipelineError.one(where, repr(text), shape)
    found = load_object(text, where) if key == "import" else load_from_file(text, where, folder=folder, entry=name)
    return as_grader(found, options, f"{where}: {text}")


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def refuse_no_grader(grader: Grader, where: str) -> None:
    """Raise ``PipelineError`` when a grader rejects an input as such, ends the process, or returns what is no reward."""
    if is_async(grader.grade_batch) or is_built_in(grader):
        return
    with RewarderThreads(1) as threads:
        future = threads.submit(_fault, grader)
        try:
            fault = future.result(_LIMIT_S)
        except TimeoutError:
            return
    if fault:
        raise PipelineError.one(where, f"{fault} (a call with a made-up item)", _RETURNS)


def _fault(grader: Grader) -> str:
    """Why this is no grader; empty when it may be one."""
    inputs = isolated_inputs(grader, [ITEM])
    one = item_function(grader)
    try:
        said = [one(inputs[0])] if one is not None else grader.grade_batch(inputs)
    except BaseException as error:  # noqa: BLE001 - a user's code: what it raises decides
        return described(error) if _rejects(error) else ""
    if inspect.isawaitable(said):
        if inspect.iscoroutine(said):
            said.close()
        return ""
    try:
        (grade,) = matched(inputs, said)
    except RewardError as error:
        return str(error)
    if isinstance(grade, NotGraded) and grade.error_type == "NotANumber":
        # NaN may be its word on a made-up item.
        return "" if grade.reason.endswith("no finite number") else grade.reason
    return ""


def _rejects(error: BaseException) -> bool:
    """Return whether an error means that the callable takes no inputs, rather than that it cannot grade this one."""
    if not isinstance(error, TypeError | AttributeError):
        return isinstance(error, SystemExit)
    raised_by_call = error.__traceback__ is not None and error.__traceback__.tb_next is None
    return raised_by_call or GraderInput.__name__ in str(error)


def build_grader(name: object, init_kwargs: Mapping[str, Any] | None = None, *, source: str = "graders") -> Grader:
    """Build the built-in grader called ``name`` with ``init_kwargs``; ``source`` is the location of the name in messages.

    Raises ``PipelineError`` with every problem: an unknown name; unknown and missing options, and values that an option
    does not accept.
    """
    if not isinstance(name, str) or name not in BUILT_IN:
        raise PipelineError.one(source, repr(name), ", ".join(sorted(BUILT_IN)))
    return constructed(BUILT_IN[name], init_kwargs or {}, f"{source}: {name}", ": init_kwargs")
