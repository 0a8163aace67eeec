"""What do several scores come to? Their weighted mean, and the decimals that a total keeps.

Knows no rewarder: whose scores count, and what a missing one means, is decided by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

DECIMALS: Final = 12
"""Of a total, so that weighted sums that are equal on paper are equal, and tie."""


def weighted_mean(weighted: Sequence[tuple[float, float]]) -> float:
    """``sum(weight * score) / sum(weight)`` of pairs of a weight above 0 and a score, where either sum may overflow."""
    peak = max(weight for weight, _ in weighted)
    whole = math.fsum(weight / peak for weight, _ in weighted)
    return math.fsum(weight / peak / whole * score for weight, score in weighted)
