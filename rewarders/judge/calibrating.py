"""Which judgements of a group can be checked, and against what? Reads recorded scores; computes no share itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfgrpo.rewarders.asking import asks_model
from tfgrpo.rewarders.base import Rewarder
from tfgrpo.rewarders.composite.composite import CompositeRewarder
from tfgrpo.rewarders.gt import GroundTruthRewarder
from tfgrpo.rewarders.judge.calibration import (
    RankCalibration,
    rank_agreement,
    swap_agreement,
    transitivity,
    vote_agreement,
)
from tfgrpo.rewarders.scoring import WeightedRewarder
from tfgrpo.stores.outcomes import RewardScore

Scores = Mapping[str, RewardScore]
"""Every score of one attempt, by its path: a part of a composite is ``composite/part``."""


def judged_paths(rewarders: Sequence[WeightedRewarder]) -> tuple[str, ...]:
    """Which scores are a model's opinion, in the order of the rewarders.

    Judges, composites with one and the judges within; and ranks of totals that hold a judgement but not the truth.
    """
    paths = [path for weighted in rewarders for path in _opinions(weighted.rewarder, "")]
    counting = [weighted.rewarder for weighted in rewarders if weighted.weight > 0]
    opinion = any(asks_model(rewarder) for rewarder in counting)
    if opinion and not any(_holds_truth(rewarder) for rewarder in counting):
        paths += [weighted.rewarder.rewarder_id for weighted in rewarders if getattr(weighted.rewarder, "ranks", False)]
    return tuple(paths)


def true_path(rewarders: Sequence[WeightedRewarder]) -> str | None:
    """Where the comparison with the items' answers stands; None when there is none."""
    found = [path for weighted in rewarders for path in _truths(weighted.rewarder, "")]
    return found[0] if found else None


def scores_by_path(scores: Sequence[RewardScore]) -> dict[str, RewardScore]:
    """The scores of one attempt, those within composites included."""
    return {path: score for score in scores for path, score in _nested(score, "")}


def calibrate_group(attempts: Mapping[str, Scores], path: str, truth: str | None) -> RankCalibration:
    """What one group shows of one rewarder. ``attempts`` are those that were graded, by rollout id."""
    judged = {name: scores[path] for name, scores in attempts.items() if path in scores}
    found = RankCalibration(attempts=len(attempts), abstained=len(attempts) - len(judged))
    if truth is not None:
        both = [name for name in judged if truth in attempts[name]]
        found += rank_agreement([attempts[name][truth].score for name in both], [judged[name].score for name in both])
    votes = [
        [vote for vote in _details(score, "judge").get("votes", ()) if vote is not None] for score in judged.values()
    ]
    return found + vote_agreement(votes) + _comparisons(judged)


def _comparisons(judged: Scores) -> RankCalibration:
    swaps: list[tuple[Any, Any]] = []
    margins: dict[tuple[str, str], float] = {}
    for name, score in judged.items():
        for comparison in _details(score, "comparison").get("comparisons", ()):
            answers = [(vote["forward"], vote["backward"]) for vote in comparison["votes"]]
            usable = [pair for pair in answers if None not in pair]
            swaps += usable
            if usable:
                margins[name, comparison["with"]] = float(sum(_margin(*pair) for pair in usable))
    return swap_agreement(swaps) + transitivity(margins)


def _margin(forward: str, backward: str) -> int:
    """1 when the first won in both orders, -1 when the other did, 0 otherwise."""
    if forward != backward:
        return 0
    return {"first": 1, "second": -1}.get(forward, 0)


def _details(score: RewardScore, by: str) -> Mapping[str, Any]:
    """The details of a score that one kind of our own rewarders wrote; those of others may mean anything."""
    return score.details if score.details is not None and score.details.get("by") == by else {}


def _nested(score: RewardScore, above: str) -> Iterator[tuple[str, RewardScore]]:
    path = f"{above}{score.rewarder_id}"
    yield path, score
    details = _details(score, "composite")
    for part in (*details.get("gates", ()), *details.get("parts", ())):
        if part["score"] is not None:
            inner = RewardScore(part["name"], part["score"], part["evidence"], part["details"])
            yield from _nested(inner, f"{path}/")


def _opinions(rewarder: Rewarder, above: str) -> Iterator[str]:
    if not asks_model(rewarder):
        return
    path = f"{above}{rewarder.rewarder_id}"
    if not _holds_truth(rewarder):
        yield path
    for member in _members(rewarder):
        yield from _opinions(member, f"{path}/")


def _truths(rewarder: Rewarder, above: str) -> Iterator[str]:
    path = f"{above}{rewarder.rewarder_id}"
    if isinstance(rewarder, GroundTruthRewarder):
        yield path
    for member in _members(rewarder):
        yield from _truths(member, f"{path}/")


def _holds_truth(rewarder: Rewarder) -> bool:
    return any(True for _ in _truths(rewarder, ""))


def _members(rewarder: Rewarder) -> Sequence[Rewarder]:
    return rewarder.members if isinstance(rewarder, CompositeRewarder) else ()
