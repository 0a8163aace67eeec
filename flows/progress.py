"""How does a person follow a run? A live view on a terminal, plain lines anywhere else, both on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console as RichConsole
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flows.observer import EpochEnd, EpochStart
from pipelines.plan import Plan
from stores.ledger import Totals
from stores.models import ExperienceRecord
from stores.outcomes import scored_rewards
from tasks.gate import GateDecision
from tasks.shapes import GroupResult

SIMULATED_BANNER = "SIMULATED model: these figures show that the machine works, not that an agent got better"


def money(nano_usd: int, unknown_calls: int) -> str:
    """Money as people write it; calls with an unknown price are said, not counted as free."""
    known = f"${nano_usd / 1e9:.4f}"
    return f"{known} + {unknown_calls} calls of unknown price" if unknown_calls else known


def duration(seconds: float) -> str:
    """A span of time as ``1h02m``, ``3m05s`` or ``12s``."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class _Tally:
    """Counts within one epoch, and the time left in it as the pace so far suggests."""

    def __init__(self, start: EpochStart, now: float) -> None:
        self.start = start
        self._began = now
        self.groups = 0
        self.rewards = 0.0
        self.scored = 0
        self.lost = 0

    def add(self, result: GroupResult) -> None:
        rewards = scored_rewards(rollout.outcome for rollout in result.rollouts)
        self.groups += 1
        self.rewards += sum(rewards)
        self.scored += len(rewards)
        self.lost += len(result.rollouts) - len(rewards)

    def mean(self) -> str:
        return f"{self.rewards / self.scored:.3f}" if self.scored else "–"

    def left(self, now: float) -> str:
        if not self.groups:
            return "–"
        return duration((now - self._began) / self.groups * (self.start.groups - self.groups))

    def line(self, totals: Totals, now: float) -> str:
        spent = money(totals.nano_usd, totals.unknown_price_calls)
        lost = f", {self.lost} lost" if self.lost else ""
        return (
            f"epoch {self.start.epoch}/{self.start.epochs} {self.start.phase}: "
            f"{self.groups}/{self.start.groups} groups, mean reward {self.mean()}{lost}, "
            f"{totals.calls} calls, {spent}, about {self.left(now)} left"
        )


class Progress:
    """Live view when ``console`` is a terminal, otherwise a line at every tenth of an epoch."""

    def __init__(self, console: RichConsole, *, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._tally: _Tally | None = None
        self._live: Live | None = None

    def run_started(self, plan: Plan, run_id: str) -> None:
        """Say what begins, and what it may cost."""
        if plan.simulated:
            self._say(SIMULATED_BANNER, "bold yellow")
        settings = plan.settings
        self._say(
            f"run {run_id} of task {settings.task_id}: {len(plan.learn_items)} items to learn on, "
            f"{len(plan.eval_items)} held out, groups of {settings.tfgrpo.group_size}, {settings.tfgrpo.epochs} epochs"
        )
        self._say(f"forecast: {plan.forecast}")
        for warning in plan.warnings:
            self._say(f"warning: {warning}", "yellow")

    def epoch_started(self, start: EpochStart) -> None:
        """Begin the view of an epoch."""
        self._tally = _Tally(start, self._now())
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        else:
            self._say(
                f"epoch {start.epoch}/{start.epochs} {start.phase}: {start.groups} groups, T = {start.temperature}"
            )

    def group_done(self, result: GroupResult, totals: Totals) -> None:
        """Count a group."""
        tally = self._tally
        if tally is None:
            return
        before = tally.groups * 10 // max(tally.start.groups, 1)
        tally.add(result)
        if self._live is not None:
            self._live.update(self._view(tally, totals))
        elif tally.groups * 10 // max(tally.start.groups, 1) > before:
            self._say("  " + tally.line(totals, self._now()))

    def lessons_stored(self, records: Sequence[ExperienceRecord], rejected: int) -> None:
        """Say what was learned from a batch."""
        self._say(f"  lessons: {len(records)} operations stored, {rejected} proposals or operations rejected")

    def epoch_ended(self, end: EpochEnd) -> None:
        """Close the view of an epoch with one line."""
        self._stop_live()
        mean = "no rollout was scored" if end.mean_reward is None else f"mean reward {end.mean_reward:.3f}"
        self._say(
            f"epoch {end.epoch} {end.phase} done: {mean} over {end.scored} rollouts, {end.lost} lost, "
            f"{end.informative} informative groups, {end.lessons} lessons in force"
        )

    def gate_decided(self, decision: GateDecision) -> None:
        """Say the decision and why."""
        self._say(f"gate: {decision.decision.upper()} – {'; '.join(decision.reasons)}", "bold")

    def closed(self) -> None:
        """Leave the terminal as it was."""
        self._stop_live()

    def _view(self, tally: _Tally, totals: Totals) -> Table:
        grid = Table.grid(padding=(0, 2))
        width = 30
        full = tally.groups * width // max(tally.start.groups, 1)
        grid.add_row(Text("█" * full + "░" * (width - full), style="green"), Text(tally.line(totals, self._now())))
        return grid

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style))
