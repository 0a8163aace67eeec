"""Credit: what each lesson is worth by all rows and words there are, what is on trial, and what would follow.

Lines of ``credit.jsonl`` become the input of the posterior in ``rewarders/statistics/credit.py``, and its output lessons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple

import numpy as np

from tfgrpo.pipelines.settings.tree import MOST_KNOWN
from tfgrpo.rewarders.statistics.credit import (
    RULES,
    Effect,
    Evidence,
    HeldOut,
    Posterior,
    aged_net,
    attempt_variance,
    evidence,
    on_trial,
    posterior,
    support,
)
from tfgrpo.rewarders.statistics.summary import Capital, FloatArray, fisher_test
from tfgrpo.stores.experiences.credit import CreditLine
from tfgrpo.stores.experiences.store import ExperienceRecord
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.learning.tally import RowSums, Sides, Tally, WordSums

# Nights after which a row weighs less than a hundredth.
MEMORY_NIGHTS: Final = 44
HELD: Final = "held: only items of strangers, or that say it themselves, speak for it, until `tfgrpo experiences approve`"
OTHER_CONDITIONS: Final = (
    "what earlier nights measured counts for nothing: under another model, actor or pack, or other rewarders"
)
# Contrasts for and against, with forgetting, below which a lesson without rows is not known any more.
_FORGOTTEN: Final = 0.2
# Probability by chance of such unequal losses below which the rows of a lesson are omitted for a night.
_UNEQUAL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Memory:
    """What credit is computed from. Grows by every batch, and is never changed."""

    records: tuple[ExperienceRecord, ...]
    """Records of all nights, in the order in which they were written, reworded ones included."""
    tally: Tally
    """Sums over the lines of this kind of model (simulated or real); the sweeps of all nights."""
    night: int
    conditions: str
    """Digest of model, actor, pack and rewarders: rows under others are passed over."""
    slots: int
    in_force: tuple[str, ...] = ()
    """Ids of what was in force when the night began, in the order of the prompt."""
    kept_out: Mapping[str, str] = field(default_factory=dict)
    swept: tuple[str, ...] | None = None
    """Ids of what the night's sweep carried: no other lesson would follow. None before the sweep."""

    def plus(self, records: Iterable[ExperienceRecord] = (), lines: Iterable[CreditLine] = ()) -> Memory:
        """Return the memory with these records and lines added."""
        return replace(self, records=(*self.records, *records), tally=self.tally.plus(lines))

    @property
    def nights(self) -> dict[int, int]:
        """The nights up to this one that left a line, numbered in their order: one without a line ages no evidence."""
        nights = {each.night for each in self.tally.rows} | {night for _, night in self.tally.words}
        past = {night for night in nights if night < self.night}
        return {night: number for number, night in enumerate(sorted(past | {self.night}))}


@dataclass(frozen=True, slots=True)
class KnownLesson:
    """What is known of one lesson."""

    record: ExperienceRecord
    ids: frozenset[str]
    """The lesson, and those of its direction that it rewords or merges."""
    effect: Effect
    attempts: int
    """Scored attempts of the rows in which only one side carried it."""
    net: float
    """Contrasts for it minus those against it, with forgetting."""
    groups_for: int
    groups_against: int
    nights: int
    opposites: tuple[str, ...] = ()
    """Ids of known lessons that say the opposite, the better first."""
    kept_out: str = ""
    """Why a person keeps it out, or ``HELD``; empty if nothing does."""


@dataclass(frozen=True, slots=True)
class Credit:
    """What follows from a memory."""

    known: Mapping[str, KnownLesson]
    """By id, in the order in which prompts carry them: what is in force first, then as they were learned."""
    word: Effect
    """What one unit of support is worth, in points: near zero where reflections are noise."""
    on_trial: tuple[ExperienceRecord, ...]
    """What the next batch carries, each side a random half."""
    follows: tuple[ExperienceRecord, ...]
    """Those of them that are probably worth more than nothing; after the sweep, such ones of what it carried."""
    total: Effect
    attempts: int
    held_out: HeldOut
    swept: int
    """Held-out items of this night with a reward on both sides."""
    evidence: Capital
    """Evidence that the libraries of all nights are better than none, by the sweeps alone."""
    left_out: tuple[str, ...]
    """Which rows count for nothing as of this night, in a sentence each."""


def credit_of(memory: Memory) -> Credit:
    """Return what follows from a memory: a pure function of it."""
    current, number = _current_ids(memory.records), memory.nights
    night = number[memory.night]
    # What was measured and said, by the newest wording of each lesson.
    measured = [sides for sides in memory.tally.rows if sides.night in number]
    rows = {sides: memory.tally.rows[sides] for sides in measured if sides.conditions == memory.conditions}
    words = [
        (current.get(name, name), number[then], word)
        for (name, then), word in memory.tally.words.items()
        if then in number and night - number[then] <= MEMORY_NIGHTS
    ]
    every, left_out = _sound(rows, current, number)
    if all(number[sides.night] == night for sides in rows) and any(number[sides.night] < night for sides in measured):
        left_out += (OTHER_CONDITIONS,)
    divisions = [each for each in every if night - each.night <= MEMORY_NIGHTS]
    traces = _traces(words, divisions, night)
    # What each lesson is worth.
    live = _live(memory, current, traces)
    # One that was carried and is not known any more explains its part of the differences all the same.
    names = [*live, *sorted({name for each in divisions for name in (*each.one, *each.other)} - live.keys())]
    net = np.array([traces[name].net if name in traces else 0.0 for name in names])
    variance = attempt_variance(sums.differences for sides, sums in rows.items() if number[sides.night] >= night - 1)
    effects = posterior(_evidence(divisions, names, night), support(net), variance)
    opposites = _opposites(words, current)
    known = _known(memory, current, live, effects, opposites, traces)
    # What is tried next, and what would follow.
    allowed = [at for at, name in enumerate(live) if not known[name].kept_out]
    subjects = _subjects(opposites, names)
    best = [names[allowed[at]] for at in on_trial(effects.of(allowed), net[allowed], [subjects[at] for at in allowed])]
    trial = best[: memory.slots]
    # The sweep has filled the slots: of what it carried nothing makes room for a better lesson that cannot follow tonight.
    carried = trial if memory.swept is None else [name for name in best if name in memory.swept]
    follows = {name for name in carried if known[name].effect.mean > 0.0}
    # What held-out items say of it, over all nights: evidence that is started anew would be wrong more often than it says.
    sweeps = {each.run for each in every if each.run[1] == "sweep"}
    swept: dict[int, list[float]] = defaultdict(list)
    for sides, sums in rows.items():
        if (sides.run_id, sides.source) in sweeps:
            swept[number[sides.night]] += sums.swept
    held_out, capital = _held_out(swept, night)
    return Credit(
        known=known,
        word=effects.word,
        on_trial=tuple(each.record for name, each in known.items() if name in trial),
        follows=tuple(each.record for name, each in known.items() if name in follows),
        total=effects.total([at for at, name in enumerate(names) if name in follows]),
        attempts=sum(each.sums.attempts for each in divisions if not follows.isdisjoint((*each.one, *each.other))),
        held_out=held_out,
        swept=len(swept[night]),
        evidence=capital,
        left_out=left_out,
    )


def random_halves(lessons: Sequence[ExperienceRecord], coin: Random) -> tuple[list[ExperienceRecord], list[ExperienceRecord]]:
    """Return a random half of the lessons and the rest, both in their order, each lesson by a toss."""
    # Halves of equal size would hide what all lessons have in common.
    one: list[ExperienceRecord] = []
    other: list[ExperienceRecord] = []
    for lesson in lessons:
        (one if coin.random() < 0.5 else other).append(lesson)
    return one, other


def _current_ids(records: Iterable[ExperienceRecord]) -> dict[str, str]:
    """Return, by id, the id of the newest wording of a lesson: a change of direction is another lesson."""
    polarity: dict[str, str] = {}
    reworded: dict[str, str] = {}
    for record in records:
        polarity.setdefault(record.experience_id, record.polarity)
        for name in record.supersedes:
            if polarity.get(name) == record.polarity and name != record.experience_id:
                reworded.setdefault(name, record.experience_id)
    current = {}
    for name in polarity:
        newest = name
        while newest in reworded:
            newest = reworded[newest]
        current[name] = newest
    return current


class _Division(NamedTuple):
    """All rows of one source of a run with the same two sides, by the newest wording of what only one of them carried."""

    run: tuple[str, str]  # and its source
    night: int
    one: tuple[str, ...]
    other: tuple[str, ...]
    sums: RowSums


def _sound(
    rows: Mapping[Sides, RowSums], current: Mapping[str, str], number: Mapping[int, int]
) -> tuple[list[_Division], tuple[str, ...]]:
    """Return the rows without those of lessons that lost a larger share of attempts, and what is omitted tonight.

    By Fisher's exact test, over the rows of one source in one run, by lesson.
    """
    divisions: list[_Division] = []
    losses: dict[tuple[str, str], dict[str, FloatArray]] = defaultdict(lambda: defaultdict(lambda: np.zeros(4)))
    for sides, sums in rows.items():
        one, other = ({current.get(name, name) for name in side} for side in (sides.one, sides.other))
        only_one, only_other, of_run = sorted(one - other), sorted(other - one), (sides.run_id, sides.source)
        divisions.append(_Division(of_run, number[sides.night], tuple(only_one), tuple(only_other), sums))
        for names, counts in ((only_one, sums.losses), (only_other, np.roll(sums.losses, 2))):
            for name in names:
                losses[of_run][name] += counts
    last = max(number.values())
    tonight = {each.run for each in divisions if each.night == last}
    unequal: dict[tuple[str, str], set[str]] = {}
    reports: list[str] = []
    for run, tallies in losses.items():
        tables = {name: (int(a), int(b), int(c), int(d)) for name, (a, b, c, d) in tallies.items()}
        # As many tests as there are lessons with different losses (Bonferroni).
        level = _UNEQUAL / len(set(tables.values()))
        # One side only: with a lesson under which wrong attempts are lost the others look better than they are.
        unequal[run] = {name for name, (a, b, c, d) in tables.items() if a * d > c * b and fisher_test(a, b, c, d) <= level}
        if unequal[run] and run in tonight:
            # Of equal shares of losses the first name's, so that a replay says the same.
            worst = max(sorted(unequal[run]), key=lambda name: tables[name][0] / max(1, tables[name][1]))
            lost, made, lost_without, made_without = tables[worst]
            reports.append(
                f"the rows of the {run[1]} with {pluralize(len(unequal[run]), 'lesson')} are left out: {lost} of {made} "
                f"attempts were lost with such a lesson, {lost_without} of {made_without} without"
            )
    sound = [each for each in divisions if unequal.get(each.run, set()).isdisjoint((*each.one, *each.other))]
    return sound, tuple(reports)


@dataclass(slots=True)
class _Trace:
    """What lines say of one lesson. ``strangers``, ``others`` as ``WordSums`` has them."""

    # Nights in which it was heard of first and last.
    first: int
    last: int
    net: float = 0.0
    # Contrasts for and against, with forgetting.
    weight: float = 0.0
    attempts: int = 0
    strangers: bool = False
    others: bool = False
    groups_for: set[str] = field(default_factory=set)
    groups_against: set[str] = field(default_factory=set)


def _traces(words: Iterable[tuple[str, int, WordSums]], divisions: Iterable[_Division], night: int) -> dict[str, _Trace]:
    net_by_night: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    traces: dict[str, _Trace] = {}

    def trace(name: str, then: int) -> _Trace:
        one = traces.setdefault(name, _Trace(then, then))
        one.first, one.last = min(one.first, then), max(one.last, then)
        return one

    for name, then, word in words:
        net_by_night[name][then] += word.net
        one = trace(name, then)
        one.weight += word.weight * RULES.net_memory ** (night - then)
        one.strangers, one.others = one.strangers or word.strangers, one.others or word.others
        one.groups_for |= word.groups_for
        one.groups_against |= word.groups_against
    for each in divisions:
        for name in (*each.one, *each.other):
            trace(name, each.night).attempts += each.sums.attempts
    for name, amounts in net_by_night.items():
        net = np.array(0.0)
        # Night by night, as support forgets between them and is bounded in each.
        for at in range(min(amounts), night + 1):
            net = aged_net(net) + amounts.get(at, 0.0)
        traces[name].net = float(net)
    return traces


def _live(memory: Memory, current: Mapping[str, str], traces: Mapping[str, _Trace]) -> dict[str, ExperienceRecord]:
    """Return the known lessons by id, at most ``MOST_KNOWN``: what is in force, then what was heard of last and most."""
    in_force = [current.get(name, name) for name in memory.in_force]
    newest = {each.experience_id: each for each in memory.records if current[each.experience_id] == each.experience_id}
    texts: set[tuple[str, str]] = set()
    living: list[str] = []
    for name in dict.fromkeys((*in_force, *newest)):
        record, trace = newest.get(name), traces.get(name)
        if record is None or (record.polarity, record.summary32) in texts:
            # Of equal texts, which runs at the same time may store, the first.
            continue
        if name in in_force or (trace is not None and (trace.attempts or trace.weight >= _FORGOTTEN)):
            texts.add((record.polarity, record.summary32))
            living.append(name)

    def forgotten(name: str) -> tuple[bool, int, float]:
        trace = traces.get(name, _Trace(0, 0))
        return name not in in_force, -trace.last, -trace.weight

    kept = set(sorted(living, key=forgotten)[:MOST_KNOWN])
    return {name: newest[name] for name in living if name in kept}


def _evidence(divisions: Sequence[_Division], names: Sequence[str], night: int) -> Evidence:
    column = {name: at for at, name in enumerate(names)}
    differing = [each for each in divisions if each.sums.differences.rows and (each.one or each.other)]
    membership = np.zeros((len(differing), len(column)))
    for at, each in enumerate(differing):
        membership[at, [column[name] for name in each.one]] = 1.0
        membership[at, [column[name] for name in each.other]] = -1.0
    weights = np.array([each.sums.differences.weight * RULES.row_memory ** (night - each.night) for each in differing])
    return evidence(membership, np.array([each.sums.differences.mean for each in differing]), weights)


def _opposites(words: Iterable[tuple[str, int, WordSums]], current: Mapping[str, str]) -> dict[str, set[str]]:
    opposites: dict[str, set[str]] = defaultdict(set)
    for one, _, word in words:
        for other in {current.get(name, name) for name in word.opposites} - {one}:
            opposites[one].add(other)
            opposites[other].add(one)
    return opposites


def _subjects(opposites: Mapping[str, set[str]], names: Sequence[str]) -> list[int]:
    # A number for each lesson, equal for those that contradict each other or the same lesson.
    number: dict[str, int] = {}
    for at, name in enumerate(names):
        waiting = [name]
        while waiting:
            one = waiting.pop()
            if one not in number:
                number[one] = at
                waiting += opposites.get(one, ())
    return [number[name] for name in names]


def _known(
    memory: Memory,
    current: Mapping[str, str],
    live: Mapping[str, ExperienceRecord],
    effects: Posterior,
    opposites: Mapping[str, set[str]],
    traces: Mapping[str, _Trace],
) -> dict[str, KnownLesson]:
    ids: dict[str, set[str]] = defaultdict(set)
    for name, newest in current.items():
        ids[newest].add(name)
    kept_out = {current.get(name, name): why for name, why in memory.kept_out.items()}
    # The posterior has the known lessons first, in their order, then others.
    effect = dict(zip(live, effects.effects(), strict=False))
    known, night = {}, max(memory.nights.values())
    for name, record in live.items():
        trace = traces.get(name, _Trace(night, night))
        held = trace.strangers and not trace.others
        rivals = (other for other in opposites.get(name, ()) if other in live)
        known[name] = KnownLesson(
            record=record,
            ids=frozenset(ids[name]),
            effect=effect[name],
            attempts=trace.attempts,
            net=trace.net,
            groups_for=len(trace.groups_for),
            groups_against=len(trace.groups_against),
            nights=night - trace.first,
            opposites=tuple(sorted(rivals, key=lambda other: (-effect[other].mean, other))),
            kept_out=kept_out.get(name) or (HELD if held and ids[name].isdisjoint(memory.in_force) else ""),
        )
    return known


def _held_out(swept: Mapping[int, Sequence[float]], night: int) -> tuple[HeldOut, Capital]:
    held_out, capital = HeldOut.before(), Capital()
    for at in range(min((at for at, differences in swept.items() if differences), default=night), night + 1):
        differences = swept.get(at, ())
        held_out, capital = held_out.after(differences), capital.after(differences)
    return held_out, capital
