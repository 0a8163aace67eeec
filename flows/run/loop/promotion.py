"""Decide on the candidate of a run once, by all evidence there is, and record the decision.

The evidence of an undecided run is what the next one begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tfgrpo.flows.run.champion import promoted_library, signatures_in, verified
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.pipelines.datasets.items import ids_of
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.library import Library, Promotion, in_force, promotions, record_decided, uncompared
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.evaluation import PairedEvidence
from tfgrpo.tasks.gate import Carried, GateDecision, decide_gate, narrow_scale

_OVERTAKEN: Final = (
    "another library was put into force since this run began, and this one was not compared with that: the evidence "
    "starts anew"
)
_RECORDED: Final = "this is on record since the run first ended, and now it would be"


def promote(session: Session, evidence: PairedEvidence, learned: PairedEvidence) -> GateDecision:
    """Decide whether the candidate replaces the champion and return the decision on record. Raises ``StoreError``.

    ``evidence`` is that of the sweep, ``learned`` that of the learning batches against the baseline. What earlier nights
    proved is nothing to lessons that come when the last one has left; before learning rules 6, when any has. A run that is
    resumed after its end keeps its recorded decision. Decisions of concurrent runs are serialized, so that no library
    replaces one that it was not compared with.
    """
    score_range, carried, learning = session.plan.score_range, session.carried, session.learning
    if narrow := narrow_scale(evidence, score_range):
        session.books.manifest.warn(narrow)
    if carried is not None and learning.left and not session.follows:
        carried = Carried()
    decided = decide_gate(
        evidence, session.settings.gate, score_range, carried=carried, learned=learned, follows=session.follows
    )
    decision = _recorded(session, decided)
    session.books.gate = decision
    session.observer.gate_decided(decision)
    return decision


def _recorded(session: Session, decision: GateDecision) -> GateDecision:
    """Record the decision unless the run has one on record, and return the one on record.

    A promotion over a library that the candidate was not compared with becomes undecided; evidence against another
    champion than the one in force is not carried on.
    """

    def decide(earlier: Sequence[Promotion]) -> Promotion:
        overtaken = _overtaken(session, earlier, session.learning.champion, decision)
        lost = overtaken and decision.decision == "promote"
        decided = replace(decision, decision="undecided") if lost else decision
        return _of_run(session.run_id, earlier) or _promotion(session, decided, overtaken=overtaken)

    recorded = record_decided(session.task.promotions, decide)
    decided = recorded.decision if recorded else decision.decision
    verdict = decision.decision if decided == "retire" or decided == "rollback" else decided  # noqa: PLR1714
    counted = decision.nights or decision.decision == "promote"
    if recorded and verdict == "undecided" and recorded.capital is None and counted:
        return replace(decision, decision=verdict, reasons=(_OVERTAKEN, *decision.reasons), given_up=True)
    if verdict == decision.decision:
        return decision
    return replace(decision, decision=verdict, reasons=(f"{_RECORDED} {decision.decision}", *decision.reasons))


def retire(session: Session) -> None:
    """Record the lessons that left the champion in this run, unless another library is in force by now."""
    learning = session.learning

    def decide(earlier: Sequence[Promotion]) -> Promotion | None:
        if done := _of_run(session.run_id, earlier, retired=True):
            return done
        if session.replay_of is not None:
            if _of_run(session.run_id, promotions(session.replay_of.promotions), retired=True) is None:
                return None
        elif _overtaken(session, earlier, session.champion):
            return None
        return uncompared(
            learning.champion,
            "retire",
            run_id=session.run_id,
            decided_at=session.clock(),
            simulated=session.plan.simulated,
            signatures=signatures_in(session.store, learning.champion),
            reasons=dict(learning.left),
        )

    if learning.left:
        record_decided(session.task.promotions, decide)


def _of_run(run_id: str, earlier: Iterable[Promotion], *, retired: bool = False) -> Promotion | None:
    return next((one for one in earlier if one.run_id == run_id and (one.decision == "retire") is retired), None)


def _overtaken(
    session: Session, earlier: Sequence[Promotion], champion: Library, decision: GateDecision | None = None
) -> bool:
    """Return whether another library than this is in force; for a replay, whether it was when its run ended."""
    if session.replay_of is not None:
        then = _of_run(session.run_id, promotions(session.replay_of.promotions))
        if then is None or then.decision != "undecided":
            return False
        return then.capital is None or decision is None or decision.decision == "promote"
    now = promoted_library(session.store, in_force(earlier, simulated=session.plan.simulated))
    return verified(now, session.store).library_id != champion.library_id


def _promotion(session: Session, decision: GateDecision, *, overtaken: bool) -> Promotion:
    interval, capital, successor = decision.interval, decision.capital, session.successor
    nights = 0 if overtaken or decision.given_up else decision.nights
    return Promotion(
        run_id=session.run_id,
        decided_at=session.clock(),
        decision=decision.decision,
        experience_ids=tuple(entry.experience_id for entry in successor.entries),
        library_id=successor.library_id,
        estimate=interval.estimate if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        pairs=len(decision.evidence.pairs),
        simulated=session.plan.simulated,
        signatures=signatures_in(session.store, successor),
        capital=capital.logs if capital and not overtaken else None,
        nights=nights if capital else None,
    )


def carried_evidence(plan: Plan) -> tuple[Carried, str]:
    """Return the evidence that a new run of a task begins with, and a warning if that of its last night is lost.

    It is that of the last decision, as ``Carried.after`` it. What was measured otherwise, or against another champion,
    proves nothing here; and a night that repeats the items and seeds of one before proves nothing again.
    """
    decided = [one for one in promotions(plan.paths.promotions) if one.simulated == plan.simulated]
    last = next((one for one in reversed(decided) if one.decision != "retire"), None)
    if last is None or not last.capital:
        return Carried(), ""
    lost = f"the evidence of {pluralize(last.nights or 0, 'night')}, up to {last.run_id}, starts anew"
    at_stake = last.decision != "reject" and bool(last.nights)
    # A run records what left its champion before its decision, so that this is a person's doing.
    if decided[-1] is not last:
        return Carried(), f"{lost}: a lesson was taken out of the library in force since" if at_stake else ""
    run = plan.paths.run(last.run_id)
    try:
        with expected_shape(run.root):
            manifest = ManifestFile(run.manifest).read()
            changed = " and ".join(_changed(manifest, plan)) if manifest else ""
    except (OSError, CorruptFile) as error:
        return Carried(), f"{lost}: whose it is cannot be read: {error}" if at_stake else ""
    if changed or not manifest:
        why = f"this night has {changed}" if manifest else "the manifest of that run is gone"
        return Carried(), f"{lost}: {why}" if at_stake else ""
    if last.decision == "promote" and not last.experience_ids:  # what was proven before was of lessons that are gone
        return Carried(), ""
    return Carried.after(last.decision, Capital(last.capital), last.nights, plan.settings.gate.confidence), ""


def _changed(manifest: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    """Yield what is not as it was in a run, so that its evidence says nothing about this one."""
    then = manifest["settings"]["tfgrpo"]
    if manifest.get("learning_rules", 1) < 6:
        yield "learning rules that prove against no lessons"
    if manifest["model"] != plan.models.name:
        yield "another model"
    if manifest["pack"]["stamp"] != plan.pack.manifest.stamp:
        yield "another version of the pack"
    rewarders = (each.model_dump(mode="json") for each in plan.settings.rewarders)
    before, after = (
        [[each.get(name) for name in ("name", "weight", "options", "score_range")] for each in some]
        for some in (manifest["settings"]["rewarders"], rewarders)
    )
    if before != after:
        yield "other rewarders"
    drawn = {item for cohort in manifest["cohorts"].values() for item in cohort["items"]}
    here = {*ids_of(plan.data.split.learn), *ids_of(plan.data.split.held_out)}
    if 2 * len(drawn & here) < len(drawn):
        yield "other items"
    if then["seed"] == plan.settings.tfgrpo.seed and then["night"] >= (plan.settings.tfgrpo.night or 0):
        yield "the items and seeds of a night before"
