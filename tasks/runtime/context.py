"""Context of a run: what a process needs to work for it."""

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
