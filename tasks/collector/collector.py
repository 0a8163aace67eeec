"""Collect groups from a policy and a reward model: generate, check, score and deliver them one by one.

What a policy returned is checked before the reward model is called. A failed completion is a rollout with a status,
never a number, and its siblings continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.threads import RewarderThreads, is_async
from tfgrpo.stores.batch.batch import Exclusion, ExperienceBatch, RaggedPolicy
from tfgrpo.stores.batch.shapes import GRADED, Rollout, RolloutGroup, problems_of_group, with_content_id
from tfgrpo.stores.errors import ConfigError, ModelTimeout, RecordRejected, ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import Json, frozen
from tfgrpo.stores.numeric import as_list, is_count, is_number
from tfgrpo.stores.outcomes import RolloutStatus, status_of
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.collector.protocols import (
    BatchPolicyModel,
    Generation,
    OneByOne,
    PolicyModel,
    Prompt,
    RewardFunction,
    RewardModel,
    RolloutReward,
    checked_rewards,
    generation_of,
    policy_of,
    prompts_of,
    reward_of,
    rewards_of,
)
from tfgrpo.tasks.runtime.containment import contained, gathered, in_thread
from tfgrpo.tasks.runtime.runtime import FATAL

GroupSink: TypeAlias = Callable[[RolloutGroup], None]
_FATAL: Final = (ShapeError, ConfigError, *FATAL)
"""What ends the whole collection: bad input, and failures that every further call would share."""
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
        problems = []
        if self.ragged not in get_args(RaggedPolicy):
            problems.append(ShapeProblem("ragged", " | ".join(get_args(RaggedPolicy)), repr(self.ragged)))
        for name, least in (("min_group_size", 1), ("rounds", 0), ("concurrency", 1)):
            value = getattr(self, name)
            if not is_count(value) or value < least:
                problems.append(ShapeProblem(name, f"a whole number of at least {least}", repr(value)))
        if self.fuse_rewards and self.ragged == "resample":
            problems.append(ShapeProblem("fuse_rewards", "False with ragged='resample', which scores by group", "True"))
        if self.timeout_s is not None and not (is_number(self.timeout_s, allow_nan=True) and self.timeout_s > 0):
            problems.append(ShapeProblem("timeout_s", "more than 0, or None", repr(self.timeout_s)))
        sink: object = self.on_group
        if sink is not None and not callable(sink):
            problems.append(ShapeProblem("on_group", "a function (group), or None", repr(sink)))
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
        self, policy_model: object, reward_model: object, group_size: int = 64, options: CollectorOptions | None = None
    ) -> None:
        self._options = CollectorOptions() if options is None else options
        problems = self._options.problems()
        if not is_count(group_size) or group_size < 1:
            problems.insert(0, ShapeProblem("group_size", "a whole number of at least 1", repr(group_size)))
        policy = policy_of(policy_model, problems)
        reward = reward_of(reward_model, problems)
        if problems or policy is None or reward is None:
            raise ShapeError(problems)
        self._policy = policy
        self._reward = reward
        self.group_size = group_size

    async def collect(self, states: Sequence[Prompt | Json], **generation: Any) -> Collected:
        """Return groups for all states, in their order. ``generation`` goes to the policy only.

        Raise ``ShapeError`` with every problem of the collection, and errors that end every further call (a refused
        key).
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

    def collect_experiences(self, states: Sequence[Prompt | Json], **generation: Any) -> ExperienceBatch:
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

    def generations(self, count: int) -> list[Generation]:
        """Return the failed generations of a call for ``count``."""
        return [Generation(None, self.status, error=self.text)] * count


@dataclass(slots=True)
class _Collection:
    """One call of ``collect``, with all its mutable state."""

    policy: PolicyModel | BatchPolicyModel
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

    async def run(self, prompts: Sequence[Prompt]) -> list[RolloutGroup]:
        """Return all groups, scored. Raise ``ShapeError`` when any of them is invalid."""
        rows: list[list[Generation] | None] = [None] * len(prompts)
        if isinstance(self.policy, BatchPolicyModel):
            returned = await self._rows(self.policy, [prompt.state for prompt in prompts], self.size)
            every = range(self.size)
            rows = [self._row(position, prompt, returned[position], every) for position, prompt in enumerate(prompts)]
        work = [self._group(position, prompt, rows[position]) for position, prompt in enumerate(prompts)]
        groups = await gathered(work)
        if self.options.fuse_rewards and not self.problems:
            scored = await self._scored(groups)
            groups = [self._delivered(position, prompts[position], group) for position, group in enumerate(scored)]
        if not self.problems and self.options.ragged == "strict":
            self.problems.extend(_losses(prompts, groups))
        if self.problems:
            raise ShapeError(self.problems)
        return groups

    async def _group(self, position: int, prompt: Prompt, generated: list[Generation] | None) -> RolloutGroup:
        every = range(self.size)
        generations = generated if generated is not None else await self._generate(position, prompt, every)
        group = self._checked(position, prompt, every, generations)
        if self.options.fuse_rewards or self.problems:
            return group
        (group,) = await self._scored([group])
        rounds = self.options.rounds if self.options.ragged == "resample" else 0
        for _ in range(rounds):
            if len(group.scored) == self.size or self.problems:
                break
            group = await self._refilled(position, prompt, group)
        return self._delivered(position, prompt, group)

    async def _refilled(self, position: int, prompt: Prompt, group: RolloutGroup) -> RolloutGroup:
        """Request the missing rollouts again and replace the lost ones, which have no completion to keep."""
        taken = {rollout.index for rollout in group.scored}
        free = [index for index in range(self.size) if index not in taken]
        fresh = self._checked(position, prompt, free, await self._generate(position, prompt, free))
        (scored,) = await self._scored([fresh])
        both = sorted((*group.scored, *scored.rollouts), key=lambda rollout: rollout.index)
        return replace(group, rollouts=tuple(both))

    # --- generations

    async def _rows(self, policy: BatchPolicyModel, states: list[Json], count: int) -> list[Any]:
        returned = await self._call(policy.generate_batch, states, count, **self.generation)
        if isinstance(returned, _Raised):
            return [returned.generations(count) for _ in states]
        rows = as_list(returned)
        if rows is None or len(rows) != len(states):
            received = f"a {type(returned).__name__}" if rows is None else pluralize(len(rows), "group")
            raise ShapeError.one("generations", f"{pluralize(len(states), 'group')}, one for each state", received)
        return rows

    async def _generate(self, position: int, prompt: Prompt, indexes: Sequence[int]) -> list[Generation]:
        """Generate the rollouts with these indexes."""
        policy = self.policy
        if isinstance(policy, BatchPolicyModel):
            (row,) = await self._rows(policy, [prompt.state], len(indexes))
            return self._row(position, prompt, row, indexes)
        if getattr(policy, "accepts_n", True):
            return await self._request(policy, position, prompt, indexes)
        rows = await gathered(self._request(policy, position, prompt, [index]) for index in indexes)
        return [generation for row in rows for generation in row]

    async def _request(
        self, policy: PolicyModel, position: int, prompt: Prompt, indexes: Sequence[int]
    ) -> list[Generation]:
        returned = await self._call(policy.generate, prompt.state, len(indexes), **self.generation)
        if isinstance(returned, _Raised):
            return returned.generations(len(indexes))
        return self._row(position, prompt, [returned] if isinstance(self.policy, OneByOne) else returned, indexes)

    def _row(self, position: int, prompt: Prompt, returned: object, indexes: Sequence[int]) -> list[Generation]:
        """Return the generations of one state; too many, or too few under ``strict``, are a problem."""
        where, count = f"group index {position}, id {prompt.name(position)!r}", len(indexes)
        values = as_list(returned)
        if values is None:
            received = "a text" if isinstance(returned, str) else f"a {type(returned).__name__}"
            self.problems.append(ShapeProblem("generations", f"a list of {count}", received, where))
            return []
        if len(values) > count or (len(values) < count and self.options.ragged == "strict"):
            self.problems.append(ShapeProblem("generations", f"{count} for this state", str(len(values)), where))
            return []
        generations = [generation_of(value) for value in values]
        for index, generation in zip(indexes, generations, strict=False):
            try:
                frozen(generation.completion)
            except (TypeError, ValueError) as error:
                self.problems.append(ShapeProblem("completion", "a JSON value", str(error), f"{where}, index {index}"))
                return []
        return generations

    def _checked(
        self, position: int, prompt: Prompt, indexes: Sequence[int], generations: Sequence[Generation]
    ) -> RolloutGroup:
        """Return the group of these generations; its shapes are checked before the reward model is called."""
        group = prompt.group(position, self.size, dict(zip(indexes, generations, strict=False)))
        self.problems.extend(problems_of_group(group, position, allow_nan=self.options.allow_nan))
        return group

    # --- rewards

    async def _scored(self, groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """Return the groups with rewards of one call; when the reward model fails, they stay ungraded."""
        graded = [(group.state, rollout) for group in groups for rollout in group.rollouts if rollout.status in GRADED]
        if self.problems or not graded:
            return list(groups)
        names = [rollout.id for _, rollout in graded]
        try:
            rewards = await self._rewards([state for state, _ in graded], [rollout.completion for _, rollout in graded])
        except ShapeError as error:
            if self.options.ragged != "strict":
                return [_with_rewards(group, dict.fromkeys(names, f"reward: {error}")) for group in groups]
            where = f"group {groups[0].id!r}" if len(groups) == 1 else pluralize(len(groups), "group")
            self.problems.extend(
                replace(problem, where="; ".join(filter(None, (problem.where, where)))) for problem in error.problems
            )
            return list(groups)
        return [_with_rewards(group, dict(zip(names, rewards, strict=True))) for group in groups]

    async def _rewards(self, states: list[Json], completions: list[Json]) -> list[RolloutReward | str]:
        """Return a reward for each completion, or the text of its error."""
        if isinstance(self.reward, RewardModel):
            returned = await self._call(self.reward.score_batch, states, completions)
            if isinstance(returned, _Raised):
                return [f"reward: {returned.text}"] * len(states)
            return rewards_of(returned, len(states), allow_nan=self.options.allow_nan)
        return await gathered(self._reward(self.reward, *pair) for pair in zip(states, completions, strict=True))

    async def _reward(self, function: RewardFunction, state: Json, completion: Json) -> RolloutReward | str:
        returned = await self._call(function, state, completion)
        if isinstance(returned, _Raised):
            return f"reward: {returned.text}"
        return checked_rewards([returned], allow_nan=self.options.allow_nan)[0]

    def _delivered(self, position: int, prompt: Prompt, group: RolloutGroup) -> RolloutGroup:
        if not prompt.id:
            group = with_content_id(group, position)
        if self.options.on_group is not None and not self.problems:
            self.options.on_group(group)
        return group

    # --- calls

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


def _with_rewards(group: RolloutGroup, rewards: Mapping[str, RolloutReward | str]) -> RolloutGroup:
    return replace(group, rollouts=tuple(_rewarded(rollout, rewards.get(rollout.id)) for rollout in group.rollouts))


def _rewarded(rollout: Rollout, reward: RolloutReward | str | None) -> Rollout:
    if reward is None:
        return rollout
    if isinstance(reward, str):
        return replace(rollout, error=reward)
    return replace(rollout, reward=reward.reward, reward_parts=reward.parts)


def _losses(prompts: Sequence[Prompt], groups: Sequence[RolloutGroup]) -> list[ShapeProblem]:
    """Return a problem for every group with missing rewards, with its first reason."""
    problems = []
    for position, group in enumerate(groups):
        if len(group.scored) == group.target_size:
            continue
        lost = next((rollout for rollout in group.rollouts if rollout.reward is None), None)
        why = "" if lost is None else f"; rollout {lost.index}: {lost.error or f'{lost.status}, without a reward'}"
        where = f"group index {position}, id {prompts[position].name(position)!r}{why}"
        problems.append(ShapeProblem("rewards", f"{group.target_size} for this state", str(len(group.scored)), where))
    return problems
