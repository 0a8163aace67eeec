"""Every attribute key, span name, metric and closed value set of the telemetry.

Keys under ``gen_ai.`` follow the GenAI conventions, written out because their Python constants are deprecated. Ids of
items, groups, rollouts and seeds are attributes of spans only: on metrics each would be a time series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

RoleName: TypeAlias = Literal[
    "rollout", "agent", "tool", "judge", "summarize", "reflect", "curate", "shorten", "repair", "other"
]
ToolOutcome: TypeAlias = Literal["ok", "error"]
ExperienceOp: TypeAlias = Literal["added", "changed", "merged", "deleted", "rejected"]
TokenType: TypeAlias = Literal["input", "output", "total"]
GenaiMetrics: TypeAlias = Literal["off", "v1.41", "latest"]
InstrumentKind: TypeAlias = Literal["counter", "histogram", "gauge"]

ROLES: Final[frozenset[str]] = frozenset(get_args(RoleName))
OTHER: Final = "other"
"""Replaces every name beyond the bound of an open set."""

EPOCH: Final = "tfgrpo.epoch"
PHASE: Final = "tfgrpo.phase"
GROUP_SIZE: Final = "tfgrpo.group.size"
ROLE: Final = "tfgrpo.role"
OUTCOME: Final = "tfgrpo.outcome"
REWARDER: Final = "tfgrpo.rewarder"
SIGNAL: Final = "tfgrpo.signal"
DOMAIN: Final = "tfgrpo.domain"
OP: Final = "tfgrpo.op"
REASON: Final = "tfgrpo.reason"
RULE: Final = "tfgrpo.rule"
ERROR_TYPE: Final = "error.type"
TOOL: Final = "gen_ai.tool.name"
MODEL: Final = "gen_ai.request.model"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - no password
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
GRADER: Final = "tfgrpo.grader"
DATASET: Final = "tfgrpo.dataset"
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
WORKFLOW: Final = "gen_ai.workflow.name"

LITERAL_EPOCH: Final = "tfgrpo_epoch"
LITERAL_GROUP_SIZE: Final = "group_size"
LITERAL_TOOL_COST: Final = "tool_cost_usd"
LITERAL_LATENCY: Final = "latency_ms"
"""The specification's spellings, on epoch and rollout spans."""

RUN_ID: Final = "tfgrpo.run.id"
INSTANCE_ID: Final = "service.instance.id"
TASK_ID: Final = "tfgrpo.task.id"
ITEM_ID: Final = "tfgrpo.item.id"
GROUP_ID: Final = "tfgrpo.group.id"
ROLLOUT_ID: Final = "tfgrpo.rollout.id"
ROLLOUT_INDEX: Final = "tfgrpo.rollout.index"
ARM: Final = "tfgrpo.arm"
BATCH: Final = "tfgrpo.batch"
RECORDS: Final = "tfgrpo.records"
RUN_STATUS: Final = "tfgrpo.run.status"
RUN_GATE: Final = "tfgrpo.run.gate"
RUN_CALLS: Final = "tfgrpo.run.calls"
RUN_TOKENS: Final = "tfgrpo.run.tokens"
RUN_COST: Final = "tfgrpo.run.cost_usd"
SAMPLE_SIZE: Final = "tfgrpo.sample_size"
SEED: Final = "tfgrpo.seed"
PACK_ID: Final = "gen_ai.prompt.name"
PACK_STAMP: Final = "gen_ai.prompt.version"
TEMPERATURE: Final = "gen_ai.request.temperature"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_SEED: Final = "gen_ai.request.seed"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_COST: Final = "tfgrpo.tool.cost_usd"
LLM_COST: Final = "tfgrpo.llm.cost_usd"
REPLAYED: Final = "tfgrpo.replayed"
REWARD: Final = "tfgrpo.reward"
RANK: Final = "tfgrpo.relative_rank"
SPREAD: Final = "tfgrpo.group.reward_spread"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

SPAN_EPOCH: Final = "tfgrpo.epoch"
SPAN_GROUP: Final = "tfgrpo.group"
SPAN_SUMMARIZE: Final = "tfgrpo.summarize"
SPAN_EXTRACT: Final = "tfgrpo.extract"
SPAN_OPTIMIZE: Final = "tfgrpo.optimize"
SPAN_STORE_WRITE: Final = "tfgrpo.store.write"


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(round(first * 2**power, 2) for power in range(count))


CALL_SECONDS: Final = _doubling(0.01, 14)
AGENT_SECONDS: Final = _doubling(0.1, 13)
WORK_SECONDS: Final = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
REQUEST_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0)
UNIT_STEPS: Final = tuple(step / 10 for step in range(11))
TOKEN_STEPS: Final = tuple(float(4**power) for power in range(14))


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument: its kind, its unit, the only attribute keys it may carry, and its histogram boundaries."""

    name: str
    kind: InstrumentKind
    unit: str
    keys: tuple[str, ...]
    description: str
    boundaries: tuple[float, ...] | None = None


_TOOL = (EPOCH, PHASE, GROUP_SIZE, TOOL)
_LLM = (EPOCH, PHASE, ROLE, MODEL)

TOOL_CALLS: Final = Metric("tfgrpo.tool.calls", "counter", "{call}", (*_TOOL, OUTCOME), "Tool calls")
TOOL_DURATION: Final = Metric(
    "tfgrpo.tool.duration", "histogram", "s", (*_TOOL, ERROR_TYPE), "Time of one tool call", CALL_SECONDS
)
TOOL_MONEY: Final = Metric("tfgrpo.tool.cost", "counter", "USD", _TOOL, "Known cost of tool calls")
TOOL_TOKENS: Final = Metric("tfgrpo.tool.tokens", "counter", "{token}", (*_TOOL, TOKEN_TYPE), "Tokens of tool calls")
LLM_DURATION: Final = Metric(
    "tfgrpo.llm.duration", "histogram", "s", (*_LLM, ERROR_TYPE), "Time of one model call", CALL_SECONDS
)
LLM_TOKENS: Final = Metric("tfgrpo.llm.tokens", "counter", "{token}", (*_LLM, TOKEN_TYPE), "Tokens of model calls")
LLM_MONEY: Final = Metric("tfgrpo.llm.cost", "counter", "USD", _LLM, "Known cost of model calls")
ROLLOUT_DURATION: Final = Metric(
    "tfgrpo.rollout.duration", "histogram", "s", (EPOCH, PHASE, OUTCOME), "Time of one rollout", AGENT_SECONDS
)
ROLLOUTS: Final = Metric("tfgrpo.rollouts", "counter", "{rollout}", (EPOCH, PHASE, GROUP_SIZE, OUTCOME), "Rollouts")
REWARDS: Final = Metric("tfgrpo.reward", "histogram", "1", (EPOCH, PHASE, REWARDER), "Scores given", UNIT_STEPS)
GROUP_SPREAD: Final = Metric(
    "tfgrpo.group.reward_spread", "histogram", "1", (EPOCH, PHASE), "Reward spread inside a group", UNIT_STEPS
)
GROUPS: Final = Metric("tfgrpo.groups", "counter", "{group}", (EPOCH, PHASE, GROUP_SIZE, SIGNAL), "Groups")
EXPERIENCES: Final = Metric(
    "tfgrpo.experiences", "counter", "{experience}", (EPOCH, DOMAIN, OP, REASON), "Operations on the library"
)
ACTIVE: Final = Metric("tfgrpo.experiences.active", "gauge", "{experience}", (DOMAIN,), "Lessons in the library")
INJECTED: Final = Metric(
    "tfgrpo.experiences.injected", "counter", "{experience}", (EPOCH, DOMAIN), "Lessons put into prompts"
)
EPOCH_DURATION: Final = Metric("tfgrpo.epoch.duration", "histogram", "s", (PHASE,), "Time of one epoch", WORK_SECONDS)
EPOCH_REWARD: Final = Metric("tfgrpo.epoch.reward.mean", "gauge", "1", (EPOCH, PHASE), "Mean reward of an epoch")
EPOCH_SOLVED: Final = Metric("tfgrpo.epoch.solve_rate", "gauge", "1", (EPOCH, PHASE), "Share of rollouts solved")
RUN_INFO: Final = Metric("tfgrpo.run.info", "gauge", "1", (RUN_ID, TASK_ID), "1 for the run that is reporting")
VIOLATIONS: Final = Metric("tfgrpo.guardrail.violations", "counter", "{violation}", (RULE,), "Lessons kept out")
GRADES: Final = Metric(
    "tfgrpo.dataserver.grades", "counter", "{grade}", (GRADER, OUTCOME), "Grades asked of each grader by clients"
)
SAMPLES: Final = Metric("tfgrpo.dataserver.samples", "counter", "{sample}", (DATASET,), "Samples sent to clients")
REQUEST_DURATION: Final = Metric(
    "http.server.request.duration",
    "histogram",
    "s",
    (HTTP_METHOD, HTTP_ROUTE, HTTP_STATUS),
    "Time of one request to the data server",
    REQUEST_SECONDS,
)

GENAI_TOOL: Final = Metric(
    "gen_ai.execute_tool.duration", "histogram", "s", (TOOL, ERROR_TYPE), "Time of one tool call", CALL_SECONDS
)
GENAI_AGENT: Final = Metric(
    "gen_ai.invoke_agent.duration", "histogram", "s", (AGENT, ERROR_TYPE), "Time of one agent run", AGENT_SECONDS
)
GENAI_INFERENCE: Final = Metric(
    "gen_ai.client.inference.duration",
    "histogram",
    "s",
    (OPERATION, PROVIDER, MODEL, ERROR_TYPE),
    "Time of one model call",
    CALL_SECONDS,
)
GENAI_OPERATION: Final = Metric(
    "gen_ai.client.operation.duration",
    "histogram",
    "s",
    (OPERATION, PROVIDER, MODEL, ERROR_TYPE),
    "Time of one model call",
    CALL_SECONDS,
)
GENAI_TOKENS: Final = Metric(
    "gen_ai.client.token.usage",
    "histogram",
    "{token}",
    (OPERATION, PROVIDER, MODEL, TOKEN_TYPE),
    "Tokens of one model call",
    TOKEN_STEPS,
)

OURS: Final = (
    TOOL_CALLS, TOOL_DURATION, TOOL_MONEY, TOOL_TOKENS, LLM_DURATION, LLM_TOKENS, LLM_MONEY, ROLLOUT_DURATION,
    ROLLOUTS, REWARDS, GROUP_SPREAD, GROUPS, EXPERIENCES, ACTIVE, INJECTED, EPOCH_DURATION, EPOCH_REWARD, EPOCH_SOLVED,
    RUN_INFO, VIOLATIONS, GRADES, SAMPLES, REQUEST_DURATION,
)  # fmt: skip
GENAI: Final[dict[GenaiMetrics, tuple[Metric, ...]]] = {
    "off": (),
    "v1.41": (GENAI_OPERATION, GENAI_TOKENS),
    "latest": (GENAI_TOOL, GENAI_AGENT, GENAI_INFERENCE),
}
SERIES_BUDGET: Final = 1500
"""Limit of time series of one run, over the whole catalogue."""
