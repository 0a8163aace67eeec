"""What does a process need to know to work for a run? A small picklable value; the API key is never in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.telemetry.setup import TelemetryOptions

SecretReader: TypeAlias = Callable[[ModelSettings], str | None]
"""Finds the API key in the process that needs it: a function of an importable module, so that it pickles by name."""

LEARNING_RULES: Final = 2
"""Version of the rules of learning. A resumed or replayed run keeps those it began with, because its journal holds the
calls that they led to. Under 1, which runs before this number had, a confirmed proposal counts as turned down, a lesson
may change its direction freely, a cut-off answer is asked for again, and equal libraries are swept."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run as every process of it sees it."""

    settings: Settings
    run_dir: Path
    run_id: str
    pack_id: str
    packs_root: Path | None
    """None: the packs that ship."""
    read_secret: SecretReader
    rollout_model: str
    """Name on the wire of the model that attempts."""
    learning_model: str
    """Name on the wire of the model that reflects and curates."""
    base_url: str | None = None
    """None: the simulated model, in process."""
    replay: bool = False
    """Nothing is sent: what the journal does not hold cannot be had."""
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
