"""Observers of a run: the events they receive, and the sums that some report. The terminal and Prefect's page are two."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeAlias

from tfgrpo.flows.console.figures import ARMS, shown_arm
from tfgrpo.flows.orchestration.request import RunSummary
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.rewarders.scorer import UNIT, Range
from tfgrpo.stores.experiences.decisions import Decision
from tfgrpo.stores.experiences.store import ExperienceRecord
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.outcomes import Outcome, Phase, Scored, is_highest
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.shapes import GroupResult

FirstBatchFinding: TypeAlias = Literal["nothing right", "everything right", "nothing graded"]
_log = logging.getLogger("tfgrpo.observer")


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
class _ArmSum:
    total: float = 0.0
    scored: int = 0
    solved: int = 0


@dataclass(slots=True)
class EpochSums:
    """Sums over the groups of an epoch.

    Rewards are summed by arm, because a mean with and without lessons means little: the epoch reports those with lessons.
    The two sides of a group, each with a random half of the lessons, are one arm.
    """

    start: EpochStart
    score_range: Range = UNIT
    """Range of the reward, as its rewarders declare it."""
    groups: int = 0
    informative: int = 0
    arms: dict[str, _ArmSum] = field(default_factory=dict)
    rollouts: Losses = field(default_factory=Losses)
    learning: Losses = field(default_factory=Losses)

    @property
    def scored(self) -> int:
        """Scored rollouts of all arms."""
        return sum(arm.scored for arm in self.arms.values())

    @property
    def mean_reward(self) -> float | None:
        """Mean over the scored rollouts of the reported arm; None without any."""
        return self._reported.total / self._reported.scored if self._reported.scored else None

    @property
    def solve_rate(self) -> float | None:
        """Share of the reported arm's scored rollouts with the full reward; None without any."""
        return self._reported.solved / self._reported.scored if self._reported.scored else None

    @property
    def reward(self) -> str:
        """Mean reward for people, by arm when there are two."""
        named = {**ARMS, "group": "reward"}
        sums = ((name, self.arms[arm]) for arm, name in named.items() if arm in self.arms)
        means = (f"{name} {arm.total / arm.scored:.3f}" for name, arm in sums if arm.scored)
        return ", ".join(means) or "no reward yet"

    @property
    def _reported(self) -> _ArmSum:
        return next((self.arms[arm] for arm in ARMS if arm in self.arms), _ArmSum())

    def add(self, results: Sequence[GroupResult]) -> None:
        """Add groups."""
        self.groups += len(results)
        for result in results:
            self.informative += result.signal == "mixed"
            for rollout in result.rollouts:
                outcome = rollout.outcome
                arm = self.arms.setdefault(shown_arm(rollout.key.arm), _ArmSum())
                if isinstance(outcome, Scored):
                    arm.total += outcome.reward
                    arm.scored += 1
                    arm.solved += is_highest(outcome.reward, self.score_range)
                self.rollouts.attempt(outcome)
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
    """Receives every event of a run, in order, in the thread of the flow. Must not raise. This one ignores them all."""

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


_Event = ParamSpec("_Event")


def _sent(event: Callable[Concatenate[Observer, _Event], None]) -> Callable[Concatenate[Observers, _Event], None]:

    def send(self: Observers, /, *args: _Event.args, **kwargs: _Event.kwargs) -> None:
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
