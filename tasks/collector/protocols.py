"""Protocols of policies and reward models, synchronous or not, and the checks of what they return.

The models are checked when a collector is built, before any call is paid for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from tfgrpo.rewarders.faults import caught, described
from tfgrpo.stores.batch.shapes import LogProbs, Rollout, RolloutGroup, RolloutStatus, RolloutUsage, Sampling
from tfgrpo.stores.errors import RewardError, ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import EMPTY, Json, frozen
from tfgrpo.stores.numeric import as_list, is_number

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One state to collect for, with its metadata."""

    state: Json
    """The prompt as sent: a text, chat messages, or any other JSON value."""
    id: str = ""
    """Id of the group; by default its index and a digest of its content, as ``g0-1f3a9c0b7d2e``."""
    bare_state: Json = None
    policy_version: str | None = None
    experience_version: str | None = None
    metadata: Mapping[str, Any] = EMPTY

    def name(self, index: int) -> str:
        """Return the id; without one the index, as ``g0``, until the content of its group is known."""
        return self.id or f"g{index}"

    def group(self, index: int, size: int, generations: Mapping[int, Generation]) -> RolloutGroup:
        """Return the group of these generations, by their indexes; ``size``: how many were requested."""
        name, every = self.name(index), generations.items()
        return RolloutGroup(
            id=name,
            state=self.state,
            rollouts=tuple(generation.rollout(name, at) for at, generation in every),
            target_size=size,
            bare_state=self.bare_state,
            policy_version=self.policy_version,
            experience_version=self.experience_version,
            prompt_token_ids=next((each.prompt_token_ids for _, each in every if each.prompt_token_ids), None),
            metadata=self.metadata,
        )


@dataclass(frozen=True, slots=True)
class Generation:
    """One completion from a policy, or the reason why there is none."""

    completion: Json
    status: RolloutStatus = "ok"
    logprob: LogProbs | None = None
    """Captured with the generation; a chat endpoint cannot return it afterwards."""
    sampling: Sampling = field(default_factory=Sampling)
    usage: RolloutUsage = field(default_factory=RolloutUsage)
    latency_s: float | None = None
    error: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    metadata: Mapping[str, Any] = EMPTY

    def rollout(self, group_id: str, index: int) -> Rollout:
        """Return the rollout with this index, without a reward."""
        return Rollout(
            id=f"{group_id}/{index}",
            group_id=group_id,
            index=index,
            completion=self.completion,
            status=self.status,
            logprob=self.logprob,
            sampling=self.sampling,
            usage=self.usage,
            latency_s=self.latency_s,
            error=self.error,
            metadata=self.metadata,
        )


@dataclass(frozen=True, slots=True)
class RolloutReward:
    """A reward with its components. ``reward`` None: the model could not decide."""

    reward: float | None
    parts: Mapping[str, float | None] = EMPTY


@runtime_checkable
class PolicyModel(Protocol):
    """Writes completions of one state. With an attribute ``accepts_n = False`` it is called for one at a time."""

    def generate(self, state: Json, n: int, **options: Any) -> MaybeAwaitable[Sequence[Generation | Json]]:
        """Return ``n`` completions. What it raises becomes the status of the rollouts requested."""
        ...


@runtime_checkable
class BatchPolicyModel(Protocol):
    """Writes the completions of all states in one call, as a model in this process does."""

    def generate_batch(
        self, states: Sequence[Json], n: int, **options: Any
    ) -> MaybeAwaitable[Sequence[Sequence[Generation | Json]]]:
        """Return ``n`` completions for each state, in order."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """Scores completions."""

    def score_batch(
        self, states: Sequence[Json], completions: Sequence[Json]
    ) -> MaybeAwaitable[Sequence[float | RolloutReward | None]]:
        """Return one reward per completion, in order; None where it cannot decide. The lists run state by state."""
        ...


RewardFunction: TypeAlias = Callable[[Json, Json], MaybeAwaitable[float | RolloutReward | None]]


@dataclass(frozen=True, slots=True)
class OneByOne:
    """A plain function ``(state, **options) -> completion`` as a policy."""

    function: Callable[..., MaybeAwaitable[Generation | Json]]
    accepts_n = False

    def generate(self, state: Json, n: int, **options: Any) -> Any:
        """Return one completion; ``n`` is always 1."""
        del n
        return self.function(state, **options)


def policy_of(model: object, problems: list[ShapeProblem]) -> PolicyModel | BatchPolicyModel | None:
    """Return the policy, or None and a problem when the object is not one."""
    if isinstance(model, PolicyModel | BatchPolicyModel):
        return model
    accepted = "generate(state, n), generate_batch(states, n), or a function (state) -> completion"
    return OneByOne(model) if _is_function(model, "policy_model", accepted, problems) else None


def reward_of(model: object, problems: list[ShapeProblem]) -> RewardModel | RewardFunction | None:
    """Return the reward model, or None and a problem when the object is not one."""
    accepted = "score_batch(states, completions), or a function (state, completion) -> reward"
    return model if isinstance(model, RewardModel) or _is_function(model, "reward_model", accepted, problems) else None


def _is_function(
    model: object, name: str, accepted: str, problems: list[ShapeProblem]
) -> TypeGuard[Callable[..., Any]]:
    if callable(model) and not isinstance(model, type):
        return True
    lacking = (
        f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__} without any of them"
    )
    problems.append(ShapeProblem(name, accepted, lacking))
    return False


def prompts_of(states: object) -> tuple[Prompt, ...]:
    """Return the states to collect for.

    Raise ``ShapeError`` for no state, for a text instead of a list, for repeated ids, and for other than JSON values.
    """
    rows = None if isinstance(states, str | bytes | Mapping) else as_list(states)
    if rows is None:
        kind = "a text" if isinstance(states, str | bytes) else f"a {type(states).__name__}"
        raise ShapeError.one("states", "a list of states", kind)
    if not rows:
        raise ShapeError.one("states", "at least one", "none")
    prompts = tuple(state if isinstance(state, Prompt) else Prompt(state) for state in rows)
    first: dict[str, int] = {}
    problems = [
        ShapeProblem("id", "one of its own for each state", repr(name), f"indexes {first[name]} and {index}")
        for index, name in enumerate(prompt.name(index) for index, prompt in enumerate(prompts))
        if first.setdefault(name, index) != index
    ]
    problems += [problem for index, prompt in enumerate(prompts) for problem in _not_json(prompt, index)]
    if problems:
        raise ShapeError(problems)
    return prompts


def generation_of(value: object) -> Generation:
    """Return a policy's value as a generation; None is a failure, never an answer to be scored."""
    if value is None:
        return Generation(None, "error", error="the policy returned None in place of a completion")
    return value if isinstance(value, Generation) else Generation(value)


def rewards_of(returned: object, expected: int, *, allow_nan: bool) -> list[RolloutReward | str]:
    """Return a reward for each completion, or why its value is invalid. Raise ``ShapeError`` for a wrong number."""
    values = as_list(returned)
    wanted = f"1-D of length {expected} = the number of completions"
    if values is None:
        raise ShapeError.one("rewards", wanted, f"a {type(returned).__name__}")
    nested = [inner for value in values if (inner := as_list(value)) is not None]
    if nested and len(nested) == len(values):
        raise ShapeError.one("rewards", wanted, f"shape ({len(values)}, {len(nested[0])})")
    if len(values) != expected:
        raise ShapeError.one("rewards", wanted, f"length {len(values)}")
    return checked_rewards(values, allow_nan=allow_nan)


def checked_rewards(values: Sequence[object], *, allow_nan: bool) -> list[RolloutReward | str]:
    """Return each value as a reward, or the reason why it is invalid."""
    found = [caught(_reward, value, allow_nan=allow_nan) for value in values]
    return [f"reward: {described(each)}" if isinstance(each, BaseException) else each for each in found]


def _reward(value: object, *, allow_nan: bool) -> RolloutReward:
    """Return a value as a reward. Raise ``RewardError`` for an invalid one."""
    reward = value if isinstance(value, RolloutReward) else RolloutReward(_number(value))
    for part in (reward.reward, *reward.parts.values()):
        if part is not None and not is_number(part, allow_nan=allow_nan):
            raise RewardError(f"expected {'a' if allow_nan else 'a finite'} number or None, received {part!r:.60}")
    return reward


def _number(value: Any) -> Any:
    """Return the number in a value of another library (numpy, torch); any other value unchanged."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value) if value.__class__ is not bool and isinstance(value, Real) else value


def _not_json(prompt: Prompt, index: int) -> Iterator[ShapeProblem]:
    for name in ("state", "bare_state", "metadata"):
        try:
            frozen(getattr(prompt, name))
        except (TypeError, ValueError) as error:
            yield ShapeProblem(name, "a JSON value", str(error), f"index {index}, id {prompt.name(index)!r}")
