"""Data that the steps pass on: frozen and picklable, so that a group can run in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.experiences.store import ExperienceRecord, Polarity
from tfgrpo.stores.ledger import Usage
from tfgrpo.stores.metrics import ToolUse
from tfgrpo.stores.outcomes import Arm, Failed, GroupKey, Outcome, RewardScore, Signal
from tfgrpo.tasks.models.base import ChatReply


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a trajectory: a model call or a tool call (requirement 27)."""

    kind: Literal["model", "tool", "note"]
    name: str
    text: str
    tokens: int | None
    cost_usd: float | None
    latency_ms: float
    error: str | None = None
    added: str | None = None
    """Digest of the lessons that the gateway added to the call; None without any."""
    calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments, as JSON, of each tool call: those that a model asked for; of a tool of your own agent, its call."""


def frame_of_json(value: Mapping[str, Any]) -> Frame:
    """Return the frame that was journalled as JSON."""
    return Frame(**{**value, "calls": tuple(map(tuple, value.get("calls", ())))})


def model_frame(reply: ChatReply) -> Frame:
    """Return the frame of a model call: its text, then its tool calls, one per line."""
    calls = tuple((call.name, call.arguments) for call in reply.message.tool_calls)
    lines = filter(None, [reply.message.content, *(f"→ {name}({arguments})" for name, arguments in calls)])
    tokens, milliseconds = reply.usage.total if reply.usage else None, reply.latency_s * 1000.0
    return Frame("model", reply.model, "\n".join(lines).lstrip("\n"), tokens, reply.cost_usd, milliseconds, calls=calls)


def tool_frame(name: str, text: str, latency_ms: float, cost_usd: float | None, *, failed: bool) -> Frame:
    """Return the frame of a tool call."""
    return Frame("tool", name, text, estimated_tokens(text), cost_usd, latency_ms, text[:200] if failed else None)


def estimated_tokens(text: str) -> int:
    """Return tokens of a text at four characters each, rounded up: no tokenizer is at hand."""
    return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Result of an attempt that ran to its end."""

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

    @property
    def use(self) -> ToolUse:
        """The call as a sum of one."""
        return ToolUse(self.tool, 1, self.tokens, self.cost_usd, self.latency_ms, int(not self.ok))


@dataclass(frozen=True, slots=True)
class PackText:
    """System text of a group: the rendered pack with lessons, and its sources."""

    system: str
    digest: str
    """SHA-256 of ``system``; names its line in ``prompts.jsonl``."""
    pack_id: str
    stamp: str
    experience_ids: tuple[str, ...]
    experiences: tuple[ExperienceRecord, ...] = ()
    """The records of those ids, for rewarders that use them."""


class Attempts(NamedTuple):
    """Attempts of a group, or of one half with its arm and text."""

    spec: GroupSpec
    indices: range


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Specification of one group; the argument of the mapped Prefect task.

    With a ``first_half`` the group has two sides: its first ``split`` attempts run under that text, the others under ``pack``.
    """

    group_id: str
    """Made from run, epoch, arm and position: the assignment id of the scheduler (requirement 6)."""
    key: GroupKey
    item: Item
    size: int
    temperature: float
    pack: PackText
    reflect: bool
    """False in the evaluation sweep and when the feature flag is off."""
    first_half: PackText | None = None
    split: int = 0
    failures_teach: bool = True
    """Whether attempts that all fail are held against the reference answer. Not in the first batch of a run, which may show
    that nothing can be right."""
    arms: tuple[Arm, Arm] = ("one", "other")
    failures: Mapping[str, Mapping[str, Abstained]] = field(default_factory=dict)
    """Rewarders that failed when the run first reached a rollout, by rollout id; their verdicts stay."""

    @property
    def halves(self) -> tuple[Attempts, ...]:
        """The attempts by text, in the order of their indices; one entry for a group that is not split."""
        if self.first_half is None:
            return (Attempts(self, range(self.size)),)
        ranges, packs = (range(self.split), range(self.split, self.size)), (self.first_half, self.pack)
        return tuple(
            Attempts(replace(self, key=replace(self.key, arm=arm), pack=pack, first_half=None), indices)
            for arm, pack, indices in zip(self.arms, packs, ranges, strict=True)
        )


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One rollout as recorded in ``rollouts.jsonl``."""

    rollout_id: str
    group_id: str
    key: GroupKey
    index: int
    outcome: Outcome
    scores: tuple[RewardScore, ...]
    advantage: float | None
    relative_rank: float | None
    """1 is best, 0 is worst, ties share the mean; None when not ranked."""
    output: str
    """Final text, shortened for the record; ``summary``: the trajectory in at most 32 words."""
    summary: str
    tools: tuple[ToolMetricEvent, ...]
    usage: Usage
    latency_s: float
    seed: int
    prompt_digest: str
    finish_reason: str
    failures: Mapping[str, str] = field(default_factory=dict)
    """Reasons of rewarders that failed or were late, those of weight 0 included."""
    signs: tuple[str, ...] = ()
    """What the reply does, of an attempt of the sweep (``tasks/rollout.py``)."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """Attempts of one group that were held against each other, and why they ended differently."""

    group_id: str
    item_id: str
    number: int
    """Among those of the group, from 0: each is evidence on its own."""
    evidence: tuple[str, ...]
    """Rollout ids of the attempts, better ones first."""
    best_reward: float
    best_rank: float
    spread: float
    """Spread of the group's rewards; 0 if all attempts failed, and were held against the reference answer."""
    cause: str = ""
    """As the reflection put it; empty if it named none, or nothing fit to be stored."""

    @property
    def amount(self) -> float:
        """Support of what it says: two groups in which all attempts fail count as one."""
        return 1.0 if self.spread else 0.5


@dataclass(frozen=True, slots=True)
class Proposal:
    """A lesson that a contrast proposes; not yet curated, stamped or stored."""

    text: str
    polarity: Polarity
    contrast: Contrast
    said: Literal["taught", "recurs"] = "taught"
    """``recurs``: the causes of several groups of a batch name it, this contrast among them."""


@dataclass(frozen=True, slots=True)
class LessonJudgement:
    """Judgement of a contrast on a lesson in the prompts of its attempts."""

    experience_id: str
    judgement: Literal["helped", "misled", "unused"]
    contrast: Contrast
    weight: float = 1.0
    """Less where only one of the contrasted attempts may have had the lesson."""


@dataclass(frozen=True, slots=True)
class HalfResult:
    """Rewards of the scored rollouts of one half of a split group."""

    arm: Arm
    signal: Signal
    mean_reward: float | None
    spread: float | None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Result of one group, of bounded size."""

    group_id: str
    key: GroupKey
    rollouts: tuple[RolloutRecord, ...]
    signal: Signal
    mean_reward: float | None
    spread: float | None
    proposals: tuple[Proposal, ...]
    rejected: tuple[tuple[str, str], ...]
    reflection_failure: Failed | None
    learning: Usage
    budget_refused: str | None
    fatal: str | None
    """Set when the run cannot go on (the endpoint refuses the key)."""
    duration_s: float
    broken_calls: tuple[Failed, ...] = ()
    """Failed calls of judges and of learning, to be recorded when the batch is accepted; those of rollouts are outcomes."""
    judging: Usage = Usage()  # noqa: RUF009 - frozen
    halves: tuple[HalfResult, ...] = ()
    judgements: tuple[LessonJudgement, ...] = ()
    contrasts: tuple[Contrast, ...] = ()

    @property
    def reflected(self) -> bool:
        """Whether a reflection was asked for, answered or not."""
        return bool(self.learning.calls) or self.reflection_failure is not None
