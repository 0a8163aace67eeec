"""Open epochs, run batches of groups, and record them.

A batch is the unit of acceptance: it is recorded once all its groups are back and none was refused or broke the run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from random import Random
from time import perf_counter
from typing import Final, TypeAlias

from tfgrpo.flows.console.observer import AttemptExcerpt, EpochStart, EpochSums, FirstBatch, FirstBatchFinding, Losses
from tfgrpo.flows.run.lessons import rendered, short_enough
from tfgrpo.flows.run.loop.books import Session
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import Cohort
from tfgrpo.rewarders.statistics.credit import RULES
from tfgrpo.stores.errors import BudgetRefused, ModelNotFound, NothingRight, RunAborted, error_kind
from tfgrpo.stores.experiences.credit import Row, RowSource, outside_range, share_of_range
from tfgrpo.stores.experiences.store import ExperienceRecord
from tfgrpo.stores.json_values import stream, to_builtins
from tfgrpo.stores.outcomes import (
    REWARDER_BROKE,
    REWARDER_LATE,
    Arm,
    Failed,
    GroupKey,
    Phase,
    Scored,
    Ungraded,
    is_highest,
    is_lowest,
    scored_rewards,
)
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.learning.credit import random_halves
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText, RolloutRecord

# Fewest lost reflections and curations that end a run: late epochs have few, and one proves little.
_LEAST_LEARNING_LOST = 3
Side: TypeAlias = tuple[tuple[str, ...], tuple[float, ...], int]
"""Lessons that only this side carried, its rewards as shares of the score range, its lost attempts."""
_EXAMPLES: Final = 3
_EXCERPT_CHARS: Final = 100


def prompts(session: Session, chosen: Sequence[Sequence[ExperienceRecord]]) -> list[PackText]:
    """Render the pack with each choice of lessons, record the texts and warn of lessons that are omitted."""
    pack, warn = session.plan.pack, session.books.manifest.warn
    fitting = [short_enough(lessons, pack) for lessons in chosen]
    every = {entry.experience_id: entry for lessons in chosen for entry in lessons}
    short = {entry.experience_id for lessons in fitting for entry in lessons}
    if long := [name for name in every if name not in short]:
        warn(f"{pluralize(len(long), 'lesson')} kept out, longer than is allowed now: {', '.join(long)}")
    texts = []
    for text, skipped in rendered(pack, fitting):
        for experience_id, reason in skipped:
            warn(f"lesson {experience_id} was not injected: {reason}")
            session.telemetry.record("guardrail", rule="injection")
        texts.append(text)
    session.books.prompts(texts)
    return texts


def learning_groups(
    session: Session, cohort: Cohort, epoch: int, batch: int, trial: Sequence[ExperienceRecord]
) -> list[GroupSpec]:
    """Return the groups of a batch of a cohort, each side with a random half of the lessons on trial."""
    items, first = cohort.batches[batch], sum(map(len, cohort.batches[:batch]))
    coin = stream(session.settings.tfgrpo.night_seed, "sides", epoch, batch)
    # Few divisions keep a common beginning of prompts.
    divisions = [random_halves(trial, coin) for _ in range(min(RULES.designs, len(items)) if trial else 1)]
    texts = prompts(session, [half for division in divisions for half in division])
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    shuffled = [pairs[at % len(pairs)] for at in range(len(items))]
    coin.shuffle(shuffled)
    # Which side is first is by lot: it may do better for that alone.
    sides = [(one, other) if coin.random() < 0.5 else (other, one) for one, other in shuffled]
    specs = []
    for position, (item, (one, other)) in enumerate(zip(items, sides, strict=True), start=first):
        key = GroupKey(epoch, "train", "group", batch, item.id, cohort.draws[position], session.run_id)
        specs.append(two_sided(group_spec(session, key, position, item, other, session.plan.group_size), one, coin))
    return specs


def two_sided(spec: GroupSpec, one: PackText, coin: Random) -> GroupSpec:
    """Return the group with its first attempts under another text; an odd attempt goes to either side by toss."""
    if one.digest == spec.pack.digest:
        return spec
    first = spec.size // 2 + (spec.size % 2 and coin.random() < 0.5)
    return replace(spec, first_half=one, split=first)


def unlearned_batches(session: Session, cohort: Cohort) -> list[list[GroupSpec]]:
    """Return the groups of a run that only measures: one actor per item, with what is in force."""
    [text] = prompts(session, [session.in_force.entries])
    arm: Arm = "library" if text.experience_ids else "none"
    batches, positions = [], count()
    for batch, items in enumerate(cohort.batches):
        keys = [GroupKey(1, "eval", arm, batch, item.id, 0, session.run_id) for item in items]
        pairs = zip(keys, items, strict=True)
        batches.append([group_spec(session, key, next(positions), item, text, session.plan.group_size) for key, item in pairs])
    return batches


def rows_of(session: Session, source: RowSource, specs: Sequence[GroupSpec], results: Sequence[GroupResult]) -> list[Row]:
    """Return the rows of learning or measuring groups. One that has a single side names no lesson."""
    return [_row(session, source, *each) for each in zip(specs, results, strict=True)]


def _row(session: Session, source: RowSource, spec: GroupSpec, result: GroupResult) -> Row:
    one, other = ((spec.first_half or spec.pack).experience_ids, spec.pack.experience_ids)
    arms = spec.arms if spec.first_half is not None else (spec.key.arm, None)
    sides: list[Side] = []
    for arm, own, opposite in ((arms[0], one, other), (arms[1], other, one)):
        outcomes = [each.outcome for each in result.rollouts if each.key.arm == arm]
        rewards = share_of_range(scored_rewards(outcomes), session.plan.score_range)
        sides.append((tuple(name for name in own if name not in opposite), rewards, len(outcomes) - len(rewards)))
    return two_sided_row(session, source, spec.group_id, spec.item.id, sides)


def two_sided_row(session: Session, source: RowSource, line: str, item_id: str, sides: Sequence[Side]) -> Row:
    """Return the row of an item from its two sides."""
    (one, rewards_one, lost_one), (other, rewards_other, lost_other) = sides
    return Row(
        line_id=f"{session.run_id}/{line}",
        run_id=session.run_id,
        night=session.night,
        source=source,
        item_id=item_id,
        one=one,
        other=other,
        rewards_one=rewards_one,
        rewards_other=rewards_other,
        lost_one=lost_one,
        lost_other=lost_other,
        conditions=session.conditions,
        simulated=session.plan.simulated,
        created_at=session.clock(),
    )


def group_spec(session: Session, key: GroupKey, position: int, item: Item, pack: PackText, size: int) -> GroupSpec:
    """Specify one group of ``size``; ``position`` is the item's index within the epoch."""
    settings = session.settings.tfgrpo
    group_id = f"{key.run}:e{key.epoch}:{key.arm}:{position:05d}"
    return GroupSpec(
        group_id=group_id,
        key=key,
        item=item,
        size=size,
        temperature=settings.temperature.eval if key.phase == "eval" else settings.temperature.train,
        pack=pack,
        reflect=key.phase == "train" and settings.enabled,
        failures_teach=(key.epoch, key.batch) != (1, 0),
        failures=session.failures.get(group_id, {}),
    )


def run_batch(session: Session, specs: Sequence[GroupSpec], sums: EpochSums) -> list[GroupResult]:
    """Run and record the groups of a batch, and return their results in the order of the specs.

    Raises ``BudgetRefused`` or ``RunAborted`` before anything of the batch is recorded, so that a resumed run tries
    again what was refused or broken; and ``NothingRight`` as ``_check_first_batch`` does.
    """
    with closing(run_groups(session, specs)) as arriving:
        results = _accepted(session, specs, list(arriving), sums.learning)
    record_batch(session, results)
    sums.add(results)
    _check_first_batch(session, specs, results)
    return results


def run_epoch(
    session: Session, epoch: int, phase: Phase, batches: Sequence[Sequence[GroupSpec]]
) -> Generator[list[GroupResult], None, None]:
    """Run an epoch of independent batches concurrently; record and yield each once it and all before it are complete.

    Raises as ``run_batch`` does, but for ``NothingRight``; closing the generator abandons the groups that run.
    """
    batch_of = {spec.group_id: number for number, specs in enumerate(batches) for spec in specs}
    arrived: list[list[GroupResult]] = [[] for _ in batches]
    turn, specs = 0, [spec for batch in batches for spec in batch]
    with open_epoch(session, epoch, phase, len(specs)) as sums, closing(run_groups(session, specs)) as arriving:
        for result in arriving:
            arrived[batch_of[result.group_id]].append(result)
            while turn < len(batches) and len(arrived[turn]) == len(batches[turn]):
                results = _accepted(session, batches[turn], arrived[turn], sums.learning)
                record_batch(session, results)
                sums.add(results)
                yield results
                arrived[turn] = []
                turn += 1


def run_groups(session: Session, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
    """Yield each group as it completes, in any order; closing the generator abandons the rest."""
    session.books.items(spec.item for spec in specs)  # before any call: a killed run, too, can show what it asked
    injected = sum(len(half.pack.experience_ids) * len(indices) for spec in specs for half, indices in spec.halves)
    session.telemetry.record("injected", epoch=specs[0].key.epoch, domain=session.domain, count=injected)
    # Worker processes know no epochs, so the groups carry their parent span.
    context = replace(session.context, carrier=session.telemetry.carrier())
    with closing(session.fan_out(context, specs)) as arriving:
        for result in arriving:
            session.books.count(result)
            session.observer.group_done(result, session.runtime.ledger.totals())
            yield result


def record_batch(session: Session, results: Sequence[GroupResult]) -> None:
    """Write a batch, which is final. Failures go into the journal first."""
    for result in results:
        for rollout in result.rollouts:
            if isinstance(rollout.outcome, Failed):
                record_failure(session, rollout.outcome)
        for broken in result.broken_calls:
            record_failure(session, broken)
    session.books.groups(results)


def record_failure(session: Session, failure: Failed) -> None:
    """Write a failed call into the journal, so that a resumed run does not repeat it."""
    journal = session.runtime.journal
    if failure.call_key is None or journal is None or session.context.replay or journal.get(failure.call_key):
        return
    journal.append_failure(failure.call_key, failure.error_type, failure.reason)


def _check_first_batch(session: Session, specs: Sequence[GroupSpec], results: Sequence[GroupResult]) -> None:
    """Show three attempts of the first batch if nothing, or everything, is right in it, or nothing graded.

    Raises ``NothingRight`` if no attempt has a reward above the lowest, or all are beyond the highest, unless that is allowed.
    """
    if session.books.has_first_batch:
        return
    session.books.has_first_batch = True
    session.books.first_batch = noticed = _first_batch(session, specs, results)
    session.books.manifest.update(first_batch=None if noticed is None else to_builtins(noticed))
    if noticed is None:
        return
    session.observer.first_batch(noticed)
    if noticed.stops:
        raise NothingRight(
            f"{noticed.explanation}; mend what causes it, such as rewarders, references or agent, and start a new run, for "
            f"a resumed one keeps them; --resume {session.run_id} --allow-zero goes on without a change"
        )


def _first_batch(session: Session, specs: Sequence[GroupSpec], results: Sequence[GroupResult]) -> FirstBatch | None:
    """Return what is wrong with the rewards of a batch, with attempts at different items as far as there are some."""
    rollouts = sorted((each for result in results for each in result.rollouts), key=lambda each: each.index)
    rewards, ends = scored_rewards(each.outcome for each in rollouts), session.plan.score_range
    lost = Losses()
    for each in rollouts:
        lost.attempt(each.outcome)
    shown = [each for each in rollouts if isinstance(each.outcome, Scored)] or rollouts
    ungraded = f"; {pluralize(lost.lost, 'more attempt')} could not be graded, {_reasons(lost)}" if lost.lost else ""
    scored = f"{pluralize(len(rewards), 'graded attempt')} of the first batch"
    outside, may_go_on = outside_range(rewards, ends), False
    finding: FirstBatchFinding
    if not rewards:
        finding, explanation = "nothing graded", f"no attempt of the first batch could be graded: {_reasons(lost)}"
    elif is_lowest(max(rewards), ends):
        lowest = f"each with the lowest reward, {ends[0]:g}"
        finding, explanation = ("nothing right", "; ".join(filter(None, (f"nothing was right: {scored}, {lowest}", outside))))
    elif is_highest(min(rewards), ends):
        taught = outside or "there is nothing to learn from, or the rewarders accept anything"
        finding, may_go_on = "everything right", not outside_range([min(rewards)], ends)
        explanation = f"everything was right: {scored}, each with the highest reward, {ends[1]:g}; {taught}"
    else:
        return None
    item_of = {spec.key.draw_id: spec.item for spec in specs}
    examples = [_excerpt(session, each, item_of[each.key.draw_id]) for each in shown[:_EXAMPLES]]
    stops = not may_go_on and not session.settings.tfgrpo.allow_zero
    return FirstBatch(finding, explanation + (ungraded if rewards else ""), tuple(examples), stops)


def _reasons(lost: Losses) -> str:
    most = lost.reasons.most_common(_EXAMPLES)
    rest = lost.lost - sum(number for _, number in most)
    named = [f"{number:,} × {reason}" for reason, number in most]
    return "; ".join([*named, *([f"{rest:,} × other reasons"] if rest else [])])


def _excerpt(session: Session, rollout: RolloutRecord, item: Item) -> AttemptExcerpt:
    weighted = {each.scorer.rewarder_id for each in session.plan.rewarders if each.weight > 0.0}
    verdict = "; ".join(
        f"{score.rewarder_id} {score.score:g}: {score.evidence}" for score in rollout.scores if score.rewarder_id in weighted
    )
    if not isinstance(rollout.outcome, Scored):
        verdict = f"{rollout.outcome.name}: {rollout.outcome.reason}"
    texts = (" ".join(session.runtime.scrub(text).split()) for text in (item.prompt, item.answer, verdict, rollout.output))
    *begun, output = texts
    question, reference, verdict = (text if len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…" for text in begun)
    ending = output if len(output) <= _EXCERPT_CHARS else f"…{output[-_EXCERPT_CHARS:]}"
    return AttemptExcerpt(rollout.rollout_id, item.id, question, reference, ending, verdict)


def _accepted(
    session: Session, specs: Sequence[GroupSpec], arrived: Sequence[GroupResult], so_far: Losses
) -> list[GroupResult]:
    """Return the results in the order of the specs. ``so_far``: learning steps of the epoch before them."""
    order = {spec.group_id: index for index, spec in enumerate(specs)}
    results = sorted(arrived, key=lambda result: order[result.group_id])
    for result in results:
        if result.fatal:
            raise RunAborted(result.fatal)
    for result in results:
        if result.budget_refused:
            raise BudgetRefused(result.budget_refused)
    outcomes = [rollout.outcome for result in results for rollout in result.rollouts]
    faults = (REWARDER_BROKE, REWARDER_LATE)
    broken = [
        outcome
        for outcome in outcomes
        if isinstance(outcome, Failed) or (isinstance(outcome, Ungraded) and outcome.error_type in faults)
    ]
    limit = session.settings.tfgrpo.max_lost_share
    if outcomes and len(broken) / len(outcomes) > limit:
        lost_share = (
            f"{len(broken)} of {pluralize(len(outcomes), 'rollout')} of a batch failed, more than the share of {limit:g} "
            f"that tfgrpo.max_lost_share allows; the last: {broken[-1].error_type}: {broken[-1].reason}"
        )
        if all(issubclass(error_kind(each.error_type), ModelNotFound) for each in broken):
            remedy = "begin a new run with the right model, or resume this one with the right --base-url"
            raise ModelNotFound(f"{lost_share}; {remedy}")
        raise RunAborted(lost_share)
    failures = [result.reflection_failure for result in results if result.reflected]
    lost = [failure for failure in failures if failure is not None]
    steps, missing = so_far.asked + len(failures), so_far.lost + len(lost)
    if lost and missing >= _LEAST_LEARNING_LOST and missing / steps > limit:
        raise RunAborted(
            f"{missing} of {pluralize(steps, 'learning step')} (reflections, curations) of an epoch brought no usable "
            f"answer, more than the share of {limit:g} that tfgrpo.max_lost_share allows; the last: {lost[-1].sentence}"
        )
    return results


def draw_cohort(session: Session, epoch: int) -> Cohort:
    """Draw the items of a learning epoch and write them into the manifest."""
    cohort = session.plan.cohort(epoch)
    session.books.cohort(epoch, cohort)
    return cohort


@contextmanager
def open_epoch(session: Session, epoch: int, phase: Phase, groups: int, *, last: int | None = None) -> Iterator[EpochSums]:
    """Start an epoch of ``groups`` groups, and close its books at the end. ``last`` is the number of the last epoch."""
    settings = session.settings.tfgrpo
    temperature = settings.temperature.eval if phase == "eval" else settings.temperature.train
    start = EpochStart(epoch, last or settings.epochs, phase, groups, temperature)
    sums = EpochSums(start, session.plan.score_range)
    began = perf_counter()
    session.observer.epoch_started(start)
    pack = session.plan.pack.manifest
    with session.telemetry.epoch_span(
        epoch=epoch,
        phase=phase,
        temperature=temperature,
        group_size=session.plan.sweep_size if phase == "eval" and session.plan.learns else session.plan.group_size,
        sample_size=groups,
        pack_id=pack.id,
        pack_stamp=pack.stamp,
        seed=settings.seed,
    ):
        yield sums
    end = sums.end(session.books.state.credit.on_trial)
    session.books.epoch_ended(end)
    session.telemetry.record(
        "epoch",
        epoch=epoch,
        phase=phase,
        duration_s=perf_counter() - began,
        reward_mean=sums.mean_reward,
        solve_rate=sums.solve_rate,
    )
    session.telemetry.collect()
    session.observer.epoch_ended(end)
    if phase == "train" and sums.rollouts.lost and not sums.scored:
        # The rest of the run would be paid for without a chance to learn or judge.
        raise RunAborted(
            f"not one of {pluralize(sums.rollouts.lost, 'rollout')} of epoch {epoch} brought a reward, so that "
            f"nothing can be learned or judged; most often {sums.rollouts.mostly}"
        )


def refuse_unscored(session: Session) -> None:
    """Raise ``RunAborted`` if not one rollout of the run has a reward."""
    lost = session.books.attempts
    if lost.lost and lost.lost >= lost.asked:
        raise RunAborted(
            f"not one of {pluralize(lost.lost, 'rollout')} brought a reward, so that nothing was learned or judged; "
            f"most often {lost.mostly}"
        )
