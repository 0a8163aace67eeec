"""Progress of a run on stderr: a live view on a terminal, otherwise a few lines an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tfgrpo.flows.console.console import visible
from tfgrpo.flows.console.figures import duration, money, plus_unknown
from tfgrpo.flows.console.observer import EpochEnd, EpochStart, EpochSums, FirstBatch, Observer
from tfgrpo.flows.orchestration.request import RunSummary
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.tree import BudgetSettings
from tfgrpo.stores.experiences.decisions import Decision
from tfgrpo.stores.experiences.store import ExperienceRecord
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import explanation_of
from tfgrpo.tasks.shapes import GroupResult

SIMULATED_BANNER = "SIMULATED model: these figures show that the machine works, not that an agent got better"
_LINES = 5
"""Lines an epoch without a terminal, besides the last."""
_LESSONS_SHOWN = 8


class Screen(NamedTuple):
    """Outputs of a run for people."""

    say: Callable[[str], object]
    progress: Observer
    ended: Callable[[RunSummary], object]
    """Show the summary; called before Prefect gets it."""


class Progress(Observer):
    """Live view if ``console`` is a terminal, otherwise a line at every fifth of an epoch."""

    def __init__(self, console: RichConsole, *, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._groups = 0
        self._epoch = EpochSums(EpochStart(0, 0, "train", groups=0, temperature=0.0))  # none yet
        self._began = 0.0
        self._stored = self._refused = 0
        self._budget = BudgetSettings()
        self._totals = Totals()
        self._live: Live | None = None

    def announce(self, plan: Plan) -> None:
        """Print the plan and its forecast."""
        self._groups, self._budget = groups_of(plan), plan.settings.budget
        if plan.simulated:
            self._print(SIMULATED_BANNER, "bold yellow")
        if plan.chosen_rewards:
            self._print(f"rewards: {plan.chosen_rewards}")
        self._print(f"task {plan.settings.task_id}: {_described(plan)}")
        self._print(f"forecast: {plan.forecast}")
        if plan.forecast.gain is not None:
            self._print(str(plan.forecast.gain))

    def run_started(self, plan: Plan, run_id: str, warnings: Sequence[str]) -> None:
        """Print the run id and the warnings."""
        if not self._groups:
            self.announce(plan)
        self._print(f"run {run_id} begins")
        for warning in warnings:
            self._print(f"warning: {warning}", "yellow")

    def waiting(self, what: str) -> None:
        """Print what the run waits for."""
        self._print(what, "yellow")

    def epoch_started(self, start: EpochStart) -> None:
        """Start the view of an epoch."""
        self.closed()
        self._epoch, self._began = EpochSums(start), self._now()
        self._stored = self._refused = 0
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self._view)
            self._live.start()
        else:
            self._print(f"{start.title}: {pluralize(start.groups, 'group')} at temperature {start.temperature:g}")

    def group_done(self, result: GroupResult, totals: Totals) -> None:
        """Count a group."""
        epoch, self._totals = self._epoch, totals
        before = epoch.groups * _LINES // max(epoch.start.groups, 1)
        epoch.add([result])
        after = epoch.groups * _LINES // max(epoch.start.groups, 1)
        if not self._console.is_terminal and after > before and epoch.groups < epoch.start.groups:
            self._print(f"  {epoch.groups}/{epoch.start.groups} groups, {', '.join(self._figures())}")

    def first_batch(self, noticed: FirstBatch) -> None:
        """Print what is wrong with the rewards, and the attempts that show it."""
        self._print(f"warning: {noticed.explanation}", "yellow")
        for example in noticed.examples:
            self._print(f"  {example}", "yellow")

    def lessons_stored(self, records: Sequence[ExperienceRecord], rejected: int) -> None:
        """Print the lessons of a batch on a terminal; otherwise count them for the next line."""
        self._stored += len(records)
        self._refused += rejected
        if not self._console.is_terminal:
            return
        for record in records[:_LESSONS_SHOWN]:
            self._print(f"  {record.operation:>6}  {record.polarity}: {record.summary32}", "cyan")
        if len(records) > _LESSONS_SHOWN:
            self._print(f"          and {pluralize(len(records) - _LESSONS_SHOWN, 'more lesson')}", "dim")

    def epoch_ended(self, end: EpochEnd) -> None:
        """Replace the view of an epoch by one line."""
        self.closed()
        epoch, facts = self._epoch, []
        if end.mean_reward is None:
            facts.append("no rollout was scored")
        else:
            reward = epoch.reward if epoch.scored else f"reward {end.mean_reward:.3f}"
            facts.append(f"{reward} over {pluralize(end.scored, 'rollout')}")
        if end.lost:
            why = f" ({end.lost_mostly})" if end.lost_mostly else ""
            facts.append(f"{end.lost} lost{why}")
        if end.phase == "train":
            facts.append(pluralize(end.informative, "informative group"))
            facts.append(f"{pluralize(self._stored, 'lesson')} stored and {self._refused} refused")
            facts.append(f"{pluralize(end.lessons, 'lesson')} on trial")
        if end.learning_loss:
            facts.append(end.learning_loss)
        facts.append(f"took {duration(self._now() - self._began)}")
        self._groups -= epoch.start.groups
        self._print(f"epoch {end.epoch} {end.phase} done: {', '.join(facts)}")

    def decided(self, decision: Decision) -> None:
        """Print the decision."""
        self.closed()
        self._print(explanation_of(decision), "bold")

    def closed(self) -> None:
        """Restore the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _figures(self) -> list[str]:
        epoch, totals = self._epoch, self._totals
        figures = [epoch.reward]
        if epoch.rollouts.lost:
            figures.append(f"{epoch.rollouts.lost} lost")
        if self._stored:
            figures.append(f"{pluralize(self._stored, 'lesson')} stored")
        cap = f" of {self._budget.max_calls:,}" if self._budget.max_calls is not None else ""
        figures.append(plus_unknown(f"{totals.calls:,}{cap} calls" if cap else pluralize(totals.calls, "call"), totals))
        cap = f" of ${self._budget.max_usd:g}" if self._budget.max_usd is not None else ""
        figures.append(money(totals) + cap)
        return [*figures, time_left(epoch, self._groups, self._now() - self._began)]

    def _view(self) -> Group:
        epoch = self._epoch
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(epoch.start.title, style="bold"),
            ProgressBar(total=max(epoch.start.groups, 1), completed=epoch.groups, width=30),
            Text(f"{epoch.groups}/{epoch.start.groups} groups"),
        )
        return Group(head, Text("  " + " · ".join(self._figures()), overflow="fold"))

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(visible(text), style=style), soft_wrap=not self._console.is_terminal)


def _described(plan: Plan) -> str:
    if plan.opens_sealed:
        items = pluralize(len(plan.eval_items), "sealed item")
        return f"{items}, {plan.sweep_size} attempts of each with the lessons in force and without; nothing is learned"
    if plan.measured_groups:
        size = plan.settings.tfgrpo.measuring_size
        return f"{pluralize(plan.measured_groups, 'group')} of {size} attempts measure; nothing is learned"
    swept = f" ({plan.sweep_size} with lessons and {plan.sweep_size} without in the sweep)" if plan.learns else ""
    epochs = f"{plan.settings.tfgrpo.epochs} epochs" if plan.learns else "measured once, nothing learned"
    learned = pluralize(len(plan.learn_items), "item")
    return f"{learned} to learn on; {held_out(plan)}; groups of {plan.group_size}{swept}, {epochs}"


def held_out(plan: Plan) -> str:
    """Return the number of held-out items, how many of them the sweep measures, and that of sealed ones."""
    measured, every = len(plan.eval_items), len(plan.data.split.held_out)
    sealed = f"; {len(plan.data.sealed):,} sealed" if plan.data.sealed else ""
    return (f"{every:,} held out" if measured == every else f"{measured:,} of {every:,} held out are measured") + sealed


def groups_of(plan: Plan) -> int:
    """Return the number of groups in all epochs, with both sides of the sweep; one in which nothing would follow has none."""
    if plan.measured_groups or plan.opens_sealed:
        return plan.measured_groups or 2 * len(plan.eval_items)
    size = len(plan.cohort(1).items)
    return size * (plan.settings.tfgrpo.epochs - 1) + 2 * len(plan.eval_items) if plan.learns else size


def time_left(epoch: EpochSums, groups: int, elapsed: float) -> str:
    """Return the time left at the pace of this epoch, which has taken ``elapsed`` s; it and later ones have ``groups``."""
    if not epoch.groups:
        return "time left unknown"
    ahead = epoch.start.groups
    if epoch.start.epoch < epoch.start.epochs:
        ahead = max(ahead, groups)
    return f"about {duration(elapsed / epoch.groups * (ahead - epoch.groups))} left"
