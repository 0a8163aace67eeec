"""Resources that the steps of one process share: model, actor, rewarders, journal, ledger, threads.

Built from a context in ``tfgrpo.tasks.runtime.assembly``, kept by ``tfgrpo.tasks.runtime.host``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.scoring import WeightedRewarder
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.runs.journal import Journal
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.actors.base import Actor
from tfgrpo.tasks.models.base import ChatModel
from tfgrpo.tasks.runtime.containment import without_stop_iteration
from tfgrpo.tasks.runtime.context import RunContext
from tfgrpo.tasks.runtime.scrubbing import Scrub

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Runtime:
    """Models, actor, rewarders and records of one run in one process, for one event loop."""

    context: RunContext
    model: ChatModel
    """For every role, with the journal in front."""
    actor: Actor
    rewarders: tuple[WeightedRewarder, ...]
    pack: LoadedPack
    journal: Journal | None
    ledger: Ledger
    slots: asyncio.Semaphore
    """Bounds the actors in flight."""
    threads: RewarderThreads
    """For blocking code: rewarders, synchronous tools and agents."""
    scrub: Scrub = replace_surrogates
    """Removes the API key from text of foreign code, before it is recorded or shown."""
    telemetry: Telemetry = field(default_factory=lambda: Telemetry(TelemetryOptions()))
    clock: Clock = utc_now
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def max_words(self) -> int:
        """Longest lesson in words: the setting, lowered by the pack."""
        return min(self.context.settings.tfgrpo.experience_max_words, self.pack.manifest.max_words)

    @property
    def max_chars(self) -> int:
        """Longest lesson in characters."""
        return self.context.settings.tfgrpo.experience_max_chars

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run a blocking function in a thread, which is abandoned when this is cancelled."""
        future = self.threads.submit(without_stop_iteration(work))
        try:
            return await asyncio.wrap_future(future)
        finally:
            self.threads.abandon(future)

    async def aclose(self) -> None:
        """Close all resources, newest first, despite errors; the last error is raised, after the others in its context."""
        await self.resources.aclose()
