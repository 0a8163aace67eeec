"""Fold the proposals of one batch into the candidate library and store them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tfgrpo.flows.run.loop.batches import raise_timeout, record_failure
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.stores.errors import BudgetRefused, RunAborted
from tfgrpo.stores.experiences.library import fold
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.outcomes import scored_rewards
from tfgrpo.stores.telemetry.names import BATCH, EPOCH, RECORDS, SPAN_OPTIMIZE, SPAN_STORE_WRITE
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.gate import off_scale
from tfgrpo.tasks.learning.curate import CurationInput, CurationResult, curate_batch
from tfgrpo.tasks.runtime.host import call_blocking
from tfgrpo.tasks.shapes import GroupResult, GroupSpec


def curate(
    session: Session, specs: Sequence[GroupSpec], results: Sequence[GroupResult], meanwhile: Callable[[], object]
) -> None:
    """Curate a batch and store the new records, all or none.

    ``meanwhile`` runs while the model answers, and before anything is stored. Raises ``BudgetRefused`` or
    ``RunAborted`` when nothing could be decided (a resumed run curates the batch again), and ``RewarderTimeout`` after
    ``meanwhile`` for a batch whose evidence is void.
    """
    _warn_of_scale(session, results)
    if not any(result.proposals for result in results) or any(result.rewarder_fault for result in results):
        meanwhile()
        raise_timeout(results)
        return
    epoch, batch = specs[0].key.epoch, specs[0].key.batch
    curation = _ask(session, specs, results, meanwhile)
    records = _verified(session, curation.records, f"epoch {epoch}, batch {batch + 1}")
    span = session.announcer.telemetry.span(SPAN_STORE_WRITE, {EPOCH: epoch, BATCH: batch, RECORDS: len(records)})
    with span:
        new = session.store.record_batch(records, session.paths.manifest) if records else 0
    if new or not records:  # a resumed run has reported stored records before
        session.announcer.operations(epoch, records, curation.rejected)
    learning = session.learning
    learning.stored += len(records)
    learning.remembered = curation.memory
    learning.rejected.extend(curation.rejected)
    learning.library = fold(learning.library, records)
    session.announcer.curated(records, len(curation.rejected), learning.library)


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
        rejected_before=learning.remembered,
    )
    with session.announcer.telemetry.span(SPAN_OPTIMIZE, {EPOCH: epoch, BATCH: batch}):
        curation = call_blocking(session.context, partial(curate_batch, request), meanwhile)
    if curation.fatal:
        raise RunAborted(curation.fatal)
    if curation.budget_refused:
        raise BudgetRefused(curation.budget_refused)
    for broken in curation.broken_calls:
        record_failure(session, broken)
    sentence = curation.failure.sentence if curation.failure else None
    for number in range(curation.asked):
        learning.losses.add(sentence if number < curation.lost else None)
    if curation.rule_used:
        reason = curation.failure.reason if curation.failure else "no usable answer"
        session.books.manifest.warn(f"epoch {epoch}, batch {batch + 1}: the deterministic rule curated ({reason})")
    return curation


def _verified(session: Session, records: Sequence[ExperienceRecord], batch: str) -> Sequence[ExperienceRecord]:
    """Return the records, or none with a warning: all records of a batch have the stamp of one pack."""
    if all(session.store.verify_stamp(record) for record in records):
        return records
    unstamped = f"{pluralize(len(records), 'lesson')} neither stored nor injected: not stamped for the pack in force"
    session.books.manifest.warn(f"{batch}: {unstamped}")
    session.announcer.violation("stamp", len(records))
    return ()


def _warn_of_scale(session: Session, results: Sequence[GroupResult]) -> None:
    rewards = [reward for result in results for reward in scored_rewards(each.outcome for each in result.rollouts)]
    low, high = session.plan.score_range
    if off_scale(rewards, (low, high)):
        session.books.manifest.warn(
            f"rewards outside {low:g} to {high:g}: lessons are learned from them, but the gate will abstain: its interval "
            "needs that scale; score_range declares another"
        )
