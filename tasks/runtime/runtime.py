"""What does a group use while it runs? The seams of one process, gathered in one value that belongs to one event loop.

Building it from a context is ``tfgrpo.tasks.runtime.assembly``; keeping one per process is ``tfgrpo.tasks.runtime.host``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
Closer = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Models, actor, rewarders and records of one run in one process."""

    context: RunContext
    model: ChatModel
    """Answers for every role; the journal stands in front of it."""
    actor: Actor
    rewarders: tuple[WeightedRewarder, ...]
    pack: LoadedPack
    journal: Journal | None
    ledger: Ledger
    slots: asyncio.Semaphore
    """Bounds the actors in flight."""
    threads: RewarderThreads
    """For code that blocks: rewarders, synchronous tools and agents."""
    scrub: Scrub = replace_surrogates
    """Makes a text that foreign code wrote fit to be recorded or shown: without the API key."""
    telemetry: Telemetry = field(default_factory=lambda: Telemetry(TelemetryOptions()))
    clock: Clock = utc_now
    closers: Sequence[Closer] = field(default=())

    @property
    def max_words(self) -> int:
        """Longest lesson in words: the setting, lowered by the pack."""
        return min(self.context.settings.tfgrpo.experience_max_words, self.pack.manifest.max_words)

    @property
    def max_chars(self) -> int:
        """Longest lesson in characters."""
        return self.context.settings.tfgrpo.experience_max_chars

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run a blocking function. One that is given up on is abandoned: it holds up nobody."""
        future = self.threads.submit(without_stop_iteration(work))
        try:
            return await asyncio.wrap_future(future)
        finally:
            self.threads.abandon(future)

    async def aclose(self) -> None:
        """Close what was opened, newest first, all of it; then raise the first error that this brought."""
        error = await closed(self.closers)
        if error is not None:
            raise error


async def closed(closers: Sequence[Closer]) -> BaseException | None:
    """Close everything, newest first, whatever becomes of the others. The first error is returned."""
    first: BaseException | None = None
    for close in reversed(closers):
        try:
            await close()
        except BaseException as error:  # noqa: BLE001 - the others hold threads and files
            first = first or error
    return first
