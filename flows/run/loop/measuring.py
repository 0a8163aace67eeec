"""Measure lessons on demand, on two sides as in learning, or test those in force on the sealed items: each library once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice

from tfgrpo.flows.orchestration.request import Control, Measuring
from tfgrpo.flows.run.lessons import library_of, store_of
from tfgrpo.flows.run.loop.batches import accept_batches, group_spec, open_epoch, prompts, row_of, two_sided
from tfgrpo.flows.run.loop.books import Session
from tfgrpo.flows.run.loop.learn import credit, swept_sides
from tfgrpo.prompt_packs.stamps import without_meaning
from tfgrpo.rewarders.statistics.summary import paired_confidence_sequence
from tfgrpo.stores.experiences.credit import Row
from tfgrpo.stores.experiences.decisions import SealedTest, record_test
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.json_values import sha256_hex, stream
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs import ManifestFile
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import CONFIDENCE
from tfgrpo.tasks.learning.credit import random_halves
from tfgrpo.tasks.shapes import GroupSpec, PackText


def measure_on_demand(session: Session, asked: Measuring) -> str:
    """Measure lessons, or what is in force against a control; return a sentence for people. Raises as ``run_batch`` does."""
    epoch = session.settings.tfgrpo.epochs
    session.books.cohort(epoch, session.plan.cohort(epoch))  # an epoch that does not learn
    if asked.control is not None:
        return _compare_with_control(session, asked.control)
    trial = {each.experience_id: each for each in (*session.in_force.entries, *session.learning.credit.on_trial)}
    lessons = library_of(store_of(session.plan), asked.lessons).entries if asked.lessons else tuple(trial.values())
    if not lessons:
        return "nothing was measured: no lesson is on trial or in force"
    coin = stream(session.settings.tfgrpo.night_seed, "measured sides", _measured_before(session))

    def sides() -> Iterator[tuple[PackText, PackText]]:
        # All texts of a night's measuring have one beginning: what is not measured is in every prompt.
        beside = [each for name, each in trial.items() if all(name != one.experience_id for one in lessons)]
        for _ in range(session.plan.measured_groups):
            halves = random_halves(lessons, coin)
            one, other = prompts(session, [[*beside, *half] for half in halves])
            yield one, other

    rows = _measured(session, list(sides()))
    used = sum(row.difference is not None for row in rows)
    return f"measured {pluralize(len(lessons), 'lesson')} in {pluralize(used, 'group')}; nothing was learned"


def _compare_with_control(session: Session, control: Control) -> str:
    if not session.in_force.entries:
        return "nothing was measured: no lesson is in force"
    [library] = prompts(session, [session.in_force.entries])
    against = library
    if control == "no-lessons":
        [against] = prompts(session, [()])
    elif control == "neutral":
        system = without_meaning(library.system)
        against = replace(library, system=system, digest=sha256_hex(system), experience_ids=(), experiences=())
        session.books.prompts([against])
    rows = _measured(session, [(library, against)] * session.plan.measured_groups, control=control)
    differences = [row.difference for row in rows if row.difference is not None]
    if not differences:
        return f"lessons in force against {control}: no group has a reward on both sides"
    found = paired_confidence_sequence(differences, CONFIDENCE)
    figures = {"mean": 100 * found.estimate, "low": 100 * found.low, "high": 100 * found.high, "groups": found.n}
    session.books.manifest.update(control={"name": control, **figures})
    interval = f"(95 %: {figures['low']:+.1f} … {figures['high']:+.1f})"
    return f"lessons in force against {control}: {figures['mean']:+.1f} points {interval}, over {pluralize(found.n, 'group')}"


def _measured_before(session: Session) -> int:
    """Return how many groups of the task have measured: the next ones go on with other items and tosses."""
    return sum(isinstance(line, Row) and line.source == "measure" for line in session.learning.memory.lines)


def _measured(session: Session, sides: Sequence[tuple[PackText, PackText]], control: Control | None = None) -> list[Row]:
    """Run and record groups on two sides and return their rows, which are credited unless they are against a control."""
    epoch, size = session.settings.tfgrpo.epochs, session.settings.tfgrpo.batch_size
    before, drawn = _measured_before(session), session.plan.cohort(epoch).items
    coin = stream(session.settings.tfgrpo.night_seed, "measured first", before)
    items = islice(cycle(drawn), before % len(drawn), before % len(drawn) + len(sides))
    draws, specs = Counter[str](), list[GroupSpec]()
    for position, (item, (one, other)) in enumerate(zip(items, sides, strict=True)):
        key = GroupKey(epoch, "measure", "group", position // size, item.id, draws[item.id], session.run_id)
        draws[item.id] += 1
        spec = group_spec(session, key, position, item, other, session.settings.tfgrpo.measuring_size)
        if control is not None:  # also where both texts are the same
            specs.append(replace(spec, first_half=one, split=spec.size // 2, arms=("library", "control")))
            continue
        texts = (one, other) if coin.random() < 0.5 else (other, one)
        specs.append(two_sided(replace(spec, pack=texts[1]), texts[0], coin))
    batches = [specs[at : at + size] for at in range(0, len(specs), size)]
    rows: list[Row] = []
    with open_epoch(session, epoch, "measure", len(specs)) as sums, closing(accept_batches(session, batches)) as arriving:
        for batch, results in zip(batches, arriving, strict=True):
            sums.add(results)
            found = [row_of(session, "measure", *each) for each in zip(batch, results, strict=True)]
            rows += found
            if control is None:
                credit(session, found)
    return rows


def open_sealed(session: Session) -> str:
    """Run the library in force and no lessons on the sealed items, and return the result.

    Nothing is decided. A resumed run keeps the result on record.
    """
    swept = swept_sides(session, session.in_force.entries)
    differences = swept.differences(session.plan.score_range)
    interval = paired_confidence_sequence(differences, CONFIDENCE) if differences else None
    test = SealedTest(
        run_id=session.run_id,
        tested_at=session.clock(),
        library_id=session.in_force.library_id,
        experience_ids=tuple(entry.experience_id for entry in session.in_force.entries),
        model=session.plan.models.name,
        simulated=session.plan.simulated,
        estimate=None if interval is None else 100 * interval.estimate,
        low=None if interval is None else 100 * interval.low,
        high=None if interval is None else 100 * interval.high,
        confidence=CONFIDENCE,
        pairs=len(differences),
        lost=swept.items - len(differences),
        group_size=session.plan.sweep_size,
        seen=_seen(session),
    )
    test = record_test(session.task.tests, test)
    session.books.manifest.update(test=test.model_dump(mode="json"))
    return f"tested once, lessons against none: {test.result}"


def _seen(session: Session) -> int:
    """Return how many of the sealed items other runs of the task, tests aside, have attempted."""
    sealed = {item.id for item in session.plan.eval_items}
    seen: set[str] = set()
    for path in (session.replay_of or session.task).root.glob("runs/*/manifest.json"):
        run = RunPaths(path.parent)
        if not ManifestFile(path).read().get("opens_sealed") and run.items.is_file():
            seen |= sealed & {row["item_id"] for row in read_objects(run.items)}
    return len(seen)
