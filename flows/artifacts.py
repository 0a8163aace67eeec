"""What does Prefect's UI show of a run? Progress, the per-epoch table, the lessons and the gate, as artifacts.

Each artifact is one API call that takes as long as the server likes, so they are written in a thread of their own, in
order, per tenth of an epoch, per epoch and per run. One that cannot be written is logged, and the run goes on: the files
under ``out`` are the record.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from flows.console import visible
from flows.observer import EPOCH_COLUMNS, EPOCH_FIELDS, EpochEnd, EpochStart
from pipelines.plan import Plan
from stores.ledger_state import Totals
from stores.models import ExperienceRecord
from tasks.gate import GateDecision
from tasks.shapes import GroupResult

_STEPS = 10
_PATIENCE_S = 10.0
_log = logging.getLogger("tfgrpo.artifacts")


class PrefectArtifacts:
    """An observer that writes artifacts of the current flow run."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        """``patience_s``: how long the end of the flow waits for a slow server."""
        self._patience_s = patience_s
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._given_up = threading.Event()
        self._complaint = logging.WARNING
        self._progress: UUID | None = None
        """Bar of the current epoch; known to the writer's thread only."""
        self._start: EpochStart | None = None
        self._groups = 0
        self._epochs: list[EpochEnd] = []
        self._lessons: list[ExperienceRecord] = []
        self._simulated = ""

    def run_started(self, plan: Plan, run_id: str, warnings: Sequence[str]) -> None:  # noqa: ARG002 - the protocol's signature
        """Remember whether the figures are simulated."""
        self._simulated = "SIMULATED. " if plan.simulated else ""

    def epoch_started(self, start: EpochStart) -> None:
        """Open a progress bar."""
        self._start, self._groups = start, 0
        description = f"{self._simulated}Epoch {start.epoch} of {start.epochs}, {start.phase}"

        def create() -> None:
            self._progress = None
            created = create_progress_artifact(0.0, key=f"epoch-{start.epoch}-progress", description=description)
            self._progress = created if isinstance(created, UUID) else None

        self._write(create)

    def group_done(self, result: GroupResult, totals: Totals) -> None:  # noqa: ARG002 - the protocol's signature
        """Move the bar at every tenth."""
        start = self._start
        if start is None:
            return
        before = self._groups * _STEPS // max(start.groups, 1)
        self._groups += 1
        if self._groups * _STEPS // max(start.groups, 1) > before:
            done = min(100.0, 100.0 * self._groups / max(start.groups, 1))
            self._write(lambda: self._move(done))

    def _move(self, done: float) -> None:
        if self._progress is not None:
            update_progress_artifact(self._progress, done)

    def lessons_stored(self, records: Sequence[ExperienceRecord], rejected: int) -> None:  # noqa: ARG002
        """Remember the lessons for the table at the end of the epoch."""
        self._lessons.extend(records)

    def epoch_ended(self, end: EpochEnd) -> None:
        """Write the per-epoch table and the lessons so far."""
        self._epochs.append(end)
        rows = [
            dict(zip(EPOCH_COLUMNS, (getattr(row, name) for name in EPOCH_FIELDS), strict=True)) for row in self._epochs
        ]
        self._write(
            lambda: create_table_artifact(rows, key="per-epoch", description=f"{self._simulated}Rewards by epoch")
        )
        lessons = [
            {
                "id": record.experience_id,
                "epoch": record.epoch,
                "operation": record.operation,
                "says": record.polarity,
                "lesson": visible(record.summary32),
            }
            for record in self._lessons
        ]
        if lessons:
            description = f"{self._simulated}Operations on the library so far"
            self._write(lambda: create_table_artifact(lessons, key="lessons", description=description))

    def gate_decided(self, decision: GateDecision) -> None:
        """Write the gate's decision."""
        text = f"# {decision.decision.upper()}\n\n{self._simulated}{visible('; '.join(decision.reasons))}\n"
        self._write(lambda: create_markdown_artifact(text, key="gate", description="Decision of the held-out sweep"))

    def closed(self) -> None:
        """Do nothing: a run does not wait for Prefect. The flow waits, after the run; see ``wait``."""

    def wait(self) -> None:
        """Wait until everything is written, within a limit; what is left then is not written."""
        if self._writer is None:
            return
        self._work.put(None)
        self._writer.join(self._patience_s)
        if self._writer.is_alive():
            self._given_up.set()
            _log.warning("Prefect takes longer than %g s for artifacts; the last are left out", self._patience_s)

    def _write(self, write: Callable[[], object]) -> None:
        """In the context of the flow run, which tells Prefect whose artifact it is."""
        if self._writer is None:
            # A daemon: the end of the process does not wait for a server that hangs, as it would for an executor's threads.
            self._writer = threading.Thread(target=self._write_all, name="tfgrpo-artifacts", daemon=True)
            self._writer.start()
        self._work.put(partial(copy_context().run, self._attempt, write))

    def _write_all(self) -> None:
        while (work := self._work.get()) is not None and not self._given_up.is_set():
            work()

    def _attempt(self, write: Callable[[], object]) -> None:
        try:
            write()
        except Exception as error:  # noqa: BLE001 - whatever breaks between here and the server, the run goes on
            # A server that is gone takes none of them: the first says so.
            level, self._complaint = self._complaint, logging.DEBUG
            _log.log(level, "an artifact could not be written: %s: %s", type(error).__name__, error)
