"""Build the rewarder of a grader that a pipeline names: built-in, ``remote``, or a user's own.

Options are those of the grader, and ``parse`` and ``rewarder_id``. All problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.combine import GraderSet, NamedGrader
from tfgrpo.rewarders.graders.loading import BUILT_IN, as_grader, constructed
from tfgrpo.rewarders.graders.remote import RemoteGrader
from tfgrpo.rewarders.graders.rewarder import GraderRewarder, Parse, QuickGraderRewarder, reading_problems
from tfgrpo.rewarders.options import placed
from tfgrpo.stores.errors import PipelineError

_REMOTE: Final = "remote"
"""Name of the grader that calls a grading service."""
_SLOW: Final = frozenset({_REMOTE, "math_verify", "math-verify"})
"""Graders that are too slow for the event loop."""
_OWN: Final = ("parse", "rewarder_id")


def build_grader_rewarder(
    name: str, options: Mapping[str, Any], where: str, *, comparing: bool
) -> GraderRewarder | QuickGraderRewarder:
    """Build the rewarder of a built-in grader. Raises ``PipelineError``; ``where`` is the location in messages.

    ``comparing``: it needs a reference answer.
    """
    build = RemoteGrader if name == _REMOTE else BUILT_IN[name]
    grader, rewarder_id, parse = _built(name, options, where, partial(constructed, build))
    kind = GraderRewarder if name in _SLOW else QuickGraderRewarder
    return kind(_alone(name, grader), rewarder_id, parse, comparing)


def rewarder_of_grader(name: str, found: object, options: Mapping[str, Any], where: str) -> GraderRewarder:
    """Build the rewarder of a user's grader, or of a class of graders. Raises ``PipelineError``."""
    grader, rewarder_id, parse = _built(name, options, where, partial(as_grader, found))
    return GraderRewarder(_alone(name, grader), rewarder_id, parse)


def _built(
    name: str, options: Mapping[str, Any], where: str, build: Callable[[Mapping[str, Any], str, str], Grader]
) -> tuple[Grader, str, Parse]:
    """Return the grader, and the options of the rewarder."""
    rewarder_id, parse = options.get("rewarder_id", name), options.get("parse", "auto")
    rest = {key: value for key, value in options.items() if key not in _OWN}
    problems = placed(reading_problems(rewarder_id, parse), where, ": options")
    try:
        grader = build(rest, where, ": options")
    except PipelineError as error:
        raise PipelineError([*problems, *error.problems]) from error
    if problems:
        raise PipelineError(problems)
    return grader, rewarder_id, parse


def _alone(name: str, grader: Grader) -> GraderSet:
    return GraderSet((NamedGrader(name, grader),), format_weight=0.0)
