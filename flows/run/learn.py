"""In which order does a run learn? Epochs of batches of groups, then the held-out sweep; the algorithm, told once.

Knows no Prefect: groups are run by ``session.run_groups``, which the flow backs with mapped tasks. A batch is the unit
of acceptance: what is written about it is written when all its groups are back and none was refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import count, islice
from time import perf_counter

from tfgrpo.flows.console.figures import Losses
from tfgrpo.flows.console.observer import EpochEnd, EpochStart
from tfgrpo.flows.run.session import Session
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.sampling import Cohort
from tfgrpo.stores.errors import BudgetRefused, RewarderTimeout, RunAborted
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.outcomes import (
    REWARDER_BROKE,
    Arm,
    Failed,
    Outcome,
    Phase,
    Scored,
    Ungraded,
    is_full,
    scored_rewards,
)
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.evaluation import PairedEvidence, pair_results
from tfgrpo.tasks.gate import off_scale
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText

_LEAST_LEARNING_LOST = 3
"""Lost reflections and curations that end a run at the earliest: late epochs have few, and one says little."""


def learn(session: Session) -> Library:
    """Epochs 1 … E−1. Returns the candidate library. An epoch that failed leaves the library as it found it."""
    learning = session.settings.tfgrpo
    for epoch in range(1, learning.epochs):
        cohort = session.cohort(epoch)
        start = EpochStart(epoch, learning.epochs, "train", len(cohort.items), learning.temperature.train)
        with _epoch(session, start) as tally:
            _learn_from(session, cohort, tally)
        _refuse_silence(session, tally)
    return session.library


def _warn_of_scale(session: Session, results: Sequence[GroupResult]) -> None:
    rewards = [reward for result in results for reward in scored_rewards(each.outcome for each in result.rollouts)]
    if off_scale(rewards, session.plan.score_range):
        low, high = session.plan.score_range
        session.manifest.warn(
            f"rewards outside {low:g} to {high:g}: lessons are learned from them, but the gate will abstain: its interval "
            "needs that scale; score_range declares another"
        )


def _refuse_silence(session: Session, tally: EpochSums) -> None:
    """An epoch in which nothing at all was scored is as good as a broken one: the rest of the run would be paid for nothing."""
    if tally.rollouts.lost and not tally.scored and tally.epoch not in session.failed_epochs:
        raise RunAborted(
            f"not one of {pluralize(tally.rollouts.lost, 'rollout')} of epoch {tally.epoch} brought a reward, so that "
            f"nothing can be learned or judged; most often {tally.rollouts.mostly}"
        )


def _learn_from(session: Session, cohort: Cohort, tally: EpochSums) -> None:
    for batch, items in enumerate(_numbered(cohort)):
        pack = session.pack_text(session.library)
        leg = _Leg(tally.epoch, "train", "train", batch)
        specs = [_spec(session, leg, position, item, pack, draw=draw) for position, item, draw in items]
        results = run_batch(session, specs)
        _warn_of_scale(session, results)
        record = partial(record_batch, session, specs, results)
        late = _hanging(results)
        if late:  # nothing is curated out of evidence that is void
            record()
            raise RewarderTimeout(late)
        # The batch is written while the model curates it: the one needs the disk, the other a reply.
        session.curate(tally.epoch, batch, cohort.batches[batch], results, record)
        tally.add(results)


def sweep(session: Session) -> PairedEvidence:
    """Epoch E: champion and candidate on the same held-out items, with the same seeds, at the evaluation temperature.

    With equal libraries nothing is run: both arms would make the same calls. Runs of the first rules of learning run one.
    """
    learning = session.settings.tfgrpo
    epoch = learning.epochs
    arms: dict[Arm, PackText] = {"champion": session.pack_text(session.champion)}
    candidate = session.pack_text(session.library)
    if candidate.digest != arms["champion"].digest:
        arms["candidate"] = candidate
    elif session.context.rules > 1:
        return PairedEvidence((), (), identical=True)
    items = session.eval_items()
    results: dict[Arm, list[GroupResult]] = {arm: [] for arm in arms}
    start = EpochStart(epoch, epoch, "eval", len(items) * len(arms), learning.temperature.eval)
    with _epoch(session, start) as tally:
        batches = [
            [
                _spec(session, _Leg(epoch, "eval", arm, batch), first + offset, item, pack)
                for offset, item in enumerate(items[first : first + learning.batch_size])
                for arm, pack in arms.items()
            ]
            for batch, first in enumerate(range(0, len(items), learning.batch_size))
        ]
        for accepted in accept_batches(session, batches):
            tally.add(accepted)
            for result in accepted:
                results[result.arm].append(_slim(result))
    if epoch in session.failed_epochs:
        return dataclasses.replace(pair_results([], []), identical=False)
    return pair_results(results["champion"], results["candidate" if "candidate" in arms else "champion"])


def measure(session: Session) -> None:
    """The feature flag is off: one actor per item, measured, nothing learned."""
    cohort = session.cohort(1)
    pack = session.pack_text(session.library)
    start = EpochStart(1, 1, "eval", len(cohort.items), session.settings.tfgrpo.temperature.eval)
    with _epoch(session, start) as tally:
        for batch, items in enumerate(_numbered(cohort)):
            leg = _Leg(1, "eval", "champion", batch)
            specs = [_spec(session, leg, position, item, pack, draw=draw) for position, item, draw in items]
            results = run_batch(session, specs)
            record_batch(session, specs, results)
            _end_if_late(results)
            tally.add(results)


def _numbered(cohort: Cohort) -> Iterator[list[tuple[int, Item, int]]]:
    """The batches of a cohort: each item with its place in the epoch, and how often it was drawn before."""
    places = zip(count(), cohort.items, cohort.draws, strict=False)
    for batch in cohort.batches:
        yield list(islice(places, len(batch)))


@contextmanager
def _epoch(session: Session, start: EpochStart) -> Iterator[EpochSums]:
    """Open an epoch and close its books. A rewarder that hangs ends the epoch, and what it learned is given up."""
    tally = EpochSums(start.epoch, start.phase)
    session.learning = tally.learning
    before = session.library
    began = perf_counter()
    session.epoch_started(start)
    try:
        with session.epoch_span(start):
            yield tally
    except RewarderTimeout as error:
        session.library = before
        session.epoch_failed(start.epoch, str(error))
    session.epoch_ended(tally.end(session.library), solve_rate=tally.solve_rate, duration_s=perf_counter() - began)


def accept_batches(session: Session, batches: Sequence[Sequence[GroupSpec]]) -> Iterator[list[GroupResult]]:
    """Run batches that do not depend on each other, all at once; each is accepted when it is whole and those before it were.

    Raises as ``run_batch`` does, and ``RewarderTimeout`` for a batch that is recorded; then gives up on what still runs.
    """
    place = {spec.group_id: number for number, specs in enumerate(batches) for spec in specs}
    back: list[list[GroupResult]] = [[] for _ in batches]
    turn = 0
    with closing(session.run_groups([spec for specs in batches for spec in specs])) as arriving:
        for result in arriving:
            back[place[result.group_id]].append(result)
            while turn < len(batches) and len(back[turn]) == len(batches[turn]):
                results = _whole(session, batches[turn], back[turn])
                record_batch(session, batches[turn], results)
                _end_if_late(results)
                yield results
                back[turn] = []
                turn += 1


def run_batch(session: Session, specs: Sequence[GroupSpec]) -> list[GroupResult]:
    """Run the groups of a batch. They come in the order of the specs, whatever order they came back in.

    Raises ``BudgetRefused`` or ``RunAborted`` before anything of the batch is recorded, so that a resumed run tries
    again what was refused or broken.
    """
    with closing(session.run_groups(specs)) as arriving:
        return _whole(session, specs, list(arriving))


def record_batch(session: Session, specs: Sequence[GroupSpec], results: Sequence[GroupResult]) -> None:
    """Write what a batch came to, which is final even where a rewarder hung."""
    session.files.items(spec.item for spec in specs)
    session.record_groups(results)


def _end_if_late(results: Sequence[GroupResult]) -> None:
    """Raise ``RewarderTimeout`` when a rewarder hung, which ends the epoch."""
    late = _hanging(results)
    if late:
        raise RewarderTimeout(late)


def _hanging(results: Sequence[GroupResult]) -> str | None:
    return next((result.rewarder_fault for result in results if result.rewarder_fault), None)


def _whole(session: Session, specs: Sequence[GroupSpec], arrived: Sequence[GroupResult]) -> list[GroupResult]:
    order = {spec.group_id: place for place, spec in enumerate(specs)}
    results = [session.as_recorded(result) for result in sorted(arrived, key=lambda result: order[result.group_id])]
    fatal = next((result.fatal for result in results if result.fatal), None)
    if fatal:
        raise RunAborted(fatal)
    refused = next((result.budget_refused for result in results if result.budget_refused), None)
    if refused:
        raise BudgetRefused(refused)
    _refuse_broken_batch(session, results)
    _refuse_lost_learning(session, results)
    return results


def _refuse_broken_batch(session: Session, results: Sequence[GroupResult]) -> None:
    outcomes = [rollout.outcome for result in results for rollout in result.rollouts]
    broken = [
        outcome
        for outcome in outcomes
        if isinstance(outcome, Failed) or (isinstance(outcome, Ungraded) and outcome.error_type == REWARDER_BROKE)
    ]
    limit = session.settings.tfgrpo.max_lost_share
    if outcomes and len(broken) / len(outcomes) > limit:
        raise RunAborted(
            f"{len(broken)} of {pluralize(len(outcomes), 'rollout')} of a batch failed, more than the share of {limit:g} "
            f"that tfgrpo.max_lost_share allows; the last: {broken[-1].error_type}: {broken[-1].reason}"
        )


def _refuse_lost_learning(session: Session, results: Sequence[GroupResult]) -> None:
    """The limit on reflections and curations without a usable answer, over the epoch so far and this batch."""
    failures = [result.reflection_failure for result in results if result.reflected]
    lost = [failure for failure in failures if failure is not None]
    if not lost:
        return
    asked, missing = session.learning.asked + len(failures), session.learning.lost + len(lost)
    limit = session.settings.tfgrpo.max_lost_share
    if missing >= _LEAST_LEARNING_LOST and missing / asked > limit:
        raise RunAborted(
            f"{missing} of {pluralize(asked, 'learning step')} (reflections, curations) of an epoch brought no usable "
            f"answer, more than the share of {limit:g} that tfgrpo.max_lost_share allows; the last: {lost[-1].sentence}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Leg:
    """Which part of the run a group belongs to."""

    epoch: int
    phase: Phase
    arm: Arm
    batch: int


def _spec(session: Session, leg: _Leg, position: int, item: Item, pack: PackText, *, draw: int = 0) -> GroupSpec:
    learning = session.settings.tfgrpo
    group_id = f"{session.run_id}:e{leg.epoch}:{leg.arm}:{position:05d}"
    return GroupSpec(
        group_id=group_id,
        epoch=leg.epoch,
        phase=leg.phase,
        arm=leg.arm,
        batch=leg.batch,
        item=item,
        size=session.plan.group_size,
        temperature=learning.temperature.train if leg.phase == "train" else learning.temperature.eval,
        pack=pack,
        reflect=leg.phase == "train" and learning.enabled and group_id not in session.voided,
        draw=draw,
    )


def _slim(result: GroupResult) -> GroupResult:
    """Without texts and scores: a sweep of any length is kept until the gate has seen it."""
    rollouts = tuple(
        dataclasses.replace(rollout, outcome=_bare(rollout.outcome), scores=(), output="", summary="", tools=())
        for rollout in result.rollouts
    )
    return dataclasses.replace(result, rollouts=rollouts)


def _bare(outcome: Outcome) -> Outcome:
    return Scored(outcome.reward, ()) if isinstance(outcome, Scored) else outcome


@dataclasses.dataclass(slots=True)
class _ArmSum:
    """Scored rollouts of one arm."""

    total: float = 0.0
    scored: int = 0
    solved: int = 0


@dataclasses.dataclass(slots=True)
class EpochSums:
    """Sums over an epoch's groups, so that nothing else of them has to be kept.

    Rewards stay apart by arm, since a mean over champion and candidate would be nobody's: those of the sweep are the
    candidate's, or the champion's where it ran alone.
    """

    epoch: int
    phase: Phase
    informative: int = 0
    arms: dict[Arm, _ArmSum] = dataclasses.field(default_factory=dict)
    rollouts: Losses = dataclasses.field(default_factory=Losses)
    learning: Losses = dataclasses.field(default_factory=Losses)
    """Reflections and curations."""

    @property
    def scored(self) -> int:
        """Scored rollouts of all arms."""
        return sum(arm.scored for arm in self.arms.values())

    @property
    def mean_reward(self) -> float | None:
        """Over the scored rollouts of the arm that the epoch is told by; None when there are none."""
        return self._reported.total / self._reported.scored if self._reported.scored else None

    @property
    def solve_rate(self) -> float | None:
        """Share of that arm's scored rollouts with the full reward; None when there are none."""
        return self._reported.solved / self._reported.scored if self._reported.scored else None

    @property
    def _reported(self) -> _ArmSum:
        return self.arms.get("candidate") or next(iter(self.arms.values()), _ArmSum())

    def add(self, results: Sequence[GroupResult]) -> None:
        """Count groups."""
        for result in results:
            rewards = scored_rewards(rollout.outcome for rollout in result.rollouts)
            arm = self.arms.setdefault(result.arm, _ArmSum())
            arm.total += sum(rewards)
            arm.scored += len(rewards)
            arm.solved += sum(map(is_full, rewards))
            self.informative += result.signal == "mixed"
            for rollout in result.rollouts:
                outcome = rollout.outcome
                self.rollouts.add(None if isinstance(outcome, Scored) else f"{outcome.name}: {outcome.reason}")
            if result.reflected:
                failure = result.reflection_failure
                self.learning.add(failure.sentence if failure is not None else None)

    def end(self, library: Library) -> EpochEnd:
        """The epoch in figures."""
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
