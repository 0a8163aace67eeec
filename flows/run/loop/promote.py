"""Decide whether the candidate library replaces the champion, and record the decision once per run.

A run that is resumed after its end keeps its recorded decision. Decisions of concurrent runs are serialized, so that no
library replaces one that it was not compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tfgrpo.flows.run.champion import promoted_library, signatures_in, verified
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.stores.experiences.library import Promotion, in_force, promotions, record_decided
from tfgrpo.tasks.evaluation import PairedEvidence
from tfgrpo.tasks.gate import GateDecision, decide_gate, narrow_scale

_OVERTAKEN: Final = "another run's library was promoted since this run began, and it was not compared with that"
_RECORDED: Final = "this is on record since the run first ended, and now it would be"


def promote(session: Session, evidence: PairedEvidence) -> GateDecision:
    """Judge the candidate by the evidence and return the recorded decision. Raises ``StoreError``."""
    score_range = session.plan.score_range
    if narrow := narrow_scale(evidence, score_range):
        session.books.manifest.warn(narrow)
    decision = _recorded(session, decide_gate(evidence, session.settings.gate, score_range))
    session.books.gate = evidence, decision
    session.announcer.gate_decided(decision)
    return decision


def _recorded(session: Session, decision: GateDecision) -> GateDecision:
    """Record the decision unless the run has one on record, and return the one on record."""

    def decide(earlier: Sequence[Promotion]) -> Promotion:
        return _of_run(session.run_id, earlier) or _promotion(session, _unless_overtaken(session, decision, earlier))

    recorded = record_decided(session.task.promotions, decide)
    if recorded is None or recorded.decision == decision.decision:
        return decision
    overtaken = (decision.decision, recorded.decision) == ("promote", "undecided")
    why = _OVERTAKEN if overtaken else f"{_RECORDED} {decision.decision}"
    return replace(decision, decision=recorded.decision, reasons=(why, *decision.reasons))


def _of_run(run_id: str, earlier: Iterable[Promotion]) -> Promotion | None:
    return next((promotion for promotion in earlier if promotion.run_id == run_id), None)


def _unless_overtaken(session: Session, decision: GateDecision, earlier: Sequence[Promotion]) -> GateDecision:
    """Return the decision; a promotion over a library it was not compared with becomes undecided."""
    if decision.decision != "promote" or not _overtaken(session, earlier):
        return decision
    return replace(decision, decision="undecided")


def _overtaken(session: Session, earlier: Sequence[Promotion]) -> bool:
    """Return whether the champion changed since the run started; for a replay, whether it had when its run ended."""
    if session.replay_of is not None:
        then = _of_run(session.run_id, promotions(session.replay_of.promotions))
        return then is not None and then.decision == "undecided"
    now = promoted_library(session.store, in_force(earlier, simulated=session.plan.simulated))
    return verified(now, session.store).library_id != session.champion.library_id


def _promotion(session: Session, decision: GateDecision) -> Promotion:
    interval = decision.interval
    return Promotion(
        run_id=session.run_id,
        decided_at=session.clock(),
        decision=decision.decision,
        experience_ids=tuple(entry.experience_id for entry in session.learning.library.entries),
        library_id=session.learning.library.library_id,
        estimate=interval.estimate if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        pairs=decision.pairs,
        simulated=session.plan.simulated,
        signatures=signatures_in(session.store, session.learning.library),
    )
