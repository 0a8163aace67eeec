"""Advantage estimators as data: kind, constants, and inputs other than rewards. Their table is ``estimators.jsonl``.

``batch`` computes them. In the formulas r are the rewards of one group of size G and m is their mean; s0 and s1 are
their standard deviations with divisor G and G-1; M, S0 and S1 are the same over the whole batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import NonNegative

EPSILON: Final = 1e-8
"""Added to the standard deviation by the default estimator, so that a flat group does not divide by zero."""

Kind: TypeAlias = Literal[
    "group_std", "mean_only", "batch_std", "batch_whiten", "leave_one_out", "token_whiten", "length_baseline",
    "greedy_baseline", "gpg", "top_gap", "rank",
]  # fmt: skip
Singleton: TypeAlias = Literal["zero", "reward", "refuse"]
Need: TypeAlias = Literal["token_lengths", "batch", "greedy"]

EstimatorName: TypeAlias = Literal[
    "grpo_population_eps1e-8", "grpo_sample_eps1e-4", "grpo_sample_eps1e-6", "grpo_sample_eps1e-6_variance_floor",
    "grpo_sample_eps1e-9", "mean_only", "batch_std_sample_eps1e-4",
    "group_center_then_batch_whiten_population_eps1e-8", "rloo", "rloo_keep_single", "reinforce_plus_plus",
    "reinforce_plus_plus_baseline", "opo_length_weighted", "remax", "gpg", "pass_at_k_top1_minus_top2",
    "pass_at_k_normalised", "centered_rank", "normal_score", "grpo", "trl", "verl", "verl_vectorized", "openrlhf",
    "dr_grpo", "trl_batch", "batch_whiten", "verl_rloo", "reinforce++", "reinforce++_baseline", "opo", "pass_at_k",
    "rank",
]  # fmt: skip

NEEDS: Final[Mapping[Kind, tuple[Need, ...]]] = MappingProxyType(
    {
        "batch_std": ("batch",),
        "batch_whiten": ("batch",),
        "token_whiten": ("batch", "token_lengths"),
        "length_baseline": ("token_lengths",),
        "greedy_baseline": ("greedy",),
        "gpg": ("batch",),
    }
)


@dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator. ``dataclasses.replace`` makes a variant with other constants. Raises ``ValueError`` for invalid ones."""

    name: str
    kind: Kind
    formula: str
    """For readers, in the symbols of this module."""
    ddof: Literal[0, 1] = 0
    """Subtracted from the number of values that a standard deviation divides by."""
    epsilon: NonNegative = 0.0
    """Added to the standard deviation; by ``token_whiten`` to the variance."""
    variance_floor: NonNegative = 0.0
    """Least variance, in the square of the rewards' unit."""
    singleton: Singleton = "zero"
    """Advantage of a group of one: the formula's (zero, unless it uses the batch), the reward itself (divided by
    1 + ``epsilon`` under ``group_std``), or a ``ValueError``."""
    centred: bool = True
    """``token_whiten``: whether the mean of the group is subtracted first."""
    normalised: bool = False
    """``top_gap``: divided by the standard deviation. ``rank``: as quantiles of the normal distribution."""
    alias: str | None = None
    """Shorter name, of which most name the trainer whose default it is."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """Required inputs other than the rewards of the group. ``batch``: statistics of all groups together.

        One group alone needs no token lengths beside those statistics.
        """
        return NEEDS.get(self.kind, ())


def estimator_of(estimator: str | Estimator) -> Estimator:
    """Return an estimator by name or alias. Raises ``ValueError``, with the known names, for an unknown one."""
    if isinstance(estimator, Estimator):
        return estimator
    found = ESTIMATORS.get(ALIASES.get(estimator, estimator))
    if found is None:
        raise ValueError(f"unknown estimator {estimator!r}; known: {', '.join([*ALIASES, *ESTIMATORS])}")
    return found


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
