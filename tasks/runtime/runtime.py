"""Context of a run, and the resources that its steps share in one process: model, actor, rewarders, journal, ledger, threads.

The resources are built from the context in ``tfgrpo.tasks.runtime.assembly``, kept by ``tfgrpo.tasks.runtime.host``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.scoring import WeightedRewarder
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.runs.journal import Journal
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.actors.base import Actor
from tfgrpo.tasks.models.base import ChatModel
from tfgrpo.tasks.runtime.containment import without_stop_iteration
from tfgrpo.tasks.runtime.scrubbing import Scrub

SecretReader: TypeAlias = Callable[[ModelSettings], str | None]
"""Returns the API key in the process that uses it: a function of an importable module, so that it pickles by name."""

LEARNING_RULES: Final = 3
"""Version of the learning rules. A resumed or replayed run keeps the version of its start, on which its journalled calls
depend. Under 1, the version of runs before this number, a confirmed proposal counts as rejected, a lesson may be reversed
freely, a cut-off answer is requested again, and equal libraries are swept. Under 1
and 2, the signals of groups assume rewards of 0 to 1."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run as each of its processes needs it. Picklable, and without the API key."""

    settings: Settings
    run_dir: Path
    run_id: str
    pack_id: str
    packs_root: Path | None
    """None: the built-in packs."""
    read_secret: SecretReader
    rollout_model: str
    """Model of the rollouts, as requests name it."""
    learning_model: str
    """Model of reflection and curation, as requests name it."""
    base_url: str | None = None
    """None: the simulated model, in process."""
    replay: bool = False
    """No request is sent: a call that is not in the journal fails."""
    replay_from: Path | None = None
    """Journal to replay when it is not the run's own."""
    ledger_path: Path | None = None
    """File through which several processes share one budget; None when the run has one process."""
    rules: int = LEARNING_RULES
    task_ledger_path: Path | None = None
    """File through which all runs of the task share ``budget.task_max_usd``; None without that cap."""
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions)
    carrier: Mapping[str, str] = field(default_factory=dict)
    """Trace context of the run, for spans of other processes."""

    @property
    def simulated(self) -> bool:
        """Whether the model is the embedded simulated one."""
        return self.base_url is None

    @property
    def paths(self) -> RunPaths:
        """Files of the run."""
        return RunPaths(self.run_dir)


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
