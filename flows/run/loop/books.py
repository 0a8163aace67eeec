"""The books of one run (manifest, line files and the totals that the manifest shows), and what it has learned so far.

The flow process is the only writer of these files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tfgrpo.flows.console.figures import Losses
from tfgrpo.flows.console.observer import EpochEnd
from tfgrpo.flows.run.loop.records import RunFiles
from tfgrpo.pipelines.plan.sampling import Cohort
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.outcomes import Refused, scored_rewards
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.evaluation import PairedEvidence
from tfgrpo.tasks.gate import GateDecision
from tfgrpo.tasks.shapes import GroupResult


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
    """Manifest, line files and totals of one run."""

    def __init__(self, manifest: ManifestFile, files: RunFiles, group_size: int) -> None:
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
        self._group_size = group_size
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
            "epochs": [self._epoch_row(end) for end in self.epochs],
            "failed_epochs": {str(epoch): reason for epoch, reason in self.failed_epochs.items()},
            "experiences_written": learning.stored,
            "library": [entry.experience_id for entry in learning.library.entries],
            "reward_scores": self.files.reward_scores(),
            "calibration": self.files.calibration(),
            "per_tool_metrics": self.files.per_tool(),
            "rejected": [list(pair) for pair in learning.rejected],
        }

    def _epoch_row(self, end: EpochEnd) -> dict[str, Any]:
        # The specification's own names for two of the fields come on top.
        literal = {"tfgrpo_epoch": end.epoch, "group_size": self._group_size, **self.files.epoch_use(end.epoch)}
        return {**asdict(end), **literal}
