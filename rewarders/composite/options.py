"""Build a composite from the options of a pipeline file; all problems are reported at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, get_args

from tfgrpo.rewarders.base import ACCEPTED_RANGE, Rewarder, declared_range, pop_rewarder_id
from tfgrpo.rewarders.composite.composite import CompositeRewarder, OnAbstain, Part, composite_faults
from tfgrpo.stores.errors import PipelineError, Problem

Build: TypeAlias = Callable[[str, Mapping[str, Any], str], Rewarder]
"""Builds a rewarder from its name, its options, and their location."""

_KEYS: Final = ("gates", "on_abstain", "parts", "rewarder_id")
_DEEPEST: Final = 8
_MEMBER: Final[Mapping[bool, tuple[str, ...]]] = {
    True: ("name", "options", "score_range", "weight"),
    False: ("name", "options"),
}
"""Keys of a part, which has a weight, and of a gate, which has none."""


def build_composite(options: Mapping[str, Any], where: str, build: Build) -> CompositeRewarder:
    """Build the composite of a pipeline file. Raises ``PipelineError`` with every problem; ``where`` is the location."""
    rest, name = pop_rewarder_id(options, "composite", where)
    place = f"{where}: options"
    problems = [Problem(f"{place}.{key}", repr(rest[key]), ", ".join(_KEYS)) for key in rest if key not in _KEYS]
    if where.count(": composite") > _DEEPEST:
        raise PipelineError([Problem(where, "a composite in a composite", f"at most {_DEEPEST} within each other")])
    parts = _members(rest.get("parts"), f"{place}.parts", build, problems, weighted=True)
    gates = _members(rest.get("gates", ()), f"{place}.gates", build, problems, weighted=False)
    on_abstain = rest.get("on_abstain", "fail")
    if on_abstain not in get_args(OnAbstain):
        problems.append(Problem(f"{place}.on_abstain", repr(on_abstain), ", ".join(get_args(OnAbstain))))
    if not problems:
        closing = tuple(part.rewarder for part in gates)
        problems = [Problem(place, *fault) for fault in composite_faults(parts, closing, on_abstain)]
        if not problems:
            return CompositeRewarder(tuple(parts), closing, on_abstain, name)
    raise PipelineError(problems)


def _members(given: object, place: str, build: Build, problems: list[Problem], *, weighted: bool) -> list[Part]:
    if not isinstance(given, list | tuple) or (weighted and not given):
        accepted = f"a list of {'at least one mapping' if weighted else 'mappings'} with {', '.join(_MEMBER[weighted])}"
        problems.append(Problem(place, "nothing" if given is None else repr(given), accepted))
        return []
    members = []
    for number, entry in enumerate(given):
        try:
            members.append(_member(entry, f"{place}.{number}", build, weighted=weighted))
        except PipelineError as error:
            problems.extend(error.problems)
    return members


def _member(entry: object, place: str, build: Build, *, weighted: bool) -> Part:
    keys = _MEMBER[weighted]
    if not isinstance(entry, Mapping):
        raise PipelineError([Problem(place, repr(entry), ", ".join(keys))])
    problems = [Problem(f"{place}.{key}", repr(entry[key]), ", ".join(keys)) for key in entry if key not in keys]
    name, options, weight = entry.get("name"), entry.get("options", {}), entry.get("weight", 1.0)
    if not isinstance(name, str) or not name:
        problems.append(Problem(f"{place}.name", "nothing" if name is None else repr(name), "the name of a rewarder"))
    if not isinstance(options, Mapping):
        problems.append(Problem(f"{place}.options", repr(options), "options of the rewarder, by name"))
    if weighted and not _is_weight(weight):
        problems.append(Problem(f"{place}.weight", repr(weight), "a finite number of at least 0"))
    score_range = entry.get("score_range")
    try:
        score_range = None if score_range is None else declared_range(None, score_range)
    except ValueError:
        problems.append(Problem(f"{place}.score_range", repr(score_range), ACCEPTED_RANGE))
    if isinstance(name, str) and name and isinstance(options, Mapping):
        try:
            built = build(name, options, place)
        except PipelineError as error:
            problems.extend(error.problems)
    if problems:
        raise PipelineError(problems)
    return Part(built, float(weight) if weighted else 1.0, score_range)


def _is_weight(given: object) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    try:
        return math.isfinite(given) and given >= 0
    except OverflowError:  # a whole number beyond the range of a float
        return False
