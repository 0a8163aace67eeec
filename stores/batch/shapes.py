"""Rollouts and groups as frozen values, independent of the run that made them.

They carry what a trainer needs: prompt, completion, reward, log-probabilities and sampling. Absent is None, never zero.
The types alone refuse only values outside JSON; batch, window and files check the rest (``tfgrpo.stores.batch.checks``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import BudgetRefused, ModelCallError, ModelTimeout, error_kind
from tfgrpo.stores.frozen_json import EMPTY, FrozenDict, Json, frozen, to_builtins
from tfgrpo.stores.numeric import is_finite
from tfgrpo.stores.outcomes import EMPTY_ANSWER, OutcomeName

RolloutStatus: TypeAlias = Literal["ok", "parse_error", "transport_error", "timeout", "filtered", "refused", "error"]
"""``parse_error``: it ended with an empty or unreadable answer. ``transport_error``: the call had no usable reply.
``filtered``: cut by a content filter. ``refused``: by the budget. ``error``: the actor or one of its tools failed."""
LogProbKind: TypeAlias = Literal["raw", "processed", "unknown"]
"""``processed``: of the distribution that was sampled from, after temperature and truncation. ``raw``: before."""

GRADED: Final = frozenset({"ok", "parse_error"})
"""The statuses with which a rollout can have a reward: what failed is never a number."""
ROUNDING: Final = 1e-5
"""How far above 0 a log-probability of single precision may be."""
_ID_DIGITS: Final = 12
"""Of the digest in a default id: a million groups at one index collide with a probability below 1 in 500."""
NOT_COMPUTED: Final = -9999.0
"""Marker of OpenAI and vLLM for a log-probability that is minus infinity or was not computed: no value."""


def status_of(error: type[BaseException]) -> RolloutStatus:
    """Return the status of a rollout whose call raised an error of this class."""
    if issubclass(error, BudgetRefused):
        return "refused"
    if issubclass(error, ModelTimeout | TimeoutError):
        return "timeout"
    return "transport_error" if issubclass(error, ModelCallError | OSError) else "error"


def status_of_outcome(name: OutcomeName, error_type: str, finish_reason: str | None) -> RolloutStatus:
    """Return the status of a rollout with this outcome; ungraded for any other reason, it has an answer."""
    if name == "failed":
        return status_of(error_kind(error_type))
    if name == "ungraded" and finish_reason == "content_filter":
        return "filtered"
    if name == "ungraded" and error_type == EMPTY_ANSWER:
        return "parse_error"
    return "refused" if name == "refused" else "ok"


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Log-probabilities of the tokens of one completion, as reported when it was sampled."""

    tokens: tuple[float, ...] | None = None
    """One value per token; None when only the sum is known."""
    token_ids: tuple[int, ...] | None = None
    """Ids of the completion's tokens, where the server returned them; they cannot be derived from text."""
    total: float | None = None
    """Exact sum over the policy's own tokens, in nats; None when any value is missing."""
    count: int | None = None
    """Number of tokens in ``total``, for length normalisation; None when not known."""
    kind: LogProbKind = "unknown"
    complete: bool = False
    """Whether every token of the completion has its value."""
    mask: tuple[int, ...] | None = None
    """1 for tokens of the policy, 0 for tool results in between; None: all of the policy."""

    def __post_init__(self) -> None:
        if self.tokens is None is self.token_ids is self.mask:  # one of many thousands whose sum alone is known
            return
        for name in ("tokens", "token_ids", "mask"):
            object.__setattr__(self, name, _tuple_or_none(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a completion. None: unknown, or the endpoint's default."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class RolloutUsage:
    """Usage of a rollout. None is unknown, never zero."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    """Part of ``completion_tokens``; hidden, so without log-probabilities."""
    cost_usd: float | None = None


NO_SAMPLING: Final = Sampling()
NO_USAGE: Final = RolloutUsage()


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of one state."""

    id: str
    group_id: str
    index: int
    """Index in its group, from 0. A group that lost rollouts has gaps."""
    completion: Json
    """A text, a list of chat messages (assistant and tool turns), or any other JSON value; None without a reply."""
    status: RolloutStatus = "ok"
    reward: float | None = None
    """None: not graded. Higher is better."""
    reward_parts: Mapping[str, float | None] = EMPTY
    """Components of the reward by rewarder; None where a rewarder abstained."""
    logprob: LogProbs | None = None
    """None: not captured; they cannot be computed later."""
    sampling: Sampling = NO_SAMPLING
    usage: RolloutUsage = NO_USAGE
    latency_s: float | None = None
    error: str | None = None
    """Why ``status`` is not ``ok``."""
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        if self.completion.__class__ is not str or self.reward_parts is not EMPTY or self.metadata is not EMPTY:
            _freeze_fields(self, "completion", "reward_parts", "metadata")

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...] | None:
        """The completion as chat messages, or None; a text is one assistant message."""
        if isinstance(self.completion, str):
            return (FrozenDict({"role": "assistant", "content": self.completion}),)
        return self.completion if is_messages(self.completion) else None

    @property
    def text(self) -> str | None:
        """The text of the completion, or of the last assistant message that has one; None for anything else."""
        if isinstance(self.completion, str):
            return self.completion
        contents = [turn.get("content") for turn in self.messages or () if turn["role"] == "assistant"]
        return next((text for text in reversed(contents) if isinstance(text, str)), None)

    @property
    def ratio_ready(self) -> bool:
        """Whether the log-probabilities are valid for probability ratios.

        They must be complete, and of the distribution that was sampled from: ``processed`` ones are, others only at
        temperature 1 without truncation. An unknown temperature or ``top_p`` counts as another one.
        """
        if self.logprob is None or not self.logprob.complete:
            return False
        untouched = self.sampling.temperature == 1.0 and self.sampling.top_p == 1.0
        return self.logprob.kind == "processed" or untouched

    @property
    def completion_tokens(self) -> int | None:
        """Length of the completion in tokens, reported by the endpoint, else the number of log-probabilities."""
        if self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return None if self.logprob is None else self.logprob.count


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The rollouts of one state by one policy, with one library in force."""

    __pydantic_config__: ClassVar[Any] = {"strict": True, "extra": "forbid"}
    """How a group with its rollouts is read from JSON: no coercion, unknown keys refused."""

    id: str
    state: Json
    """The prompt as sent: a text, chat messages, or any other JSON value."""
    rollouts: tuple[Rollout, ...]
    target_size: int = 0
    """Rollouts requested; 0: as many as there are. With fewer rollouts the group is ragged."""
    bare_state: Json = None
    """The prompt of the task alone, without injected lessons; None when it is the same, or not known."""
    policy_version: str | None = None
    """Name of the weights or model, to recognise off-policy data."""
    experience_version: str | None = None
    """Name of the pack and library in the prompt."""
    prompt_token_ids: tuple[int, ...] | None = None
    metadata: Mapping[str, Any] = EMPTY
    """More about the task. Exports use ``item_id``, ``answer``, ``domain``, ``run_id``, ``epoch``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rollouts", tuple(self.rollouts))
        object.__setattr__(self, "prompt_token_ids", _tuple_or_none(self.prompt_token_ids))
        _freeze_fields(self, "state", "bare_state", "metadata")
        if self.target_size == 0:
            object.__setattr__(self, "target_size", len(self.rollouts))

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """Reward of each rollout, or None, in order."""
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def scored(self) -> tuple[Rollout, ...]:
        """The rollouts that have a reward."""
        return tuple(rollout for rollout in self.rollouts if rollout.reward is not None)

    @property
    def spread(self) -> float | None:
        """Population standard deviation of the rewards; None below two, and for NaN or infinity."""
        return spread_of_rewards([rollout.reward for rollout in self.rollouts if rollout.reward is not None])


def _draft_of(shape: type[Any]) -> Any:
    """Return a class with the same slots whose instances can be changed, also to instances of that shape.

    The constructor of a frozen dataclass takes five times as long, and a buffer has a hundred thousand rollouts.
    """
    return make_dataclass(f"_{shape.__name__}Draft", [(each.name, Any) for each in fields(shape)], slots=True)


_RolloutDraft, _LogProbsDraft = _draft_of(Rollout), _draft_of(LogProbs)


def scored_rollout(group_id: str, index: int, completion: Json, reward: float | None, logprob: float | None) -> Rollout:
    """Return a rollout of which no more is known; ``completion`` is frozen, ``logprob`` the sum over its tokens."""
    sums = None
    if logprob is not None:
        sums = _LogProbsDraft(None, None, logprob, None, "unknown", True, None)
        sums.__class__ = LogProbs
    # Lists do not say why a rollout has neither reply nor reward: what failed must not look answered.
    status = "error" if completion is None and reward is None else "ok"
    made = _RolloutDraft(
        f"{group_id}/{index}", group_id, index, completion, status, reward, EMPTY, sums, NO_SAMPLING, NO_USAGE,
        None, None, EMPTY,
    )  # fmt: skip
    made.__class__ = Rollout
    return cast("Rollout", made)


def default_id(position: int, content: object) -> str:
    """Return ``g0-`` and hex digits: index ``position`` in its collection, and a digest of the content.

    A position alone would name the first group of every collection alike.
    """
    text = content
    if not isinstance(text, str):
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=_as_json)
    return f"g{position}-{sha256_hex(text)[:_ID_DIGITS]}"


def with_content_id(group: RolloutGroup, position: int) -> RolloutGroup:
    """Return the group and its rollouts with their default ids."""
    value = to_builtins(_without_latency(group))
    del value["id"]
    for rollout in value["rollouts"]:
        del rollout["id"], rollout["group_id"]
    name = default_id(position, value)
    rollouts = (replace(rollout, id=f"{name}/{rollout.index}", group_id=name) for rollout in group.rollouts)
    return replace(group, id=name, rollouts=tuple(rollouts))


def same_content(one: RolloutGroup, other: RolloutGroup) -> bool:
    """Return whether two groups are equal but for latencies."""
    return one == other or _without_latency(one) == _without_latency(other)


def _without_latency(group: RolloutGroup) -> RolloutGroup:
    return replace(group, rollouts=tuple(replace(rollout, latency_s=None) for rollout in group.rollouts))


def _as_json(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


def spread_of_rewards(rewards: Sequence[float]) -> float | None:
    """Return the population standard deviation without overflow; None below two values, and for NaN or infinity."""
    if len(rewards) < 2 or not all(map(is_finite, rewards)):
        return None
    if min(rewards) == max(rewards):
        return 0.0
    # ``statistics.pstdev`` overflows nowhere either, and takes fifteen times as long.
    peak = max(map(abs, rewards))
    scaled = [reward / peak for reward in rewards]
    mean = math.fsum(scaled) / len(scaled)
    return peak * math.sqrt(math.fsum((value - mean) ** 2 for value in scaled) / len(scaled))


def is_messages(value: object) -> bool:
    """Return whether a JSON value is a list of chat messages: objects with a ``role`` that is text."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(turn, Mapping) and isinstance(turn.get("role"), str) for turn in value)
    )


def _tuple_or_none(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return values if values is None or isinstance(values, tuple) else tuple(values)


def _freeze_fields(record: object, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        if value is not None and not isinstance(value, str | FrozenDict):
            object.__setattr__(record, name, frozen(value))
