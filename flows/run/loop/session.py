"""One open run: the frozen record of its parts."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from filelock import BaseFileLock

from tfgrpo.flows.console.observer import Observer
from tfgrpo.flows.orchestration.request import Measuring
from tfgrpo.flows.run.loop.books import Books, LearningState
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.experiences.decisions import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.ledger import Ledger
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec


def stopwatch(ledger: Ledger) -> Callable[[], dict[str, float]]:
    """Return a function that measures the flow process from now on: time, calls, peak memory, for manifest and ``--json``.

    CPU seconds are those of all threads of this process; workers of Dask or Ray count their own.
    """
    wall_s, cpu_s, calls = time.perf_counter(), time.process_time(), ledger.totals().calls
    # Darwin counts in bytes, every other system in kibibytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return lambda: {
        "wall_s": time.perf_counter() - wall_s,
        "cpu_s": time.process_time() - cpu_s,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "calls": ledger.totals().calls - calls,
    }


RunGroups: TypeAlias = Callable[[RunContext, Sequence[GroupSpec]], Generator[GroupResult, None, None]]
"""Run the groups of a batch and yield each as it completes; closing the generator abandons the others."""


@dataclass(frozen=True, slots=True)
class Session:
    """One open run, made by ``tfgrpo.flows.run.open``."""

    plan: Plan
    run_id: str
    task: TaskPaths
    runtime: Runtime
    store: ExperienceStore
    books: Books
    observer: Observer
    learning: LearningState
    in_force: Library
    """The library in force when the run started."""
    conditions: str
    """Digest of model, actor, pack and rewarders, under which rows are measured."""
    measures: Measuring | None
    """What is measured in place of learning; None in a run that learns."""
    fan_out: RunGroups
    clock: Clock
    lock: BaseFileLock
    """Held while the run is open, so that no other process writes its files."""
    timing: Callable[[], dict[str, float]]
    """Seconds of this part of the run, so far."""
    waits: bool = False
    """Whether an endpoint did not answer when the run was prepared."""
    finished_before: bool = False
    """Whether the run had finished when it was resumed."""
    replay_of: TaskPaths | None = None
    """Task of the replayed run; None for an original run."""
    failures: Mapping[str, Mapping[str, Mapping[str, Abstained]]] = field(default_factory=dict)
    """Recorded verdicts of rewarders that failed, by group; see ``books.recorded_failures``."""

    @property
    def telemetry(self) -> Telemetry:
        """Spans and metrics of the run."""
        return self.runtime.telemetry

    @property
    def domain(self) -> str:
        """Domain of the pack, as the metrics name it."""
        return self.plan.pack.manifest.domain

    @property
    def context(self) -> RunContext:
        """The run as each of its processes needs it."""
        return self.runtime.context

    @property
    def paths(self) -> RunPaths:
        """Files of the run."""
        return self.context.paths

    @property
    def settings(self) -> Settings:
        """Settings of the run."""
        return self.plan.settings

    @property
    def night(self) -> int:
        """Nights of the task that had begun before this run."""
        return self.settings.tfgrpo.night or 0
