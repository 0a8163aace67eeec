"""Table of the advantage estimators as data: kind, constants, and inputs other than rewards.

``batch`` computes them. In the formulas r are the rewards of one group of size G and m is their mean; s0 and s1 are
their standard deviations with divisor G and G-1; M, S0 and S1 are the same over the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

EPSILON: Final = 1e-8
"""Added to the standard deviation by the default estimator, so that a flat group does not divide by zero."""

Kind: TypeAlias = Literal[
    "group_std",
    "mean_only",
    "batch_std",
    "batch_whiten",
    "leave_one_out",
    "token_whiten",
    "length_baseline",
    "greedy_baseline",
    "gpg",
    "top_gap",
    "rank",
]
Singleton: TypeAlias = Literal["zero", "reward", "refuse"]
Need: TypeAlias = Literal["token_lengths", "batch", "greedy"]

EstimatorName: TypeAlias = Literal[
    "grpo_population_eps1e-8",
    "grpo_sample_eps1e-4",
    "grpo_sample_eps1e-6",
    "grpo_sample_eps1e-6_variance_floor",
    "grpo_sample_eps1e-9",
    "mean_only",
    "batch_std_sample_eps1e-4",
    "group_center_then_batch_whiten_population_eps1e-8",
    "rloo",
    "rloo_keep_single",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "opo_length_weighted",
    "remax",
    "gpg",
    "pass_at_k_top1_minus_top2",
    "pass_at_k_normalised",
    "centered_rank",
    "normal_score",
    "grpo",
    "trl",
    "verl",
    "verl_vectorized",
    "openrlhf",
    "dr_grpo",
    "trl_batch",
    "batch_whiten",
    "verl_rloo",
    "reinforce++",
    "reinforce++_baseline",
    "opo",
    "pass_at_k",
    "rank",
]

_NEEDS: Final[Mapping[Kind, tuple[Need, ...]]] = MappingProxyType(
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
    """One estimator. ``dataclasses.replace`` makes a variant with other constants."""

    name: str
    kind: Kind
    formula: str
    """For readers, in the symbols of this module."""
    ddof: int = 0
    """Subtracted from the number of values that a standard deviation divides by."""
    epsilon: float = 0.0
    """Added to the standard deviation; by ``token_whiten`` to the variance."""
    variance_floor: float = 0.0
    """Least variance, in the square of the rewards' unit."""
    singleton: Singleton = "zero"
    """Advantage of a group of one: the formula's (zero, unless it uses the batch), the reward itself (divided by
    1 + ``epsilon`` under ``group_std``), or a ``ValueError``."""
    centred: bool = True
    """``token_whiten``: whether the mean of the group is subtracted first."""
    normalised: bool = False
    """``top_gap``: divided by the standard deviation. ``rank``: as quantiles of the normal distribution."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind is {self.kind!r}; accepted: {', '.join(get_args(Kind))}")
        if self.ddof not in (0, 1):
            raise ValueError(f"ddof is {self.ddof!r}; accepted: 0, 1")
        for name in ("epsilon", "variance_floor"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; accepted: a finite number of at least 0")
        if self.singleton not in ("zero", "reward", "refuse"):
            raise ValueError(f"singleton is {self.singleton!r}; accepted: zero, reward, refuse")

    @property
    def needs(self) -> tuple[Need, ...]:
        """Required inputs other than the rewards of the group. ``batch``: statistics of all groups together.

        One group alone needs no token lengths beside those statistics.
        """
        return _NEEDS.get(self.kind, ())


def estimator_of(estimator: str | Estimator) -> Estimator:
    """Return an estimator by name or alias. Raises ``ValueError``, with the known names, for an unknown one."""
    if isinstance(estimator, Estimator):
        return estimator
    found = ESTIMATORS.get(ALIASES.get(estimator, estimator))
    if found is None:
        raise ValueError(f"unknown estimator {estimator!r}; known: {', '.join([*ALIASES, *ESTIMATORS])}")
    return found


_PRESETS: Final = (
    Estimator("grpo_population_eps1e-8", "group_std", "(r - m) / (s0 + 1e-8)", epsilon=EPSILON),
    Estimator("grpo_sample_eps1e-4", "group_std", "(r - m) / (s1 + 1e-4)", 1, 1e-4),
    Estimator("grpo_sample_eps1e-6", "group_std", "(r - m) / (s1 + 1e-6)", 1, 1e-6, singleton="reward"),
    Estimator(
        "grpo_sample_eps1e-6_variance_floor",
        "group_std",
        "(r - m) / (sqrt(max(s1^2, 1e-6)) + 1e-6)",
        1,
        1e-6,
        variance_floor=1e-6,
        singleton="reward",
    ),
    Estimator("grpo_sample_eps1e-9", "group_std", "(r - m) / (s1 + 1e-9)", 1, 1e-9, singleton="refuse"),
    Estimator("mean_only", "mean_only", "r - m"),
    Estimator("batch_std_sample_eps1e-4", "batch_std", "(r - m) / (S1(r) + 1e-4)", 1, 1e-4),
    Estimator(
        "group_center_then_batch_whiten_population_eps1e-8",
        "batch_whiten",
        "c = r - m; (c - M(c)) / (S0(c) + 1e-8)",
        epsilon=1e-8,
    ),
    Estimator("rloo", "leave_one_out", "(r - m) * G / (G - 1)"),
    Estimator("rloo_keep_single", "leave_one_out", "(r - m) * G / (G - 1); r where G = 1", singleton="reward"),
    Estimator(
        "reinforce_plus_plus",
        "token_whiten",
        "(r - M(r)) / sqrt(S1(r)^2 + 1e-8), M and S1 over all tokens",
        1,
        1e-8,
        centred=False,
    ),
    Estimator(
        "reinforce_plus_plus_baseline",
        "token_whiten",
        "c = r - m; (c - M(c)) / sqrt(S1(c)^2 + 1e-8), M and S1 over all tokens",
        1,
        1e-8,
    ),
    Estimator("opo_length_weighted", "length_baseline", "r - sum(L r) / sum(L)"),
    Estimator("remax", "greedy_baseline", "r - r(greedy)"),
    Estimator("gpg", "gpg", "a (r - m), a = rewards in the batch / those that are not zero"),
    Estimator("pass_at_k_top1_minus_top2", "top_gap", "best minus second best for the best, 0 for the rest"),
    Estimator(
        "pass_at_k_normalised",
        "top_gap",
        "(best minus second best) / (s1 + 1e-6) for the best, 0 for the rest",
        1,
        1e-6,
        normalised=True,
    ),
    Estimator("centered_rank", "rank", "(rank - 1) / (G - 1) - 0.5, ties share the mean rank"),
    Estimator("normal_score", "rank", "normal quantile of rank / (G + 1), ties share the mean rank", normalised=True),
)

ESTIMATORS: Final[Mapping[str, Estimator]] = MappingProxyType({estimator.name: estimator for estimator in _PRESETS})
"""Every estimator by its own name.

Sources: GRPO arXiv:2402.03300, Dr. GRPO 2503.20783 (``mean_only``), RLOO 2402.14740, REINFORCE++ 2501.03262, OPO
2505.23585, ReMax 2310.10505, pass@k 2503.19595, and the trainers themselves for constants and groups of one.
"""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "grpo": "grpo_population_eps1e-8",
        "trl": "grpo_sample_eps1e-4",
        "verl": "grpo_sample_eps1e-6",
        "verl_vectorized": "grpo_sample_eps1e-6_variance_floor",
        "openrlhf": "grpo_sample_eps1e-9",
        "dr_grpo": "mean_only",
        "trl_batch": "batch_std_sample_eps1e-4",
        "batch_whiten": "group_center_then_batch_whiten_population_eps1e-8",
        "verl_rloo": "rloo_keep_single",
        "reinforce++": "reinforce_plus_plus",
        "reinforce++_baseline": "reinforce_plus_plus_baseline",
        "opo": "opo_length_weighted",
        "pass_at_k": "pass_at_k_top1_minus_top2",
        "rank": "centered_rank",
    }
)
"""Shorter names; most name the trainer whose default it is."""
