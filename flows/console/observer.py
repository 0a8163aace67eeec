"""Observers of a run: the events they receive, the sums that some report, and the view on stderr.

That is live on a terminal, otherwise a few lines an epoch. Prefect's page is another observer.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Self, TypeAlias

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tfgrpo.flows.console.console import visible
from tfgrpo.flows.console.figures import ARMS, duration, money, plus_unknown, shown_arm
from tfgrpo.flows.orchestration.request import RunSummary
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.tree import BudgetSettings
from tfgrpo.rewarders.scorer import UNIT, Range
from tfgrpo.stores.experiences.decisions import Decision
from tfgrpo.stores.experiences.store import ExperienceRecord
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.outcomes import Outcome, Phase, Scored, is_highest
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import explanation_of
from tfgrpo.tasks.shapes import GroupResult

FirstBatchFinding: TypeAlias = Literal["nothing right", "everything right", "nothing graded"]
_log = logging.getLogger("tfgrpo.observer")
_Event = ParamSpec("_Event")


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The start of an epoch."""

    epoch: int
    epochs: int
    phase: Phase
    groups: int
    temperature: float

    @property
    def title(self) -> str:
        """Name of the epoch for people."""
        return f"epoch {self.epoch}/{self.epochs} {self.phase}"


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of an epoch. The reward is the mean over scored rollouts, in the sweep those with lessons."""

    epoch: int
    phase: Phase
    mean_reward: float | None
    scored: int
    lost: int
    informative: int
    lessons: int
    """Lessons on trial now."""
    lost_mostly: str = ""
    """Most frequent reason for a lost rollout, with its count; empty when none was lost."""
    learning_asked: int = 0
    learning_lost: int = 0
    """Those without a usable answer."""
    learning_lost_mostly: str = ""

    @property
    def learning_loss(self) -> str:
        """Sentence on lost reflections and curations; empty when none was lost."""
        if not self.learning_lost:
            return ""
        share = f"{self.learning_lost} of {pluralize(self.learning_asked, 'learning step')}"
        return f"{share} brought no usable answer; most often {self.learning_lost_mostly}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on lost rollouts and lost learning steps."""
        lost = f"{self.lost} of {pluralize(self.lost + self.scored, 'rollout')} brought no reward and count nowhere"
        rollouts = f"{lost}; most often {self.lost_mostly}" if self.lost else ""
        return tuple(f"epoch {self.epoch}: {text}" for text in (rollouts, self.learning_loss) if text)


_REASONS = 100
_REASON_CHARS = 200


@dataclass(slots=True)
class Losses:
    """Requests, losses and their reasons."""

    asked: int = 0
    lost: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Losses by reason; at most the first 100 reasons."""

    @property
    def mostly(self) -> str:
        """Most frequent reason, with its count; empty without losses."""
        return "".join(f"{count} × {reason}" for reason, count in self.reasons.most_common(1))

    def attempt(self, outcome: Outcome) -> None:
        """Count one attempt, lost without a reward."""
        self.add(None if isinstance(outcome, Scored) else f"{outcome.name}: {outcome.reason}")

    def add(self, reason: str | None) -> None:
        """Count one request; ``reason`` of its loss, None if it was answered."""
        self.asked += 1
        if reason is None:
            return
        self.lost += 1
        short = " ".join(reason.split())[:_REASON_CHARS]
        if short in self.reasons or len(self.reasons) < _REASONS:
            self.reasons[short] += 1


@dataclass(slots=True)
class EpochSums:
    """Sums over the groups of an epoch. Means are of one arm, in the sweep that with lessons: one over both means little."""

    start: EpochStart
    score_range: Range = UNIT
    """Range of the reward, as its rewarders declare it."""
    groups: int = 0
    informative: int = 0
    arms: dict[str, list[float]] = field(default_factory=dict)
    """Rewards of the scored rollouts by arm; the two sides of a group are one arm."""
    rollouts: Losses = field(default_factory=Losses)
    learning: Losses = field(default_factory=Losses)

    @property
    def scored(self) -> int:
        """Scored rollouts of all arms."""
        return sum(map(len, self.arms.values()))

    @property
    def mean_reward(self) -> float | None:
        """Mean over the scored rollouts of the reported arm; None without any."""
        return fmean(self._reported) if self._reported else None

    @property
    def solve_rate(self) -> float | None:
        """Share of the reported arm's scored rollouts with the full reward; None without any."""
        return fmean(is_highest(reward, self.score_range) for reward in self._reported) if self._reported else None

    @property
    def reward(self) -> str:
        """Mean reward for people, by arm when there are two."""
        named = {**ARMS, "group": "reward"}
        means = (f"{name} {fmean(self.arms[arm]):.3f}" for arm, name in named.items() if self.arms.get(arm))
        return ", ".join(means) or "no reward yet"

    @property
    def _reported(self) -> list[float]:
        return next((self.arms[arm] for arm in ARMS if arm in self.arms), [])

    def add(self, results: Sequence[GroupResult]) -> None:
        """Add groups."""
        self.groups += len(results)
        for result in results:
            self.informative += result.signal == "mixed"
            for rollout in result.rollouts:
                rewards = self.arms.setdefault(shown_arm(rollout.key.arm), [])
                if isinstance(rollout.outcome, Scored):
                    rewards.append(rollout.outcome.reward)
                self.rollouts.attempt(rollout.outcome)
            if result.reflected:
                failure = result.reflection_failure
                self.learning.add(failure.sentence if failure is not None else None)

    def end(self, on_trial: Sequence[ExperienceRecord]) -> EpochEnd:
        """Return the summary of the epoch, after which these lessons are on trial."""
        return EpochEnd(
            self.start.epoch,
            self.start.phase,
            self.mean_reward,
            self.scored,
            self.rollouts.lost,
            self.informative,
            lessons=len(on_trial),
            lost_mostly=self.rollouts.mostly,
            learning_asked=self.learning.asked,
            learning_lost=self.learning.lost,
            learning_lost_mostly=self.learning.mostly,
        )


@dataclass(frozen=True, slots=True)
class AttemptExcerpt:
    """One attempt next to the reference answer of its item, shortened."""

    rollout_id: str
    item_id: str
    question: str
    reference: str
    output: str
    """Its end."""
    verdict: str

    def __str__(self) -> str:
        reference = f"“{self.reference}”" if self.reference else "none"
        output = f"“{self.output}”" if self.output else "nothing"
        return f"{self.item_id}: “{self.question}”, reference {reference}, answered {output}; {self.verdict}"


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """What is wrong with the rewards of the first batch, and a few of its attempts."""

    finding: FirstBatchFinding
    explanation: str
    examples: tuple[AttemptExcerpt, ...]
    stops: bool
    """Whether the run stops for it."""

    @classmethod
    def from_json(cls, block: Mapping[str, Any]) -> Self:
        """Return it from the manifest."""
        return cls(**{**block, "examples": tuple(AttemptExcerpt(**each) for each in block["examples"])})

    def __str__(self) -> str:
        return f"{self.explanation}. For example {' | '.join(map(str, self.examples))}"


class Observer:
    """Receives every event of a run, in order, in the thread of the flow, but for ``waiting``. Must not raise. Ignores them."""

    def run_started(self, plan: Plan, run_id: str, warnings: Sequence[str]) -> None:
        """Handle the start, after which calls cost money."""

    def waiting(self, what: str) -> None:
        """Handle that the run waits for an endpoint that is unavailable, or that it does no longer."""

    def epoch_started(self, start: EpochStart) -> None:
        """Handle the start of an epoch."""

    def group_done(self, result: GroupResult, totals: Totals) -> None:
        """Handle a finished group."""

    def first_batch(self, noticed: FirstBatch) -> None:
        """Handle rewards of the first batch that teach nothing."""

    def lessons_stored(self, records: Sequence[ExperienceRecord], rejected: int) -> None:
        """Handle the lessons of a batch."""

    def epoch_ended(self, end: EpochEnd) -> None:
        """Handle the end of an epoch."""

    def decided(self, decision: Decision) -> None:
        """Handle the decision on what is in force."""

    def resumed(self, ended: RunSummary) -> None:
        """Handle the end of a killed run that was resumed before this one."""

    def closed(self) -> None:
        """Handle the end of all events."""


def _sent(event: Callable[Concatenate[Observer, _Event], None]) -> Callable[Concatenate[Observers, _Event], None]:
    def send(self: Observers, /, *args: _Event.args, **kwargs: _Event.kwargs) -> None:
        # A copy: the list shrinks when an observer raises.
        for observer in tuple(self.observers):
            try:
                getattr(observer, event.__name__)(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a view that breaks must not end a run that is being paid for
                self.observers.remove(observer)
                _log.warning("%s shows nothing more of this run: %r", type(observer).__name__, error)

    return send


class Observers(Observer):
    """Sends each event to several observers, in order. One that raises is logged and removed."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = list(observers)

    run_started = _sent(Observer.run_started)
    waiting = _sent(Observer.waiting)
    epoch_started = _sent(Observer.epoch_started)
    group_done = _sent(Observer.group_done)
    first_batch = _sent(Observer.first_batch)
    lessons_stored = _sent(Observer.lessons_stored)
    epoch_ended = _sent(Observer.epoch_ended)
    decided = _sent(Observer.decided)
    resumed = _sent(Observer.resumed)
    closed = _sent(Observer.closed)


SIMULATED_BANNER = "SIMULATED model: these figures show that the machine works, not that an agent got better"
# Lines an epoch without a terminal, besides the last.
_LINES = 5


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
        self._groups_left = 0
        self._epoch = EpochSums(EpochStart(0, 0, "train", groups=0, temperature=0.0))  # none yet
        self._began = 0.0
        self._stored = self._refused = 0
        self._budget = BudgetSettings()
        self._totals = Totals()
        self._live: Live | None = None

    def announce(self, plan: Plan) -> None:
        """Print the plan and its forecast."""
        self._groups_left, self._budget = groups_of(plan), plan.settings.budget
        if plan.simulated:
            self._print(SIMULATED_BANNER, "bold yellow")
        if plan.chosen_rewards:
            self._print(f"rewards: {plan.chosen_rewards}")
        tfgrpo = plan.settings.tfgrpo
        if plan.opens_sealed:
            items = pluralize(len(plan.eval_items), "sealed item")
            what = f"{items}, {plan.sweep_size} attempts of each with the lessons in force and without; nothing is learned"
        elif plan.measured_groups:
            groups = pluralize(plan.measured_groups, "group")
            what = f"{groups} of {tfgrpo.measuring_size} attempts measure; nothing is learned"
        else:
            swept = f" ({plan.sweep_size} with lessons and {plan.sweep_size} without in the sweep)" if plan.learns else ""
            epochs = f"{tfgrpo.epochs} epochs" if plan.learns else "measured once, nothing learned"
            learned = pluralize(len(plan.learn_items), "item")
            what = f"{learned} to learn on; {held_out(plan)}; groups of {plan.group_size}{swept}, {epochs}"
        self._print(f"task {plan.settings.task_id}: {what}")
        self._print(f"forecast: {plan.forecast}")
        if plan.forecast.gain is not None:
            self._print(str(plan.forecast.gain))

    def run_started(self, plan: Plan, run_id: str, warnings: Sequence[str]) -> None:
        """Print the run id and the warnings."""
        # Of a command the plan was shown before Prefect started.
        if not self._groups_left:
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
        epoch, self._totals, every = self._epoch, totals, self._epoch.start.groups
        before = epoch.groups
        epoch.add([result])
        is_due = before * _LINES // max(every, 1) < epoch.groups * _LINES // max(every, 1)
        if is_due and epoch.groups < every and not self._console.is_terminal:
            self._print(f"  {epoch.groups}/{every} groups, {', '.join(self._figures())}")

    def first_batch(self, noticed: FirstBatch) -> None:
        """Print what is wrong with the rewards, and the attempts that show it."""
        self._print(f"warning: {noticed.explanation}", "yellow")
        for example in noticed.examples:
            self._print(f"  {example}", "yellow")

    def lessons_stored(self, records: Sequence[ExperienceRecord], rejected: int) -> None:
        """Print the lessons of a batch on a terminal; otherwise count them for the next line."""
        self._stored += len(records)
        self._refused += rejected
        for record in records if self._console.is_terminal else ():
            self._print(f"  {record.operation:>6}  {record.polarity}: {record.summary32}", "cyan")

    def epoch_ended(self, end: EpochEnd) -> None:
        """Replace the view of an epoch by one line."""
        self.closed()
        epoch, facts = self._epoch, []
        if end.mean_reward is None:
            facts.append("no rollout was scored")
        else:
            # A view that saw no group of the epoch has the figures of its end alone.
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
        self._groups_left -= epoch.start.groups
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
        calls, most, most_usd = pluralize(totals.calls, "call"), self._budget.max_calls, self._budget.max_usd
        figures.append(plus_unknown(calls if most is None else f"{totals.calls:,} of {most:,} calls", totals))
        figures.append(money(totals) + ("" if most_usd is None else f" of ${most_usd:g}"))
        return [*figures, time_left(epoch, self._groups_left, self._now() - self._began)]

    def _view(self) -> Group:
        epoch = self._epoch
        bar = ProgressBar(total=max(epoch.start.groups, 1), completed=epoch.groups, width=30)
        head = Table.grid(padding=(0, 2))
        head.add_row(Text(epoch.start.title, style="bold"), bar, Text(f"{epoch.groups}/{epoch.start.groups} groups"))
        return Group(head, Text("  " + " · ".join(self._figures()), overflow="fold"))

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(visible(text), style=style), soft_wrap=not self._console.is_terminal)


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
