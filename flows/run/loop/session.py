"""One open run as a frozen record: its plan, files, runtime, books, announcer and learning state."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from filelock import BaseFileLock

from tfgrpo.flows.run.loop.announcer import Announcer
from tfgrpo.flows.run.loop.books import Books, LearningState
from tfgrpo.flows.run.timing import Stopwatch
from tfgrpo.pipelines.plan.curriculum import Difficulty
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

RunGroups: TypeAlias = Callable[[RunContext, Sequence[GroupSpec]], Generator[GroupResult, None, None]]
"""Run the groups of a batch and yield each as it completes; closing the generator abandons the others."""


@dataclass(frozen=True, slots=True)
class Session:
    """One open run, made by ``tfgrpo.flows.run.open``."""

    plan: Plan
    run_id: str
    task: TaskPaths
    paths: RunPaths
    context: RunContext
    runtime: Runtime
    store: ExperienceStore
    books: Books
    announcer: Announcer
    learning: LearningState
    champion: Library
    """The library in force when the run started."""
    fan_out: RunGroups
    clock: Clock
    lock: BaseFileLock
    """Held while the run is open, so that no other process writes its files."""
    stopwatch: Stopwatch
    difficulty: Difficulty | None = None
    """Item statistics from earlier runs; None without a curriculum."""
    replay_of: TaskPaths | None = None
    """Task of the replayed run; None for an original run."""
    voided: Mapping[str, str] = field(default_factory=dict)
    """Groups whose recorded evidence is void, with the reason; see ``records.voided_groups``."""

    @property
    def settings(self) -> Settings:
        """Settings of the run."""
        return self.plan.settings
