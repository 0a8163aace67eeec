"""How did both arms do on the same items? Pairs the groups of champion and candidate; decides nothing.

Only scored rollouts enter a mean. An item that has none on one side is lost, and counted as lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from rewarders.statistics import paired_differences
from stores.outcomes import is_full, is_nothing, scored_rewards
from tasks.shapes import GroupResult


@dataclass(frozen=True, slots=True)
class ItemPair:
    """One item under both libraries: the rewards of its scored rollouts."""

    item_id: str
    champion: tuple[float, ...]
    candidate: tuple[float, ...]

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

    @property
    def regressed(self) -> bool:
        """Always right before, always wrong now."""
        return is_full(min(self.champion)) and is_nothing(max(self.candidate))

    @property
    def recovered(self) -> bool:
        """Always wrong before, always right now."""
        return is_nothing(max(self.champion)) and is_full(min(self.candidate))


@dataclass(frozen=True, slots=True)
class PairedEvidence:
    """What the evaluation sweep showed."""

    pairs: tuple[ItemPair, ...]
    """In an order that no property of the items decides: by a digest of their ids."""
    lost: tuple[str, ...]
    """Items without a scored rollout on at least one side, sorted."""
    identical: bool
    """Both arms were sent the very same system texts: there is nothing to compare."""

    @property
    def differences(self) -> tuple[float, ...]:
        """Candidate minus champion by item."""
        return tuple(pair.difference for pair in self.pairs)

    @property
    def lost_share(self) -> float:
        """Share of items that are lost; 1 when there are no items at all."""
        items = len(self.pairs) + len(self.lost)
        return len(self.lost) / items if items else 1.0


def pair_results(champion: Sequence[GroupResult], candidate: Sequence[GroupResult]) -> PairedEvidence:
    """Pair the groups of the two arms by item. Groups may come in any order."""
    before, after = _rewards(champion), _rewards(candidate)
    paired = paired_differences(before, after)
    pairs = [ItemPair(item, tuple(before[item]), tuple(after[item])) for item in paired.item_ids]
    return PairedEvidence(
        pairs=tuple(sorted(pairs, key=lambda pair: sha256(pair.item_id.encode()).digest())),
        lost=paired.excluded,
        identical=_prompts(champion) == _prompts(candidate),
    )


def noise_floor(pairs: Sequence[ItemPair]) -> float | None:
    """Standard error that the mean difference would have between two identical arms, from luck within items alone.

    ``sqrt(sum_i (s²_champion,i / n + s²_candidate,i / m)) / pairs`` with sample variances; None as soon as one
    item has fewer than two scored rollouts in either arm, because luck cannot be told from a single attempt.
    """
    if not pairs or any(min(len(pair.champion), len(pair.candidate)) < 2 for pair in pairs):
        return None
    total = math.fsum(
        _variance(rewards) / len(rewards) for pair in pairs for rewards in (pair.champion, pair.candidate)
    )
    return math.sqrt(total) / len(pairs)


def _rewards(groups: Iterable[GroupResult]) -> dict[str, list[float]]:
    by_item: dict[str, list[float]] = {}
    for group in groups:
        rewards = scored_rewards(rollout.outcome for rollout in group.rollouts)
        by_item.setdefault(group.item_id, []).extend(rewards)
    return by_item


def _prompts(groups: Iterable[GroupResult]) -> set[str]:
    return {rollout.prompt_digest for group in groups for rollout in group.rollouts}


def _variance(rewards: Sequence[float]) -> float:
    mean = math.fsum(rewards) / len(rewards)
    return math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
