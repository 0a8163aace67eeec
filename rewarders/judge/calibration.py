"""Calibrate judges: count how their judgements agree with the truth, with themselves, and with each other.

Counts of several groups add up, and shares are made of the sums, so that a group counts by its evidence. A share without
evidence is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations, islice, permutations
from typing import Any, Final, Self

from tfgrpo.rewarders.composite import AnyScorer, ByDataset, walk
from tfgrpo.rewarders.gt import GroundTruth
from tfgrpo.rewarders.judge.reading import Preference
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.stores.outcomes import RewardScore

_WON: Final = {"first": 1, "tie": 0, "second": -1}
Scores = Mapping[str, RewardScore]
"""All scores of one attempt by path: a part of a composite is ``composite/part``."""


@dataclass(frozen=True, slots=True)
class RankCalibration:
    """Counts over any number of groups."""

    attempts: int = 0
    """Attempts of the groups."""
    abstained: int = 0
    """Of these, attempts without a judgement."""
    concordant: int = 0
    """Pairs of attempts that truth and judge order the same way."""
    discordant: int = 0
    """Pairs that they order in opposite ways."""
    tied_by_judge: int = 0
    """Pairs that only the truth distinguishes."""
    tied_in_truth: int = 0
    """Pairs that only the judge distinguishes."""
    tied_in_both: int = 0
    swaps: int = 0
    """Pairs judged in both orders."""
    consistent: int = 0
    """Pairs with the same answer in both orders."""
    first_favoured: int = 0
    """Pairs where the output shown first won in both orders."""
    triples: int = 0
    """Three compared attempts of which one beat another that beat the third."""
    intransitive: int = 0
    """Triples where the one does not beat the third."""
    voted: int = 0
    """Attempts with at least two votes."""
    disagreement: float = 0.0
    """Sum of their mean differences between two votes."""

    def __add__(self, other: Self) -> Self:
        """Add the counts."""
        return type(self)(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def agreement(self) -> float | None:
        """Share of the truly ordered pairs that the judge orders alike; a tie of the judge counts one half."""
        pairs = self.concordant + self.discordant + self.tied_by_judge
        return (self.concordant + self.tied_by_judge / 2) / pairs if pairs else None

    @property
    def tau(self) -> float | None:
        """Kendall's tau-b over all pairs of attempts within a group (Kendall 1945, Biometrika 33, 239-251).

        ``(C - D) / sqrt((C + D + T_judge) (C + D + T_truth))``; None when either side ties everything.
        """
        decided = self.concordant + self.discordant
        scale = (decided + self.tied_by_judge) * (decided + self.tied_in_truth)
        return (self.concordant - self.discordant) / math.sqrt(scale) if scale else None

    @property
    def swap_consistency(self) -> float | None:
        """Share of the pairs judged in both orders that got the same answer."""
        return self.consistent / self.swaps if self.swaps else None

    @property
    def intransitive_share(self) -> float | None:
        """Share of intransitive triples."""
        return self.intransitive / self.triples if self.triples else None

    @property
    def vote_difference(self) -> float | None:
        """Mean difference between two votes on the same output."""
        return self.disagreement / self.voted if self.voted else None

    def as_json(self) -> dict[str, Any]:
        """Return counts and shares by name."""
        shares = ("agreement", "tau", "swap_consistency", "intransitive_share", "vote_difference")
        counts = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**counts, **{name: getattr(self, name) for name in shares}}


def rank_agreement(truth: Sequence[float], judged: Sequence[float]) -> RankCalibration:
    """Count how two scores of the same attempts order each pair. Raises ``ValueError`` for different lengths."""
    if len(truth) != len(judged):
        raise ValueError(f"{len(truth)} true scores and {len(judged)} judged ones")
    pairs = zip(combinations(truth, 2), combinations(judged, 2), strict=True)
    orders = Counter(((a > b) - (a < b), (c > d) - (c < d)) for (a, b), (c, d) in pairs)
    return RankCalibration(
        concordant=orders[1, 1] + orders[-1, -1],
        discordant=orders[1, -1] + orders[-1, 1],
        tied_by_judge=orders[1, 0] + orders[-1, 0],
        tied_in_truth=orders[0, 1] + orders[0, -1],
        tied_in_both=orders[0, 0],
    )


def swap_agreement(answers: Iterable[tuple[Preference, Preference]]) -> RankCalibration:
    """Count answers to the same pair in both orders, each in terms of the forward order.

    ``first`` forward and ``second`` backward mean that the output shown first won both times.
    """
    counted = list(answers)
    return RankCalibration(
        swaps=len(counted),
        consistent=sum(forward == backward for forward, backward in counted),
        first_favoured=sum((forward, backward) == ("first", "second") for forward, backward in counted),
    )


def transitivity(margins: Mapping[tuple[str, str], float]) -> RankCalibration:
    """Count triples in which A beats B and B beats C, and those where A then does not beat C.

    ``margins``: by how much the first of each compared pair won; each pair once, in either order.
    """
    beats = dict(margins)
    beats.update({(other, one): -margin for (one, other), margin in margins.items()})
    names = sorted({name for pair in margins for name in pair})
    triples = intransitive = 0
    for trio in combinations(names, 3):
        if any(pair not in beats for pair in combinations(trio, 2)):
            continue
        chains = [
            beats[one, last] > 0
            for one, middle, last in permutations(trio)
            if beats[one, middle] > 0 < beats[middle, last]
        ]
        triples += bool(chains)
        intransitive += bool(chains) and not all(chains)
    return RankCalibration(triples=triples, intransitive=intransitive)


def vote_agreement(votes: Iterable[Sequence[float]]) -> RankCalibration:
    """Sum the mean differences between the votes on each output with several votes."""
    several = [list(given) for given in votes if len(given) > 1]
    apart = ([abs(one - other) for one, other in combinations(given, 2)] for given in several)
    mean = math.fsum(math.fsum(differences) / len(differences) for differences in apart)
    return RankCalibration(voted=len(several), disagreement=mean)


# --- groups of a run


def judged_paths(scorers: Sequence[Weighted]) -> tuple[str, ...]:
    """Return the paths of scores that are a model's opinion, in the order of the scorers.

    Judges, composites with a judge and the judges within; and ranks of totals with a judgement but without the truth.
    """
    paths = [
        path
        for weighted in scorers
        # The scores of the graders of a mix are not kept one by one.
        for path, each in islice(walk(weighted.scorer), 1 if isinstance(weighted.scorer, ByDataset) else None)
        if each.asks_model and not _holds_truth(each)
    ]
    counted = [weighted.scorer for weighted in scorers if weighted.weight > 0]
    if any(each.asks_model for each in counted) and not any(map(_holds_truth, counted)):
        paths += [weighted.scorer.rewarder_id for weighted in scorers if weighted.scorer.ranks]
    return tuple(paths)


def true_path(scorers: Sequence[Weighted]) -> str | None:
    """Return the path of the comparison with the items' answers; None without one."""
    found = (each for weighted in scorers for each in walk(weighted.scorer))
    return next((path for path, each in found if isinstance(each.made_from, GroundTruth)), None)


def scores_by_path(scores: Sequence[RewardScore]) -> dict[str, RewardScore]:
    """Return the scores of one attempt by path, those within composites included."""
    return {path: score for score in scores for path, score in _nested(score, "")}


def calibrate_group(attempts: Mapping[str, Scores], path: str, truth: str | None) -> RankCalibration:
    """Return the counts of one rewarder in one group. ``attempts`` are the graded ones, by rollout id."""
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
                margins[name, comparison["with"]] = float(sum(_WON[one] for one, other in usable if one == other))
    return swap_agreement(swaps) + transitivity(margins)


def _details(score: RewardScore, by: str) -> Mapping[str, Any]:
    """Return the details of a score if a rewarder of the kind ``by`` wrote them, else none."""
    return score.details if score.details is not None and score.details.get("by") == by else {}


def _nested(score: RewardScore, above: str) -> Iterator[tuple[str, RewardScore]]:
    path = f"{above}{score.rewarder_id}"
    yield path, score
    details = _details(score, "composite")
    for part in (*details.get("gates", ()), *details.get("parts", ())):
        if part["score"] is not None:
            inner = RewardScore(part["name"], part["score"], part["evidence"], part["details"])
            yield from _nested(inner, f"{path}/")


def _holds_truth(scorer: AnyScorer) -> bool:
    return any(isinstance(each.made_from, GroundTruth) for _, each in walk(scorer))
