"""Paths of all files under ``out/``, in one place; ``docs/files.md`` says what is in each."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.stores.text import check_identifier


def display_path(path: Path) -> str:
    """Return a path as people see it: relative, if it is in the working directory."""
    with suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


class _File:
    """A file of a directory: the attribute is its path."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, directory: RunPaths | TaskPaths, owner: type[object] | None = None) -> Path:
        return directory.root / self.name


@dataclass(frozen=True, slots=True)
class RunPaths:
    """``out/<task_id>/runs/<run_id>/``: the files of one run."""

    root: Path

    manifest = _File("manifest.json")
    journal = _File("journal.jsonl")
    ledger = _File("ledger.jsonl")
    """Money, tokens and calls so far, shared by all processes of the run."""
    rollouts = _File("rollouts.jsonl")
    groups = _File("groups.jsonl")
    items = _File("items.jsonl")
    prompts = _File("prompts.jsonl")
    metrics = _File("metrics.jsonl")
    per_epoch = _File("per-epoch.json")
    report = _File("report.html")


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """``out/<task_id>/``: the files that all runs of a task share."""

    root: Path

    experiences = _File("experiences.jsonl")
    batches = _File("batches.jsonl")
    promotions = _File("promotions.jsonl")
    credit = _File("credit.jsonl")
    outcomes = _File("outcomes.jsonl")
    """What conversations in production were worth to their clients, append-only."""
    outcome_key = _File("outcome-key.jsonl")
    """The secret by which gateways of the task know the ids of their conversations."""
    tests = _File("tests.jsonl")
    """What each ``tfgrpo test`` found on the sealed items, append-only."""
    state = _File("state.json")
    """A view: what is in force, and the last run."""
    selections = _File("selections.jsonl")
    patterns = _File("patterns.jsonl")
    """Structures that those rounds tried."""

    @classmethod
    def of(cls, out: str | os.PathLike[str], task_id: str) -> TaskPaths:
        """Return the paths of a task. Raises ``ValueError`` when the id could leave ``out``."""
        return cls(Path(out) / check_identifier(task_id))

    def ledger(self, *, simulated: bool) -> Path:
        """Return the ledger of all runs with ``budget.task_max_usd``; simulated money has a file apart."""
        return self.root / ("ledger-simulated.jsonl" if simulated else "ledger.jsonl")

    def own_files(self) -> tuple[Path, ...]:
        """Return the files of a task outside the directories of its runs."""
        return tuple(self.root / file.name for file in vars(TaskPaths).values() if isinstance(file, _File))

    def export(self, name: str) -> Path:
        """Return the path of a file that ``tfgrpo export`` writes."""
        return self.root / "exports" / name

    def dataset(self, name: str) -> Path:
        """Items that a Python caller passed as data."""
        return self.root / "items" / name

    def run(self, run_id: str) -> RunPaths:
        """Return the paths of one run. Raises ``ValueError`` when the id could leave the task."""
        return RunPaths(self.root / "runs" / check_identifier(run_id))

    def selection(self, selection_id: str) -> RunPaths:
        """Return the directory of a selection that is not over: its journal and its ledger."""
        return RunPaths(self.root / check_identifier(selection_id))

    def replay(self, run_id: str) -> TaskPaths:
        """Return the separate task directory for replaying a run."""
        return TaskPaths(self.root / "replays" / check_identifier(run_id))

    def original(self) -> TaskPaths:
        """Return the task of the run that this one replays; of any other task itself."""
        source = TaskPaths(self.root.parent.parent)
        return source if self.root.parent.name == "replays" and (source.root / "runs").is_dir() else self
