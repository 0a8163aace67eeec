"""Measure the effects of single lessons, and retire those that harm.

A measuring group attempts one item under a random half of the lessons and under the other half. It teaches nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Final, Literal, TypeAlias

from tfgrpo.flows.console.figures import EpochSums
from tfgrpo.flows.orchestration.request import Control, Measuring
from tfgrpo.flows.run.champion import lessons_elsewhere, lessons_for, library_of, store_of
from tfgrpo.flows.run.effects import effect_text, most_uncertain
from tfgrpo.flows.run.loop.batches import accept_batches, group_spec, prompts, prompts_of
from tfgrpo.flows.run.loop.epochs import draw_items, open_epoch
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.sampling import MEASURING_SIZE
from tfgrpo.prompt_packs.inject import with_lessons_of_others, without_meaning
from tfgrpo.prompt_packs.loader import stamps_in_force
from tfgrpo.rewarders.statistics.effects import HARMFUL, ONCE_PROVEN, Effect
from tfgrpo.rewarders.statistics.sequential import paired_confidence_sequence
from tfgrpo.stores.canonical import sha256_hex, stream
from tfgrpo.stores.experiences.accounts import RETIRED_NIGHTS, AccountEvent
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.measured import MeasuredLine, append_measured
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.outcomes import Arm, GroupKey, scored_rewards
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText

_FEWEST_LESSONS: Final = 2
_Verdict: TypeAlias = Literal["retired", "restored"]
_Texts: TypeAlias = Callable[[Sequence[Item]], Iterable[tuple[PackText, PackText]]]
"""The two texts of each group, by the items of the groups in their order."""


def measure_lessons(session: Session) -> None:
    """Measure the lessons of champion and candidate in the share of the night that is set apart for it.

    What is found to harm is out of both before they are compared. Once the candidates are proven better than no lessons, a
    third of the share is enough.
    """
    learning = session.learning
    entries = {entry.experience_id: entry for entry in (*learning.champion.entries, *learning.candidate.entries)}
    lessons: Sequence[ExperienceRecord] = list(entries.values())
    if not session.outgrown_by(learning.champion, learning.candidate):
        lessons = most_uncertain(lessons, learning.effects)
    groups, carried = session.plan.measured_groups, session.carried
    if session.follows and carried is not None and carried.capital.reaches(session.settings.gate.confidence):
        groups = round(ONCE_PROVEN * groups)
    if session.context.rules >= 4 and groups and len(lessons) >= _FEWEST_LESSONS:
        measure(session, lessons, groups)


def measure_on_demand(session: Session, asked: Measuring) -> str:
    """Measure lessons beside the others of the champion, or the champion against a control; return a sentence for people."""
    champion, groups = session.learning.champion, session.plan.measured_groups
    session.books.cohort(session.settings.tfgrpo.epochs, draw_items(session, session.settings.tfgrpo.epochs))
    if asked.control is not None:
        return compare_with_control(session, groups, asked.control, asked.others)
    lessons = library_of(store_of(session.plan), asked.lessons).entries if asked.lessons else champion.entries
    if not measure(session, lessons, groups, beside=champion.entries):
        return "nothing was measured: the prompt of no item of this night carries one of the lessons"
    return f"measured {pluralize(len(lessons), 'lesson')} in {pluralize(groups, 'group')}; nothing was learned"


def measure(
    session: Session, lessons: Sequence[ExperienceRecord], groups: int, *, beside: Sequence[ExperienceRecord] = ()
) -> bool:
    """Run measuring groups, record them, and retire or restore lessons by their effects.

    Lessons ``beside`` those that are measured are in every prompt. Of lessons beyond the slots each item's group measures
    those that its prompt carries; return False if no item's does. Raises as ``run_batch`` does. A group for which a
    rewarder timed out measures nothing.
    """
    learning, known = session.learning, len(session.learning.measured)
    every = Library(tuple({one.experience_id: one for one in (*beside, *lessons)}.values()))
    lessons_at = _lessons_at(session, every, lessons)
    items = [item for item in draw_items(session, session.settings.tfgrpo.epochs).items if lessons_at(item)[1]]
    if not items:
        return False

    def texts(drawn: Sequence[Item]) -> Iterator[tuple[PackText, PackText]]:
        halves: list[Library] = []
        for position, item in enumerate(drawn, known):
            # Not by the name of the run: another one of this night goes on from what this one has measured.
            coin = stream(session.settings.tfgrpo.seed_of("measure"), "halves", position)
            halves += random_halves(*lessons_at(item), coin)
        rendered = prompts_of(session, halves)
        return zip(rendered[::2], rendered[1::2], strict=True)

    with open_epoch(session, session.settings.tfgrpo.epochs, "measure", groups) as sums:
        for sound in _sound(session, items, groups, ("drawn", "complement"), texts, sums):
            lines = [_line(session, lessons_at(each[0].item)[1], *each) for each in sound]
            append_measured(session.task.measured, lines)
            learning.measure(lines)
        _conclude(session, lessons)
    return True


def compare_with_control(session: Session, groups: int, control: Control, others: Sequence[str] = ()) -> str:
    """Run groups half under the champion and half under a control, and return the difference with its interval.

    ``others``: the lessons of other domains, as task/id.
    """
    items = draw_items(session, session.settings.tfgrpo.epochs).items
    root = None if session.settings.packs_root is None else Path(session.settings.packs_root)
    elsewhere = lessons_elsewhere(session.plan.paths.root.parent, others, root)
    approved = stamps_in_force(root) if others else {}

    def controlled(champion: PackText) -> PackText:
        if control == "same":
            return champion
        system = champion.system
        system = with_lessons_of_others(system, elsewhere, approved) if others else without_meaning(system)
        return replace(champion, system=system, digest=sha256_hex(system), experience_ids=(), experiences=())

    def texts(drawn: Sequence[Item]) -> Iterator[tuple[PackText, PackText]]:
        champions = prompts(session, session.learning.champion, drawn)
        if control == "no-lessons":
            controls = prompts_of(session, [Library(())]) * len(champions)
        else:
            controls = [controlled(champion) for champion in champions]
            session.books.prompts(controls)
        return zip(champions, controls, strict=True)

    differences: list[float] = []
    with open_epoch(session, session.settings.tfgrpo.epochs, "measure", groups) as sums:
        for sound in _sound(session, items, groups, ("champion", "control"), texts, sums):
            for spec, result in sound:
                before, after = _rewards(spec, result)
                if before and after:
                    differences.append(sum(before) / len(before) - sum(after) / len(after))
    if not differences:
        return f"champion against {control}: no group has a reward in both halves"
    low, high = session.plan.score_range
    found = paired_confidence_sequence(differences, session.settings.gate.confidence, bound=high - low)
    figures = {"estimate": found.estimate, "low": found.low, "high": found.high, "groups": found.n}
    session.books.manifest.update(
        control={"name": control, **figures, **({"lessons": len(elsewhere)} if others else {})}
    )
    interval = f"{found.confidence:.0%} interval {found.low:+.3f} … {found.high:+.3f}"
    return f"champion against {control}: {found.estimate:+.3f}, {interval}, over {pluralize(found.n, 'group')}"


def random_halves(
    entries: Sequence[ExperienceRecord], measured: Collection[str], coin: Random
) -> tuple[Library, Library]:
    """Return a random half of the measured lessons and the other one, each lesson by a toss of its own.

    The other entries are in both. Halves of equal size would hide what all lessons have in common.
    """
    drawn = {entry.experience_id: coin.random() < 0.5 for entry in entries if entry.experience_id in measured}
    first, second = (
        Library(tuple(entry for entry in entries if drawn.get(entry.experience_id, side) is side))
        for side in (True, False)
    )
    return first, second


def _lessons_at(
    session: Session, library: Library, lessons: Sequence[ExperienceRecord]
) -> Callable[[Item], tuple[Sequence[ExperienceRecord], frozenset[str]]]:
    """Return a function of an item: the lessons that both halves carry together, and the ids of those that are measured."""
    learning, wanted = session.learning, {entry.experience_id for entry in lessons}
    pack, retrieval, effects = session.plan.pack, session.settings.tfgrpo.retrieval, learning.effects
    # Without regard to the item as long as champion and candidate have a slot for each of their lessons.
    chosen = session.outgrown_by(learning.champion, learning.candidate)

    def at(item: Item) -> tuple[Sequence[ExperienceRecord], frozenset[str]]:
        carried = lessons_for(pack, library, retrieval, item.prompt) if chosen else library.entries
        own = [entry for entry in carried if entry.experience_id in wanted]
        return carried, frozenset(entry.experience_id for entry in (most_uncertain(own, effects) if chosen else own))

    return at


def _batches(
    session: Session,
    drawn: Sequence[Item],
    groups: int,
    arms: tuple[Arm, Arm],
    texts: _Texts,
) -> list[list[GroupSpec]]:
    """Return batches of groups, each split between two texts, on items that no learning epoch of the run has drawn."""
    epoch, size = session.settings.tfgrpo.epochs, session.settings.tfgrpo.batch_size
    start = len(session.learning.measured) % len(drawn)
    items = list(islice(cycle(drawn), start, start + groups))
    draws, specs = Counter[str](), []
    for position, (item, (first, second)) in enumerate(zip(items, texts(items), strict=True)):
        key = GroupKey(epoch, "measure", "measure", position // size, item.id, draws[item.id], session.run_id)
        draws[item.id] += 1
        spec = group_spec(session, key, position, item, second, MEASURING_SIZE)
        specs.append(replace(spec, first_half=first, arms=arms))
    return [specs[at : at + size] for at in range(0, groups, size)]


def _sound(
    session: Session,
    drawn: Sequence[Item],
    groups: int,
    arms: tuple[Arm, Arm],
    texts: _Texts,
    sums: EpochSums,
) -> Iterator[list[tuple[GroupSpec, GroupResult]]]:
    """Run and record groups that are split between two texts, and yield those that count, batch by batch."""
    batches = _batches(session, drawn, groups, arms, texts)
    with closing(accept_batches(session, batches)) as arriving:
        for specs, results in zip(batches, arriving, strict=True):
            sums.add(results)
            yield list(zip(specs, results, strict=True))


def _rewards(spec: GroupSpec, result: GroupResult) -> tuple[tuple[float, ...], tuple[float, ...]]:
    first, second = (
        scored_rewards(each.outcome for each in result.rollouts if each.key.arm == arm) for arm in spec.arms
    )
    return first, second


def _line(session: Session, measured: Collection[str], spec: GroupSpec, result: GroupResult) -> MeasuredLine:
    low, high = session.plan.score_range
    first, second = (half.spec.pack.experience_ids for half in spec.halves)
    with_drawn, with_complement = _rewards(spec, result)
    return MeasuredLine(
        group_id=spec.group_id,
        run_id=session.run_id,
        simulated=session.plan.simulated,
        model=session.plan.models.name,
        night=session.settings.tfgrpo.night or 0,
        item_id=spec.item.id,
        drawn=tuple(name for name in first if name in measured),
        complement=tuple(name for name in second if name in measured),
        with_drawn=with_drawn,
        with_complement=with_complement,
        spread=high - low,
        created_at=session.clock(),
    )


def _conclude(session: Session, lessons: Sequence[ExperienceRecord]) -> None:
    learning, epoch = session.learning, session.settings.tfgrpo.epochs
    verdicts: list[tuple[_Verdict, AccountEvent]] = []
    for entry in lessons:
        effect, account = learning.effects.get(entry.experience_id), learning.accounts.get(entry.experience_id)
        if effect is None or account is None:
            continue
        if effect.harm > HARMFUL and not account.retired:
            verdicts.append(("retired", _event(session, entry, "retired", effect, epoch)))
        elif account.retired and effect.harm < 1.0 - HARMFUL:
            verdicts.append(("restored", _event(session, entry, "restored", effect, epoch)))
    for verdict, event in verdicts:
        how_long = f" for {pluralize(RETIRED_NIGHTS, 'night')}" if verdict == "retired" else ""
        session.books.manifest.warn(f"lesson {event.experience_id} {verdict}{how_long}: {event.why}")
        session.telemetry.record("experience", epoch=epoch, domain=session.domain, op=verdict)
    learning.learn((), [event for _, event in verdicts])


def _event(session: Session, entry: ExperienceRecord, kind: _Verdict, effect: Effect, epoch: int) -> AccountEvent:
    return AccountEvent(
        experience_id=entry.experience_id,
        kind=kind,
        run_id=session.run_id,
        simulated=session.plan.simulated,
        night=session.settings.tfgrpo.night or 0,
        epoch=epoch,
        why=f"measured effect {effect_text(effect)}, probability of harm {effect.harm:.2f}",
        created_at=session.clock(),
    ).named()
