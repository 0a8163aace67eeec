"""Name advantage estimators and their constants; the presets are in ``estimators.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import NonNegative

Kind: TypeAlias = Literal[
    "group_std", "mean_only", "leave_one_out", "length_baseline", "greedy_baseline", "rank", "top_gap", "batch_std",
    "batch_whiten", "token_whiten", "gpg",
]  # fmt: skip
_NEEDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    **dict.fromkeys(("batch_std", "batch_whiten", "gpg"), ("batch",)),
    "token_whiten": ("batch", "token_lengths"),
    "length_baseline": ("token_lengths",),
    "greedy_baseline": ("greedy",),
}


@dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator. ``dataclasses.replace`` makes a variant with other constants. Raises ``ValueError`` for invalid ones."""

    name: str
    kind: Kind
    formula: str
    """For readers. r are the rewards of one group of size G and m is their mean; s0 and s1 are their standard deviations
    with divisor G and G-1; M, S0 and S1 are the same over the whole batch; L are token lengths."""
    ddof: Literal[0, 1] = 0
    """Subtracted from the number of values that a standard deviation divides by."""
    epsilon: NonNegative = 0.0
    """Added to the standard deviation; by ``token_whiten`` to the variance."""
    variance_floor: NonNegative = 0.0
    """Least variance of a group, in the square of the rewards' unit."""
    singleton: Literal["zero", "reward", "refuse"] = "zero"
    """Advantage of a group of one: the formula's (zero, unless it looks beyond the group), the reward itself (divided by
    1 + ``epsilon`` under ``group_std``), or a ``ValueError``."""
    centred: bool = True
    """``token_whiten``: whether the mean of the group is subtracted first."""
    normalised: bool = False
    """``top_gap``: divided by the standard deviation. ``rank``: as quantiles of the normal distribution."""
    alias: str | None = None
    """Shorter name, of which most name the trainer whose default it is."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Required inputs other than the rewards of the group. ``batch``: all groups together."""
        return _NEEDS.get(self.kind, ())


_ROWS: Final = Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()
ESTIMATORS: Final[Mapping[str, Estimator]] = MappingProxyType(
    {each.name: each for each in (Estimator(**json.loads(row)) for row in _ROWS)}
)
"""Every estimator by its own name.

Sources: GRPO arXiv:2402.03300, Dr. GRPO 2503.20783 (``mean_only``), RLOO 2402.14740, REINFORCE++ 2501.03262, OPO
2505.23585, ReMax 2310.10505, pass@k 2503.19595, and the trainers themselves for constants and groups of one.
"""
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {each.alias: each.name for each in ESTIMATORS.values() if each.alias}
)
"""Names by alias."""


def estimator_of(estimator: str | Estimator, **inputs: object) -> Estimator:
    """Return an estimator by name or alias. Raises ``ValueError`` for an unknown one, and if a needed input is None."""
    chosen = estimator if isinstance(estimator, Estimator) else ESTIMATORS.get(ALIASES.get(estimator, estimator))
    if chosen is None:
        raise ValueError(f"unknown estimator {estimator!r}; known: {', '.join([*ALIASES, *ESTIMATORS])}")
    for name in chosen.needs:
        if name in inputs and inputs[name] is None:
            hint = "; batch_advantages takes all groups" if name == "batch" else ""
            raise ValueError(f"{chosen.name} needs {name}: {chosen.formula}{hint}")
    return chosen
