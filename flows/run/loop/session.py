"""One open run: the frozen record of its parts, and those that change: learning state, books and stopwatch."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from filelock import BaseFileLock

from tfgrpo.flows.console.figures import Losses
from tfgrpo.flows.console.observer import EpochEnd, Observer
from tfgrpo.flows.run.loop.records import RunFiles
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.plan.sampling import Cohort, Difficulty
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.outcomes import Refused, scored_rewards
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.evaluation import PairedEvidence
from tfgrpo.tasks.gate import GateDecision
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Clocks and counter at the start of the run, to measure the time and peak memory of the flow process."""

    wall_s: float
    cpu_s: float
    calls: int

    @classmethod
    def start(cls, calls: int) -> Stopwatch:
        """Start to measure; ``calls`` is the current count of the ledger."""
        return cls(time.perf_counter(), time.process_time(), calls)

    def read(self, calls: int) -> dict[str, float]:
        """Return the timing of this part of the run for manifest and ``--json``; ``calls`` is the count of the ledger.

        CPU seconds are those of all threads of this process; workers of Dask or Ray count their own.
        """
        return {
            "wall_s": time.perf_counter() - self.wall_s,
            "cpu_s": time.process_time() - self.cpu_s,
            "peak_memory_bytes": _peak_memory_bytes(),
            "calls": calls - self.calls,
        }


def _peak_memory_bytes() -> int:
    # Darwin counts in bytes, every other system in kibibytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(slots=True)
class LearningState:
    """Mutable learning state of one run: the candidate library, rejected proposals and lost learning steps."""

    library: Library
    """The candidate library."""
    remembered: tuple[str, ...] = ()
    """Texts of rejected proposals, shown to the curator."""
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """Every proposal that curation refused, with the reason."""
    stored: int = 0
    """Records stored by this run."""
    losses: Losses = field(default_factory=Losses)
    """Reflections and curations of the current epoch."""


class Books:
    """Manifest, line files and totals of one run. The flow process is the only writer of these files."""

    def __init__(self, manifest: ManifestFile, files: RunFiles) -> None:
        self.manifest = manifest
        self.files = files
        self.epochs: list[EpochEnd] = []
        self.failed_epochs: dict[int, str] = {}
        """Reason by epoch."""
        self.rollouts = 0
        """Completed rollouts, including those of an abandoned batch."""
        self.lost_rollouts = 0
        """Completed rollouts without a reward."""
        self.gate: tuple[PairedEvidence, GateDecision] | None = None
        self._cohorts: dict[str, Any] = {}

    def cohort(self, epoch: int, cohort: Cohort) -> None:
        """Write the items of an epoch into the manifest."""
        items = [item.id for item in cohort.items]
        self._cohorts[str(epoch)] = {"items": items, "sampling": dict(cohort.metadata)}
        self.manifest.update(cohorts=self._cohorts)

    def count(self, result: GroupResult) -> None:
        """Count the rollouts of a completed group."""
        made = [rollout.outcome for rollout in result.rollouts if not isinstance(rollout.outcome, Refused)]
        self.rollouts += len(made)
        self.lost_rollouts += len(made) - len(scored_rewards(made))

    def epoch_failed(self, epoch: int, reason: str) -> None:
        """Record that the evidence of an epoch is void because a rewarder timed out (requirement 63)."""
        self.failed_epochs[epoch] = reason
        self.files.failure(epoch, reason)
        self.manifest.warn(f"epoch {epoch} failed, its evidence is void: {reason}")

    def epoch_ended(self, end: EpochEnd, learning: LearningState) -> None:
        """Write the summary of an epoch into metrics and manifest, with warnings for its losses."""
        self.epochs.append(end)
        self.files.close_epoch(self.epochs)
        self.manifest.update(tfgrpo=self.tfgrpo_block(learning))
        if end.lost:
            lost = f"{end.lost} of {pluralize(end.lost + end.scored, 'rollout')} brought no reward and count nowhere"
            self.manifest.warn(f"epoch {end.epoch}: {lost}; most often {end.lost_mostly}")
        if end.learning_loss:
            self.manifest.warn(f"epoch {end.epoch}: {end.learning_loss}")

    def tfgrpo_block(self, learning: LearningState) -> dict[str, Any]:
        """Return the ``tfgrpo`` block of the manifest (requirement 68)."""
        return {
            "epochs": [{**asdict(end), **self.files.epoch_use(end.epoch)} for end in self.epochs],
            "failed_epochs": {str(epoch): reason for epoch, reason in self.failed_epochs.items()},
            "experiences_written": learning.stored,
            "library": [entry.experience_id for entry in learning.library.entries],
            "reward_scores": self.files.reward_scores(),
            "calibration": self.files.calibration(),
            "per_tool_metrics": self.files.per_tool(),
            "rejected": [list(pair) for pair in learning.rejected],
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
