"""Table of the built-in graders, and their construction from options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.builtin.formats import CompletionLengthCap, JsonValid, LatexOnly, ReasoningFormat
from tfgrpo.rewarders.graders.builtin.labels import CategoryMatch, LabelMatch
from tfgrpo.rewarders.graders.builtin.math_exact import MathExact, NumberOnly
from tfgrpo.rewarders.graders.builtin.math_verify import MathVerify
from tfgrpo.rewarders.graders.builtin.number_match import NumberMatch
from tfgrpo.rewarders.graders.builtin.schema_grader import JsonSchema, XmlSchema
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
"""Constructors by name; ``math-verify`` and ``math_verify`` are one grader."""


def build_grader(
    name: str,
    init_kwargs: Mapping[str, Any] | None = None,
    *,
    source: str = "graders",
    options_key: str = "init_kwargs",
) -> Grader:
    """Build the built-in grader called ``name`` with ``init_kwargs``.

    ``source`` is the location of the name in messages, ``options_key`` the key of its options. Raises ``PipelineError``
    with every problem: an unknown name; unknown and missing options, and values that an option does not accept.
    """
    build = BUILT_IN.get(name)
    if build is None:
        raise PipelineError([Problem(source, repr(name), ", ".join(sorted(BUILT_IN)))])
    given = dict(init_kwargs or {})
    accepted = inspect.signature(build).parameters
    known = f"only {', '.join(accepted)}" if accepted else "no options"
    problems = [Problem(key, repr(given[key]), known) for key in given if key not in accepted]
    problems += [
        Problem(key, "nothing", "a value: this option has no default")
        for key, parameter in accepted.items()
        if parameter.default is parameter.empty and key not in given
    ]
    built: Grader | None = None
    try:
        built = build(**{key: given.get(key, parameter.default) for key, parameter in accepted.items()})
    except PipelineError as error:
        problems += [problem for problem in error.problems if problem.source not in accepted or problem.source in given]
    if built is None or problems:
        options = {*given, *accepted}
        raise PipelineError([_placed(problem, f"{source}: {name}", options, options_key) for problem in problems])
    return built


def _placed(problem: Problem, where: str, options: set[str], options_key: str) -> Problem:
    """Add the location to the problem of an option or of the grader as a whole."""
    option = f": {options_key}.{problem.source}" if problem.source in options else ""
    return Problem(where + option, problem.given, problem.accepted)
