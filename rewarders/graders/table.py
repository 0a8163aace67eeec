"""Which grader has this name? The closed table of built-in graders, and how one is built from options; grades nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.builtin.completion_length import CompletionLengthCap
from tfgrpo.rewarders.graders.builtin.json_schema import JsonSchema
from tfgrpo.rewarders.graders.builtin.json_valid import JsonValid
from tfgrpo.rewarders.graders.builtin.labels import CategoryMatch, LabelMatch
from tfgrpo.rewarders.graders.builtin.latex_only import LatexOnly
from tfgrpo.rewarders.graders.builtin.math_exact import MathExact, NumberOnly
from tfgrpo.rewarders.graders.builtin.math_verify import MathVerify
from tfgrpo.rewarders.graders.builtin.number_match import NumberMatch
from tfgrpo.rewarders.graders.builtin.reasoning_format import ReasoningFormat
from tfgrpo.rewarders.graders.builtin.xml_schema import XmlSchema
from tfgrpo.stores.errors import PipelineError, Problem

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
"""Name to what builds it; ``math-verify`` and ``math_verify`` are one grader."""


def build_grader(
    name: str,
    init_kwargs: Mapping[str, Any] | None = None,
    *,
    source: str = "graders",
    options_key: str = "init_kwargs",
) -> Grader:
    """The built-in grader called ``name``, built with ``init_kwargs``.

    Messages say by ``source`` where the name was written, and by ``options_key`` under which key its options are. Raises
    ``PipelineError`` with everything that is wrong: an unknown name; unknown options, missing ones and values that an
    option does not accept.
    """
    build = BUILT_IN.get(name)
    if build is None:
        raise PipelineError([Problem(source, repr(name), ", ".join(sorted(BUILT_IN)))])
    given = dict(init_kwargs or {})
    accepted = inspect.signature(build).parameters
    problems = [*_unknown(given, accepted), *_missing(given, accepted)]
    built: Grader | None = None
    try:
        built = build(**{key: given.get(key, parameter.default) for key, parameter in accepted.items()})
    except PipelineError as error:
        problems += [problem for problem in error.problems if problem.source not in accepted or problem.source in given]
    if built is None or problems:
        options = {*given, *accepted}
        raise PipelineError([_placed(problem, f"{source}: {name}", options, options_key) for problem in problems])
    return built


def _unknown(given: Mapping[str, Any], accepted: Mapping[str, inspect.Parameter]) -> Iterator[Problem]:
    for key in given:
        if key not in accepted:
            yield Problem(key, repr(given[key]), f"only {', '.join(accepted)}" if accepted else "no options")


def _missing(given: Mapping[str, Any], accepted: Mapping[str, inspect.Parameter]) -> Iterator[Problem]:
    for key, parameter in accepted.items():
        if parameter.default is parameter.empty and key not in given:
            yield Problem(key, "nothing", "a value: this option has no default")


def _placed(problem: Problem, where: str, options: set[str], options_key: str) -> Problem:
    """The problem of an option, or of the grader as a whole, with the place where it was written."""
    option = f": {options_key}.{problem.source}" if problem.source in options else ""
    return Problem(where + option, problem.given, problem.accepted)
