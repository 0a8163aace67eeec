"""Combine scorers: a weighted mean of parts, times gates. What counts and has no score leaves the attempt without a total."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from tfgrpo.rewarders.calling import NO_NUMBER
from tfgrpo.rewarders.functions import named_problems
from tfgrpo.rewarders.scorer import ACCEPTED_RANGE, UNIT, Abstained, Range, RewardContext, Scorer, Verdict, Weighted, is_range
from tfgrpo.stores.errors import PipelineError, Problem
from tfgrpo.stores.json_values import frozen
from tfgrpo.stores.numeric import is_number, plain_sum
from tfgrpo.stores.outcomes import MAX_SCORE, RewardScore

OnAbstain: TypeAlias = Literal["fail", "skip", "zero"]
Build: TypeAlias = Callable[[str, Mapping[str, Any], str], "AnyScorer"]
# Decimals of a total, so that mathematically equal weighted sums tie
DECIMALS: Final = 12
_KEYS: Final = ("gates", "on_abstain", "parts", "rewarder_id")
_DEEPEST: Final = 8
_POLICIES: Final = ", ".join(get_args(OnAbstain))
# Keys of a part, each with its default, what fits, and that in words
_MEMBER: Final[Mapping[str, tuple[Any, Callable[[Any], bool], str]]] = {
    "isolate": (True, lambda value: isinstance(value, bool), "true or false"),
    "name": (None, lambda value: isinstance(value, str) and value != "", "the name of a rewarder"),
    "options": ({}, lambda value: isinstance(value, Mapping), "options of the rewarder, by name"),
    "score_range": (None, lambda value: value is None or is_range(value), ACCEPTED_RANGE),
    "weight": (1.0, lambda value: is_number(value, allow_nan=False) and value >= 0, "a finite number of at least 0"),
}
_OF_GATES: Final = ("isolate", "name", "options")


def weighted_mean(weighted: Sequence[tuple[float, float]]) -> float:
    """Return ``sum(weight * score) / sum(weight)`` of (weight above 0, score) pairs, even where a sum may overflow."""
    peak = max(weight for weight, _ in weighted)
    whole = math.fsum(weight / peak for weight, _ in weighted)
    mean = math.fsum(weight / peak / whole * score for weight, score in weighted)
    return min(max(mean, min(score for _, score in weighted)), max(score for _, score in weighted))


def counting(scorers: Iterable[Weighted]) -> tuple[Weighted, ...]:
    """Return the scorers with a weight above 0."""
    return tuple(weighted for weighted in scorers if weighted.weight > 0)


def total_range(scorers: Iterable[Weighted], *, or_zero: bool = False) -> Range:
    """Return the weighted means of the lower and of the upper ends; ``or_zero``: each score may also be 0."""
    ranges = [(each.weight, each.range) for each in counting(scorers)]
    if or_zero:
        ranges = [(weight, (min(0.0, low), max(0.0, high))) for weight, (low, high) in ranges]
    low = weighted_mean([(weight, ends[0]) for weight, ends in ranges])
    return low, weighted_mean([(weight, ends[1]) for weight, ends in ranges])


@dataclass(frozen=True, slots=True, eq=False)
class Composite:
    """``sum(weight * score) / sum(weight)`` over its parts, times the score of every gate.

    Gates score from 0 to 1, and no part is asked about an attempt with a closed gate. Raises ``ValueError``.
    """

    parts: tuple[Weighted, ...]
    gates: tuple[AnyScorer, ...] = ()
    on_abstain: OnAbstain = "fail"
    """Where a part abstains, ``fail``: so does the composite; ``skip``: the others decide; ``zero``: it counts as 0."""
    rewarder_id: str = "composite"
    whole: bool = False
    """The graders of a data mix: every member is asked, names may recur, gates have any score, the total is not rounded."""

    def __post_init__(self) -> None:
        if not self.whole and (faults := _faults(self.parts, self.gates, self.on_abstain, "")):
            raise ValueError("; ".join(f"{each.given}; accepted: {each.accepted}" for each in faults))

    @property
    def members(self) -> tuple[AnyScorer, ...]:
        """Scorers that run: gates, and parts with a weight above 0; of the graders of a mix every one."""
        parts = self.parts if self.whole else counting(self.parts)
        return (*self.gates, *(part.scorer for part in parts))

    @property
    def score_range(self) -> Range:
        """Range of the composite score."""
        if self.on_abstain == "skip":
            ranges = [each.range for each in counting(self.parts)]
            low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        else:
            low, high = total_range(self.parts, or_zero=self.on_abstain == "zero")
        return (min(0.0, low), max(0.0, high)) if self.gates else (low, high)

    ranks: ClassVar[bool] = False
    made_from: ClassVar[None] = None
    unusable: ClassVar[None] = None

    @property
    def asks_model(self) -> bool:
        """Whether any member calls a model."""
        return any(member.asks_model for member in self.members)

    @property
    def compares(self) -> bool:
        """Whether any member cannot score a single attempt."""
        return any(member.compares for member in self.members)

    def judge_loads(self, group_size: int) -> Sequence[Any]:
        """Return the load of the judges among its members for one group."""
        # Gates may close on everything.
        return [
            replace(load, calls_low=0) if self.gates and member not in self.gates else load
            for member in self.members
            for load in judge_loads(member, group_size)
        ]

    def opening(self, gates: Sequence[Verdict]) -> float | Abstained:
        """Return the product of the gate scores, or ``Abstained``."""
        product = 1.0
        for gate in gates:
            if isinstance(gate, Abstained) and self.on_abstain != "zero":
                return replace(gate, rewarder_id=self.rewarder_id, reason=f"the gate {_abstained(gate)}")
            score = _score(gate) or 0.0
            if not 0.0 <= score <= 1.0:
                reason = f"the gate {gate.rewarder_id} gave {score:g}, expected from 0 to 1"
                return Abstained(self.rewarder_id, reason, broke=True)
            product *= score
        return product

    def is_open(self, gates: Sequence[Verdict]) -> bool:
        """Return whether the gates of an attempt leave anything of its score."""
        opening = self.opening(gates)
        return isinstance(opening, float) and opening > 0.0

    def verdict(self, gates: Sequence[Verdict], parts: Sequence[Verdict]) -> Verdict:
        """Return the verdict on an attempt by those of its members; no parts where a gate is closed."""
        opening = self.opening(gates)
        if isinstance(opening, Abstained):
            return opening
        weights = [part.weight for part in counting(self.parts)]
        rows = [{**_row(verdict), "weight": weight} for verdict, weight in zip(parts, weights, strict=False)]
        details = frozen({"by": "composite", "gates": [*map(_row, gates)], "parts": rows})
        if not opening and not parts:
            closed = ", ".join(verdict.rewarder_id for verdict in gates if not _score(verdict))
            return RewardScore(self.rewarder_id, 0.0, f"closed by {closed}", details)
        lost = [verdict for verdict in parts if isinstance(verdict, Abstained)]
        if lost and self.on_abstain == "fail":
            return replace(lost[0], rewarder_id=self.rewarder_id, reason=_abstained(lost[0]))
        scored = zip(weights, map(_score, parts), strict=True)
        kept = [(weight, score or 0.0) for weight, score in scored if score is not None or self.on_abstain == "zero"]
        if not kept:
            return Abstained(self.rewarder_id, "every part abstained", any(verdict.broke for verdict in lost))
        shown = " + ".join(f"{weight:g} * {_shown(verdict)}" for weight, verdict in zip(weights, parts, strict=True))
        evidence = f"({shown}) / {math.fsum(weights):g}" + "".join(f" * {_shown(verdict)}" for verdict in gates)
        return RewardScore(self.rewarder_id, round(opening * weighted_mean(kept), DECIMALS), evidence, details)

    def mixed(self, name: str, verdicts: Sequence[Verdict]) -> Verdict:
        """Return the verdict on an attempt by those of the graders of a mix, gates first."""
        reward = self.reward(verdicts)
        if reward is not None:
            return RewardScore(name, reward, ", ".join(f"{each.rewarder_id} {_score(each):g}" for each in verdicts))
        lost = [each for each in verdicts if isinstance(each, Abstained)]
        reason = "; ".join(each.message for each in lost) or f"the combined reward {NO_NUMBER[1]}"
        return Abstained(name, reason, any(each.broke for each in lost), any(each.late for each in lost))

    def reward(self, verdicts: Sequence[Verdict]) -> float | None:
        """Return ``sum(weight / sum(weights) * part) * gate * gate ...``, not clamped or rounded; None where one is missing."""
        scores = [verdict.score for verdict in verdicts if isinstance(verdict, RewardScore)]
        if len(scores) < len(verdicts):
            return None
        gates, whole = len(self.gates), math.fsum(part.weight for part in self.parts)
        reward = plain_sum(part.weight / whole * score for part, score in zip(self.parts, scores[gates:], strict=True))
        reward = math.prod(scores[:gates], start=reward)
        return reward if abs(reward) <= MAX_SCORE else None


@dataclass(frozen=True, slots=True, eq=False)
class ByDataset:
    """The graders of a data mix: those of the dataset that an item is of."""

    rewarder_id: str
    route: Callable[[RewardContext], tuple[Composite, RewardContext]]
    """Returns the graders of an item, and the context with its record. Raises for an item of no dataset."""
    members: tuple[Composite, ...]
    score_range: Range = UNIT

    ranks: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    made_from: ClassVar[None] = None

    @property
    def asks_model(self) -> bool:
        """Whether the graders of any dataset call a model."""
        return any(each.asks_model for each in self.members)

    def judge_loads(self, group_size: int) -> Sequence[Any]:
        """Return the loads of the dataset with the most questions for one group; the least of them is that of the mix."""
        loads = [each.judge_loads(group_size) for each in self.members]
        most = max(loads, key=lambda own: sum(load.questions for load in own), default=())
        fewest = min((sum(load.calls_low for load in own) for own in loads), default=0)
        return [replace(load, calls_low=min(load.calls_low, fewest)) for load in most]


AnyScorer: TypeAlias = "Scorer | Composite | ByDataset"


def unisolated(scorer: AnyScorer) -> AnyScorer:
    """Return a scorer whose code of the user's, in it or its members, runs in a thread of this process."""
    if isinstance(scorer, Composite):
        parts = tuple(replace(part, scorer=unisolated(part.scorer)) for part in scorer.parts)
        return replace(scorer, parts=parts, gates=tuple(map(unisolated, scorer.gates)))
    if isinstance(scorer, Scorer) and scorer.source is not None and ":" in scorer.source.name:
        return replace(scorer, place="thread")
    return scorer


def judge_loads(scorer: AnyScorer, group_size: int) -> Sequence[Any]:
    """Return the load of a scorer for one group, one entry for each judge; empty when it calls no model."""
    return scorer.judge_loads(group_size) if scorer.judge_loads is not None else ()


def scorers_within(scorer: AnyScorer, above: str = "") -> Iterator[tuple[str, AnyScorer]]:
    """Yield a scorer and those within it, each with its path."""
    path = f"{above}{scorer.rewarder_id}"
    yield path, scorer
    for member in scorer.members:
        yield from scorers_within(member, f"{path}/")


def check_scorers(scorers: Sequence[Weighted], *, group_size: int = 2) -> None:
    """Raise ``PipelineError``, with every problem, for scorers that have no total for groups of ``group_size``."""
    problems = _repeated([each.scorer for each in scorers], "rewarders")
    with_weight = [weighted.scorer for weighted in counting(scorers)]
    if all(each.ranks for each in with_weight):
        fault = "no weight above 0 on a rewarder that scores outputs"
        problems.append(Problem("rewarders", fault, "at least one, such as gt"))
    ranking = [each.rewarder_id for each in with_weight if each.ranks or each.compares]
    if ranking and group_size < 2:
        fault = f"{', '.join(ranking)} counting in groups of {group_size}, which cannot be ranked"
        problems.append(Problem("rewarders", fault, "a weight of 0 for it, or groups: FEATURE_TFGRPO_GROUP on"))
    if problems:
        raise PipelineError(problems)


def _repeated(scorers: Sequence[AnyScorer], source: str) -> list[Problem]:
    counts = Counter(each.rewarder_id for each in scorers)
    repeated = ", ".join(sorted(name for name, count in counts.items() if count > 1))
    return [Problem(source, f"{repeated} more than once", "a rewarder_id of its own for each")] if repeated else []


def _faults(parts: Sequence[Weighted], gates: Sequence[AnyScorer], on_abstain: str, source: str) -> list[Problem]:
    weights = [part.weight for part in parts]
    members = [*gates, *(part.scorer for part in parts)]
    ranking = ", ".join(member.rewarder_id for member in members if member.ranks)
    limited = any(part.timeout_s is not None for part in parts)
    for_all = "one for the composite, which holds for each of its members"
    checks: list[tuple[object, str, str]] = [
        (not any(weights), "no part has a weight above 0", "at least one that has"),
        (math.isinf(sum(weights)), f"weights are {weights}, which sum to infinity", "smaller weights"),
        (limited, "a part with a time limit", for_all),
        (on_abstain not in get_args(OnAbstain), f"on_abstain is {on_abstain!r}", _POLICIES),
        (ranking, f"{ranking} ranks totals, which only the pipeline has", "rewarders that score outputs"),
    ]
    return [Problem(source, fault, accepted) for wrong, fault, accepted in checks if wrong] + _repeated(members, source)


def _score(verdict: Verdict) -> float | None:
    return verdict.score if isinstance(verdict, RewardScore) else None


def _shown(verdict: Verdict) -> str:
    return f"{verdict.rewarder_id} {f'{verdict.score:.3g}' if isinstance(verdict, RewardScore) else '–'}"


def _abstained(verdict: Abstained) -> str:
    return f"{verdict.rewarder_id} abstained: {verdict.reason}"


def _row(verdict: Verdict) -> dict[str, Any]:
    evidence, details = (verdict.reason, None) if isinstance(verdict, Abstained) else (verdict.evidence, verdict.details)
    return {"name": verdict.rewarder_id, "score": _score(verdict), "evidence": evidence, "details": details}


def build_composite(options: Mapping[str, Any], where: str, build: Build) -> Composite:
    """Build the composite of a pipeline file. Raises ``PipelineError`` with every problem; ``where`` is the location."""
    # Each level adds its name to the location.
    if where.count(": composite") > _DEEPEST:
        raise PipelineError.one(where, "a composite in a composite", f"at most {_DEEPEST} within each other")
    path = f"{where}: options"
    name, on_abstain = options.get("rewarder_id", "composite"), options.get("on_abstain", "fail")
    problems = named_problems(name, path) + _unknown(options, _KEYS, path)
    members: dict[str, list[Weighted]] = {"parts": [], "gates": []}
    for kind, keys, default in (("parts", tuple(_MEMBER), None), ("gates", _OF_GATES, ())):
        entries = options.get(kind, default)
        if not isinstance(entries, list | tuple) or not (entries or kind == "gates"):
            accepted = f"a list of {'at least one mapping' if kind == 'parts' else 'mappings'} with {', '.join(keys)}"
            problems.append(_unfit(f"{path}.{kind}", entries, accepted))
            continue
        for number, entry in enumerate(entries):
            try:
                members[kind].append(_member(entry, f"{path}.{kind}.{number}", build, keys))
            except PipelineError as error:
                problems.extend(error.problems)
    if on_abstain not in get_args(OnAbstain):
        problems.append(_unfit(f"{path}.on_abstain", on_abstain, _POLICIES))
    parts, gates = tuple(members["parts"]), tuple(each.scorer for each in members["gates"])
    if problems := problems or _faults(parts, gates, on_abstain, path):
        raise PipelineError(problems)
    return Composite(parts, gates, on_abstain, name)


def _member(entry: object, path: str, build: Build, keys: Sequence[str]) -> Weighted:
    if not isinstance(entry, Mapping):
        raise PipelineError([_unfit(path, entry, ", ".join(keys))])
    values = {key: entry.get(key, default) for key, (default, _, _) in _MEMBER.items()}
    unfit = [key for key in keys if not _MEMBER[key][1](values[key])]
    problems = _unknown(entry, keys, path) + [_unfit(f"{path}.{key}", values[key], _MEMBER[key][2]) for key in unfit]
    if not {"name", "options"} & {*unfit}:
        try:
            built = build(values["name"], values["options"], path)
        except PipelineError as error:
            problems.extend(error.problems)
    if problems:
        raise PipelineError(problems)
    ends = values["score_range"]
    score_range = None if ends is None else (float(ends[0]), float(ends[1]))
    return Weighted(built if values["isolate"] else unisolated(built), float(values["weight"]), score_range=score_range)


def _unfit(source: str, value: object, accepted: str) -> Problem:
    return Problem(source, "nothing" if value is None else repr(value), accepted)


def _unknown(values: Mapping[Any, Any], keys: Sequence[str], path: str) -> list[Problem]:
    return [_unfit(f"{path}.{key}", values[key], ", ".join(keys)) for key in values if key not in keys]
