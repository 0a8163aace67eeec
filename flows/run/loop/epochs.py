"""Open and close epochs, and sum up their groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from tfgrpo.flows.console.figures import Losses
from tfgrpo.flows.console.observer import EpochEnd, EpochStart
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.pipelines.plan.sampling import Cohort
from tfgrpo.rewarders.base import UNIT, Range
from tfgrpo.stores.errors import RewarderTimeout, RunAborted
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.outcomes import Arm, Phase, Scored, is_highest, scored_rewards
from tfgrpo.stores.telemetry.setup import OpenSpan
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.shapes import GroupResult


def draw_cohort(session: Session, epoch: int) -> Cohort:
    """Draw the items of a learning epoch and write them into the manifest."""
    # From what is on disk, so that a resumed or replayed run draws the same.
    difficulty = session.difficulty and session.difficulty.with_run(session.paths, before_epoch=epoch)
    cohort = session.plan.cohort(epoch, difficulty)
    session.books.cohort(epoch, cohort)
    return cohort


@contextmanager
def open_epoch(
    session: Session, epoch: int, phase: Phase, groups: int, *, last: int | None = None
) -> Iterator[EpochSums]:
    """Start an epoch of ``groups`` groups, and close its books at the end. ``last`` is the number of the last epoch.

    A ``RewarderTimeout`` ends the epoch as failed, and the library is again what it was before.
    """
    learning, settings = session.learning, session.settings.tfgrpo
    temperature = settings.temperature.train if phase == "train" else settings.temperature.eval
    start = EpochStart(epoch, last or settings.epochs, phase, groups, temperature)
    sums = EpochSums(epoch, phase, session.plan.score_range)
    learning.losses, library, began = sums.learning, learning.library, perf_counter()
    session.observer.epoch_started(start)
    try:
        with _span(session, start):
            yield sums
    except RewarderTimeout as error:
        learning.library = library
        session.books.epoch_failed(epoch, str(error))
    end = sums.end(learning.library)
    session.books.epoch_ended(end, learning)
    session.telemetry.record(
        "epoch",
        epoch=epoch,
        phase=phase,
        duration_s=perf_counter() - began,
        reward_mean=sums.mean_reward,
        solve_rate=sums.solve_rate,
    )
    session.telemetry.collect()
    session.observer.epoch_ended(end)
    if phase == "train" and sums.rollouts.lost and not sums.scored and epoch not in session.books.failed_epochs:
        # The rest of the run would be paid for without a chance to learn or judge.
        raise RunAborted(
            f"not one of {pluralize(sums.rollouts.lost, 'rollout')} of epoch {epoch} brought a reward, so that "
            f"nothing can be learned or judged; most often {sums.rollouts.mostly}"
        )


def _span(session: Session, start: EpochStart) -> OpenSpan:
    """Open the span of an epoch, with the settings it runs under."""
    pack = session.plan.pack.manifest
    return session.telemetry.epoch_span(
        epoch=start.epoch,
        phase=start.phase,
        temperature=start.temperature,
        group_size=session.plan.group_size,
        sample_size=start.groups,
        pack_id=pack.id,
        pack_stamp=pack.stamp,
        seed=session.settings.tfgrpo.seed,
    )


@dataclass(slots=True)
class _ArmSum:
    """Scored rollouts of one arm."""

    total: float = 0.0
    scored: int = 0
    solved: int = 0


@dataclass(slots=True)
class EpochSums:
    """Sums over the groups of an epoch.

    Rewards are summed by arm, because a mean over champion and candidate means little: the epoch reports those of the
    candidate, or of the only arm there is.
    """

    epoch: int
    phase: Phase
    score_range: Range = UNIT
    """Of the reward, as its rewarders declare it."""
    informative: int = 0
    arms: dict[Arm, _ArmSum] = field(default_factory=dict)
    rollouts: Losses = field(default_factory=Losses)
    learning: Losses = field(default_factory=Losses)
    """Reflections and curations."""

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
    def _reported(self) -> _ArmSum:
        return self.arms.get("candidate") or next(iter(self.arms.values()), _ArmSum())

    def add(self, results: Sequence[GroupResult]) -> None:
        """Add groups."""
        for result in results:
            rewards = scored_rewards(rollout.outcome for rollout in result.rollouts)
            arm = self.arms.setdefault(result.key.arm, _ArmSum())
            arm.total += sum(rewards)
            arm.scored += len(rewards)
            arm.solved += sum(is_highest(reward, self.score_range) for reward in rewards)
            self.informative += result.signal == "mixed"
            for rollout in result.rollouts:
                outcome = rollout.outcome
                self.rollouts.add(None if isinstance(outcome, Scored) else f"{outcome.name}: {outcome.reason}")
            if result.reflected:
                failure = result.reflection_failure
                self.learning.add(failure.sentence if failure is not None else None)

    def end(self, library: Library) -> EpochEnd:
        """Return the summary of the epoch."""
        return EpochEnd(
            self.epoch,
            self.phase,
            self.mean_reward,
            self.scored,
            self.rollouts.lost,
            self.informative,
            lessons=len(library.entries),
            lost_mostly=self.rollouts.mostly,
            learning_asked=self.learning.asked,
            learning_lost=self.learning.lost,
            learning_lost_mostly=self.learning.mostly,
        )
