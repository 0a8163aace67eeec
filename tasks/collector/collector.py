"""Collect groups from a policy and a reward model: generate, check, score and deliver them one by one.

What a policy returned is checked before the reward model is called. A failed completion is a rollout with a status,
never a number, and its siblings continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from tfgrpo.rewarders.faults import caught, described
from tfgrpo.rewarders.threads import RewarderThreads, is_async
from tfgrpo.stores.batch.batch import Exclusion, ExperienceBatch, RaggedPolicy
from tfgrpo.stores.batch.shapes import GRADED, Rollout, RolloutGroup, problems_of_group, size_problems, with_content_id
from tfgrpo.stores.errors import ConfigError, ModelTimeout, RecordRejected, RewardError, ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import Json
from tfgrpo.stores.numeric import as_list, is_count, is_number
from tfgrpo.stores.outcomes import RolloutStatus, status_of
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.collector.protocols import (
    BatchPolicyModel,
    Generation,
    PolicyFunction,
    PolicyModel,
    RewardFunction,
    RewardModel,
    RolloutReward,
    flat_values,
    model_problems,
    prompts_of,
    reward_of,
)
from tfgrpo.tasks.runtime.containment import contained, gathered, in_thread
from tfgrpo.tasks.runtime.runtime import FATAL

GroupSink: TypeAlias = Callable[[RolloutGroup], None]
_FATAL: Final = (ShapeError, ConfigError, *FATAL)
"""What ends the whole collection: bad input, and failures that every further call would share."""
_GENERATED: Final = tuple(each.name for each in fields(Generation) if each.name != "prompt_token_ids")
_LOG: Final = logging.getLogger("tfgrpo.collector")


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """Options of a collector."""

    ragged: RaggedPolicy = "strict"
    """Treatment of groups that lost rollouts. ``strict``: ``ShapeError``. ``pad``: kept, with masks.
    ``drop_group``: dropped with fewer than ``min_group_size`` rewards. ``resample``: missing rollouts are requested
    again, ``rounds`` times; then as ``drop_group``."""
    min_group_size: int = 2
    rounds: int = 2
    concurrency: int = 64
    """Calls of the policy and of the reward model in flight at once."""
    timeout_s: float | None = None
    """Seconds one call may take; None: no limit here."""
    fuse_rewards: bool = False
    """Score the whole batch with one call; otherwise each group when it is complete."""
    allow_nan: bool = False
    on_group: GroupSink | None = None
    """Called with every scored group, also when the collection fails later, so that paid results are kept."""

    def problems(self) -> list[ShapeProblem]:
        """Return what is wrong with these options."""
        problems = size_problems(min_group_size=self.min_group_size, concurrency=self.concurrency)
        sink, limit = self.on_group, self.timeout_s
        for name, fits, accepted in (
            ("ragged", self.ragged in get_args(RaggedPolicy), " | ".join(get_args(RaggedPolicy))),
            ("rounds", is_count(self.rounds), "a whole number of at least 0"),
            ("timeout_s", limit is None or (is_number(limit, allow_nan=True) and limit > 0), "more than 0, or None"),
            ("fuse_rewards", not (self.fuse_rewards and self.ragged == "resample"), "False with ragged='resample'"),
            ("on_group", sink is None or callable(sink), "a function (group), or None"),
        ):
            if not fits:
                problems.append(ShapeProblem(name, accepted, repr(getattr(self, name))))
        return problems


@dataclass(frozen=True, slots=True)
class Collected:
    """A batch, and the groups and rollouts that were dropped."""

    batch: ExperienceBatch
    dropped: tuple[Exclusion, ...] = ()


class ExperienceCollector:
    """Collects groups of ``group_size`` rollouts, without state between calls: any number may run at once.

    ``policy_model`` and ``reward_model`` are what ``tfgrpo.tasks.collector.protocols`` describes: with coroutines or plain
    functions, for one state or all of them, for one completion or many. Plain functions run on threads.
    Raises ``ShapeError``, with every problem, for models without the methods and for invalid options.
    """

    def __init__(
        self,
        policy_model: PolicyModel | BatchPolicyModel | PolicyFunction,
        reward_model: RewardModel | RewardFunction,
        group_size: int = 64,
        options: CollectorOptions | None = None,
    ) -> None:
        self._options = options or CollectorOptions()
        methods = "generate(state, n), generate_batch(states, n)"
        problems = [
            *size_problems(group_size=group_size),
            *self._options.problems(),
            *model_problems("policy_model", policy_model, PolicyModel | BatchPolicyModel, methods),
            *model_problems("reward_model", reward_model, RewardModel, "score_batch(states, completions)"),
        ]
        if problems:
            raise ShapeError(problems)
        self._policy = policy_model
        self._reward = reward_model
        self.group_size = group_size

    async def collect(self, states: Sequence[RolloutGroup | Json], **generation: Any) -> Collected:
        """Return groups for all states, in their order. ``generation`` goes to the policy only.

        A state that is a ``RolloutGroup`` gives its group an id, versions and metadata. Raise ``ShapeError`` with every
        problem of the collection, and errors that end every further call (a refused key).
        """
        prompts = prompts_of(states)
        collection = _Collection(self._policy, self._reward, self.group_size, self._options, generation)
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


class _Raised(NamedTuple):
    """The error of one call to a user's function."""

    status: RolloutStatus
    text: str


@dataclass(slots=True)
class _Collection:
    """One call of ``collect``, with all its mutable state."""

    policy: PolicyModel | BatchPolicyModel | PolicyFunction
    reward: RewardModel | RewardFunction
    size: int
    options: CollectorOptions
    generation: dict[str, Any]
    problems: list[ShapeProblem] = field(default_factory=list)
    threads: RewarderThreads = field(init=False)
    slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.threads = RewarderThreads(self.options.concurrency)
        self.slots = asyncio.Semaphore(self.options.concurrency)

    async def run(self, prompts: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """Return all groups, scored. Raise ``ShapeError`` when any of them is invalid."""
        whole: list[RolloutGroup | None] = [None] * len(prompts)
        if isinstance(self.policy, BatchPolicyModel):
            rows = await self._generated([prompt.state for prompt in prompts], self.size)
            whole = [
                self._checked(*each, range(self.size)) for each in zip(range(len(prompts)), prompts, rows, strict=True)
            ]
        groups = await gathered(self._group(*each) for each in zip(range(len(prompts)), prompts, whole, strict=True))
        if self.options.fuse_rewards:
            groups = list(map(self._delivered, prompts, range(len(prompts)), await self._scored(groups)))
        if not self.problems and self.options.ragged == "strict":
            self.problems.extend(_losses(prompts, groups))
        if self.problems:
            raise ShapeError(self.problems)
        return groups

    async def _group(self, position: int, prompt: RolloutGroup, group: RolloutGroup | None) -> RolloutGroup:
        if group is None:
            (row,) = await self._generated([prompt.state], self.size)
            group = self._checked(position, prompt, row, range(self.size))
        if self.options.fuse_rewards:
            return group
        (group,) = await self._scored([group])
        for _ in range(self.options.rounds if self.options.ragged == "resample" else 0):
            # The lost rollouts, which have no completion to keep, are requested again.
            kept = {rollout.index: rollout for rollout in group.scored}
            missing = [index for index in range(self.size) if index not in kept]
            if self.problems or not missing:
                break
            (row,) = await self._generated([prompt.state], len(missing))
            (again,) = await self._scored([self._checked(position, prompt, row, missing)])
            both = kept | {rollout.index: rollout for rollout in again.rollouts}
            group = replace(group, rollouts=tuple(both[index] for index in sorted(both)))
        return self._delivered(prompt, position, group)

    async def _generated(self, states: list[Json], count: int) -> Sequence[object]:
        """Return what the policy returns for each state; a failed call has failed generations."""
        policy = self.policy
        if isinstance(policy, BatchPolicyModel):
            returned = await self._call(policy.generate_batch, states, count, **self.generation)
            if isinstance(returned, _Raised):
                return [[returned] * count] * len(states)
            rows = as_list(returned)
            if rows is None or len(rows) != len(states):
                received = f"a {type(returned).__name__}" if rows is None else pluralize(len(rows), "group")
                raise ShapeError.one("generations", f"{pluralize(len(states), 'group')}, one for each state", received)
            return rows
        (state,) = states
        if isinstance(policy, PolicyModel) and getattr(policy, "accepts_n", True):
            returned = await self._call(policy.generate, state, count, **self.generation)
            return [[returned] * count if isinstance(returned, _Raised) else returned]
        if not isinstance(policy, PolicyModel):
            return [await gathered(self._call(policy, state, **self.generation) for _ in range(count))]
        alone: list[object] = []
        for row in await gathered(self._call(policy.generate, state, 1, **self.generation) for _ in range(count)):
            values = [row] if isinstance(row, _Raised) else as_list(row)
            if values is None or len(values) > 1:
                raise ShapeError.one("generations", "a list of 1 from each call, as accepts_n is False", f"{row!r:.80}")
            alone += values
        return [alone]

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
            try:
                rollouts.append(_rollout(name, index, value))
            except (TypeError, ValueError) as error:
                self.problems.append(ShapeProblem("completion", "a JSON value", str(error), f"{where}, index {index}"))
        ids = (value.prompt_token_ids for value in values or () if isinstance(value, Generation))
        group = replace(
            prompt,
            id=name,
            rollouts=tuple(rollouts),
            target_size=self.size,
            prompt_token_ids=next(filter(None, ids), prompt.prompt_token_ids),
        )
        self.problems.extend(problems_of_group(group, position, allow_nan=self.options.allow_nan))
        return group

    async def _scored(self, groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """Return the groups with rewards of one call; when the reward model fails, they stay ungraded."""
        graded = [(group.state, rollout) for group in groups for rollout in group.rollouts if rollout.status in GRADED]
        if self.problems or not graded:
            return list(groups)
        try:
            rewards = await self._rewards([state for state, _ in graded], [rollout.completion for _, rollout in graded])
        except ShapeError as error:
            if self.options.ragged == "strict":
                where = f"group {groups[0].id!r}" if len(groups) == 1 else pluralize(len(groups), "group")
                self.problems.extend(replace(problem, where=where) for problem in error.problems)
            rewards = [f"reward: {error}"] * len(graded)
        by_id = dict(zip((rollout.id for _, rollout in graded), rewards, strict=True))
        return [
            replace(group, rollouts=tuple(_rewarded(rollout, by_id.get(rollout.id)) for rollout in group.rollouts))
            for group in groups
        ]

    async def _rewards(self, states: list[Json], completions: list[Json]) -> list[RolloutReward | str]:
        """Return a reward for each completion, or the text of its error."""
        values: list[Any]
        if isinstance(self.reward, RewardModel):
            returned = await self._call(self.reward.score_batch, states, completions)
            values = [returned] * len(states)
            if not isinstance(returned, _Raised):
                values = flat_values("rewards", returned, len(states))
        else:
            values = await gathered(self._call(self.reward, *pair) for pair in zip(states, completions, strict=True))
        rewards = [caught(self._reward_of, value) for value in values]
        return [f"reward: {described(each)}" if isinstance(each, BaseException) else each for each in rewards]

    def _reward_of(self, value: object) -> RolloutReward:
        if isinstance(value, _Raised):
            raise RewardError(value.text)
        return reward_of(value, allow_nan=self.options.allow_nan)

    def _delivered(self, prompt: RolloutGroup, position: int, group: RolloutGroup) -> RolloutGroup:
        """Return a group by its own name, and hand it to the user."""
        group = group if prompt.id else with_content_id(group, position)
        if self.options.on_group is not None and not self.problems:
            self.options.on_group(group)
        return group

    async def _call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a user's function in a slot. Return ``_Raised`` for an error that fails this call only."""
        try:
            async with self.slots:
                if self.problems:  # the collection has failed: no more money for it
                    return _Raised("error", "not called: the collection has failed")
                return await self._within_limit(function, *args, **options)
        except Exception as error:
            # What the user's own code could not store is one of our fatal errors, but fails only its own call.
            if isinstance(error, _FATAL) and not isinstance(error, RecordRejected):
                raise
            return _Raised(status_of(type(error)), described(error, whole=True)[:500])

    async def _within_limit(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function within the time limit, on a thread unless it is a coroutine function."""
        try:
            async with asyncio.timeout(self.options.timeout_s) as limit:
                call = partial(function, *args, **options)
                return await contained(call() if is_async(function) else self._on_thread(call))
        except TimeoutError:
            if not limit.expired():
                raise
            raise ModelTimeout(f"no answer within {self.options.timeout_s:g} s") from None

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        returned = await in_thread(self.threads, call)
        return await returned if asyncio.iscoroutine(returned) or asyncio.isfuture(returned) else returned


def _rollout(group_id: str, index: int, value: object) -> Rollout:
    """Return what a policy gave as a rollout without a reward; None is a failure, never an answer to be scored."""
    if value is None:
        value = Generation(None, "error", error="the policy returned None in place of a completion")
    elif isinstance(value, _Raised):
        value = Generation(None, value.status, error=value.text)
    elif not isinstance(value, Generation):
        value = Generation(value)
    return Rollout(f"{group_id}/{index}", group_id, index, **{name: getattr(value, name) for name in _GENERATED})


def _rewarded(rollout: Rollout, reward: RolloutReward | str | None) -> Rollout:
    if isinstance(reward, str):
        return replace(rollout, error=reward)
    return rollout if reward is None else replace(rollout, reward=reward.reward, reward_parts=reward.parts)


def _losses(prompts: Sequence[RolloutGroup], groups: Sequence[RolloutGroup]) -> list[ShapeProblem]:
    """Return a problem for every group with missing rewards, with its first reason."""
    problems = []
    for position, (prompt, group) in enumerate(zip(prompts, groups, strict=True)):
        lost = next((rollout for rollout in group.rollouts if rollout.reward is None), None)
        if len(group.scored) < group.target_size:
            why = f"; rollout {lost.index}: {lost.error or f'{lost.status}, without a reward'}" if lost else ""
            where = f"group index {position}, id {prompt.id or f'g{position}'!r}{why}"
            problems.append(
                ShapeProblem("rewards", f"{group.target_size} for this state", str(len(group.scored)), where)
            )
    return problems
