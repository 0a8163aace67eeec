"""How good was an attempt? Rewarders, group advantages and the statistics of the gate."""

from rewarders.advantage import GroupAdvantage, best_first, group_advantage, relative_ranks
from rewarders.base import Abstained, Attempt, RewardContext, Rewarder, Verdict
from rewarders.callable import CallableRewarder
from rewarders.gt import GroundTruthRewarder
from rewarders.registry import build_rewarder, known_rewarders
from rewarders.relative import RelativeRewarder
from rewarders.scoring import GroupScores, WeightedRewarder, check_rewarders, score_group
from rewarders.sequential import capital_path, paired_confidence_sequence
from rewarders.statistics import (
    Interval,
    MeanEstimate,
    PairedDifferences,
    bootstrap_interval,
    clustered_error,
    mean_and_error,
    mean_at_k,
    paired_differences,
    pass_at_k,
    pass_hat_k,
)
from rewarders.threads import RewarderThreads
from stores.outcomes import RewardScore

__all__ = [
    "Abstained",
    "Attempt",
    "CallableRewarder",
    "GroundTruthRewarder",
    "GroupAdvantage",
    "GroupScores",
    "Interval",
    "MeanEstimate",
    "PairedDifferences",
    "RelativeRewarder",
    "RewardContext",
    "RewardScore",
    "Rewarder",
    "RewarderThreads",
    "Verdict",
    "WeightedRewarder",
    "best_first",
    "bootstrap_interval",
    "build_rewarder",
    "capital_path",
    "check_rewarders",
    "clustered_error",
    "group_advantage",
    "known_rewarders",
    "mean_and_error",
    "mean_at_k",
    "paired_confidence_sequence",
    "paired_differences",
    "pass_at_k",
    "pass_hat_k",
    "relative_ranks",
    "score_group",
]
