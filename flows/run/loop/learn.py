"""The algorithm of a run: epochs of batches of groups, then the sweep over held-out items, the gate and the promotion.

It knows no Prefect: groups run through ``session.fan_out``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tfgrpo.flows.run.loop.batches import (
    accept_batches,
    cohort_groups,
    group_spec,
    prompt,
    raise_timeout,
    record_batch,
    run_batch,
)
from tfgrpo.flows.run.loop.curation import curate
from tfgrpo.flows.run.loop.epochs import draw_cohort, open_epoch
from tfgrpo.flows.run.loop.promote import promote
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.stores.group_key import GroupKey
from tfgrpo.stores.outcomes import Arm, Outcome, Scored
from tfgrpo.tasks.evaluation import PairedEvidence, pair_results
from tfgrpo.tasks.gate import GateDecision
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText


def learn(session: Session) -> GateDecision:
    """Learn in epochs 1 … E−1, measure both libraries in epoch E, and return the recorded decision of the gate."""
    for epoch in range(1, session.settings.tfgrpo.epochs):
        cohort = draw_cohort(session, epoch)
        with open_epoch(session, epoch, "train", len(cohort.items)) as sums:
            for groups in cohort_groups(session, cohort, epoch, "train", "train"):
                results = run_batch(session, groups)
                # The batch is written while the model curates it: one waits for the disk, the other for a reply.
                curate(session, groups, results, meanwhile=partial(record_batch, session, groups, results))
                sums.add(results)
    return promote(session, sweep(session))


def sweep(session: Session) -> PairedEvidence:
    """Run champion and candidate on the same held-out items, with the same seeds, at the evaluation temperature.

    Nothing is run for equal libraries, whose calls would be the same; runs of the first learning rules run one arm.
    """
    arms: dict[Arm, PackText] = {"champion": prompt(session, session.champion)}
    candidate = prompt(session, session.learning.library)
    if candidate.digest != arms["champion"].digest:
        arms["candidate"] = candidate
    elif session.context.rules > 1:
        return PairedEvidence((), (), identical=True)
    epoch, size = session.settings.tfgrpo.epochs, session.settings.tfgrpo.batch_size
    items = session.plan.eval_items
    session.books.cohort(epoch, session.plan.evaluation)

    def group(position: int, arm: Arm, pack: PackText) -> GroupSpec:
        item = items[position]
        key = GroupKey(epoch, "eval", arm, position // size, item.id, run=session.run_id)
        return group_spec(session, key, position, item, pack)

    batches = [
        [group(at, *arm) for at in range(first, min(first + size, len(items))) for arm in arms.items()]
        for first in range(0, len(items), size)
    ]
    results: dict[Arm, list[GroupResult]] = {arm: [] for arm in arms}
    with open_epoch(session, epoch, "eval", len(items) * len(arms)) as sums:
        for accepted in accept_batches(session, batches):
            sums.add(accepted)
            for result in accepted:
                results[result.key.arm].append(_without_texts(result))
    if epoch in session.books.failed_epochs:
        return replace(pair_results([], []), identical=False)
    return pair_results(results["champion"], results["candidate" if "candidate" in arms else "champion"])


def measure(session: Session) -> None:
    """Run one actor per item and learn nothing, for runs with the feature flag off."""
    cohort = draw_cohort(session, 1)
    with open_epoch(session, 1, "eval", len(cohort.items), last=1) as sums:
        for groups in cohort_groups(session, cohort, 1, "eval", "champion"):
            results = run_batch(session, groups)
            record_batch(session, groups, results)
            raise_timeout(results)
            sums.add(results)


def _without_texts(result: GroupResult) -> GroupResult:
    """Drop texts and scores, so that a sweep of any length fits into memory until the gate has seen it."""
    rollouts = tuple(
        replace(rollout, outcome=_bare(rollout.outcome), scores=(), output="", summary="", tools=())
        for rollout in result.rollouts
    )
    return replace(result, rollouts=rollouts)


def _bare(outcome: Outcome) -> Outcome:
    return Scored(outcome.reward, ()) if isinstance(outcome, Scored) else outcome
