"""Rollouts and groups as frozen values, independent of the run that made them.

They carry what a trainer needs: prompt, completion, reward, log-probabilities and sampling. Absent is None, never zero.
The types alone refuse only values outside JSON; batch, window and files check the rest (``tfgrpo.stores.batch.checks``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias

from tfgrpo.stores.errors import BudgetRefused, ModelCallError, ModelTimeout, error_kind
from tfgrpo.stores.frozen_json import EMPTY, FrozenDict, Json, frozen
from tfgrpo.stores.numeric import is_finite
from tfgrpo.stores.outcomes import EMPTY_ANSWER, OutcomeName

RolloutStatus: TypeAlias = Literal["ok", "parse_error", "transport_error", "timeout", "filtered", "refused", "error"]
"""``parse_error``: it ended, but its answer is empty or could not be read. ``transport_error``: the call brought nothing
usable. ``filtered``: cut by a content filter. ``refused``: the budget. ``error``: the actor or a tool of it broke."""
LogProbKind: TypeAlias = Literal["raw", "processed", "unknown"]
"""``processed``: of the distribution that was sampled from, after temperature and truncation. ``raw``: before."""

_STRICT: Final[Any] = {"strict": True, "extra": "forbid"}
"""How the shapes are read from JSON: no coercion, unknown keys refused."""
GRADED: Final = frozenset({"ok", "parse_error"})
"""The statuses with which a rollout can have a reward: what failed is never a number."""
ROUNDING: Final = 1e-5
"""How far above 0 a log-probability of single precision may be; anything more is no probability."""
NOT_COMPUTED: Final = -9999.0
"""What OpenAI and vLLM write for a token whose log-probability is minus infinity or was not computed: no value."""


def status_of(error: type[BaseException]) -> RolloutStatus:
    """How a rollout ended whose call raised an error of this class."""
    if issubclass(error, BudgetRefused):
        return "refused"
    if issubclass(error, ModelTimeout | TimeoutError):
        return "timeout"
    return "transport_error" if issubclass(error, ModelCallError | OSError) else "error"


def status_of_outcome(name: OutcomeName, error_type: str, finish_reason: str | None) -> RolloutStatus:
    """How a rollout with this outcome ended. What is ungraded for another reason has an answer all the same."""
    if name == "failed":
        return status_of(error_kind(error_type))
    if name == "ungraded" and finish_reason == "content_filter":
        return "filtered"
    if name == "ungraded" and error_type == EMPTY_ANSWER:
        return "parse_error"
    return "refused" if name == "refused" else "ok"


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Log-probabilities of the tokens of one completion, as the policy gave them when it wrote it."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    tokens: tuple[float, ...] | None = None
    """One value per token; None when only the sum is known."""
    token_ids: tuple[int, ...] | None = None
    """Ids of the completion's tokens, where the server returned them: text does not give them back."""
    total: float | None = None
    """Exact sum over the policy's own tokens, in nats; None when any value is missing."""
    count: int | None = None
    """Tokens behind ``total``, so that a length-normalised value can be had; None when not known."""
    kind: LogProbKind = "unknown"
    complete: bool = False
    """Whether every token of the completion has its value."""
    mask: tuple[int, ...] | None = None
    """1 where the policy wrote the token, 0 for tool results in between; None: all its own."""

    def __post_init__(self) -> None:
        for name in ("tokens", "token_ids", "mask"):
            object.__setattr__(self, name, _tuple_or_none(getattr(self, name)))

    @property
    def mean(self) -> float | None:
        """``total`` per token; None where either is not known."""
        return None if self.total is None or not self.count else self.total / self.count


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a completion was drawn. None is unknown, or left to the endpoint."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class RolloutUsage:
    """What a rollout used. None is unknown, never zero."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    """Part of ``completion_tokens``; hidden, so without log-probabilities."""
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at one state."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    id: str
    group_id: str
    index: int
    """Place in its group, 0 and up. A group that lost rollouts has gaps."""
    completion: Json
    """A text, a list of chat messages (assistant and tool turns), or any other JSON value; None when nothing came."""
    status: RolloutStatus = "ok"
    reward: float | None = None
    """None: not graded. Higher is better."""
    reward_parts: Mapping[str, float | None] = EMPTY
    """What the reward was made of, by the name of the rewarder; None where that one abstained."""
    logprob: LogProbs | None = None
    """None: none were captured. They cannot be had afterwards."""
    sampling: Sampling = field(default_factory=Sampling)
    usage: RolloutUsage = field(default_factory=RolloutUsage)
    latency_s: float | None = None
    error: str | None = None
    """Why ``status`` is not ``ok``."""
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        for name in ("completion", "reward_parts", "metadata"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | FrozenDict):
                object.__setattr__(self, name, frozen(value))

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...] | None:
        """The completion as chat messages, if it is one; a text is one assistant message."""
        if isinstance(self.completion, str):
            return (FrozenDict({"role": "assistant", "content": self.completion}),)
        return self.completion if is_messages(self.completion) else None

    @property
    def text(self) -> str | None:
        """The text of the completion, or of the last assistant message that has one; None for anything else."""
        if isinstance(self.completion, str):
            return self.completion
        said = [turn.get("content") for turn in self.messages or () if turn["role"] == "assistant"]
        return next((text for text in reversed(said) if isinstance(text, str)), None)

    @property
    def ratio_ready(self) -> bool:
        """Whether a trainer that weighs by probability ratios may take the log-probabilities.

        They must be complete, and of the distribution that was sampled from: ``processed`` ones are, any others only
        at temperature 1 with nothing cut off. A temperature or ``top_p`` that is not known counts as another.
        """
        if self.logprob is None or not self.logprob.complete:
            return False
        untouched = self.sampling.temperature == 1.0 and self.sampling.top_p == 1.0
        return self.logprob.kind == "processed" or untouched

    @property
    def completion_tokens(self) -> int | None:
        """Length of the completion in tokens: as counted by the endpoint, else by its log-probabilities."""
        if self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return None if self.logprob is None else self.logprob.count


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The attempts at one state by one policy, with one library in force."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    id: str
    state: Json
    """The prompt as sent: a text, chat messages, or any other JSON value."""
    rollouts: tuple[Rollout, ...]
    target_size: int = 0
    """Rollouts asked for; 0: as many as there are. Fewer rollouts than this make the group ragged."""
    bare_state: Json = None
    """The prompt of the task alone, without injected lessons; None when it is the same, or not known."""
    policy_version: str | None = None
    """Names the weights or the model that answered, so that off-policy data can be recognised."""
    experience_version: str | None = None
    """Names the pack and library that were in the prompt."""
    prompt_token_ids: tuple[int, ...] | None = None
    metadata: Mapping[str, Any] = EMPTY
    """What else is known of the task. Used by exports: ``item_id``, ``answer``, ``domain``, ``run_id``, ``epoch``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rollouts", tuple(self.rollouts))
        object.__setattr__(self, "prompt_token_ids", _tuple_or_none(self.prompt_token_ids))
        for name in ("state", "bare_state", "metadata"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | FrozenDict):
                object.__setattr__(self, name, frozen(value))
        if self.target_size == 0:
            object.__setattr__(self, "target_size", len(self.rollouts))

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """Reward of each rollout, in order; None where there is none."""
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def scored(self) -> tuple[Rollout, ...]:
        """The rollouts that have a reward."""
        return tuple(rollout for rollout in self.rollouts if rollout.reward is not None)

    @property
    def spread(self) -> float | None:
        """Population standard deviation of the rewards there are; None below two, and for NaN or infinity."""
        return spread_of_rewards([rollout.reward for rollout in self.rollouts if rollout.reward is not None])


def spread_of_rewards(rewards: Sequence[float]) -> float | None:
    """Population standard deviation without overflow; None below two values, and for NaN or infinity."""
    if len(rewards) < 2 or not all(map(is_finite, rewards)):
        return None
    if min(rewards) == max(rewards):
        return 0.0
    peak = max(abs(reward) for reward in rewards)
    scaled = [reward / peak for reward in rewards]
    mean = math.fsum(scaled) / len(scaled)
    return peak * math.sqrt(math.fsum((value - mean) ** 2 for value in scaled) / len(scaled))


def is_messages(value: object) -> bool:
    """Whether a JSON value is a list of chat messages: objects with a ``role`` that is text."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(turn, Mapping) and isinstance(turn.get("role"), str) for turn in value)
    )


def _tuple_or_none(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return values if values is None or isinstance(values, tuple) else tuple(values)
