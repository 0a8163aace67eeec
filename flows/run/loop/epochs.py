"""Open and close epochs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from tfgrpo.flows.console.figures import EpochSums
from tfgrpo.flows.console.observer import EpochStart
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.pipelines.plan.sampling import Cohort
from tfgrpo.stores.errors import RunAborted
from tfgrpo.stores.outcomes import Phase
from tfgrpo.stores.telemetry.setup import OpenSpan
from tfgrpo.stores.text import pluralize


def draw_cohort(session: Session, epoch: int) -> Cohort:
    """Draw the items of a learning epoch and write them into the manifest."""
    cohort = draw_items(session, epoch)
    session.books.cohort(epoch, cohort)
    return cohort


def draw_items(session: Session, epoch: int) -> Cohort:
    """Draw items to learn on; those of an epoch that does not learn are free for measuring."""
    return session.plan.cohort(epoch)


@contextmanager
def open_epoch(
    session: Session, epoch: int, phase: Phase, groups: int, *, last: int | None = None
) -> Iterator[EpochSums]:
    """Start an epoch of ``groups`` groups, and close its books at the end. ``last`` is the number of the last epoch."""
    learning, settings = session.learning, session.settings.tfgrpo
    temperature = settings.temperature.eval if phase == "eval" else settings.temperature.train
    start = EpochStart(epoch, last or settings.epochs, phase, groups, temperature)
    sums = EpochSums(start, session.plan.score_range)
    learning.losses, began = sums.learning, perf_counter()
    session.observer.epoch_started(start)
    with _span(session, start):
        yield sums
    end = sums.end(learning.credit.on_trial)
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
    if phase == "train" and sums.rollouts.lost and not sums.scored:
        # The rest of the run would be paid for without a chance to learn or judge.
        raise RunAborted(
            f"not one of {pluralize(sums.rollouts.lost, 'rollout')} of epoch {epoch} brought a reward, so that "
            f"nothing can be learned or judged; most often {sums.rollouts.mostly}"
        )


def refuse_unscored(session: Session) -> None:
    """Raise ``RunAborted`` if not one rollout of the run has a reward."""
    books = session.books
    if not books.lost_rollouts or books.lost_rollouts < books.rollouts:
        return
    raise RunAborted(
        f"not one of {pluralize(books.lost_rollouts, 'rollout')} brought a reward, so that nothing was learned or judged; "
        f"most often {books.epochs[-1].lost_mostly}"
    )


def _span(session: Session, start: EpochStart) -> OpenSpan:
    """Open the span of an epoch, with the settings it runs under."""
    pack = session.plan.pack.manifest
    return session.telemetry.epoch_span(
        epoch=start.epoch,
        phase=start.phase,
        temperature=start.temperature,
        group_size=session.plan.sweep_size
        if start.phase == "eval" and session.plan.learns
        else session.plan.group_size,
        sample_size=start.groups,
        pack_id=pack.id,
        pack_stamp=pack.stamp,
        seed=session.settings.tfgrpo.seed,
    )
