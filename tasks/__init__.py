"""What are the steps of a run? Rollout, group, reflection, curation, evaluation and gate, and what they work with."""

from tasks.actors.base import Actor, AttemptContext
from tasks.actors.registry import build_actor, check_actor
from tasks.collector import Collected, ExperienceCollector
from tasks.collector_actors import ActorCollector
from tasks.collector_endpoint import EndpointPolicy, SamplingOptions
from tasks.collector_options import CollectorOptions
from tasks.collector_protocols import (
    BatchPolicyModel,
    Generation,
    PolicyModel,
    Prompt,
    RequestPlace,
    RewardModel,
    RolloutReward,
)
from tasks.collector_torch import TorchPolicy, TorchReward
from tasks.context import RunContext
from tasks.curation import CurationInput, CurationResult, curate_batch
from tasks.evaluation import PairedEvidence, pair_results
from tasks.gate import GateDecision, decide_gate
from tasks.group import run_group
from tasks.host import call_blocking, close_runtime, run_on_runtime, runtime_for
from tasks.models.endpoint import ApiKey, Endpoint
from tasks.optimize import LessonPolicy, optimize_experience
from tasks.rollout import run_rollout
from tasks.runtime import Runtime
from tasks.shapes import GroupResult, GroupSpec, PackText, RolloutRecord, ToolMetricEvent, Trajectory
from tasks.summarize import summarize_trajectory
from tasks.tools.schema import priced

__all__ = [
    "Actor",
    "ActorCollector",
    "ApiKey",
    "AttemptContext",
    "BatchPolicyModel",
    "Collected",
    "CollectorOptions",
    "CurationInput",
    "CurationResult",
    "Endpoint",
    "EndpointPolicy",
    "ExperienceCollector",
    "GateDecision",
    "Generation",
    "GroupResult",
    "GroupSpec",
    "LessonPolicy",
    "PackText",
    "PairedEvidence",
    "PolicyModel",
    "Prompt",
    "RequestPlace",
    "RewardModel",
    "RolloutRecord",
    "RolloutReward",
    "RunContext",
    "Runtime",
    "SamplingOptions",
    "ToolMetricEvent",
    "TorchPolicy",
    "TorchReward",
    "Trajectory",
    "build_actor",
    "call_blocking",
    "check_actor",
    "close_runtime",
    "curate_batch",
    "decide_gate",
    "optimize_experience",
    "pair_results",
    "priced",
    "run_group",
    "run_on_runtime",
    "run_rollout",
    "runtime_for",
    "summarize_trajectory",
]
