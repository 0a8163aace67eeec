"""The ``composite`` rewarder: a weighted mean of parts, times gates.

Parts of weight 0 do not run, and no part runs for an attempt with a closed gate. An option decides what an abstention
means. Members are built from options, which may be nested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args

from tfgrpo.rewarders.base import (
    ACCEPTED_RANGE,
    DECIMALS,
    Abstained,
    Ask,
    Range,
    RewardContext,
    Rewarder,
    Verdict,
    declared_range,
    declares,
    pop_rewarder_id,
    weighted_mean,
)
from tfgrpo.rewarders.judge.model import JudgeLoad, judge_loads
from tfgrpo.rewarders.judge.voting import all_of
from tfgrpo.rewarders.running import run_rewarder
from tfgrpo.rewarders.scoring import WeightedRewarder, counting, repeated_ids, total_range
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import PipelineError, Problem, RewardError, RewarderTimeout
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.outcomes import RewardScore

OnAbstain: TypeAlias = Literal["fail", "skip", "zero"]
Build: TypeAlias = Callable[[str, Mapping[str, Any], str], Rewarder]
"""Builds a rewarder from its name, its options, and their location."""
_KEYS: Final = ("gates", "on_abstain", "parts", "rewarder_id")
_DEEPEST: Final = 8
_MEMBER: Final[Mapping[bool, tuple[str, ...]]] = {
    True: ("name", "options", "score_range", "weight"),
    False: ("name", "options"),
}
"""Keys of a part, which has a weight, and of a gate, which has none."""


@dataclass(frozen=True, slots=True)
class CompositeRewarder:
    """``sum(weight * score) / sum(weight)`` over its parts, times the score of every gate.

    Gates score from 0 to 1. Raises ``ValueError`` for weights that are all 0 or too large, for two members of one name,
    and for a member that ranks totals, which only the pipeline has.
    """

    parts: tuple[WeightedRewarder, ...]
    gates: tuple[Rewarder, ...] = ()
    on_abstain: OnAbstain = "fail"
    """Effect of a part that abstains: ``fail``, the composite abstains; ``skip``, the other parts decide; ``zero``, it
    counts as 0. A gate that abstains is closed under ``zero``; otherwise the composite abstains."""
    rewarder_id: str = "composite"

    def __post_init__(self) -> None:
        faults = _faults(self.parts, self.gates, self.on_abstain)
        if faults:
            raise ValueError("; ".join(f"{given}; accepted: {accepted}" for given, accepted in faults))

    @property
    def members(self) -> tuple[Rewarder, ...]:
        """Rewarders that run: gates, and parts with a weight above 0."""
        return (*self.gates, *(part.rewarder for part in self._counting))

    @property
    def score_range(self) -> Range:
        """Range of the composite score."""
        if self.on_abstain == "skip":
            ranges = [total_range([part]) for part in self._counting]
            low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        else:
            low, high = total_range(self.parts, or_zero=self.on_abstain == "zero")
        return (min(0.0, low), max(0.0, high)) if self.gates else (low, high)

    @property
    def asks_model(self) -> bool:
        """Whether any member calls a model."""
        return any(declares(member, "asks_model") for member in self.members)

    @property
    def compares(self) -> bool:
        """Whether any member cannot score a single attempt."""
        return any(declares(member, "compares") for member in self.members)

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of the judges among its members for one group."""
        gates, parts = _loads(self.gates, group_size), _loads([part.rewarder for part in self._counting], group_size)
        # Gates may close on everything.
        return (*gates, *(replace(load, calls_low=0) for load in parts)) if self.gates else parts

    async def combine(self, context: RewardContext, ask: Ask) -> Sequence[Verdict]:
        """Score every attempt. A member that fails abstains on all. Raises ``RewarderTimeout`` when a member hangs."""
        gated = await _all(self.gates, context, ask)
        by_gates = [tuple(verdicts[index] for verdicts in gated) for index in range(len(context.outputs))]
        openings = [self._opening(verdicts) for verdicts in by_gates]
        # A member that compares needs the whole group: a closed attempt may still be the better of a pair.
        asked = [self.compares or (isinstance(opening, float) and opening > 0.0) for opening in openings]
        open_attempts = tuple(attempt for attempt, wanted in zip(context.outputs, asked, strict=True) if wanted)
        counting = [part.rewarder for part in self._counting]
        by_parts = zip(*await _all(counting, replace(context, outputs=open_attempts), ask), strict=True)
        return [
            self._verdict(opening, verdicts, next(by_parts) if wanted else ())
            for opening, verdicts, wanted in zip(openings, by_gates, asked, strict=True)
        ]

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score as ``combine``, on new threads, for a direct call."""
        with RewarderThreads() as threads:
            return await self.combine(context, partial(run_rewarder, threads, context.time_limit_s))

    @property
    def _counting(self) -> tuple[WeightedRewarder, ...]:
        return counting(self.parts)

    def _opening(self, gates: Sequence[Verdict]) -> float | Abstained:
        """Return the product of the gate scores, or ``Abstained``."""
        product = 1.0
        for verdict in gates:
            if isinstance(verdict, RewardScore):
                if not 0.0 <= verdict.score <= 1.0:
                    reason = f"the gate {verdict.rewarder_id} gave {verdict.score:g}, expected from 0 to 1"
                    return Abstained(self.rewarder_id, reason, broke=True)
                product *= verdict.score
            elif self.on_abstain == "zero":
                product = 0.0
            else:
                reason = f"the gate {verdict.rewarder_id} abstained: {verdict.reason}"
                return Abstained(self.rewarder_id, reason, broke=verdict.broke)
        return product

    def _verdict(self, opening: float | Abstained, gates: Sequence[Verdict], parts: Sequence[Verdict]) -> Verdict:
        if isinstance(opening, Abstained):
            return opening
        weights = [part.weight for part in self._counting]
        details = {
            "by": "composite",
            "gates": [_row(verdict) for verdict in gates],
            # Empty where a gate is closed: no part was asked.
            "parts": [{**_row(verdict), "weight": weight} for verdict, weight in zip(parts, weights, strict=False)],
        }
        if not opening:
            closed = ", ".join(verdict.rewarder_id for verdict in gates if not _score(verdict))
            return RewardScore(self.rewarder_id, 0.0, f"closed by {closed}", frozen(details))
        mean = self._mean(parts)
        if isinstance(mean, Abstained):
            return mean
        shown = " + ".join(
            f"{weight:g} * {_score_text(verdict)}" for verdict, weight in zip(parts, weights, strict=True)
        )
        times = "".join(f" * {_score_text(verdict)}" for verdict in gates)
        evidence = f"({shown}) / {math.fsum(weights):g}{times}"
        return RewardScore(self.rewarder_id, round(opening * mean, DECIMALS), evidence, frozen(details))

    def _mean(self, parts: Sequence[Verdict]) -> float | Abstained:
        weighted: list[tuple[float, float]] = []
        for verdict, part in zip(parts, self._counting, strict=True):
            if isinstance(verdict, RewardScore):
                weighted.append((part.weight, verdict.score))
            elif self.on_abstain == "zero":
                weighted.append((part.weight, 0.0))
            elif self.on_abstain == "fail":
                return Abstained(self.rewarder_id, f"{verdict.rewarder_id} abstained: {verdict.reason}", verdict.broke)
        if not weighted:
            broke = any(isinstance(verdict, Abstained) and verdict.broke for verdict in parts)
            return Abstained(self.rewarder_id, "every part abstained", broke)
        return weighted_mean(weighted)


def _faults(parts: Sequence[WeightedRewarder], gates: Sequence[Rewarder], on_abstain: str) -> Sequence[tuple[str, str]]:
    """Return the problems of a composite of these members, each with what is accepted instead."""
    weights = [part.weight for part in parts]
    members = [*gates, *(part.rewarder for part in parts)]
    ranking = [member.rewarder_id for member in members if declares(member, "ranks")]
    faults = []
    if not any(weights):
        faults.append(("no part has a weight above 0", "at least one that has"))
    elif not math.isfinite(sum(weights)):
        faults.append((f"weights are {weights}, which sum to infinity", "smaller weights"))
    if any(part.timeout_s is not None for part in parts):
        faults.append(("a part with a time limit", "one for the composite, which holds for each of its members"))
    if on_abstain not in get_args(OnAbstain):
        faults.append((f"on_abstain is {on_abstain!r}", ", ".join(get_args(OnAbstain))))
    faults += repeated_ids(members)
    if ranking:
        faults.append(
            (f"{', '.join(ranking)} ranks totals, which only the pipeline has", "rewarders that score outputs")
        )
    return faults


async def _all(members: Sequence[Rewarder], context: RewardContext, ask: Ask) -> list[tuple[Verdict, ...]]:
    """Return the verdicts of each member; one that fails abstains, one that hangs raises."""

    async def one(member: Rewarder) -> tuple[Verdict, ...]:
        try:
            return await ask(member, context)
        except RewarderTimeout:
            raise
        except RewardError as error:
            return tuple(Abstained(member.rewarder_id, str(error), broke=True) for _ in context.outputs)

    return await all_of(one(member) for member in members)


def _loads(members: Sequence[Rewarder], group_size: int) -> tuple[JudgeLoad, ...]:
    return tuple(load for member in members for load in judge_loads(member, group_size))


def _score(verdict: Verdict) -> float | None:
    return verdict.score if isinstance(verdict, RewardScore) else None


def _score_text(verdict: Verdict) -> str:
    score = _score(verdict)
    return f"{verdict.rewarder_id} {'–' if score is None else f'{score:.3g}'}"


def _row(verdict: Verdict) -> dict[str, Any]:
    """Return a member's verdict as a row of the record."""
    evidence, details = (
        (verdict.evidence, verdict.details) if isinstance(verdict, RewardScore) else (verdict.reason, None)
    )
    return {"name": verdict.rewarder_id, "score": _score(verdict), "evidence": evidence, "details": details}


def build_composite(options: Mapping[str, Any], where: str, build: Build) -> CompositeRewarder:
    """Build the composite of a pipeline file. Raises ``PipelineError`` with every problem; ``where`` is the location."""
    rest, name = pop_rewarder_id(options, "composite", where)
    place = f"{where}: options"
    problems = [Problem(f"{place}.{key}", repr(rest[key]), ", ".join(_KEYS)) for key in rest if key not in _KEYS]
    # Each level adds its name to the location.
    if where.count(": composite") > _DEEPEST:
        raise PipelineError.one(where, "a composite in a composite", f"at most {_DEEPEST} within each other")
    parts = _members(rest.get("parts"), f"{place}.parts", build, problems, weighted=True)
    gates = _members(rest.get("gates", ()), f"{place}.gates", build, problems, weighted=False)
    on_abstain = rest.get("on_abstain", "fail")
    if on_abstain not in get_args(OnAbstain):
        problems.append(Problem(f"{place}.on_abstain", repr(on_abstain), ", ".join(get_args(OnAbstain))))
    if not problems:
        closing = tuple(part.rewarder for part in gates)
        problems = [Problem(place, *fault) for fault in _faults(parts, closing, on_abstain)]
        if not problems:
            return CompositeRewarder(tuple(parts), closing, on_abstain, name)
    raise PipelineError(problems)


def _members(
    given: object, place: str, build: Build, problems: list[Problem], *, weighted: bool
) -> list[WeightedRewarder]:
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


def _member(entry: object, place: str, build: Build, *, weighted: bool) -> WeightedRewarder:
    keys = _MEMBER[weighted]
    if not isinstance(entry, Mapping):
        raise PipelineError.one(place, repr(entry), ", ".join(keys))
    problems = [Problem(f"{place}.{key}", repr(entry[key]), ", ".join(keys)) for key in entry if key not in keys]
    name, options, weight = entry.get("name"), entry.get("options", {}), entry.get("weight", 1.0)
    if not isinstance(name, str) or not name:
        problems.append(Problem(f"{place}.name", "nothing" if name is None else repr(name), "the name of a rewarder"))
    if not isinstance(options, Mapping):
        problems.append(Problem(f"{place}.options", repr(options), "options of the rewarder, by name"))
    if weighted and not (is_number(weight, allow_nan=False) and weight >= 0):
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
    return WeightedRewarder(built, float(weight) if weighted else 1.0, score_range=score_range)
