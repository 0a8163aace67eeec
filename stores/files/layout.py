"""Paths of all files under ``out/``, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfgrpo.stores.identifiers import check_identifier


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """``out/<task_id>/``: what all runs of a task share."""

    root: Path

    @classmethod
    def of(cls, out: str | Path, task_id: str) -> TaskPaths:
        """Paths of a task. Raises ``ValueError`` when the id could leave ``out``."""
        return cls(Path(out) / check_identifier(task_id))

    @property
    def experiences(self) -> Path:
        """The store."""
        return self.root / "experiences.jsonl"

    @property
    def experiences_index(self) -> Path:
        """A view of the store that can always be made anew."""
        return self.root / "experiences.index"

    @property
    def batches(self) -> Path:
        """Which batch of lessons came from which run, append-only."""
        return self.root / "batches.jsonl"

    @property
    def promotions(self) -> Path:
        """Decisions of the gate, append-only."""
        return self.root / "promotions.jsonl"

    @property
    def state(self) -> Path:
        """A view: champion library and last run."""
        return self.root / "state.json"

    @property
    def selections(self) -> Path:
        """One line per best-of-K round that ``tfgrpo select`` made of the task, append-only."""
        return self.root / "selections.jsonl"

    @property
    def patterns(self) -> Path:
        """What those rounds showed of structures."""
        return self.root / "patterns.jsonl"

    def ledger(self, *, simulated: bool) -> Path:
        """What all runs with ``budget.task_max_usd`` have spent together; invented money is kept apart."""
        return self.root / ("ledger-simulated.json" if simulated else "ledger.json")

    def own_files(self) -> tuple[Path, ...]:
        """What a task records outside the directories of its runs."""
        return (
            self.experiences,
            self.experiences_index,
            self.batches,
            self.promotions,
            self.state,
            self.selections,
            self.patterns,
        )

    def export(self, name: str) -> Path:
        """A file that ``tfgrpo export`` writes."""
        return self.root / "exports" / name

    def imported(self, import_id: str) -> Path:
        """What one import of lessons took in, from where, and who had read it. Raises ``ValueError`` for an unsafe id."""
        return self.root / "imports" / f"{check_identifier(import_id)}.json"

    def run(self, run_id: str) -> RunPaths:
        """Paths of one run. Raises ``ValueError`` when the id could leave the task."""
        return RunPaths(self.root / "runs" / check_identifier(run_id))

    def replay(self, run_id: str) -> TaskPaths:
        """A task directory of its own for replaying a run."""
        return TaskPaths(self.root / "replays" / check_identifier(run_id))


@dataclass(frozen=True, slots=True)
class RunPaths:
    """``out/<task_id>/runs/<run_id>/``: what one run wrote."""

    root: Path

    @property
    def manifest(self) -> Path:
        """Status, settings and results."""
        return self.root / "manifest.json"

    @property
    def journal(self) -> Path:
        """Answered calls."""
        return self.root / "journal.jsonl"

    @property
    def ledger(self) -> Path:
        """Money, tokens and calls so far, shared by all processes of the run."""
        return self.root / "ledger.json"

    @property
    def rollouts(self) -> Path:
        """One line per rollout."""
        return self.root / "rollouts.jsonl"

    @property
    def groups(self) -> Path:
        """One line per group: signal, spread, proposals and what became of them."""
        return self.root / "groups.jsonl"

    @property
    def items(self) -> Path:
        """One line per item that was attempted: what was asked, and the reference answer."""
        return self.root / "items.jsonl"

    @property
    def prompts(self) -> Path:
        """One line per system text that was sent, by digest."""
        return self.root / "prompts.jsonl"

    @property
    def metrics(self) -> Path:
        """One line per (run, epoch, group)."""
        return self.root / "metrics.jsonl"

    @property
    def per_epoch(self) -> Path:
        """Sums, means and percentiles by epoch."""
        return self.root / "per-epoch.json"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.root / "report.html"
