"""Build the rewarder of a name with its options; score nothing.

Built-in names, graders among them, are a closed table. Any other callable, class or grader is named as ``module:attr`` or
``path/to/file.py:attr``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, cast, get_args

from tfgrpo.rewarders.base import Rewarder, pop_rewarder_id
from tfgrpo.rewarders.gt import GroundTruthRewarder
from tfgrpo.rewarders.importing import load_object
from tfgrpo.rewarders.options import constructed, refuse_unfit
from tfgrpo.rewarders.relative import RelativeRewarder, Variant
from tfgrpo.stores.errors import OptionError, PipelineError, Problem

OptionValue: TypeAlias = Any
"""A JSON value, as the pipeline file has it."""

_COMPARING_GRADERS: Final = frozenset(
    {"category_match", "label_match", "math_exact", "math_verify", "math-verify", "number_match"}
)
GRADERS: Final = _COMPARING_GRADERS | {
    "completion_length_cap",
    "json_schema",
    "json_valid",
    "latex_only",
    "number_only",
    "reasoning_format",
    "remote",
    "xml_schema",
}
COMPARING_REWARDERS: Final = frozenset({"gt", *_COMPARING_GRADERS})
"""Rewarders that abstain on an item without a reference answer."""
COMPARING_MODELS: Final = frozenset({"powl_equal", "powl_footprint"})
"""Rewarders that abstain on an item without a process model as its answer or in its metadata."""
_MODEL_REWARDERS: Final = COMPARING_MODELS | {"powl_group_consensus", "powl_self_consistency", "powl_valid"}


def known_rewarders() -> tuple[str, ...]:
    """Return the built-in names, sorted."""
    return tuple(sorted({"composite", "gt", "judge", "relative", *_MODEL_REWARDERS, *GRADERS}))


def build_rewarder(
    name: str, options: Mapping[str, OptionValue] | None = None, *, source: str = "rewarders"
) -> Rewarder:
    """Return the rewarder called ``name``, built with ``options``.

    ``source`` is the place of the name in messages. Raises ``PipelineError`` for an unknown name or option, for
    a value that an option does not accept, and for a ``module:attr`` that cannot be imported or used.
    """
    where = f"{source}: {name}"
    # A pipeline file may have numbers as keys, which are no keywords and do not sort.
    given = {str(key): value for key, value in (options or {}).items()}
    # Each kind is imported when one is built: a run has few of the seventy modules that rewarders are made of.
    if name in GRADERS:
        from tfgrpo.rewarders.graders.rewarder import build_grader_rewarder  # noqa: PLC0415

        return build_grader_rewarder(name, given, where, comparing=name in _COMPARING_GRADERS)
    build: Callable[..., Rewarder] | None = GroundTruthRewarder if name == "gt" else None
    if name in _MODEL_REWARDERS:
        from tfgrpo.rewarders.powl.scoring import POWL_REWARDERS  # noqa: PLC0415

        build = POWL_REWARDERS[name]
    if build is not None:
        return constructed(build, given, where)
    if name == "composite":
        from tfgrpo.rewarders.composite import build_composite  # noqa: PLC0415

        return build_composite(given, where, lambda part, its, place: build_rewarder(part, its, source=place))
    if name == "judge":
        from tfgrpo.rewarders.judge.judge import JudgeRewarder  # noqa: PLC0415
        from tfgrpo.rewarders.judge.options import judge_options  # noqa: PLC0415

        rest, own = pop_rewarder_id(given, "judge", where)
        return JudgeRewarder(judge_options(rest, f"{where}: options"), own)
    if name == "relative":
        return _relative(given, where)
    if ":" not in name:
        known = ", ".join(known_rewarders())
        accepted = f"{known}, or module:attr or path/to/file.py:attr for a Python function or class"
        raise PipelineError.one(f"{source}: name", repr(name), accepted)
    return _from_python(name, load_object(name, where), given, where)


def _relative(options: Mapping[str, Any], where: str) -> Rewarder:
    """Return the ``relative`` rewarder: by totals, or by a judge's comparisons when it has an option ``judge``."""
    rest, name = pop_rewarder_id(options, "relative", where)
    variant = rest.pop("variant", "rank")
    judge = rest.pop("judge", None)
    problems = [
        Problem(f"{where}: options.{key}", repr(rest[key]), "judge, rewarder_id, variant") for key in sorted(rest)
    ]
    build: Callable[[Variant, str], Rewarder] = RelativeRewarder
    if isinstance(judge, Mapping):
        from tfgrpo.rewarders.judge.options import judge_options  # noqa: PLC0415 - see above
        from tfgrpo.rewarders.judge.pairs import PairwiseRewarder  # noqa: PLC0415

        try:
            build = partial(PairwiseRewarder, judge_options(judge, f"{where}: options.judge"))
        except PipelineError as error:
            problems += error.problems
    elif judge is not None:
        problems.append(Problem(f"{where}: options.judge", repr(judge), "options of a judge, or {} for all defaults"))
    if variant not in get_args(Variant):
        problems.append(Problem(f"{where}: options.variant", repr(variant), ", ".join(get_args(Variant))))
    if problems:
        raise PipelineError(problems)
    return build(variant, name)


def _from_python(name: str, found: object, options: dict[str, OptionValue], where: str) -> Rewarder:
    """Return a user's object as a rewarder: what a class makes, an object as it is, or a function's call."""
    if hasattr(found, "grade_batch") and not hasattr(found, "score"):
        from tfgrpo.rewarders.graders.rewarder import rewarder_of_grader  # noqa: PLC0415 - see above

        return rewarder_of_grader(name, found, options, where)
    if isinstance(found, type):
        found, options = constructed(found, options, where), {}
    if options and (hasattr(found, "score") or not callable(found)):
        raise PipelineError.one(where, ", ".join(sorted(options)), "no options: it is an object already")
    if callable(getattr(found, "score", None)):
        if not isinstance(getattr(found, "rewarder_id", None), str):
            raise PipelineError.one(where, "no rewarder_id", "a rewarder with a rewarder_id and score(context)")
        return cast("Rewarder", found)
    if not callable(found):
        accepted = "a function (output, answer) or (context), or a class with rewarder_id and score(context)"
        raise PipelineError.one(where, type(found).__name__, accepted)
    return _of_function(name, found, options, where)


def _of_function(name: str, function: Callable[..., Any], options: dict[str, OptionValue], where: str) -> Rewarder:
    from tfgrpo.rewarders.callable import SIGNATURES, adapt  # noqa: PLC0415 - see above

    try:
        if options:
            scored = 1 if "context" in inspect.signature(function).parameters else 2
            refuse_unfit(function, options, f"{where}: options", arguments=scored)
        return adapt(name, partial(function, **options) if options else function)
    except ValueError as error:  # a plain one for a callable of which Python knows no signature
        given = error.given if isinstance(error, OptionError) else str(error)
        raise PipelineError.one(where, given, f"a function of {SIGNATURES}") from error
