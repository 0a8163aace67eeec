"""The algorithm of a run: epochs of batches of groups, each tested before it is learned from, curation, and the sweep.

It knows no Prefect: groups run through ``session.fan_out``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from tfgrpo.flows.run.effects import effect_text
from tfgrpo.flows.run.loop.batches import (
    accept_batches,
    check_first_batch,
    cohort_groups,
    group_spec,
    prompts,
    record_batch,
    record_failure,
    run_batch,
)
from tfgrpo.flows.run.loop.epochs import draw_cohort, open_epoch, refuse_unscored
from tfgrpo.flows.run.loop.measuring import measure_lessons
from tfgrpo.flows.run.loop.promotion import promote, retire
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.stores.errors import BudgetRefused, RunAborted
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.record import ExperienceRecord, Operation
from tfgrpo.stores.outcomes import Arm, GroupKey, scored_rewards
from tfgrpo.stores.telemetry.names import ExperienceOp
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.evaluation import LearningEvidence, PairedEvidence, Tried, pair_arms
from tfgrpo.tasks.gate import GateDecision, off_scale
from tfgrpo.tasks.learning.curate import curate_batch
from tfgrpo.tasks.learning.curation import CurationInput, CurationResult
from tfgrpo.tasks.runtime.host import call_blocking
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText

_OPERATIONS: Final[Mapping[Operation, ExperienceOp]] = {
    "add": "added",
    "modify": "changed",
    "merge": "merged",
    "delete": "deleted",
}


def learn(session: Session) -> GateDecision:
    """Learn in epochs 1 … E-1, measure both libraries in epoch E, and return the recorded decision of the gate."""
    evidence = LearningEvidence()
    for epoch in range(1, session.settings.tfgrpo.epochs):
        cohort = draw_cohort(session, epoch)
        with open_epoch(session, epoch, "train", len(cohort.items)) as sums:
            for groups in cohort_groups(session, cohort, epoch, "train", "train"):
                results = run_batch(session, groups)
                check_first_batch(session, groups, results)
                evidence.add(results, session.baseline.library_id)
                # The batch is written while the model curates it: one waits for the disk, the other for a reply.
                curate(session, groups, results, meanwhile=partial(record_batch, session, results))
                sums.add(results)
    measure_lessons(session)
    swept = sweep(session, session.learning.champion, session.successor)
    refuse_unscored(session)
    retire(session)
    return promote(session, swept, evidence.against(session.baseline.library_id))


def sweep(session: Session, champion: Library, candidate: Library) -> PairedEvidence:
    """Run champion and candidate on the same held-out items, with the same seeds, at the evaluation temperature.

    Nothing is run for equal libraries, whose calls would be the same; runs of the first learning rules run one arm. An
    item for which libraries beyond the slots have the same prompt is run once: its difference is zero.
    """
    items = session.plan.eval_items
    before, after = prompts(session, champion, items), prompts(session, candidate, items)
    differ = [one.digest != other.digest for one, other in zip(before, after, strict=True)]
    if not any(differ) and session.context.rules > 1:
        return PairedEvidence((), (), identical=True)
    epoch, size = session.settings.tfgrpo.epochs, session.settings.tfgrpo.batch_size
    session.books.cohort(epoch, session.plan.evaluation)

    def groups(position: int) -> Iterator[GroupSpec]:
        arms: tuple[tuple[Arm, PackText], ...] = (("champion", before[position]), ("candidate", after[position]))
        for arm, pack in arms[: 1 + differ[position]]:
            item = items[position]
            key = GroupKey(epoch, "eval", arm, position // size, item.id, run=session.run_id)
            yield group_spec(session, key, position, item, pack, session.plan.sweep_size)

    batches = [
        [spec for at in range(first, min(first + size, len(items))) for spec in groups(at)]
        for first in range(0, len(items), size)
    ]
    # Rewards alone, so that a sweep of any length fits into memory until the gate has seen it.
    arms: dict[Arm, dict[str, Tried]] = {"champion": {}, "candidate": {}}
    with (
        open_epoch(session, epoch, "eval", len(items) + sum(differ)) as sums,
        closing(accept_batches(session, batches)) as arriving,
    ):
        for accepted in arriving:
            sums.add(accepted)
            for result in accepted:
                arms[result.key.arm][result.key.item] = Tried.of(result.rollouts)
    return pair_arms(arms["champion"], arms["champion"] | arms["candidate"], identical=not any(differ))


def measure(session: Session) -> None:
    """Run one actor per item and learn nothing, for runs with the feature flag off."""
    cohort = draw_cohort(session, 1)
    with open_epoch(session, 1, "eval", len(cohort.items), last=1) as sums:
        for groups in cohort_groups(session, cohort, 1, "eval", "champion"):
            results = run_batch(session, groups)
            check_first_batch(session, groups, results)
            record_batch(session, results)
            sums.add(results)
    refuse_unscored(session)


def curate(
    session: Session, specs: Sequence[GroupSpec], results: Sequence[GroupResult], meanwhile: Callable[[], object]
) -> None:
    """Curate a batch and store the new records, all or none.

    ``meanwhile`` runs while the model answers, and before anything is stored. Raises ``BudgetRefused`` or
    ``RunAborted`` when nothing could be decided: a resumed run curates the batch again.
    """
    _warn_of_scale(session, results)
    said = any(result.proposals or result.judgements for result in results)
    if not said:
        meanwhile()
        return
    epoch, batch = specs[0].key.epoch, specs[0].key.batch
    curation = _ask(session, specs, results, meanwhile)
    records = _verified(session, curation.records, f"epoch {epoch}, batch {batch + 1}")
    with session.telemetry.span("tfgrpo.store.write", epoch=epoch, batch=batch, records=len(records)):
        new = session.store.record_batch(records, session.paths.manifest) if records else 0
    if new or not records:  # a resumed run has reported stored records before
        _record_operations(session, epoch, records, curation.rejected)
    learning = session.learning
    learning.stored += len(records)
    learning.remembered = curation.memory
    learning.rejected.extend(curation.rejected)
    # Events of lessons that were not stored count for nobody.
    events = curation.events if len(records) == len(curation.records) else ()
    for name, reason in learning.learn(records, events).items():
        session.books.manifest.warn(f"lesson {name} left the champion: {reason}")
    session.observer.lessons_stored(records, len(curation.rejected))
    session.telemetry.record("library", domain=session.domain, active=len(learning.library.entries))


def _record_operations(
    session: Session, epoch: int, records: Sequence[ExperienceRecord], rejected: Sequence[tuple[str, str]]
) -> None:
    for record in records:
        session.telemetry.record("experience", epoch=epoch, domain=session.domain, op=_OPERATIONS[record.operation])
    for _, reason in rejected:
        label = reason_label(reason)
        session.telemetry.record("experience", epoch=epoch, domain=session.domain, op="rejected", reason=label)


def reason_label(reason: str) -> str:
    """Return the first four words of a reason as a metric label, without figures and names."""
    return "_".join(re.findall(r"[a-z]+", reason.lower())[:4])


def _ask(
    session: Session, specs: Sequence[GroupSpec], results: Sequence[GroupResult], meanwhile: Callable[[], object]
) -> CurationResult:
    learning, epoch, batch = session.learning, specs[0].key.epoch, specs[0].key.batch
    request = CurationInput(
        epoch=epoch,
        batch=batch,
        groups=tuple(results),
        library=learning.library.entries,
        answers={spec.item.id: spec.item.answer for spec in specs},
        alternatives={spec.item.id: spec.item.alternatives for spec in specs},
        rejected_before=learning.remembered,
        accounts=learning.accounts,
        effects={name: effect_text(each) for name, each in learning.effects.items()},
        families={spec.item.id: spec.item.domain for spec in specs if spec.item.domain},
    )
    with session.telemetry.span("tfgrpo.optimize", epoch=epoch, batch=batch):
        curation = call_blocking(session.context, partial(curate_batch, request), meanwhile)
    spend = curation.spend
    if spend.fatal:
        raise RunAborted(spend.fatal)
    if spend.budget_refused:
        raise BudgetRefused(spend.budget_refused)
    for broken in spend.broken:
        record_failure(session, broken)
    sentence = spend.failure.sentence if spend.failure else None
    for number in range(curation.asked):
        learning.losses.add(sentence if number < curation.lost else None)
    if curation.lost:
        reason = spend.failure.reason if spend.failure else "no usable answer"
        session.books.manifest.warn(f"epoch {epoch}, batch {batch + 1}: the deterministic rule curated ({reason})")
    return curation


def _verified(session: Session, records: Sequence[ExperienceRecord], batch: str) -> Sequence[ExperienceRecord]:
    """Return the records, or none with a warning: all records of a batch have the stamp of one pack."""
    if all(session.store.verify_stamp(record) for record in records):
        return records
    unstamped = f"{pluralize(len(records), 'lesson')} neither stored nor injected: not stamped for the pack in force"
    session.books.manifest.warn(f"{batch}: {unstamped}")
    for _ in records:
        session.telemetry.record("guardrail", rule="stamp")
    return ()


def _warn_of_scale(session: Session, results: Sequence[GroupResult]) -> None:
    rewards = [reward for result in results for reward in scored_rewards(each.outcome for each in result.rollouts)]
    low, high = session.plan.score_range
    if off_scale(rewards, (low, high)):
        session.books.manifest.warn(
            f"rewards outside {low:g} to {high:g}: lessons are learned from them, but the gate will abstain: its interval "
            "needs that scale; score_range declares another"
        )
