"""How far can a judge be believed? Counts of how its judgements agree: with the truth, with themselves, with each other.

Pure functions of scores and comparisons. Counts of several groups add up, and shares are made of the sums, so that no
group counts more than its evidence. What there is no evidence for is None, never 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations, permutations
from typing import Any, Self

from tfgrpo.rewarders.judge.reading import Preference


@dataclass(frozen=True, slots=True)
class RankCalibration:
    """Counts over any number of groups."""

    attempts: int = 0
    """Attempts that were to be judged."""
    abstained: int = 0
    """Of these, attempts without a judgement."""
    concordant: int = 0
    """Pairs of attempts that truth and judge order the same way."""
    discordant: int = 0
    """Pairs that they order the other way round."""
    tied_by_judge: int = 0
    """Pairs that only the truth tells apart."""
    tied_in_truth: int = 0
    """Pairs that only the judge tells apart."""
    tied_in_both: int = 0
    swaps: int = 0
    """Pairs judged in both orders."""
    consistent: int = 0
    """Of these, pairs with the same answer in both."""
    first_favoured: int = 0
    """Of the others, pairs where the place that was shown first won in both orders."""
    triples: int = 0
    """Three attempts of which every two were compared, and at least one beat another that beat the third."""
    intransitive: int = 0
    """Of these, those where the one does not beat the third."""
    voted: int = 0
    """Attempts with at least two votes."""
    disagreement: float = 0.0
    """Sum over these of the mean difference between two votes."""

    def __add__(self, other: Self) -> Self:
        """Counts of both."""
        return type(self)(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def agreement(self) -> float | None:
        """Share of the pairs with a true order that the judge orders so; a tie of the judge counts one half."""
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
        """Share of the triples that could show it in which preferences run in a circle or break off."""
        return self.intransitive / self.triples if self.triples else None

    @property
    def vote_difference(self) -> float | None:
        """Mean difference between two votes on the same output."""
        return self.disagreement / self.voted if self.voted else None

    def as_json(self) -> dict[str, Any]:
        """Counts and shares by name."""
        shares = ("agreement", "tau", "swap_consistency", "intransitive_share", "vote_difference")
        counts = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**counts, **{name: getattr(self, name) for name in shares}}


def rank_agreement(truth: Sequence[float], judged: Sequence[float]) -> RankCalibration:
    """How two scores of the same attempts order each pair of them. Raises ``ValueError`` for different lengths."""
    if len(truth) != len(judged):
        raise ValueError(f"{len(truth)} true scores and {len(judged)} judged ones")
    concordant = discordant = by_judge = in_truth = both = 0
    for one, other in combinations(zip(truth, judged, strict=True), 2):
        true_order, judged_order = _sign(one[0], other[0]), _sign(one[1], other[1])
        both += true_order == judged_order == 0
        in_truth += true_order == 0 != judged_order
        by_judge += judged_order == 0 != true_order
        concordant += true_order == judged_order != 0
        discordant += true_order == -judged_order != 0
    return RankCalibration(
        concordant=concordant,
        discordant=discordant,
        tied_by_judge=by_judge,
        tied_in_truth=in_truth,
        tied_in_both=both,
    )


def swap_agreement(answers: Iterable[tuple[Preference, Preference]]) -> RankCalibration:
    """Answers to the same pair in both orders, each told in the order of the first of them.

    ``first`` forward and ``second`` backward mean that whatever was shown first won both times.
    """
    counted = list(answers)
    return RankCalibration(
        swaps=len(counted),
        consistent=sum(forward == backward for forward, backward in counted),
        first_favoured=sum((forward, backward) == ("first", "second") for forward, backward in counted),
    )


def transitivity(margins: Mapping[tuple[str, str], float]) -> RankCalibration:
    """Triples whose preferences no order explains. ``margins`` says for each compared pair by how much its first won.

    Counted are triples in which A beats B and B beats C; intransitive are those where A then does not beat C. A pair may
    stand in either order, once.
    """
    beats = dict(margins)
    beats.update({(other, one): -margin for (one, other), margin in margins.items()})
    names = sorted({name for pair in margins for name in pair})
    triples = intransitive = 0
    for trio in combinations(names, 3):
        if any(pair not in beats for pair in combinations(trio, 2)):
            continue
        chained = [
            (one, last) for one, middle, last in permutations(trio) if beats[one, middle] > 0 < beats[middle, last]
        ]
        chains = [beats[ends] > 0 for ends in chained]
        triples += bool(chains)
        intransitive += bool(chains) and not all(chains)
    return RankCalibration(triples=triples, intransitive=intransitive)


def vote_agreement(votes: Iterable[Sequence[float]]) -> RankCalibration:
    """How far the votes on one output lie apart, for each output; one with a single vote does not tell."""
    several = [list(given) for given in votes if len(given) > 1]
    apart = [math.fsum(abs(one - other) for one, other in combinations(given, 2)) for given in several]
    pairs = [len(given) * (len(given) - 1) / 2 for given in several]
    mean = math.fsum(total / count for total, count in zip(apart, pairs, strict=True))
    return RankCalibration(voted=len(several), disagreement=mean)


def _sign(one: float, other: float) -> int:
    return (one > other) - (one < other)
