"""When does a run's candidate take the champion's place? When the gate says so and nobody was quicker.

What was recorded first is the decision: a run that is resumed after its end is told it again. Two runs never decide at
the same time, so that neither replaces a champion that it was not compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tfgrpo.flows.run.champion import promoted_library, signatures_in, verified
from tfgrpo.flows.run.session import Session
from tfgrpo.stores.experiences.promotions import Promotion, in_force, promotions, record_decided
from tfgrpo.tasks.gate import GateDecision

_OVERTAKEN: Final = "another run's library was promoted since this run began, and it was not compared with that"
_RECORDED: Final = "this is on record since the run first ended, and now it would be"


def settle(session: Session, decision: GateDecision) -> GateDecision:
    """Put what the gate found on record, once per run, and return what is on record. Raises ``StoreError``."""

    def decide(earlier: Sequence[Promotion]) -> Promotion:
        own = _of_run(session.run_id, earlier)
        return own or _promotion(session, _unless_overtaken(session, decision, earlier))

    recorded = record_decided(session.task.promotions, decide)
    if recorded is None or recorded.decision == decision.decision:
        return decision
    overtaken = (decision.decision, recorded.decision) == ("promote", "undecided")
    why = _OVERTAKEN if overtaken else f"{_RECORDED} {decision.decision}"
    return replace(decision, decision=recorded.decision, reasons=(why, *decision.reasons))


def _of_run(run_id: str, earlier: Iterable[Promotion]) -> Promotion | None:
    return next((promotion for promotion in earlier if promotion.run_id == run_id), None)


def _unless_overtaken(session: Session, decision: GateDecision, earlier: Sequence[Promotion]) -> GateDecision:
    """What was not compared with the library that is in force now cannot take its place."""
    if decision.decision != "promote" or not _overtaken(session, earlier):
        return decision
    return replace(decision, decision="undecided")


def _overtaken(session: Session, earlier: Sequence[Promotion]) -> bool:
    """Whether the champion is another than at the beginning; of a replay, whether it was when the run ended."""
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
        experience_ids=tuple(entry.experience_id for entry in session.library.entries),
        library_id=session.library.library_id,
        estimate=interval.estimate if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        pairs=decision.pairs,
        simulated=session.plan.simulated,
        signatures=signatures_in(session.store, session.library),
    )
