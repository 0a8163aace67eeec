"""Decide once on what is in force after a run, and record the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from tfgrpo.flows.run.lessons import decided_library, signatures_in, store_of, verified
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.stores.experiences.decisions import (
    OVERTAKEN,
    Decision,
    Verdict,
    in_force,
    kept_out,
    read_decisions,
    record_decided,
)
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import CONFIDENCE, gain_of, verdict_of
from tfgrpo.tasks.learning.credit import credit_of

if TYPE_CHECKING:
    from tfgrpo.flows.run.loop.learn import Swept

ALARM: Final = "kept out for what replies do with it, whatever the reward"
RETIRED: Final = "a lesson that was retired since this run began stays out"


def decide(session: Session, swept: Swept) -> Decision:
    """Decide by all rows and held-out ones, and return the decision on record. Raises ``StoreError``.

    A run that is resumed after its end keeps its decision. Decisions of concurrent runs are serialized, and what a person or
    another run put into force since this one began stays in force.
    """

    def decision(earlier: Sequence[Decision]) -> Decision:
        if done := next((one for one in earlier if one.run_id == session.run_id), None):
            return done
        return _decision(session, swept, _since_then(session, earlier))

    recorded = record_decided(session.task.promotions, decision)
    if recorded is None:
        raise AssertionError("a decision is always recorded")
    session.books.decision, session.books.swept = recorded, swept
    session.observer.decided(recorded)
    return recorded


def _since_then(session: Session, earlier: Sequence[Decision]) -> Sequence[Decision]:
    """Return the decisions up to now; of a replay, those of its task up to the decision of its run."""
    if session.replay_of is None:
        return earlier
    return list(takewhile(lambda one: one.run_id != session.run_id, read_decisions(session.replay_of.promotions)))


def _overtaken(session: Session, earlier: Sequence[Decision]) -> Library | None:
    """Return the library that was put into force since this run began; None for none."""
    store = store_of(session.plan, session.replay_of or session.task)
    now = verified(decided_library(store, in_force(earlier, simulated=session.plan.simulated)), store)
    return None if now.library_id == session.serving.library_id else now


def _by_person(session: Session, earlier: Sequence[Decision]) -> bool:
    """Return whether a person put into force what has been in force ever since."""
    same_model = (one for one in reversed(earlier) if one.simulated == session.plan.simulated)
    unbroken = takewhile(lambda one: one.experience_ids, same_model)
    return any(one.decision in {"rollback", "import"} for one in unbroken)


def _without_suspects(
    session: Session, verdict: Verdict, library: Library, follows: Library
) -> tuple[Verdict, Library, str]:
    """Return what stays in force after an alarm, and the lessons that it may be due to: those that were not in force before."""
    before = {entry.experience_id for entry in session.serving.entries}
    suspects = [each.experience_id for each in follows.entries if each.experience_id not in before]
    if not suspects:  # then it is one of those in force
        suspects = [each.experience_id for each in follows.entries]
    rest = Library(tuple(each for each in library.entries if each.experience_id not in suspects))
    if verdict == "in force" and not rest.entries:
        verdict = "taken back" if before else "not yet"
    return verdict, rest, f"one of {pluralize(len(suspects), 'lesson')}: {', '.join(suspects)}"


def _decision(session: Session, swept: Swept, earlier: Sequence[Decision]) -> Decision:
    memory, served = replace(session.learning.memory, swept=swept.lessons), bool(session.serving.entries)
    credit = credit_of(memory)
    out, overtaken = kept_out(earlier, simulated=session.plan.simulated), _overtaken(session, earlier)
    notes: list[str] = []
    if any(not each.ids.isdisjoint(out) for each in credit.known.values() if each.record in credit.follows):
        credit = credit_of(replace(memory, kept_out=out))
        notes.append(RETIRED)
    follows = Library(credit.follows)
    verdict: Verdict
    if overtaken is not None:
        verdict, library = "in force" if overtaken.entries else "not yet", overtaken
        notes.append(OVERTAKEN)
    else:
        verdict = verdict_of(credit, served=served, by_person=_by_person(session, earlier))
        library = follows if verdict == "in force" else Library(())
        if swept.alarms:
            verdict, library, differ = _without_suspects(session, verdict, library, follows)
            notes.append(f"{ALARM}: {'; '.join(swept.alarms)}; by {differ}")
    proven = credit.evidence.reaches(CONFIDENCE)
    return Decision(
        run_id=session.run_id,
        decided_at=session.clock(),
        decision=verdict,
        experience_ids=tuple(entry.experience_id for entry in library.entries),
        library_id=library.library_id,
        signatures=signatures_in(session.store, library),
        considered=tuple(entry.experience_id for entry in follows.entries),
        total=gain_of(credit.total) if follows.entries else None,
        held_out=gain_of(credit.held_out.gain) if credit.swept or credit.evidence.log_value else None,
        pairs=credit.swept,
        evidence=credit.evidence.log_value,
        proven=proven and verdict == "in force",
        attempts=credit.attempts,
        notes=(*credit.left_out, *notes),
        night=session.night + 1,
        simulated=session.plan.simulated,
    )
