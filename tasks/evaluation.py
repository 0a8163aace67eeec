"""Pair the attempts of champion and candidate by item, as evidence for the gate.

Only scored rollouts enter a mean. An item without any in one of the arms counts as lost; lost attempts are counted by
arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple, Self

from tfgrpo.rewarders.scorer import UNIT, Range
from tfgrpo.stores.outcomes import is_highest, is_lowest, scored_rewards
from tfgrpo.tasks.shapes import GroupResult, RolloutRecord


@dataclass(frozen=True, slots=True)
class ItemPair:
    """One item under both libraries: rewards of its scored rollouts, and numbers of lost ones."""

    item_id: str
    champion: tuple[float, ...]
    candidate: tuple[float, ...]
    champion_lost: int = 0
    candidate_lost: int = 0

    @property
    def champion_mean(self) -> float:
        """Mean reward of the champion's rollouts."""
        return math.fsum(self.champion) / len(self.champion)

    @property
    def candidate_mean(self) -> float:
        """Mean reward of the candidate's rollouts."""
        return math.fsum(self.candidate) / len(self.candidate)

    @property
    def difference(self) -> float:
        """Candidate minus champion."""
        return self.candidate_mean - self.champion_mean

    def filled(self, champion: float, candidate: float) -> float:
        """Return candidate minus champion with every lost attempt of an arm (at least one attempt) given this reward."""
        before = (*self.champion, *(champion,) * self.champion_lost) or (champion,)
        after = (*self.candidate, *(candidate,) * self.candidate_lost) or (candidate,)
        return math.fsum(after) / len(after) - math.fsum(before) / len(before)

    def flipped(self, reward: Range = UNIT) -> Literal["regressed", "recovered"] | None:
        """Return whether all attempts went from the upper end of the range to the lower one, or the reverse."""
        before, after = self.champion, self.candidate
        if is_highest(min(before), reward) and is_lowest(max(after), reward):
            return "regressed"
        return "recovered" if is_lowest(max(before), reward) and is_highest(min(after), reward) else None


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts of one arm in the sweep, and those of them without a reward."""

    lost: int
    made: int


@dataclass(frozen=True, slots=True)
class PairedEvidence:
    """Evidence of the evaluation sweep."""

    pairs: tuple[ItemPair, ...]
    """Ordered by a digest of their ids, which is independent of any property of the items."""
    lost_pairs: tuple[ItemPair, ...]
    """Items without a scored rollout on at least one side, sorted by id."""
    identical: bool
    """Both arms had the same system texts, so that there is no comparison."""

    @property
    def lost(self) -> tuple[str, ...]:
        """Ids of the lost items."""
        return tuple(pair.item_id for pair in self.lost_pairs)

    @property
    def differences(self) -> tuple[float, ...]:
        """Candidate minus champion by item."""
        return tuple(pair.difference for pair in self.pairs)

    @property
    def champion_attempts(self) -> Attempts:
        """Attempts of the champion, over all items."""
        every = (*self.pairs, *self.lost_pairs)
        lost = sum(pair.champion_lost for pair in every)
        return Attempts(lost, lost + sum(len(pair.champion) for pair in every))

    @property
    def candidate_attempts(self) -> Attempts:
        """Attempts of the candidate, over all items."""
        every = (*self.pairs, *self.lost_pairs)
        lost = sum(pair.candidate_lost for pair in every)
        return Attempts(lost, lost + sum(len(pair.candidate) for pair in every))

    @property
    def lost_share(self) -> float:
        """Share of lost items; without any items 1, or 0 for identical arms."""
        items = len(self.pairs) + len(self.lost_pairs)
        return len(self.lost_pairs) / items if items else float(not self.identical)


class Tried(NamedTuple):
    """Attempts of one arm at one item."""

    rewards: tuple[float, ...] = ()
    lost: int = 0

    @classmethod
    def of(cls, rollouts: Iterable[RolloutRecord]) -> Self:
        """Return the rewards of the scored rollouts, and the number of the others."""
        outcomes = [rollout.outcome for rollout in rollouts]
        rewards = scored_rewards(outcomes)
        return cls(rewards, len(outcomes) - len(rewards))


def pair_arms(champion: Mapping[str, Tried], candidate: Mapping[str, Tried], *, identical: bool) -> PairedEvidence:
    """Pair the attempts of the two arms by item, in any order."""
    ids = sorted(champion.keys() | candidate.keys(), key=lambda item: sha256(item.encode()).digest())
    nothing = Tried()
    return _evidence(
        (_pair(item, champion.get(item, nothing), candidate.get(item, nothing)) for item in ids), identical
    )


def _pair(item: str, before: Tried, after: Tried) -> ItemPair:
    return ItemPair(item, before.rewards, after.rewards, before.lost, after.lost)


def _evidence(pairs: Iterable[ItemPair], identical: bool) -> PairedEvidence:
    scored: dict[bool, list[ItemPair]] = {True: [], False: []}
    for pair in pairs:
        scored[bool(pair.champion and pair.candidate)].append(pair)
    return PairedEvidence(tuple(scored[True]), tuple(sorted(scored[False], key=lambda pair: pair.item_id)), identical)


@dataclass(slots=True)
class LearningEvidence:
    """Pairs of the split groups of one night, by epoch and champion.

    An item counts in the first batch that has it, split or not: afterwards the candidate has learned from it.
    """

    _pairs: dict[tuple[int, str], list[ItemPair]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def add(self, results: Iterable[GroupResult], champion: str) -> None:
        """Add the groups of a batch, attempted under the library ``champion``, before anything is learned from them."""
        for result in results:
            if result.key.item in self._seen:
                continue
            self._seen.add(result.key.item)
            if result.halves:
                self._pairs.setdefault((result.key.epoch, champion), []).append(_pair_of_halves(result))

    def against(self, champion: str) -> PairedEvidence:
        """Return the evidence against this champion."""
        every = [pair for (_, of), pairs in self._pairs.items() if of == champion for pair in pairs]
        return _evidence(every, identical=not every)


def _pair_of_halves(result: GroupResult) -> ItemPair:
    first = result.halves[0].arm
    before, after = (
        Tried.of(each for each in result.rollouts if (each.key.arm == first) is own) for own in (True, False)
    )
    return _pair(result.key.item, before, after)


def noise_floor(pairs: Sequence[ItemPair]) -> float | None:
    """Return the standard error of the mean difference between two identical arms, from variance within items.

    ``sqrt(sum_i (s²_champion,i / n + s²_candidate,i / m)) / pairs`` with sample variances; None as soon as one
    item has fewer than two scored rollouts in either arm, which have no variance.
    """
    if not pairs or any(min(len(pair.champion), len(pair.candidate)) < 2 for pair in pairs):
        return None
    total = math.fsum(
        _variance(rewards) / len(rewards) for pair in pairs for rewards in (pair.champion, pair.candidate)
    )
    return math.sqrt(total) / len(pairs)


def _variance(rewards: Sequence[float]) -> float:
    mean = math.fsum(rewards) / len(rewards)
    return math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
