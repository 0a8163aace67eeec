"""Collect groups from a policy and a reward model: checked once, called often, without state between calls.

Any number of calls may run at once; ``collect`` has what one call does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tfgrpo.stores.batch.batch import Exclusion, ExperienceBatch, RaggedPolicy
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import Json
from tfgrpo.stores.numeric import is_count
from tfgrpo.tasks.collector.collect import Collection
from tfgrpo.tasks.collector.options import CollectorOptions
from tfgrpo.tasks.collector.protocols import Prompt, policy_of, prompts_of, reward_of

_LOG: Final = logging.getLogger("tfgrpo.collector")


@dataclass(frozen=True, slots=True)
class Collected:
    """A batch, and the groups and rollouts that were dropped."""

    batch: ExperienceBatch
    dropped: tuple[Exclusion, ...] = ()


class ExperienceCollector:
    """Collects groups of ``group_size`` rollouts.

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
        collection = Collection(self._policy, self._reward, self.group_size, self._options, generation)
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
