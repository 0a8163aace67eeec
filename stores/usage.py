"""What model calls used: their number, tokens and money, each of which may be unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Usage:
    """What one or several model calls used. None: unknown in any part, which is never a zero."""

    calls: int | None = 0
    """Answered calls."""
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    cost_usd: float | None = 0.0

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens together."""
        return add_counts([self.prompt_tokens, self.completion_tokens])

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """Return the sum of several usages."""
        known = list(parts)
        return cls(
            add_counts(part.calls for part in known),
            add_counts(part.prompt_tokens for part in known),
            add_counts(part.completion_tokens for part in known),
            add_costs(part.cost_usd for part in known),
        )


UNKNOWN_USAGE: Final = Usage(None, None, None, None)
"""Usage of an agent that calls models by itself."""


def add_costs(costs: Iterable[float | None]) -> float | None:
    """Return the sum in USD, or None if any part is unknown."""
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total


def add_counts(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if any part is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
