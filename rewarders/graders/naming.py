"""Build the rewarder of a grader that a pipeline names: built-in, ``remote``, or a user's own.

Options are those of the grader, and ``parse`` and ``rewarder_id``. All problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.combine import GraderSet, NamedGrader
from tfgrpo.rewarders.graders.loading import as_grader, build_grader
from tfgrpo.rewarders.graders.remote import RemoteGrader
from tfgrpo.rewarders.graders.rewarder import GraderRewarder, Parse, QuickGraderRewarder, check_reading
from tfgrpo.rewarders.names import COMPARING, REMOTE
from tfgrpo.stores.errors import PipelineError, Problem

_SLOW: Final = frozenset({REMOTE, "math_verify", "math-verify"})
"""Graders that are too slow for the event loop."""
_OWN: Final = ("parse", "rewarder_id")
_REMOTE_OPTIONS: Final = ("url", "timeout_s", "retries", "token_env")


def build_grader_rewarder(name: str, options: Mapping[str, Any], where: str) -> GraderRewarder | QuickGraderRewarder:
    """Build the rewarder of one of ``GRADER_NAMES``. Raises ``PipelineError``; ``where`` is the location in messages."""

    def build(rest: Mapping[str, Any]) -> Grader:
        if name == REMOTE:
            return _remote(rest, where)
        return build_grader(name, rest, source=where.removesuffix(f": {name}"), options_key="options")

    grader, rewarder_id, parse = _built(name, options, where, build)
    kind = GraderRewarder if name in _SLOW else QuickGraderRewarder
    return kind(_alone(name, grader), rewarder_id, parse, name in COMPARING)


def rewarder_of_grader(name: str, found: object, options: Mapping[str, Any], where: str) -> GraderRewarder:
    """Build the rewarder of a user's grader, or of a class of graders. Raises ``PipelineError``."""
    grader, rewarder_id, parse = _built(
        name, options, where, lambda rest: as_grader(found, rest, where, options_key="options")
    )
    return GraderRewarder(_alone(name, grader), rewarder_id, parse)


def _built(
    name: str, options: Mapping[str, Any], where: str, build: Callable[[Mapping[str, Any]], Grader]
) -> tuple[Grader, str, Parse]:
    """Return the grader, and the options of the rewarder."""
    rewarder_id, parse = options.get("rewarder_id", name), options.get("parse", "auto")
    problems: list[Problem] = []
    try:
        check_reading(rewarder_id, parse)
    except PipelineError as error:
        problems += _placed(error, where)
    try:
        grader = build({key: value for key, value in options.items() if key not in _OWN})
    except PipelineError as error:
        raise PipelineError([*problems, *error.problems]) from error
    if problems:
        raise PipelineError(problems)
    return grader, rewarder_id, parse


def _remote(options: Mapping[str, Any], where: str) -> RemoteGrader:
    accepted = ", ".join((*_REMOTE_OPTIONS, *_OWN))
    problems = [
        Problem(f"{where}: options.{key}", "an unknown option", accepted)
        for key in options
        if key not in _REMOTE_OPTIONS
    ]
    if "url" not in options:
        problems.append(Problem(f"{where}: options.url", "nothing", "the address of the service"))
    given = {"url": "http://localhost", **{key: value for key, value in options.items() if key in _REMOTE_OPTIONS}}
    try:
        grader = RemoteGrader(**given)
    except PipelineError as error:
        raise PipelineError([*problems, *_placed(error, where)]) from None
    if problems:
        raise PipelineError(problems)
    return grader


def _alone(name: str, grader: Grader) -> GraderSet:
    return GraderSet((NamedGrader(name, grader),), format_weight=0.0)


def _placed(error: PipelineError, where: str) -> list[Problem]:
    return [Problem(f"{where}: options.{each.source}", each.given, each.accepted) for each in error.problems]
