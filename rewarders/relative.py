"""How does each attempt rank within its group? The ``relative`` rewarder.

It ranks the totals that other rewarders gave; it never looks at an output, and refuses to rank fewer than two attempts.
Ranking by comparison of the outputs themselves is ``tfgrpo.rewarders.judge.pairs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from tfgrpo.rewarders.advantages.group import group_advantage, relative_ranks
from tfgrpo.rewarders.base import Abstained, Attempt, RewardContext, Verdict
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.outcomes import RewardScore

Variant: TypeAlias = Literal["rank", "centered", "zscore"]


@dataclass(frozen=True, slots=True)
class RelativeRewarder:
    """Rank of each attempt's total among the attempts of its group.

    A flat group gets 0.5 throughout under ``rank``, and 0.0 throughout under the two others. Attempts that have no
    total yet are left out of the ranking: the rewarder abstains on them.
    """

    variant: Variant = "rank"
    """``rank``: 1 best to 0 worst, ties share the mean. ``centered``: total minus group mean.
    ``zscore``: the same over the population standard deviation (plus 1e-8)."""
    rewarder_id: str = "relative"

    ranks: ClassVar[bool] = True
    """Runs after the rewarders that score outputs, and sees their totals."""
    quick: ClassVar[bool] = True
    """Cheap enough for the event loop."""

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise ValueError(f"variant is {self.variant!r}; accepted: {', '.join(get_args(Variant))}")

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Rank ``context.prior_scores``. Raises ``RewardError`` when fewer than two attempts have a total."""
        ranked = [attempt for attempt in context.outputs if attempt.rollout_id in context.prior_scores]
        if len(ranked) < 2:
            raise RewardError(f"{self.rewarder_id}: {len(ranked)} attempt(s) with a total; ranking needs at least two")
        totals = [float(context.prior_scores[attempt.rollout_id]) for attempt in ranked]
        try:
            values = relative_values(totals, self.variant)
        except ValueError as error:
            raise RewardError(f"{self.rewarder_id}: {error}") from error
        placed = {
            attempt.rollout_id: (value, total) for attempt, value, total in zip(ranked, values, totals, strict=True)
        }
        return [self._verdict(attempt, placed, totals) for attempt in context.outputs]

    def _verdict(
        self, attempt: Attempt, placed: dict[str, tuple[float, float]], totals: Sequence[float]
    ) -> RewardScore | Abstained:
        if attempt.rollout_id not in placed:
            return Abstained(self.rewarder_id, "no total from the other rewarders to rank")
        value, total = placed[attempt.rollout_id]
        better = sum(other > total for other in totals)
        equal = sum(other == total for other in totals) - 1
        evidence = f"total {total:.6g}: {better} of {len(totals)} better, {equal} equal ({self.variant})"
        return RewardScore(self.rewarder_id, value, evidence)


def relative_values(totals: Sequence[float], variant: Variant) -> tuple[float, ...]:
    """The totals of one group relative to each other. Raises ``ValueError`` for none, and for NaN or infinity."""
    if variant == "rank":
        return relative_ranks(totals)
    group = group_advantage(totals)
    if variant == "zscore":
        return group.advantages
    return tuple(0.0 if group.std == 0.0 else total - group.mean for total in totals)
