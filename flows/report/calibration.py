"""Calibration of judges: how their scores agree with the truth, with themselves, and with each other.

Counts of several groups add up, and shares are of the sums, so that a group counts by its evidence; None without any.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any, Final, TypeAlias

from tfgrpo.rewarders.composite import AnyScorer, ByDataset, scorers_within
from tfgrpo.rewarders.gt import GroundTruth
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.stores.outcomes import REWARDER_BROKE, RewardScore
from tfgrpo.tasks.shapes import GroupResult

JudgeCounts: TypeAlias = Mapping[str, float]


def compared_pairs(counts: JudgeCounts) -> int:
    """Return the number of pairs of attempts that differ in truth."""
    return int(counts["concordant"] + counts["discordant"] + counts["tied_by_judge"])


def tau(counts: JudgeCounts) -> float | None:
    """Return Kendall's tau-b over all pairs of attempts within a group (Kendall 1945, Biometrika 33, 239-251).

    ``(C - D) / sqrt((C + D + T_judge) (C + D + T_truth))``; None when either side ties everything.
    """
    decided = counts["concordant"] + counts["discordant"]
    scale = (decided + counts["tied_by_judge"]) * (decided + counts["tied_in_truth"])
    return (counts["concordant"] - counts["discordant"]) / math.sqrt(scale) if scale else None


SHARES: Final[Mapping[str, Callable[[JudgeCounts], float | None]]] = {
    # Of the truly ordered pairs those that the judge orders alike; a tie of the judge counts one half.
    "agreement": lambda counts: _share(counts["concordant"] + counts["tied_by_judge"] / 2, compared_pairs(counts)),
    "tau": tau,
    "swap_consistency": lambda counts: _share(counts["consistent"], counts["swaps"]),
    "vote_difference": lambda counts: _share(counts["disagreement"], counts["voted"]),
}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


class CalibrationTally:
    """Adds up what each group shows of each judge. Keeps counts, no scores."""

    def __init__(self, rewarders: Sequence[Weighted]) -> None:
        judges = any(each.scorer.asks_model for each in rewarders)
        self._truth, paths = judged_paths(rewarders) if judges else (None, ())
        self._counts = {path: calibrate_group({}, path, self._truth) for path in paths}

    def add(self, result: GroupResult) -> None:
        """Count a group."""
        attempts = {
            each.rollout_id: dict(_nested(each.scores))
            for each in result.rollouts
            if each.outcome.name == "scored"
            or (each.outcome.name == "ungraded" and each.outcome.error_type in {"rewarder", REWARDER_BROKE})
        }
        for path, counts in self._counts.items():
            for name, count in calibrate_group(attempts, path, self._truth).items():
                counts[name] += count

    def as_json(self) -> dict[str, Any] | None:
        """Return the counts and shares by rewarder, and what they were compared with; None without judges."""
        if not self._counts:
            return None
        shares = {path: {name: share(counts) for name, share in SHARES.items()} for path, counts in self._counts.items()}
        return {"truth": self._truth, "rewarders": {path: {**self._counts[path], **shares[path]} for path in shares}}


def judged_paths(scorers: Sequence[Weighted]) -> tuple[str | None, tuple[str, ...]]:
    """Return the path of the comparison with the items' answers, if there is one, and those of a model's opinions.

    Opinions are judges, composites with a judge, the judges within, and ranks of totals with a judgement but without the truth.
    """

    def holds_truth(scorer: AnyScorer) -> bool:
        return any(isinstance(each.made_from, GroundTruth) for _, each in scorers_within(scorer))

    pairs = [pair for weighted in scorers for pair in scorers_within(weighted.scorer)]
    truth = next((path for path, each in pairs if isinstance(each.made_from, GroundTruth)), None)
    paths = [
        path
        for weighted in scorers
        # The scores of the graders of a mix are not kept one by one.
        for path, each in islice(scorers_within(weighted.scorer), 1 if isinstance(weighted.scorer, ByDataset) else None)
        if each.asks_model and not holds_truth(each)
    ]
    weighing = [weighted.scorer for weighted in scorers if weighted.weight > 0]
    if any(each.asks_model for each in weighing) and not any(map(holds_truth, weighing)):
        paths += [weighted.scorer.rewarder_id for weighted in scorers if weighted.scorer.ranks]
    return truth, tuple(paths)


def calibrate_group(attempts: Mapping[str, Mapping[str, RewardScore]], path: str, truth: str | None) -> dict[str, float]:
    """Return the counts of one rewarder in one group. ``attempts``: scores by path of the graded ones, by rollout id."""
    judged = {name: scores[path] for name, scores in attempts.items() if path in scores}
    pairs = [(attempts[name][truth].score, score.score) for name, score in judged.items() if truth and truth in attempts[name]]
    votes = [[vote for vote in _details(score, "judge").get("votes", ()) if vote is not None] for score in judged.values()]
    apart = [[abs(one - other) for one, other in combinations(each, 2)] for each in votes if len(each) > 1]
    answers = [
        (vote["forward"], vote["backward"])
        for score in judged.values()
        for comparison in _details(score, "comparison").get("comparisons", ())
        for vote in comparison["votes"]
    ]
    swaps = [pair for pair in answers if None not in pair]
    return {
        "attempts": len(attempts),
        "abstained": len(attempts) - len(judged),
        **rank_agreement(pairs),
        # Pairs that were judged in both orders, and those of them with one answer.
        "swaps": len(swaps),
        "consistent": sum(forward == backward for forward, backward in swaps),
        # Attempts with at least two votes, and the sum of their mean differences between two votes.
        "voted": len(apart),
        "disagreement": math.fsum(math.fsum(each) / len(each) for each in apart),
    }


def rank_agreement(pairs: Sequence[tuple[float, float]]) -> dict[str, int]:
    """Count how the true and the judged score of the same attempts order each two of them: alike, apart, or tied by one."""
    orders = Counter(((a > b) - (a < b), (c > d) - (c < d)) for (a, c), (b, d) in combinations(pairs, 2))
    return {
        "concordant": orders[1, 1] + orders[-1, -1],
        "discordant": orders[1, -1] + orders[-1, 1],
        "tied_by_judge": orders[1, 0] + orders[-1, 0],
        "tied_in_truth": orders[0, 1] + orders[0, -1],
        "tied_in_both": orders[0, 0],
    }


def _details(score: RewardScore, by: str) -> Mapping[str, Any]:
    return score.details if score.details is not None and score.details.get("by") == by else {}


def _nested(scores: Sequence[RewardScore], above: str = "") -> Iterator[tuple[str, RewardScore]]:
    """Yield scores by path, those within composites included: a part is ``composite/part``."""
    for score in scores:
        path = f"{above}{score.rewarder_id}"
        yield path, score
        details = _details(score, "composite")
        rows = [row for row in (*details.get("gates", ()), *details.get("parts", ())) if row["score"] is not None]
        inner = [RewardScore(row["name"], row["score"], row["evidence"], row["details"]) for row in rows]
        yield from _nested(inner, f"{path}/")
