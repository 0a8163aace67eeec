"""Policies and reward models that a collector takes, synchronous or not, and the checks of what they are and return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from tfgrpo.stores.batch.shapes import LogProbs, RolloutGroup, RolloutUsage, Sampling
from tfgrpo.stores.errors import RewardError, ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import EMPTY, Json
from tfgrpo.stores.numeric import as_list, is_number
from tfgrpo.stores.outcomes import RolloutStatus

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]


@dataclass(frozen=True, slots=True)
class Generation:
    """One completion from a policy, or the reason why there is none; its fields are those of the rollout."""

    completion: Json
    status: RolloutStatus = "ok"
    logprob: LogProbs | None = None
    """Captured with the generation; a chat endpoint cannot return it afterwards."""
    sampling: Sampling = field(default_factory=Sampling)
    usage: RolloutUsage = field(default_factory=RolloutUsage)
    latency_s: float | None = None
    error: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    """Of the prompt that was sent; those of the first generation that has them go to the group."""
    metadata: Mapping[str, Any] = EMPTY


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


PolicyFunction: TypeAlias = Callable[..., MaybeAwaitable[Generation | Json]]
"""``(state, **options) -> completion``."""
RewardFunction: TypeAlias = Callable[[Json, Json], MaybeAwaitable[float | RolloutReward | None]]
"""``(state, completion) -> reward``."""


def model_problems(name: str, model: object, protocols: Any, accepted: str) -> list[ShapeProblem]:
    """Return a problem unless the object has the methods of one of the protocols, or is a function."""
    if isinstance(model, protocols) or (callable(model) and not isinstance(model, type)):
        return []
    kind = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__} without any of them"
    return [ShapeProblem(name, f"{accepted}, or a function", kind)]


def prompts_of(states: object) -> list[RolloutGroup]:
    """Return the states as groups without rollouts; a state may be such a group, which has an id and metadata.

    Raise ``ShapeError`` for no state, for a text instead of a list, for repeated ids, and for other than JSON values.
    """
    rows = None if isinstance(states, str | bytes | Mapping) else as_list(states)
    if not rows:
        kind = "a text" if isinstance(states, str | bytes) else f"a {type(states).__name__}"
        raise ShapeError.one("states", "a list of at least one state", kind if rows is None else "none")
    prompts: list[RolloutGroup] = []
    problems: list[ShapeProblem] = []
    first: dict[str, int] = {}
    for index, state in enumerate(rows):
        try:
            prompt = state if isinstance(state, RolloutGroup) else RolloutGroup("", state)
        except (TypeError, ValueError) as error:
            problems.append(ShapeProblem("state", "a JSON value", str(error), f"index {index}"))
            continue
        prompts.append(prompt)
        if prompt.id and first.setdefault(prompt.id, index) != index:
            where = f"indexes {first[prompt.id]} and {index}"
            problems.append(ShapeProblem("id", "one of its own for each state", repr(prompt.id), where))
    if problems:
        raise ShapeError(problems)
    return prompts


def flat_values(name: str, returned: Any, expected: int) -> list[Any]:
    """Return a list, array or tensor of one value for each completion. Raise ``ShapeError`` for any other."""
    values = as_list(returned)
    nested = [inner for inner in map(as_list, values or ()) if inner is not None]
    if values is not None and len(values) == expected and len(nested) < max(1, expected):
        return values
    received = f"a {type(returned).__name__}" if values is None else f"length {len(values)}"
    if (shape := getattr(returned, "shape", None)) is not None or nested:
        received = f"shape {tuple(shape) if shape is not None else (len(values or ()), len(nested[0]))}"
    raise ShapeError.one(name, f"1-D of length {expected} = the number of completions", received)


def reward_of(value: Any, *, allow_nan: bool) -> RolloutReward:
    """Return a value, also a number of another library (numpy, torch), as a reward. Raise ``RewardError``."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    elif value.__class__ is not bool and isinstance(value, Real):
        value = float(value)
    reward = value if isinstance(value, RolloutReward) else RolloutReward(value)
    for part in (reward.reward, *reward.parts.values()):
        if part is not None and not is_number(part, allow_nan=allow_nan):
            raise RewardError(f"expected {'a' if allow_nan else 'a finite'} number or None, received {part!r:.60}")
    return reward
