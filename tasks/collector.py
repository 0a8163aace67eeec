"""Collect groups from a policy and a reward model: generate, check, score and deliver them one by one.

What a policy returned is checked before the reward model is called. A failed completion is a rollout with a status,
never a number, and its siblings continue. Adapters for torch (an extra) run without gradients, move each result to the
CPU once, and return Python numbers.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Real
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from pydantic import ConfigDict, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass as checked_dataclass

from tfgrpo.rewarders.calling import caught, described, is_async
from tfgrpo.rewarders.threads import RewarderThreads, contained, gathered, in_thread
from tfgrpo.stores.batch.batch import Exclusion, ExperienceBatch, RaggedPolicy
from tfgrpo.stores.batch.shapes import (
    GRADED,
    LogProbs,
    Rollout,
    RolloutGroup,
    RolloutUsage,
    Sampling,
    problems_of_group,
    size_problems,
    with_content_id,
)
from tfgrpo.stores.errors import ConfigError, RecordRejected, RewardError, SettingsError, ShapeError, ShapeProblem
from tfgrpo.stores.json_values import EMPTY, Json
from tfgrpo.stores.numeric import as_list, is_number
from tfgrpo.stores.outcomes import RolloutStatus, status_of
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.runtime.runtime import FATAL

_T = TypeVar("_T")
MaybeAwaitable: TypeAlias = _T | Awaitable[_T]
GroupSink: TypeAlias = Callable[[RolloutGroup], None]
# What ends the whole collection: bad input, and failures that every further call would share.
_FATAL: Final = (ShapeError, ConfigError, *FATAL)
_LOG: Final = logging.getLogger("tfgrpo.collector")


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
    """Tokens of the prompt that was sent; those of the first generation that has them go to the group."""
    metadata: Mapping[str, Any] = EMPTY


_GENERATED: Final = tuple(each.name for each in fields(Generation) if each.name != "prompt_token_ids")


class _Failed(Generation):
    """The error of one call to a user's function."""


@dataclass(frozen=True, slots=True)
class RolloutReward:
    """A reward with its components. ``reward`` None: the model could not decide."""

    reward: float | None
    parts: Mapping[str, float | None] = EMPTY


RewardValue: TypeAlias = float | RolloutReward | None
"""None: the model cannot decide."""


@runtime_checkable
class PolicyModel(Protocol):
    """Writes completions of one state."""

    def generate(self, state: Json, n: int, **options: Any) -> MaybeAwaitable[Sequence[Generation | Json]]:
        """Return ``n`` completions. What it raises becomes the status of the rollouts requested."""
        ...


@runtime_checkable
class BatchPolicyModel(Protocol):
    """Writes the completions of all states in one call, as a model in this process does."""

    def generate_batch(self, states: Sequence[Json], n: int, **options: Any) -> MaybeAwaitable[Sequence[Sequence[Any]]]:
        """Return ``n`` completions, each a ``Generation`` or a JSON value, for each state, in order."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """Scores completions."""

    def score_batch(self, states: Sequence[Json], completions: Sequence[Json]) -> MaybeAwaitable[Sequence[RewardValue]]:
        """Return one reward per completion, in order. The lists run state by state."""
        ...


PolicyFunction: TypeAlias = Callable[..., MaybeAwaitable[Generation | Json]]
"""``(state, **options) -> completion``; called once for each completion."""
RewardFunction: TypeAlias = Callable[[Json, Json], MaybeAwaitable[RewardValue]]
"""``(state, completion) -> reward``."""


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, extra="forbid"))
class CollectorOptions:
    """Options of a collector. Raises ``ValueError`` for invalid ones."""

    ragged: RaggedPolicy = "strict"
    """Treatment of groups that lost rollouts. ``strict``: ``ShapeError``. ``pad``: kept, with masks.
    ``drop_group``: dropped with fewer than ``min_group_size`` rewards. ``resample``: missing rollouts are requested
    again, ``rounds`` times; then as ``drop_group``."""
    min_group_size: PositiveInt = 2
    rounds: NonNegativeInt = 2
    concurrency: PositiveInt = 64
    """Calls of the policy and of the reward model in flight at once."""
    allow_nan: bool = False
    on_group: GroupSink | None = None
    """Called with every scored group, also when the collection fails later, so that paid results are kept."""


class Collected(NamedTuple):
    """A batch, and the groups and rollouts that were dropped."""

    batch: ExperienceBatch
    dropped: tuple[Exclusion, ...] = ()


class ExperienceCollector:
    """Collects groups of ``group_size`` rollouts, without state between calls: any number may run at once.

    Policies and reward models may be coroutines, or plain functions, which run on threads; for one state or completion or for
    many. Raises ``ShapeError``, with every problem, for a size below 1 and for models without the methods.
    """

    def __init__(
        self,
        policy_model: PolicyModel | BatchPolicyModel | PolicyFunction,
        reward_model: RewardModel | RewardFunction,
        group_size: int = 64,
        options: CollectorOptions | None = None,
    ) -> None:
        self._options = options or CollectorOptions()
        problems = size_problems(group_size=group_size)
        for name, model, protocols, methods in (
            ("policy_model", policy_model, PolicyModel | BatchPolicyModel, "generate(state, n), generate_batch(states, n)"),
            ("reward_model", reward_model, RewardModel, "score_batch(states, completions)"),
        ):
            received = f"a {type(model).__name__} without any of them"
            if isinstance(model, type):
                received = f"the class {model.__name__}"
            elif isinstance(model, protocols) or callable(model):
                continue
            problems.append(ShapeProblem(name, f"{methods}, or a function", received))
        if problems:
            raise ShapeError(problems)
        self.policy, self.reward, self.group_size = policy_model, reward_model, group_size

    async def collect(self, states: Sequence[RolloutGroup | Json], **generation: Any) -> Collected:
        """Return groups for all states, in their order. ``generation`` goes to the policy only.

        A state that is a ``RolloutGroup`` gives its group an id, versions and metadata. Raise ``ShapeError`` with every
        problem of the collection, and errors that end every further call (a refused key).
        """
        prompts = _prompts_of(states)
        collection = _Collection(self, self._options, generation)
        try:
            groups = await collection.run(prompts)
        finally:
            collection.threads.shutdown()
        policy: RaggedPolicy = "drop_group" if self._options.ragged == "resample" else self._options.ragged
        batch = ExperienceBatch(tuple(groups), self._options.allow_nan)
        return Collected(*batch.shaped(policy, min_group_size=self._options.min_group_size))

    def collect_experiences(self, states: Sequence[RolloutGroup | Json], **generation: Any) -> ExperienceBatch:
        """Run ``collect`` without an event loop and log what was dropped. Raise ``RuntimeError`` inside an event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            collected = asyncio.run(self.collect(states, **generation))
        else:
            raise RuntimeError("an event loop runs here: use `await collector.collect(…)`")
        for dropped in collected.dropped:
            _LOG.warning("group %s left out: %s", dropped.group_id, dropped.reason)
        return collected.batch


def _prompts_of(states: object) -> list[RolloutGroup]:
    """Raise ``ShapeError`` for no state, a text instead of a list, repeated ids, and other than JSON values."""
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


class _Collection:
    def __init__(self, collector: ExperienceCollector, options: CollectorOptions, generation: dict[str, Any]) -> None:
        self.policy, self.reward, self.size = collector.policy, collector.reward, collector.group_size
        self.options, self.generation = options, generation
        self.problems: list[ShapeProblem] = []
        self.threads = RewarderThreads(options.concurrency)
        self.slots = asyncio.Semaphore(options.concurrency)

    async def run(self, prompts: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """Raise ``ShapeError`` when any group is invalid."""
        whole: list[RolloutGroup | None] = [None] * len(prompts)
        if isinstance(self.policy, BatchPolicyModel):
            rows = await self._generated([prompt.state for prompt in prompts], self.size)
            whole = [self._checked(*each, range(self.size)) for each in zip(range(len(prompts)), prompts, rows, strict=True)]
        groups = await gathered(self._group(*each) for each in zip(range(len(prompts)), prompts, whole, strict=True))
        if self.problems:
            raise ShapeError(self.problems)
        return groups

    async def _group(self, position: int, prompt: RolloutGroup, group: RolloutGroup | None) -> RolloutGroup:
        if group is None:
            (row,) = await self._generated([prompt.state], self.size)
            group = self._checked(position, prompt, row, range(self.size))
        group = await self._scored(group)
        for _ in range(self.options.rounds if self.options.ragged == "resample" else 0):
            # The lost rollouts, which have no completion to keep, are requested again.
            kept = {rollout.index: rollout for rollout in group.scored}
            missing = [index for index in range(self.size) if index not in kept]
            if self.problems or not missing:
                break
            (row,) = await self._generated([prompt.state], len(missing))
            again = await self._scored(self._checked(position, prompt, row, missing))
            both = kept | {rollout.index: rollout for rollout in again.rollouts}
            group = replace(group, rollouts=tuple(both[index] for index in sorted(both)))
        group = group if prompt.id else with_content_id(group, position)
        if self.options.on_group is not None and not self.problems:
            self.options.on_group(group)
        return group

    async def _generated(self, states: list[Json], count: int) -> Sequence[object]:
        """Return what the policy returns for each state; a failed call has failed generations."""
        if isinstance(self.policy, BatchPolicyModel):
            returned = await self._call(self.policy.generate_batch, states, count, **self.generation)
            if isinstance(returned, _Failed):
                return [[returned] * count] * len(states)
            rows = as_list(returned)
            if rows is None or len(rows) != len(states):
                received = f"a {type(returned).__name__}" if rows is None else pluralize(len(rows), "group")
                raise ShapeError.one("generations", f"{pluralize(len(states), 'group')}, one for each state", received)
            return rows
        if isinstance(self.policy, PolicyModel):
            returned = await self._call(self.policy.generate, *states, count, **self.generation)
            return [[returned] * count if isinstance(returned, _Failed) else returned]
        return [await gathered(self._call(self.policy, *states, **self.generation) for _ in range(count))]

    def _checked(self, position: int, prompt: RolloutGroup, row: object, indexes: Sequence[int]) -> RolloutGroup:
        """Return the group of one state; everything is checked before the reward model is called."""
        name = prompt.id or f"g{position}"
        where = f"group index {position}, id {name!r}"
        values, count, rollouts = as_list(row), len(indexes), list[Rollout]()
        if values is None:
            received = "a text" if isinstance(row, str) else f"a {type(row).__name__}"
            self.problems.append(ShapeProblem("generations", f"a list of {count}", received, where))
        elif len(values) > count or (len(values) < count and self.options.ragged == "strict"):
            self.problems.append(ShapeProblem("generations", f"{count} for this state", str(len(values)), where))
        for index, value in zip(indexes, values or (), strict=False):
            made = value if isinstance(value, Generation) else Generation(value)
            if value is None:  # a failure, never an answer to be scored
                made = Generation(None, "error", error="the policy returned None in place of a completion")
            fields_of = {field: getattr(made, field) for field in _GENERATED}
            try:
                rollouts.append(Rollout(f"{name}/{index}", name, index, **fields_of))
            except (TypeError, ValueError) as error:
                self.problems.append(ShapeProblem("completion", "a JSON value", str(error), f"{where}, index {index}"))
        ids = (value.prompt_token_ids for value in values or () if isinstance(value, Generation))
        tokens = next(filter(None, ids), prompt.prompt_token_ids)
        group = replace(prompt, id=name, rollouts=tuple(rollouts), target_size=self.size, prompt_token_ids=tokens)
        self.problems.extend(problems_of_group(group, position, allow_nan=self.options.allow_nan))
        return group

    async def _scored(self, group: RolloutGroup) -> RolloutGroup:
        """Leave the group ungraded when the reward model fails."""
        graded = [rollout for rollout in group.rollouts if rollout.status in GRADED]
        if self.problems or not graded:
            return group
        completions = [rollout.completion for rollout in graded]
        try:
            if isinstance(self.reward, RewardModel):
                returned = await self._call(self.reward.score_batch, [group.state] * len(graded), completions)
                failed = isinstance(returned, _Failed)
                values = [returned] * len(graded) if failed else flat_values("rewards", returned, len(graded))
            else:
                values = await gathered(self._call(self.reward, group.state, completion) for completion in completions)
            results = [caught(_reward_of, value, allow_nan=self.options.allow_nan) for value in values]
            rewards = [f"reward: {described(each)}" if isinstance(each, BaseException) else each for each in results]
        except ShapeError as error:
            if self.options.ragged == "strict":
                self.problems.extend(replace(problem, where=f"group {group.id!r}") for problem in error.problems)
            rewards = [f"reward: {error}"] * len(graded)
        by_id = {rollout.id: rollout for rollout in group.rollouts}
        for rollout, reward in zip(graded, rewards, strict=True):
            scored = {"error": reward} if isinstance(reward, str) else {"reward": reward.reward, "reward_parts": reward.parts}
            by_id[rollout.id] = replace(rollout, **scored)
        return replace(group, rollouts=tuple(by_id.values()))

    async def _call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call on a thread, or await a coroutine function. Return ``_Failed`` for an error that fails this call only."""
        call = partial(function, *args, **options)
        try:
            async with self.slots:
                if self.problems:  # the collection has failed: no more money for it
                    return _Failed(None, "error", error="not called: the collection has failed")
                return await contained(call() if is_async(function) else self._on_thread(call))
        except Exception as error:
            # What the user's own code could not store is one of our fatal errors, but fails only its own call.
            if isinstance(error, _FATAL) and not isinstance(error, RecordRejected):
                raise
            return _Failed(None, status_of(type(error)), error=described(error, whole=True)[:500])

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        returned = await in_thread(self.threads, call)
        return await returned if asyncio.iscoroutine(returned) or asyncio.isfuture(returned) else returned


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


def _reward_of(value: Any, *, allow_nan: bool) -> RolloutReward:
    """Return a value, also a number of another library (numpy, torch), as a reward. Raise ``RewardError``."""
    if isinstance(value, _Failed):
        raise RewardError(value.error)
    if hasattr(value, "tolist"):
        value = value.tolist()
    elif value.__class__ is not bool and isinstance(value, Real):
        value = float(value)
    reward = value if isinstance(value, RolloutReward) else RolloutReward(value)
    for part in (reward.reward, *reward.parts.values()):
        if part is not None and not is_number(part, allow_nan=allow_nan):
            raise RewardError(f"expected {'a' if allow_nan else 'a finite'} number or None, received {part!r:.60}")
    return reward


class TorchPolicy:
    """A policy with ``generate_actions(states, num_actions_per_state)`` and ``get_log_probabilities(states, actions)``.

    Raises ``ShapeError`` for an object without them, and ``SettingsError`` without torch. Actions must be JSON values.
    """

    def __init__(self, model: Any) -> None:
        self._torch = _torch_for("policy_model", model, "generate_actions", "get_log_probabilities")
        self._model = model

    def generate_batch(self, states: Sequence[Json], n: int, **options: Any) -> Any:
        """Return ``n`` actions for each state, with the log-probability of each whole action. Raise ``ShapeError``."""
        with self._torch.inference_mode():
            groups = self._model.generate_actions(list(states), num_actions_per_state=n, **options)
            rows = [as_list(row) for row in as_list(groups) or ()]
            if None in rows or len(rows) != len(states):
                return groups  # no groups of these states: the collector says what they are
            pairs = [(state, action) for state, row in zip(states, rows, strict=True) for action in row or ()]
            values = self._model.get_log_probabilities([state for state, _ in pairs], [action for _, action in pairs])
            totals = iter(_numbers("log_probs_old", values, len(pairs)))
        return [
            [Generation(action, logprob=LogProbs(total=next(totals), complete=True)) for action in row or ()] for row in rows
        ]


class TorchReward:
    """A reward model with ``compute_rewards(states, actions)`` that returns a 1-D tensor."""

    def __init__(self, model: Any) -> None:
        self._torch = _torch_for("reward_model", model, "compute_rewards")
        self._model = model

    def score_batch(self, states: Sequence[Json], completions: Sequence[Json]) -> list[float]:
        """Return one reward per completion. Raise ``ShapeError``."""
        with self._torch.inference_mode():
            return _numbers("rewards", self._model.compute_rewards(list(states), list(completions)), len(completions))


def _numbers(name: str, tensor: Any, count: int) -> list[float]:
    moved = tensor.detach().to("cpu") if hasattr(tensor, "detach") else tensor
    return [float(value) for value in flat_values(name, moved, count)]


def _torch_for(name: str, model: object, *methods: str) -> Any:
    missing = [method for method in methods if not callable(getattr(model, method, None))]
    if missing:
        raise ShapeError.one(name, " and ".join(methods), f"a {type(model).__name__} without {', '.join(missing)}")
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise SettingsError.one("torch", "not installed", "the extra: pip install 'tfgrpo[torch]'") from error
