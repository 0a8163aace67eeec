"""How good was an attempt? Rewarders, group advantages and the statistics of the gate."""

from rewarders.advantage import GroupAdvantage, best_first, group_advantage, relative_ranks
from rewarders.base import Abstained, Attempt, CompoundRewarder, RewardContext, Rewarder, Verdict
from rewarders.batch_advantages import batch_advantages, multi_reward_advantages
from rewarders.calibration import RankCalibration, rank_agreement, swap_agreement, transitivity, vote_agreement
from rewarders.callable import AsyncCallableRewarder, CallableRewarder
from rewarders.composite import CompositeRewarder, Part
from rewarders.estimators import Estimator, estimator_of
from rewarders.estimators_plain import BatchStatistics, batch_statistics
from rewarders.graders import (
    Grader,
    GradeResult,
    GraderInput,
    GraderRewarder,
    GraderRunner,
    GraderSet,
    RemoteGrader,
    grader,
)
from rewarders.gt import GroundTruthRewarder
from rewarders.judge import JudgeRewarder
from rewarders.judge_options import JudgeOptions
from rewarders.judge_pairs import PairwiseRewarder
from rewarders.judge_seam import JudgeModel, JudgeQuestion, JudgeReply
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
    "AsyncCallableRewarder",
    "Attempt",
    "BatchStatistics",
    "CallableRewarder",
    "CompositeRewarder",
    "CompoundRewarder",
    "Estimator",
    "GradeResult",
    "Grader",
    "GraderInput",
    "GraderRewarder",
    "GraderRunner",
    "GraderSet",
    "GroundTruthRewarder",
    "GroupAdvantage",
    "GroupScores",
    "Interval",
    "JudgeModel",
    "JudgeOptions",
    "JudgeQuestion",
    "JudgeReply",
    "JudgeRewarder",
    "MeanEstimate",
    "PairedDifferences",
    "PairwiseRewarder",
    "Part",
    "RankCalibration",
    "RelativeRewarder",
    "RemoteGrader",
    "RewardContext",
    "RewardScore",
    "Rewarder",
    "RewarderThreads",
    "Verdict",
    "WeightedRewarder",
    "batch_advantages",
    "batch_statistics",
    "best_first",
    "bootstrap_interval",
    "build_rewarder",
    "capital_path",
    "check_rewarders",
    "clustered_error",
    "estimator_of",
    "grader",
    "group_advantage",
    "known_rewarders",
    "mean_and_error",
    "mean_at_k",
    "multi_reward_advantages",
    "paired_confidence_sequence",
    "paired_differences",
    "pass_at_k",
    "pass_hat_k",
    "rank_agreement",
    "relative_ranks",
    "score_group",
    "swap_agreement",
    "transitivity",
    "vote_agreement",
]
