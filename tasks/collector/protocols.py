"""What must a policy and a reward model be able to do to be collected from? Their shapes, and the check of them.

Both may be synchronous or not. The check is made when a collector is built: before anything is asked, and so paid for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from tfgrpo.rewarders.faults import each_alone
from tfgrpo.stores.batch.shapes import LogProbs, RolloutStatus, RolloutUsage, Sampling
from tfgrpo.stores.errors import RewardError, ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import EMPTY, Json, frozen
from tfgrpo.stores.numeric import as_list, is_number

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One state to collect for, with what is known of it."""

    state: Json
    """The prompt as it is sent: a text, chat messages, or any other JSON value."""
    id: str = ""
    """Names the group; by default its place and a digest of its content do, as ``g0-1f3a9c0b7d2e``."""
    bare_state: Json = None
    policy_version: str | None = None
    experience_version: str | None = None
    metadata: Mapping[str, Any] = EMPTY


@dataclass(frozen=True, slots=True)
class PlacedPrompt(Prompt):
    """One that was given no id: its id is its place, as ``g0``, until its group has content to be named by."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One completion as a policy hands it over, or the reason why there is none."""

    completion: Json
    status: RolloutStatus = "ok"
    logprob: LogProbs | None = None
    """Captured with the generation; a chat endpoint cannot be asked for it afterwards."""
    sampling: Sampling = field(default_factory=Sampling)
    usage: RolloutUsage = field(default_factory=RolloutUsage)
    latency_s: float | None = None
    error: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    metadata: Mapping[str, Any] = EMPTY


@dataclass(frozen=True, slots=True)
class RolloutReward:
    """A reward with its parts. ``reward`` None: the model looked and could not tell."""

    reward: float | None
    parts: Mapping[str, float | None] = EMPTY


class RequestPlace(NamedTuple):
    """Which request of a collection this is; no two of them are the same."""

    group_id: str = ""
    """Of a state without an id: its place, as ``g0``. What it will be named by is not there yet."""
    refill: int = 0
    """0 for the first request, then the number of the round that ``resample`` asks again in."""
    first: int = 0
    """The place in its group of the first completion that is asked for."""


@runtime_checkable
class PolicyModel(Protocol):
    """Writes completions of one state.

    With an attribute ``accepts_n = False`` it is only ever asked for one. With an attribute ``accepts_place = True`` it
    is given ``place``, a ``RequestPlace``, with every request, to derive a seed from.
    """

    def generate(self, state: Json, n: int, **options: Any) -> MaybeAwaitable[Sequence[Generation | Json]]:
        """``n`` completions. What it raises becomes the status of the rollouts that were asked for."""
        ...


@runtime_checkable
class BatchPolicyModel(Protocol):
    """Writes the completions of all states in one call, as a model in this process does best."""

    def generate_batch(
        self, states: Sequence[Json], n: int, **options: Any
    ) -> MaybeAwaitable[Sequence[Sequence[Generation | Json]]]:
        """``n`` completions for each state, in order."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """Scores completions."""

    def score_batch(
        self, states: Sequence[Json], completions: Sequence[Json]
    ) -> MaybeAwaitable[Sequence[float | RolloutReward | None]]:
        """One reward per completion, in order; None where it could not tell. The lists run state by state."""
        ...


RewardFunction: TypeAlias = Callable[[Json, Json], MaybeAwaitable[float | RolloutReward | None]]
PolicyFunction: TypeAlias = Callable[..., MaybeAwaitable[Generation | Json]]


@dataclass(frozen=True, slots=True)
class OneByOne:
    """A plain function ``(state, **options) -> completion`` as a policy."""

    function: PolicyFunction
    accepts_n = False

    def generate(self, state: Json, n: int, **options: Any) -> Any:
        """One completion, whatever ``n`` is: it is only asked for one."""
        del n
        return self.function(state, **options)


def policy_of(model: object, problems: list[ShapeProblem]) -> PolicyModel | BatchPolicyModel | None:
    """The policy behind what was given; None, and a problem, when it is none."""
    if isinstance(model, PolicyModel | BatchPolicyModel):
        return model
    if callable(model) and not isinstance(model, type):
        return OneByOne(model)
    accepted = "generate(state, n), generate_batch(states, n), or a function (state) -> completion"
    problems.append(ShapeProblem("policy_model", accepted, _lacking(model)))
    return None


def reward_of(model: object, problems: list[ShapeProblem]) -> RewardModel | RewardFunction | None:
    """The reward model behind what was given; None, and a problem, when it is none."""
    if isinstance(model, RewardModel):
        return model
    if callable(model) and not isinstance(model, type):
        return model
    accepted = "score_batch(states, completions), or a function (state, completion) -> reward"
    problems.append(ShapeProblem("reward_model", accepted, _lacking(model)))
    return None


def prompts_of(states: object) -> tuple[Prompt, ...]:
    """The states to collect for, checked.

    Raises ``ShapeError`` for none, for a text in place of a list, for ids that repeat, and for what is no JSON value.
    """
    given = None if isinstance(states, str | bytes | Mapping) else as_list(states)
    if given is None:
        kind = "a text" if isinstance(states, str | bytes) else f"a {type(states).__name__}"
        raise ShapeError.one("states", "a list of states", kind)
    if not given:
        raise ShapeError.one("states", "at least one", "none")
    prompts = tuple(
        _named(state if isinstance(state, Prompt) else Prompt(state), place) for place, state in enumerate(given)
    )
    first: dict[str, int] = {}
    problems = [
        ShapeProblem("id", "one of its own for each state", repr(prompt.id), f"indexes {first[prompt.id]} and {place}")
        for place, prompt in enumerate(prompts)
        if first.setdefault(prompt.id, place) != place
    ]
    problems += [problem for place, prompt in enumerate(prompts) for problem in _not_json(prompt, place)]
    if problems:
        raise ShapeError(problems)
    return prompts


def generation_of(value: object) -> Generation:
    """What a policy returned, as a generation; nothing at all is a failure, never an answer to be scored."""
    if value is None:
        return Generation(None, "error", error="the policy returned None in place of a completion")
    return value if isinstance(value, Generation) else Generation(value)


def rewards_of(given: object, expected: int, *, allow_nan: bool) -> list[RolloutReward | str]:
    """What a reward model returned: for each completion a reward, or why what it got is none.

    Raises ``ShapeError`` when it is not one value for each.
    """
    values = as_list(given)
    wanted = f"1-D of length {expected} = the number of completions"
    if values is None:
        raise ShapeError.one("rewards", wanted, f"a {type(given).__name__}")
    nested = [inner for value in values if (inner := as_list(value)) is not None]
    if nested and len(nested) == len(values):
        raise ShapeError.one("rewards", wanted, f"shape ({len(values)}, {len(nested[0])})")
    if len(values) != expected:
        raise ShapeError.one("rewards", wanted, f"length {len(values)}")
    return checked_rewards(values, allow_nan=allow_nan)


def checked_rewards(values: Sequence[object], *, allow_nan: bool) -> list[RolloutReward | str]:
    """Each value as a reward, or the reason why it is none."""
    return each_alone(values, partial(_reward, allow_nan=allow_nan), "reward: {}".format)


def _reward(value: object, *, allow_nan: bool) -> RolloutReward:
    """A reward that was returned. Raises ``RewardError`` for what is none."""
    reward = value if isinstance(value, RolloutReward) else RolloutReward(_number(value))
    for part in (reward.reward, *reward.parts.values()):
        if part is not None and not is_number(part, allow_nan=allow_nan):
            raise RewardError(f"expected {'a' if allow_nan else 'a finite'} number or None, received {part!r:.60}")
    return reward


def _number(value: Any) -> Any:
    """The number that a value of another library stands for; any other value as it is."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value) if value.__class__ is not bool and isinstance(value, Real) else value


def _not_json(prompt: Prompt, place: int) -> Iterator[ShapeProblem]:
    for name in ("state", "bare_state", "metadata"):
        try:
            frozen(getattr(prompt, name))
        except (TypeError, ValueError) as error:
            yield ShapeProblem(name, "a JSON value", str(error), f"index {place}, id {prompt.id!r}")


def _named(prompt: Prompt, place: int) -> Prompt:
    if prompt.id:
        return prompt
    return PlacedPrompt(
        prompt.state,
        f"g{place}",
        prompt.bare_state,
        prompt.policy_version,
        prompt.experience_version,
        prompt.metadata,
    )


def _lacking(model: object) -> str:
    return (
        f"a {type(model).__name__} without any of them"
        if not isinstance(model, type)
        else f"the class {model.__name__}"
    )
