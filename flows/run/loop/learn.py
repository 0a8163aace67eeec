"""The algorithm of a run: epochs of batches of groups on two sides, credit, curation, the sweep and the decision.

In place of learning, a run may measure lessons on demand, or test those in force on the sealed items: each library once. It
knows no Prefect: groups run through ``session.fan_out``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, takewhile
from statistics import fmean
from typing import Final

from tfgrpo.flows.console.observer import Losses
from tfgrpo.flows.orchestration.request import Control, Measuring
from tfgrpo.flows.run.lessons import decided_library, library_of, signatures_in, store_of, verified
from tfgrpo.flows.run.loop import batches
from tfgrpo.flows.run.loop.books import Session, State
from tfgrpo.prompt_packs.stamps import without_meaning
from tfgrpo.rewarders.scorer import Range
from tfgrpo.rewarders.statistics.credit import mean_difference
from tfgrpo.stores.errors import BudgetRefused, RunAborted
from tfgrpo.stores.experiences import decisions
from tfgrpo.stores.experiences.credit import Row, outside_range, share_of_range
from tfgrpo.stores.experiences.decisions import Alarm, Decision, DecisionVerdict, Library, SealedTest
from tfgrpo.stores.experiences.store import ExperienceRecord, Operation
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.json_values import sha256_hex, stream
from tfgrpo.stores.outcomes import Arm, GroupKey, scored_rewards
from tfgrpo.stores.runs import ManifestFile
from tfgrpo.stores.telemetry.setup import ExperienceOp
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import BROKE, CONFIDENCE, gain_of, overruled_by_person, verdict_of
from tfgrpo.tasks.learning.credit import credit_of, random_halves
from tfgrpo.tasks.learning.curate import CurationInput, CurationResult, curate_batch
from tfgrpo.tasks.rollout import Canaries
from tfgrpo.tasks.runtime.host import call_blocking
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText

_OPERATIONS: Final[Mapping[Operation, ExperienceOp]] = {"add": "added", "modify": "changed", "merge": "merged"}
SIDES: Final[tuple[Arm, Arm]] = ("library", "none")


def learn(session: Session) -> Decision:
    """Learn in epochs 1 … E-1, sweep what would follow against no lessons in epoch E, and return the decision on record."""
    books, state = session.books, session.books.state
    for epoch in range(1, session.settings.tfgrpo.epochs):
        cohort = batches.draw_cohort(session, epoch)
        with batches.open_epoch(session, epoch, "train", len(cohort.items)) as sums:
            for batch in range(len(cohort.batches)):
                groups = batches.learning_groups(session, cohort, epoch, batch, state.credit.on_trial)
                results = batches.run_batch(session, groups, sums)
                state = books.learned(state, batches.rows_of(session, "learning", groups, results))
                state = curate(session, state, groups, results, sums.learning)
    swept, state = sweep(session, state)
    batches.refuse_unscored(session)
    return decide(session, state, swept)


@dataclass(frozen=True, slots=True)
class Swept:
    """Results of a sweep: rewards of the scored attempts of each item, and the lost attempts, by side."""

    rewards: Mapping[Arm, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    lost: Mapping[Arm, Mapping[str, int]] = field(default_factory=dict)
    items: int = 0
    lessons: tuple[str, ...] = ()
    """Ids of those in the prompt of the first side."""
    alarms: tuple[Alarm, ...] = ()
    """What its replies do beyond chance more often than those without lessons (``tasks/rollout.py``)."""

    def differences(self, score_range: Range) -> list[float]:
        """Return mean reward with lessons minus without, of each item scored on both sides, as shares of the range."""
        sides = [self.rewards.get(arm, {}) for arm in SIDES]
        pairs = [[share_of_range(side[item], score_range) for side in sides] for item in sides[0]]
        return [fmean(one) - fmean(other) for one, other in pairs if one and other]


def sweep(session: Session, state: State) -> tuple[Swept, State]:
    """Run what would follow against no lessons, and credit the rows. Nothing is run where nothing would follow."""
    if not state.credit.follows:
        return Swept(), state
    swept, score_range = swept_sides(session, state.credit.follows), session.plan.score_range
    _warn_of_scale(session, [reward for side in swept.rewards.values() for each in side.values() for reward in each])
    carried, rows = dict(zip(SIDES, (swept.lessons, ()), strict=True)), []
    for name in (item.id for item in session.plan.eval_items):
        sides = [(carried[arm], share_of_range(swept.rewards[arm][name], score_range), swept.lost[arm][name]) for arm in SIDES]
        rows.append(batches.two_sided_row(session, "sweep", f"sweep/{name}", name, sides))
    return swept, session.books.learned(state, rows)


def swept_sides(session: Session, lessons: Sequence[ExperienceRecord]) -> Swept:
    """Run lessons and no lessons on the same items, at the evaluation temperature."""
    items, (library, none) = session.plan.eval_items, batches.prompts(session, [lessons, ()])
    epoch, size = session.settings.tfgrpo.epochs, session.settings.tfgrpo.batch_size
    session.books.cohort(epoch, session.plan.evaluation)

    sides, groups = list(zip(SIDES, (library, none), strict=True)), [list[GroupSpec]() for _ in range(0, len(items), size)]
    for position, item in enumerate(items):
        # By turns: what comes first may do better for that alone.
        for arm, text in sides if position % 2 else sides[::-1]:
            key = GroupKey(epoch, "eval", arm, position // size, item.id, run=session.run_id)
            groups[key.batch].append(batches.group_spec(session, key, position, item, text, session.plan.sweep_size))
    # Rewards alone, so that a sweep of any length fits into memory until it is decided on.
    rewards: dict[Arm, dict[str, tuple[float, ...]]] = {arm: {} for arm in SIDES}
    lost: dict[Arm, dict[str, int]] = {arm: {} for arm in SIDES}
    canaries = Canaries()
    with closing(batches.run_epoch(session, epoch, "eval", groups)) as accepted:
        for result in chain.from_iterable(accepted):
            scored = scored_rewards(each.outcome for each in result.rollouts)
            rewards[result.key.arm][result.key.item] = scored
            lost[result.key.arm][result.key.item] = len(result.rollouts) - len(scored)
            canaries.add(result.key.arm, result.rollouts)
    return Swept(rewards, lost, len(items), library.experience_ids, tuple(canaries.alarms()))


def measure(session: Session) -> None:
    """Run one actor per item and learn nothing, for runs with the feature flag off."""
    cohort = batches.draw_cohort(session, 1)
    with batches.open_epoch(session, 1, "eval", len(cohort.items), last=1) as sums:
        for groups in batches.unlearned_batches(session, cohort):
            batches.run_batch(session, groups, sums)
    batches.refuse_unscored(session)


def curate(session: Session, state: State, specs: Sequence[GroupSpec], results: Sequence[GroupResult], losses: Losses) -> State:
    """Curate a batch and store the new records, all or none, with what was said of the lessons.

    Raises ``BudgetRefused`` or ``RunAborted`` when nothing could be decided: a resumed run curates the batch again.
    """
    _warn_of_scale(
        session, [reward for result in results for reward in scored_rewards(each.outcome for each in result.rollouts)]
    )
    if not any(result.proposals or result.judgements or result.contrasts for result in results):
        return state
    epoch, batch = specs[0].key.epoch, specs[0].key.batch
    curation, screened = _ask(session, state, specs, results, losses), sum(len(result.rejected) for result in results)
    records = curation.records
    if not all(session.store.verify_stamp(record) for record in records):  # all of a batch have the stamp of one pack
        unstamped = f"{pluralize(len(records), 'lesson')} neither stored nor injected: not stamped for the pack in force"
        session.books.manifest.warn(f"epoch {epoch}, batch {batch + 1}: {unstamped}")
        for _ in records:
            session.telemetry.record("guardrail", rule="stamp")
        records = ()
    with session.telemetry.span("tfgrpo.store.write", epoch=epoch, batch=batch, records=len(records)):
        new = session.store.record_batch(records, session.paths.manifest) if records else 0
    if new or not records:  # a resumed run has reported stored records before
        record = partial(session.telemetry.record, "experience", epoch=epoch, domain=session.domain)
        for each in records:
            record(op=_OPERATIONS[each.operation])
        for _, reason in curation.rejected:
            record(op="rejected", reason="_".join(re.findall(r"[a-z]+", reason.lower())[:4]))  # without figures and names
    session.books.rejected.extend(curation.rejected)
    session.books.proposals.update(curation.counts, refused=screened)
    session.books.refused_lessons.update(curation.refused)
    # Words of lessons that were not stored count for nobody.
    words = curation.words if len(records) == len(curation.records) else ()
    state = session.books.learned(state, words, records, curation.memory)
    session.observer.lessons_stored(records, screened + len(curation.rejected))
    session.telemetry.record("library", domain=session.domain, active=len(state.credit.known))
    return state


def _ask(
    session: Session, state: State, specs: Sequence[GroupSpec], results: Sequence[GroupResult], losses: Losses
) -> CurationResult:
    epoch, batch = specs[0].key.epoch, specs[0].key.batch
    request = CurationInput(
        epoch=epoch,
        batch=batch,
        groups=tuple(results),
        known=state.credit.known,
        items={spec.item.id: spec.item for spec in specs},
        rejected_before=state.remembered,
    )
    with session.telemetry.span("tfgrpo.optimize", epoch=epoch, batch=batch):
        curation = call_blocking(session.context, partial(curate_batch, request))
    spend = curation.spend
    if spend.fatal:
        raise RunAborted(spend.fatal)
    if spend.budget_refused:
        raise BudgetRefused(spend.budget_refused)
    for broken in spend.broken:
        batches.record_failure(session, broken)
    sentence = spend.failure.sentence if spend.failure else None
    for number in range(curation.asked):
        losses.add(sentence if number < curation.lost else None)
    if curation.lost:
        reason = spend.failure.reason if spend.failure else "no usable answer"
        session.books.manifest.warn(
            f"epoch {epoch}, batch {batch + 1}: {curation.lost} of {pluralize(curation.asked, 'question')} about the batch "
            f"brought no usable answer ({reason}); without one for proposals the best supported ones are new lessons"
        )
    return curation


def _warn_of_scale(session: Session, rewards: Sequence[float]) -> None:
    if warning := outside_range(rewards, session.plan.score_range):
        session.books.manifest.warn(warning)


RETIRED: Final = "a lesson that was retired since this run began stays out"


def decide(session: Session, state: State, swept: Swept) -> Decision:
    """Decide by all rows and held-out ones, and return the decision on record. Raises ``StoreError``.

    A run that is resumed after its end keeps its decision. Decisions of concurrent runs are serialized, and what a person or
    another run put into force since this one began stays in force.
    """

    def decision(earlier: Sequence[Decision]) -> Decision:
        if done := next((one for one in earlier if one.run_id == session.run_id), None):
            return done
        if session.replay_of is not None:  # of its task, up to the decision of its run
            original = decisions.read_decisions(session.replay_of.promotions)
            earlier = list(takewhile(lambda one: one.run_id != session.run_id, original))
        return _decision(session, state, swept, earlier)

    recorded = decisions.record_decided(session.task.promotions, decision)
    if recorded is None:
        raise AssertionError("a decision is always recorded")
    session.books.decision, session.books.swept = recorded, swept
    session.observer.decided(recorded)
    return recorded


def _alarms(session: Session, swept: Swept, follows: Library, accepted: Collection[str]) -> tuple[Alarm, ...]:
    """Return the alarms of a sweep; those not accepted with the lessons that they may be due to: those new in force."""
    ids = tuple(each.experience_id for each in follows.entries) or swept.lessons
    before = {each.experience_id for each in session.in_force.entries}
    suspects = tuple(name for name in ids if name not in before) or ids  # without a new one it is one of those in force
    return tuple(each if each.sign in accepted else each.model_copy(update={"suspects": suspects}) for each in swept.alarms)


def _decision(session: Session, state: State, swept: Swept, earlier: Sequence[Decision]) -> Decision:
    simulated, memory = session.plan.simulated, replace(state.memory, swept=swept.lessons)
    credit, out = credit_of(memory), decisions.kept_out(earlier, simulated=simulated)
    store = store_of(session.plan, session.replay_of or session.task)
    now = verified(decided_library(store, decisions.in_force(earlier, simulated=simulated)), store)
    notes, alarms = list[str](), tuple[Alarm, ...]()
    if any(not each.ids.isdisjoint(out) for each in credit.known.values() if each.record in credit.follows):
        credit = credit_of(replace(memory, kept_out=out))
        notes.append(RETIRED)
    follows = Library(credit.follows)
    verdict: DecisionVerdict
    if now.library_id != session.in_force.library_id:
        verdict, library = "in force" if now.entries else "not yet", now
        notes.append(decisions.OVERTAKEN)
    else:
        same_model = (one for one in reversed(earlier) if one.simulated == simulated)
        unbroken = takewhile(lambda one: one.experience_ids, same_model)
        by_person = any(one.decision in {"rollback", "import"} for one in unbroken)
        verdict = verdict_of(credit, served=bool(session.in_force.entries), by_person=by_person)
        if credit.held_out.broke:
            notes.append(BROKE)
        alarms = _alarms(session, swept, follows, overruled_by_person(earlier, simulated=simulated))
        ahead = follows.entries if verdict == "in force" else ()
        library = Library(tuple(each for each in ahead if all(each.experience_id not in one.suspects for one in alarms)))
        if verdict == "in force" and not library.entries:
            verdict = "taken back" if session.in_force.entries else "not yet"
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
        alarms=alarms,
        night=session.night + 1,
        simulated=simulated,
    )


def measure_on_demand(session: Session, measuring: Measuring) -> str:
    """Measure lessons, or what is in force against a control; return a sentence for people. Raises as ``run_epoch``."""
    batches.draw_cohort(session, session.settings.tfgrpo.epochs)  # of an epoch that does not learn
    if measuring.control is not None:
        return _compare_with_control(session, measuring.control)
    trial = {each.experience_id: each for each in (*session.in_force.entries, *session.books.state.credit.on_trial)}
    lessons = library_of(store_of(session.plan), measuring.lessons).entries if measuring.lessons else tuple(trial.values())
    if not lessons:
        return "nothing was measured: no lesson is on trial or in force"
    coin = stream(session.settings.tfgrpo.night_seed, "measured sides", _measured_before(session))
    halves = [random_halves(lessons, coin) for _ in range(session.plan.measured_groups)]
    # All texts of a night's measuring have one beginning: what is not measured is in every prompt.
    beside = [each for name, each in trial.items() if all(name != one.experience_id for one in lessons)]
    rows = _measured(session, [batches.prompts(session, [[*beside, *half] for half in both]) for both in halves])
    used = sum(row.difference is not None for row in rows)
    return f"measured {pluralize(len(lessons), 'lesson')} in {pluralize(used, 'group')}; nothing was learned"


def _compare_with_control(session: Session, control: Control) -> str:
    if not session.in_force.entries:
        return "nothing was measured: no lesson is in force"
    [library] = batches.prompts(session, [session.in_force.entries])
    against = library
    if control == "no-lessons":
        [against] = batches.prompts(session, [()])
    elif control == "neutral":
        system = without_meaning(library.system)
        against = replace(library, system=system, digest=sha256_hex(system), experience_ids=(), experiences=())
        session.books.prompts([against])
    rows = _measured(session, [(library, against)] * session.plan.measured_groups, control=control)
    differences = [row.difference for row in rows if row.difference is not None]
    if not differences:
        return f"lessons in force against {control}: no group has a reward on both sides"
    gain = mean_difference(differences).interval(len(differences), CONFIDENCE)
    figures = {"mean": gain.estimate, "low": gain.low, "high": gain.high, "groups": gain.n}
    session.books.manifest.update(control={"name": control, **figures})
    interval = f"(95 %: {figures['low']:+.1f} … {figures['high']:+.1f})"
    return f"lessons in force against {control}: {figures['mean']:+.1f} points {interval}, over {pluralize(gain.n, 'group')}"


def _measured_before(session: Session) -> int:
    # Of the whole task: the next ones go on with other items and tosses.
    return sum(sums.rows for sides, sums in session.books.state.memory.tally.rows.items() if sides.source == "measure")


def _measured(session: Session, sides: Sequence[Sequence[PackText]], control: Control | None = None) -> list[Row]:
    """Run and record groups on two sides and return their rows, which are credited unless they are against a control."""
    epoch, size = session.settings.tfgrpo.epochs, session.settings.tfgrpo.batch_size
    before, drawn = _measured_before(session), session.plan.cohort(epoch).items
    coin = stream(session.settings.tfgrpo.night_seed, "measured first", before)
    draws, specs = Counter[str](), list[GroupSpec]()
    for position, (one, other) in enumerate(sides):
        item = drawn[(before + position) % len(drawn)]
        key = GroupKey(epoch, "measure", "group", position // size, item.id, draws[item.id], session.run_id)
        draws[item.id] += 1
        spec = batches.group_spec(session, key, position, item, other, session.settings.tfgrpo.measuring_size)
        if control is not None:  # also where both texts are the same
            specs.append(replace(spec, first_half=one, split=spec.size // 2, arms=("library", "control")))
            continue
        texts = (one, other) if coin.random() < 0.5 else (other, one)
        specs.append(batches.two_sided(replace(spec, pack=texts[1]), texts[0], coin))
    groups = [specs[at : at + size] for at in range(0, len(specs), size)]
    rows: list[Row] = []
    with closing(batches.run_epoch(session, epoch, "measure", groups)) as accepted:
        for batch, results in zip(groups, accepted, strict=True):
            measured = batches.rows_of(session, "measure", batch, results)
            rows += measured
            if control is None:
                session.books.learned(session.books.state, measured)
    return rows


def open_sealed(session: Session) -> str:
    """Run the library in force and no lessons on the sealed items, and return the result.

    Nothing is decided. A resumed run keeps the result on record.
    """
    swept = swept_sides(session, session.in_force.entries)
    sealed, seen = {item.id for item in session.plan.eval_items}, set[str]()
    for path in (session.replay_of or session.task).root.glob("runs/*/manifest.json"):
        run = RunPaths(path.parent)
        if not ManifestFile(path).read().get("opens_sealed") and run.items.is_file():
            seen |= sealed & {row["item_id"] for row in read_objects(run.items)}  # tests aside
    differences = swept.differences(session.plan.score_range)
    interval = mean_difference(differences).interval(len(differences), CONFIDENCE) if differences else None
    test = SealedTest(
        run_id=session.run_id,
        tested_at=session.clock(),
        library_id=session.in_force.library_id,
        experience_ids=tuple(entry.experience_id for entry in session.in_force.entries),
        model=session.plan.models.name,
        simulated=session.plan.simulated,
        estimate=None if interval is None else interval.estimate,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        confidence=CONFIDENCE,
        pairs=len(differences),
        lost=swept.items - len(differences),
        group_size=session.plan.sweep_size,
        seen=len(seen),
    )
    test = decisions.record_test(session.task.tests, test)
    session.books.manifest.update(test=test.model_dump(mode="json"))
    return f"tested once, lessons against none: {test.result}"
