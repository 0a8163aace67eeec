"""What do the steps hand to each other? Frozen and picklable, so that a group can run in another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.stores.experiences.record import ExperienceRecord, Polarity
from tfgrpo.stores.group_key import GroupKey
from tfgrpo.stores.outcomes import Outcome, RewardScore, Signal
from tfgrpo.stores.usage import Usage


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a trajectory: a model call or a tool call (requirement 27)."""

    kind: Literal["model", "tool", "note"]
    name: str
    """Model or tool name."""
    text: str
    """What came back, possibly long."""
    tokens: int | None
    """None when the endpoint did not say."""
    cost_usd: float | None
    latency_ms: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What an actor hands back when its attempt ended by itself."""

    output: str
    frames: tuple[Frame, ...]
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True)
class ToolMetricEvent:
    """One tool call, measured (requirement 39)."""

    epoch: int
    group_id: str
    tool: str
    tokens: int
    cost_usd: float | None
    latency_ms: float
    ok: bool


@dataclass(frozen=True, slots=True)
class PackText:
    """The text a whole group gets: pack and library rendered, with what it was made of."""

    system: str
    digest: str
    """SHA-256 of ``system``; names its line in ``prompts.jsonl``."""
    pack_id: str
    stamp: str
    experience_ids: tuple[str, ...]
    experiences: tuple[ExperienceRecord, ...] = ()
    """The records behind those ids, for rewarders that look at them."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Everything one group needs; the argument of the mapped Prefect task."""

    group_id: str
    """Made from run, epoch, arm and position: the assignment id of the scheduler (requirement 6)."""
    key: GroupKey
    item: Item
    size: int
    temperature: float
    pack: PackText
    reflect: bool
    """False in the evaluation sweep and when the feature flag is off."""


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One rollout as recorded in ``rollouts.jsonl``."""

    rollout_id: str
    group_id: str
    key: GroupKey
    """Of its group."""
    index: int
    """Group index of the actor, 0 … G-1 (requirement 57)."""
    outcome: Outcome
    scores: tuple[RewardScore, ...]
    """Every score given, also by rewarders of weight 0 and for rollouts that stayed ungraded."""
    advantage: float | None
    relative_rank: float | None
    """1 is best, 0 is worst, ties share the mean; None when not ranked."""
    output: str
    """Final text, shortened for the record."""
    summary: str
    """At most 32 words on how the attempt went."""
    tools: tuple[ToolMetricEvent, ...]
    usage: Usage
    latency_s: float
    seed: int
    prompt_digest: str
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A lesson proposed by the reflection on one group; not yet curated, stamped or stored."""

    text: str
    polarity: Polarity
    group_id: str
    item_id: str
    evidence: tuple[str, ...]
    """Rollout ids of the attempts that were contrasted, best first."""
    best_reward: float
    best_rank: float
    spread: float


@dataclass(frozen=True, slots=True)
class ReflectionFailure:
    """The reflection on an informative group brought no lesson because a call or its answer broke."""

    error_type: str
    reason: str
    call_key: str | None = None

    @property
    def sentence(self) -> str:
        """Kind and reason."""
        return f"{self.error_type}: {self.reason}"


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What comes back from a group: small, whatever the rollouts said."""

    group_id: str
    key: GroupKey
    rollouts: tuple[RolloutRecord, ...]
    signal: Signal
    mean_reward: float | None
    spread: float | None
    proposals: tuple[Proposal, ...]
    rejected: tuple[tuple[str, str], ...]
    """Proposed texts that broke a rule, with the reason."""
    reflection_failure: ReflectionFailure | None
    learning: Usage
    """Of the reflection."""
    rewarder_fault: str | None
    """Set when a rewarder ran over its time limit: the epoch's evidence is void (requirement 63)."""
    budget_refused: str | None
    """Set when the ledger refused any call of the group."""
    fatal: str | None
    """Set when the run cannot go on (the endpoint refuses the key)."""
    duration_s: float
    broken_calls: tuple[ReflectionFailure, ...] = ()
    """Calls of judges and of learning that brought no answer, each with its key, to be recorded when the batch is
    accepted. Holds the failure above if a call was its cause; those of rollouts are in their outcomes."""
    judging: Usage = Usage()  # noqa: RUF009 - frozen
    """Of the group's judges."""

    @property
    def reflected(self) -> bool:
        """Whether a reflection was asked for, answered or not."""
        return bool(self.learning.calls) or self.reflection_failure is not None
