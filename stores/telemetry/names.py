"""Every attribute of spans and metrics by its name in calls, and every metric, read from ``metrics.yaml``.

Keys under ``gen_ai.`` follow the GenAI conventions, written out because their Python constants are deprecated. Ids of
items, groups, rollouts and seeds are attributes of spans only: on metrics each would be a time series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Annotated, Final, Literal, TypeAlias, TypedDict, get_args, get_type_hints

from pydantic import TypeAdapter

from tfgrpo.stores.outcomes import Arm, OutcomeName, Phase, Signal
from tfgrpo.stores.packaged import packaged_yaml

RoleName: TypeAlias = Literal[
    "rollout", "agent", "gateway", "tool", "judge", "summarize", "digest", "reflect", "curate", "shorten", "repair",
    "other",
]  # fmt: skip
ToolOutcome: TypeAlias = Literal["ok", "error"]
ExperienceOp: TypeAlias = Literal["added", "changed", "merged", "rejected"]
TokenType: TypeAlias = Literal["input", "output", "total"]
SentArm: TypeAlias = Literal["lessons", "held-out", "off"]
"""What a request in production got. ``held-out``: no lessons, by lot; ``off``: none, because the client declined them."""
Event: TypeAlias = Literal[
    "tool_call", "llm_call", "rollout", "reward", "group", "experience", "library", "injected", "epoch", "run",
    "ended", "budget", "guardrail", "grades", "samples", "request",
]  # fmt: skip

ROLES: Final[frozenset[str]] = frozenset(get_args(RoleName))
OTHER: Final = "other"
"""Replaces every name beyond the bound of an open set."""


class Attributes(TypedDict, total=False):
    """The attributes of spans and metrics, each with its key. None is unknown and omitted."""

    epoch: Annotated[int, "tfgrpo.epoch"]
    phase: Annotated[Phase, "tfgrpo.phase"]
    group_size: Annotated[int | None, "tfgrpo.group.size"]
    role: Annotated[str | None, "tfgrpo.role"]
    outcome: Annotated[OutcomeName | ToolOutcome | None, "tfgrpo.outcome"]
    rewarder: Annotated[str, "tfgrpo.rewarder"]
    signal: Annotated[Signal, "tfgrpo.signal"]
    domain: Annotated[str, "tfgrpo.domain"]
    op: Annotated[ExperienceOp, "tfgrpo.op"]
    reason: Annotated[str | None, "tfgrpo.reason"]
    rule: Annotated[str, "tfgrpo.rule"]
    error_type: Annotated[str | None, "error.type"]
    tool: Annotated[str, "gen_ai.tool.name"]
    model: Annotated[str, "gen_ai.request.model"]
    token_type: Annotated[TokenType, "gen_ai.token.type"]
    operation: Annotated[str, "gen_ai.operation.name"]
    provider: Annotated[str, "gen_ai.provider.name"]
    agent: Annotated[str, "gen_ai.agent.name"]
    grader: Annotated[str, "tfgrpo.grader"]
    dataset: Annotated[str, "tfgrpo.dataset"]
    method: Annotated[str, "http.request.method"]
    route: Annotated[str, "http.route"]
    status: Annotated[int, "http.response.status_code"]
    run_id: Annotated[str | None, "tfgrpo.run.id"]
    task_id: Annotated[str | None, "tfgrpo.task.id"]

    arm: Annotated[Arm | SentArm | None, "tfgrpo.arm"]
    run_status: Annotated[str, "tfgrpo.run.status"]
    run_decision: Annotated[str | None, "tfgrpo.run.decision"]
    simulated: Annotated[bool, "tfgrpo.simulated"]
    cap: Annotated[str, "tfgrpo.budget.cap"]
    modality: Annotated[str, "gen_ai.token.modality"]
    workflow: Annotated[str, "gen_ai.workflow.name"]

    # Of spans only.
    item_id: Annotated[str, "tfgrpo.item.id"]
    group_id: Annotated[str, "tfgrpo.group.id"]
    rollout_id: Annotated[str, "tfgrpo.rollout.id"]
    index: Annotated[int | None, "tfgrpo.rollout.index"]
    batch: Annotated[int, "tfgrpo.batch"]
    records: Annotated[int, "tfgrpo.records"]
    run_calls: Annotated[int | None, "tfgrpo.run.calls"]
    run_tokens: Annotated[int | None, "tfgrpo.run.tokens"]
    run_cost_usd: Annotated[float | None, "tfgrpo.run.cost_usd"]
    sample_size: Annotated[int | None, "tfgrpo.sample_size"]
    seed: Annotated[int | None, "tfgrpo.seed"]
    pack_id: Annotated[str | None, "gen_ai.prompt.name"]
    pack_stamp: Annotated[str | None, "gen_ai.prompt.version"]
    temperature: Annotated[float | None, "gen_ai.request.temperature"]
    max_tokens: Annotated[int | None, "gen_ai.request.max_tokens"]
    request_seed: Annotated[int | None, "gen_ai.request.seed"]
    first_chunk_s: Annotated[float | None, "gen_ai.response.time_to_first_chunk"]
    response_id: Annotated[str | None, "gen_ai.response.id"]
    response_model: Annotated[str | None, "gen_ai.response.model"]
    finish_reasons: Annotated[tuple[str, ...] | None, "gen_ai.response.finish_reasons"]
    input_tokens: Annotated[int | None, "gen_ai.usage.input_tokens"]
    output_tokens: Annotated[int | None, "gen_ai.usage.output_tokens"]
    cached_tokens: Annotated[int | None, "gen_ai.usage.cache_read.input_tokens"]
    reasoning_tokens: Annotated[int | None, "gen_ai.usage.reasoning.output_tokens"]
    llm_cost_usd: Annotated[float | None, "tfgrpo.llm.cost_usd"]
    replayed: Annotated[bool | None, "tfgrpo.replayed"]
    tool_type: Annotated[str, "gen_ai.tool.type"]
    tool_call_id: Annotated[str | None, "gen_ai.tool.call.id"]
    tool_cost_usd: Annotated[float | None, "tfgrpo.tool.cost_usd"]
    reward: Annotated[float | None, "tfgrpo.reward"]
    relative_rank: Annotated[float | None, "tfgrpo.relative_rank"]
    spread: Annotated[float | None, "tfgrpo.group.reward_spread"]
    input_messages: Annotated[str, "gen_ai.input.messages"]
    output_messages: Annotated[str, "gen_ai.output.messages"]
    scored_by: Annotated[str, "gen_ai.evaluation.name"]
    score: Annotated[float | None, "gen_ai.evaluation.score.value"]
    label: Annotated[Literal["pass", "fail"] | None, "gen_ai.evaluation.score.label"]
    evidence: Annotated[str | None, "gen_ai.evaluation.explanation"]

    # The specification's spellings, on the spans of epochs and rollouts.
    literal_epoch: Annotated[int, "tfgrpo_epoch"]
    literal_group_size: Annotated[int | None, "group_size"]
    literal_tool_cost_usd: Annotated[float | None, "tool_cost_usd"]
    literal_latency_ms: Annotated[float | None, "latency_ms"]


class Facts(Attributes, total=False):
    """What is known of an event: attributes, and figures that are no attributes."""

    count: int
    """How many such events; 1 unless given."""
    duration_s: float
    tokens: int
    active: int
    reward_mean: float | None
    solve_rate: float | None
    scored: int
    ungraded: int
    used: float
    gain: float
    gain_low: float
    gain_high: float
    lost_share: float | None
    cost_usd: float | None
    nights_unchanged: int


KEYS: Final[Mapping[str, str]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Attributes, include_extras=True).items()
}
"""The key of each attribute."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument, and what it takes from an event."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    description: str
    event: Event
    values: Mapping[str, Mapping[str, str]]
    """The facts that it measures, each with the attributes that this fixes."""
    attributes: tuple[str, ...]
    """The only other attributes that it may carry."""
    boundaries: tuple[float, ...] | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The keys of its attributes."""
        return frozenset(KEYS[name] for name in chain(self.attributes, *self.values.values()))


@cache
def all_metrics() -> tuple[Metric, ...]:
    """Return the metrics of ``metrics.yaml``, in order."""
    declared = packaged_yaml(__file__, "metrics.yaml")
    return TypeAdapter(tuple[Metric, ...]).validate_python(declared["metrics"])
