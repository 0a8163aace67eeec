"""In which order does a run learn? Epochs of batches of groups, then the held-out sweep; the algorithm, told once.

Knows no Prefect: groups are run by ``session.run_groups``, which the flow backs with mapped tasks. A batch is the unit
of acceptance: what is written about it is written when all its groups are back and none was refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from flows.observer import EpochEnd, EpochStart
from flows.session import Session
from pipelines.items import Item
from pipelines.sampling import Cohort
from stores.errors import BudgetRefused, RewarderTimeout, RunAborted
from stores.library import Library
from stores.outcomes import Failed, scored_rewards
from tasks.evaluation import PairedEvidence, pair_results
from tasks.shapes import Arm, GroupResult, GroupSpec, PackText, Phase


def learn(session: Session) -> Library:
    """Epochs 1 … E−1. Returns the candidate library."""
    for epoch in range(1, session.settings.tfgrpo.epochs):
        cohort = session.cohort(epoch)
        tally = EpochTally(epoch, "train")
        try:
            with session.runtime.telemetry.epoch_span(epoch=epoch, phase="train"):
                _learning_epoch(session, cohort, tally)
        except RewarderTimeout as error:
            session.epoch_failed(epoch, str(error))
        session.epoch_ended(tally.end(session.library))
    return session.library


def _learning_epoch(session: Session, cohort: Cohort, tally: EpochTally) -> None:
    learning = session.settings.tfgrpo
    epoch = tally.epoch
    session.epoch_started(EpochStart(epoch, learning.epochs, "train", len(cohort.items), learning.temperature.train))
    position = 0
    for batch, items in enumerate(cohort.batches):
        pack = session.pack_text(session.library)
        specs = [
            _spec(session, _Leg(epoch, "train", "train", batch), position + offset, item, pack)
            for offset, item in enumerate(items)
        ]
        position += len(items)
        results = accept_batch(session, specs)
        tally.add(results)
        session.curate(epoch, batch, items, results)


def sweep(session: Session) -> PairedEvidence:
    """Epoch E: champion and candidate on the same held-out items, with the same seeds, at the evaluation temperature.

    With equal libraries only one arm is run: the other would repeat it call by call.
    """
    learning = session.settings.tfgrpo
    epoch = learning.epochs
    arms: dict[Arm, PackText] = {"champion": session.pack_text(session.champion)}
    candidate = session.pack_text(session.library)
    if candidate.digest != arms["champion"].digest:
        arms["candidate"] = candidate
    items = session.eval_items()
    session.epoch_started(EpochStart(epoch, epoch, "eval", len(items) * len(arms), learning.temperature.eval))
    tally = EpochTally(epoch, "eval")
    results: dict[Arm, list[GroupResult]] = {"champion": [], "candidate": []}
    try:
        with session.runtime.telemetry.epoch_span(epoch=epoch, phase="eval"):
            for batch, start in enumerate(range(0, len(items), learning.batch_size)):
                part = items[start : start + learning.batch_size]
                specs = [
                    _spec(session, _Leg(epoch, "eval", arm, batch), start + offset, item, pack)
                    for offset, item in enumerate(part)
                    for arm, pack in arms.items()
                ]
                for result in accept_batch(session, specs):
                    results[result.arm].append(_slim(result))
                    tally.add([result])
    except RewarderTimeout as error:
        session.epoch_failed(epoch, str(error))
        results = {"champion": [], "candidate": []}
    session.epoch_ended(tally.end(session.library))
    return pair_results(results["champion"], results["candidate" if "candidate" in arms else "champion"])


def measure(session: Session) -> None:
    """The feature flag is off: one actor per item, measured, nothing learned."""
    items = session.cohort(1).items
    session.epoch_started(EpochStart(1, 1, "eval", len(items), session.settings.tfgrpo.temperature.eval))
    pack = session.pack_text(session.library)
    tally = EpochTally(1, "eval")
    specs = [
        _spec(session, _Leg(1, "eval", "champion", 0), position, item, pack) for position, item in enumerate(items)
    ]
    try:
        tally.add(accept_batch(session, specs))
    except RewarderTimeout as error:
        session.epoch_failed(1, str(error))
    session.epoch_ended(tally.end(session.library))


def accept_batch(session: Session, specs: Sequence[GroupSpec]) -> list[GroupResult]:
    """Run the groups of a batch and record them, in the order of the specs whatever order they came back in.

    Raises ``BudgetRefused`` or ``RunAborted`` before anything of the batch is recorded, so that a resumed run tries
    again what was refused or broken; ``RewarderTimeout`` after recording, because that evidence is final.
    """
    order = {spec.group_id: place for place, spec in enumerate(specs)}
    results = sorted(session.run_groups(specs), key=lambda result: order[result.group_id])
    fatal = next((result.fatal for result in results if result.fatal), None)
    if fatal:
        raise RunAborted(fatal)
    refused = next((result.budget_refused for result in results if result.budget_refused), None)
    if refused:
        raise BudgetRefused(refused)
    _refuse_broken_batch(session, results)
    session.record_groups(results)
    hanging = next((result.rewarder_fault for result in results if result.rewarder_fault), None)
    if hanging:
        raise RewarderTimeout(hanging)
    return results


def _refuse_broken_batch(session: Session, results: Sequence[GroupResult]) -> None:
    outcomes = [rollout.outcome for result in results for rollout in result.rollouts]
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    limit = session.settings.tfgrpo.max_lost_share
    if outcomes and len(failed) / len(outcomes) > limit:
        raise RunAborted(
            f"{len(failed)} of {len(outcomes)} rollouts of a batch failed, more than the share of {limit:g} that "
            f"tfgrpo.max_lost_share allows; the last: {failed[-1].error_type}: {failed[-1].reason}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Leg:
    """Which part of the run a group belongs to."""

    epoch: int
    phase: Phase
    arm: Arm
    batch: int


def _spec(session: Session, leg: _Leg, position: int, item: Item, pack: PackText) -> GroupSpec:
    learning = session.settings.tfgrpo
    return GroupSpec(
        group_id=f"{session.run_id}:e{leg.epoch}:{leg.arm}:{position:05d}",
        epoch=leg.epoch,
        phase=leg.phase,
        arm=leg.arm,
        batch=leg.batch,
        item=item,
        size=session.plan.group_size,
        temperature=learning.temperature.train if leg.phase == "train" else learning.temperature.eval,
        pack=pack,
        reflect=leg.phase == "train" and learning.enabled,
    )


def _slim(result: GroupResult) -> GroupResult:
    """Without texts: a sweep of any length is kept until the gate has seen it."""
    rollouts = tuple(dataclasses.replace(rollout, output="", summary="", tools=()) for rollout in result.rollouts)
    return dataclasses.replace(result, rollouts=rollouts)


@dataclasses.dataclass(slots=True)
class EpochTally:
    """Sums over an epoch's groups, so that nothing else of them has to be kept."""

    epoch: int
    phase: Phase
    total: float = 0.0
    scored: int = 0
    lost: int = 0
    informative: int = 0

    def add(self, results: Sequence[GroupResult]) -> None:
        """Count groups."""
        for result in results:
            rewards = scored_rewards(rollout.outcome for rollout in result.rollouts)
            self.total += sum(rewards)
            self.scored += len(rewards)
            self.lost += len(result.rollouts) - len(rewards)
            self.informative += result.signal == "mixed"

    def end(self, library: Library) -> EpochEnd:
        """The epoch in figures."""
        mean = self.total / self.scored if self.scored else None
        return EpochEnd(self.epoch, self.phase, mean, self.scored, self.lost, self.informative, len(library.entries))
