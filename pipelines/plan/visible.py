"""State the smallest gain that a planned sweep shows, with its price.

The noise of an item is known from the task's last sweep. Before the first it is assumed between that of items that are
mostly always right or always wrong, and that of items that are right at times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tfgrpo.pipelines.plan.sampling import Cohort
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.statistics.power import MIXED, SETTLED, PlannedPairs, smallest_gain
from tfgrpo.stores.numeric import two_digits
from tfgrpo.stores.text import pluralize

NIGHTS: Final = 5


@dataclass(frozen=True, slots=True)
class VisibleGain:
    """Smallest gains, in points (hundredths of the reward's range), that are promoted with a power of 80 %.

    Each is given for the least and the most noise; None: no gain is seen.
    """

    one_night: tuple[float | None, float | None]
    five_nights: tuple[float | None, float | None]
    """With the same candidate every night."""
    calls: int
    """Likely calls of one sweep."""
    usd: float | None
    """None when a price is unknown."""
    first: tuple[PlannedPairs, ...]
    """Pairs of the first night."""
    later: tuple[PlannedPairs, ...]
    """Pairs of all five."""

    def __str__(self) -> str:
        price = "price unknown" if self.usd is None else f"${two_digits(self.usd)}"
        return (
            f"smallest gain over no lessons that is seen with 80 % power: {_points(self.one_night)} in one night, "
            f"{_points(self.five_nights)} in {NIGHTS}; a sweep takes about {pluralize(self.calls, 'call')}, {price}"
        )

    def after(self, manifest: Mapping[str, Any], confidence: float) -> VisibleGain:
        """Return the same by the noise of an earlier sweep; unchanged if that is unknown. Raises ``LookupError``."""
        gate = manifest["gate"]
        if not gate or not gate.get("noise_floor"):
            return self
        low, high = gate["score_range"]
        size = manifest["settings"]["gate"]["group_size"]
        # The variance of one attempt: of two arms of ``size`` attempts at each pair, the noise floor is its standard error.
        variance = gate["noise_floor"] ** 2 * gate["pairs"] * size / 2 / (high - low) ** 2
        return self.at((variance, variance), confidence)

    def at(self, noise: tuple[float, float], confidence: float) -> VisibleGain:
        """Return the gains at the least and the most variance of one attempt."""
        one, five = (
            tuple(gain and 100 * gain for gain in (smallest_gain(pairs, each, confidence=confidence) for each in noise))
            for pairs in (self.first, self.later)
        )
        return replace(self, one_night=(one[0], one[1]), five_nights=(five[0], five[1]))


def visible_gain(
    settings: Settings, cohorts: Sequence[Cohort], swept: int, calls: int, usd: float | None
) -> VisibleGain:
    """Return what a run over these learning epochs and a sweep of this many items shows.

    The halves of learning groups count once an item, from the second batch of the first night on: before, there is no
    candidate. Lost attempts, and differences between the gains on single items, are left out.
    """
    size, learning = settings.gate.group_size, settings.tfgrpo
    items = len({item.id for cohort in cohorts for item in cohort.items})
    untested = len(cohorts[0].batches[0]) if cohorts and cohorts[0].batches else 0
    first, second = learning.group_size // 2, learning.group_size - learning.group_size // 2
    one, five = (
        (PlannedPairs(nights * swept, size, size), PlannedPairs(max(nights * items - untested, 0), first, second))
        for nights in (1, NIGHTS)
    )
    planned = VisibleGain((None, None), (None, None), calls, usd, one, five)
    return planned.at((SETTLED, MIXED), settings.gate.confidence)


def _points(gains: tuple[float | None, float | None]) -> str:
    low, high = ("none" if gain is None else two_digits(gain) for gain in gains)
    return f"{low if low == high else f'{low} to {high}'} points".replace("none points", "none")
