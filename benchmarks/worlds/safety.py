"""What credit loses: months in which nothing, little or the wrong thing can be learned, by the worst of their causes.

Five tables. Months of nothing and of little to gain; lessons that a person puts in force; attempts that are lost under one
lesson; and how often the intervals of single lessons cover what the lessons are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.worlds.credit import Credit
from benchmarks.worlds.engine import Arena, Course, run
from benchmarks.worlds.figures import area, figure
from benchmarks.worlds.product import OfProduct
from benchmarks.worlds.world import NOTHING, WORLDS, Floats, Items, Lesson, Pack, Truth, World, sigmoid

MONTHS: Final = 60
IDLE_MONTHS: Final = 200
LOST_MONTHS: Final = 40
COVERED_MONTHS: Final = 30
_PLAIN: Final = WORLDS["plain"]
_IDLE: Final = replace(_PLAIN, effect=0.0)
_TWELVE: Final = 210.0
"""Points that twelve idle lessons cost for one logit of attention each."""
_MEMORISED: Final = replace(_PLAIN, learned=56, held_out=24, memorised=True, drift_after=None)
_LOSING: Final[Lesson] = (_PLAIN.rules, True)
"""An idle lesson, under which attempts are lost."""


class Untossed(Credit):
    """Credit whose groups do not toss which half comes first."""

    tosses = False


@dataclass(frozen=True, slots=True)
class Months:
    """A kind of month in which little can be gained."""

    world: World
    nights: int = 20
    policy: Callable[[], Credit] = Credit
    months: int = MONTHS


def _idle(cost: float = 4.0, **changes: Any) -> World:
    """Return a world in which twelve lessons cost so many points together."""
    return replace(_IDLE, attention=cost / _TWELVE, **changes)


NOTHING_TO_GAIN: Final[Mapping[str, Months]] = {
    "idle lessons that cost nothing": Months(_idle(0.0)),
    **{f"idle, twelve cost {cost:.1f} points": Months(_idle(cost), months=IDLE_MONTHS) for cost in (0.5, 1.0, 2.0, 4.0)},
    "idle, 80 items in all": Months(_idle(learned=56, held_out=24)),
    "idle, 50 items in all": Months(_idle(learned=35, held_out=15)),
    "idle, 80 items in all, twelve cost 1.0 points": Months(_idle(1.0, learned=56, held_out=24)),
    **{
        f"idle, the later half of a group is {points:.1f} points better": Months(_idle(late=points / 50))
        for points in (1.0, 2.0, 3.0)
    },
    "idle, 2 points, the halves in the same order in every group": Months(_idle(late=0.04), policy=Untossed),
    "idle, every night is better or worse by 9 points": Months(_idle(day=0.5)),
    "idle, a third of the attempts repeat another": Months(_idle(repeated=1 / 3)),
    "idle, four fifths of them do, twelve cost 1.0 points": Months(_idle(1.0, repeated=4 / 5)),
    **{f"idle, groups of {size}": Months(_idle(), policy=type("Sized", (Credit,), {"attempts": size})) for size in (2, 3, 5)},
    "idle, grades from 0.4 to 0.6 on a range of 0 to 1": Months(_idle(graded=0.2)),
    "rules of 6 of 56 learned items and of no other": Months(replace(_MEMORISED, share=6 / 56), nights=15),
    "rules of 3 of 56 learned items and of no other": Months(replace(_MEMORISED, share=3 / 56), nights=15),
    "+5 points in all, 80 items in all": Months(replace(WORLDS["small"], learned=56, held_out=24)),
}
LITTLE_TO_GAIN: Final[Mapping[str, World]] = {
    f"+{points} points": replace(_PLAIN, base=1.43, effect=effect, learned=56, held_out=24, drift_after=None)
    for points, effect in ((3, 0.38), (5, 0.51), (8, 0.73))
}
"""By what all right lessons gain together, where 73 % succeed without any."""
_Brought = Callable[[Truth], Pack]


def _idle_lessons(truth: Truth) -> Pack:
    return frozenset((truth.world.rules + habit, True) for habit in range(8))


def _lessons(truth: Truth, *, right: bool) -> Pack:
    return frozenset((rule, bool(truth.signs[rule] > 0.0) == right) for rule in range(8))


BROUGHT_IN: Final[Mapping[str, tuple[World, _Brought]]] = {
    "eight idle lessons": (_IDLE, _idle_lessons),
    "eight that cost twice the attention": (replace(_IDLE, attention=0.04), _idle_lessons),
    "eight that cost five times the attention": (replace(_IDLE, attention=0.1), _idle_lessons),
    "eight in the wrong direction": (_PLAIN, partial(_lessons, right=False)),
    "eight right ones": (_PLAIN, partial(_lessons, right=True)),
    "eight right ones of small effect": (WORLDS["small"], partial(_lessons, right=True)),
}
_BROUGHT_NIGHTS: Final = (1, 2, 3, 5, 10)
_LITTLE_NIGHTS: Final = (1, 2, 3, 5, 10, 20)
_LOST: Final[Mapping[str, tuple[World, Callable[[], Credit]]]] = {
    f"{name}, {what}": (replace(world, drift_after=None, losing=losing), policy)
    for name, world in (("idle", _IDLE), ("plain", _PLAIN))
    for what, losing, policy in (
        ("nothing is lost", NOTHING, Credit),
        ("lost, without the test of losses", frozenset({_LOSING}), Credit),
        ("lost, as the product decides", frozenset({_LOSING}), OfProduct),
    )
}
_COVERED: Final = ("plain", "noisy", "small")
_COVERED_NIGHTS: Final = (3, 6, 10)
_DRAWS, _HALVES = 12, 96
"""Draws of the habits at each item, and halves of the lessons, by which the true effects are computed."""


def nothing_to_gain(name: str, seed: int) -> Course:
    """Return one month in which nothing, or little, can be gained."""
    months = NOTHING_TO_GAIN[name]
    return run(months.world, months.policy, seed, months.nights)


def little_to_gain(name: str, seed: int) -> Course:
    """Return one month in which little can be gained, on 80 items."""
    return run(LITTLE_TO_GAIN[name], Credit, seed)


def brought_in(name: str, seed: int, nights: int = max(_BROUGHT_NIGHTS)) -> tuple[float, list[int], Course]:
    """Return what lessons that a person puts in force are worth, how many of them are left after each night, and the course."""
    world, lessons = BROUGHT_IN[name]
    truth = Truth(world, seed)
    pack = lessons(truth)
    course = run(world, partial(Credit, pack), seed, nights)
    return truth.success(pack) - truth.success(NOTHING), [len(pack & served) for served in course.served], course


def lost(name: str, seed: int, nights: int = 10) -> tuple[float, float]:
    """Return the share of nights with the losing lesson in force, and the area of the month."""
    world, policy = _LOST[name]
    course = run(world, policy, seed, nights)
    return sum(_LOSING in served for served in course.served) / nights, area(course)


def covered(world: str, seed: int, nights: Sequence[int] = _COVERED_NIGHTS) -> dict[int, list[bool]]:
    """Return for each lesson on trial after some nights whether its interval covers its true effect on the learned items."""
    found: dict[int, list[bool]] = {}

    class Watched(Credit):
        def night(self, arena: Arena) -> None:
            super().night(arena)
            if self._nights in nights:
                trial = sorted(self.standing().on_trial)
                effects = dict(zip(self.known(), self.posterior().effects(), strict=True))
                true = _true_effects(arena.truth, arena.train, trial, seed)
                intervals = [effects[lesson].interval(1) for lesson in trial]
                found[self._nights] = [
                    interval.low <= effect <= interval.high for interval, effect in zip(intervals, true, strict=True)
                ]

    run(replace(WORLDS[world], drift_after=None), Watched, seed, max(nights))
    return found


def _true_effects(truth: Truth, items: Items, trial: Sequence[Lesson], seed: int) -> list[float]:
    """Return the effects by which differences between random halves are best explained, without the noise of attempts."""
    random = np.random.default_rng([seed, 6])
    draws = random.random((len(items), _DRAWS, truth.world.habits))
    sides = random.random((_HALVES, len(trial))) < 0.5
    halves = [
        [frozenset(lesson for lesson, drawn in zip(trial, side, strict=True) if drawn == first) for first in (True, False)]
        for side in sides.tolist()
    ]
    differences = [_expected(truth, items, draws, one) - _expected(truth, items, draws, other) for one, other in halves]
    solved, *_ = np.linalg.lstsq(np.where(sides, 1.0, -1.0), np.array(differences), rcond=None)
    effects: list[float] = solved.tolist()
    return effects


def _expected(truth: Truth, items: Items, draws: Floats, pack: Pack) -> float:
    """Return the expected reward of a prompt on these items, in points."""
    habits = draws < truth.natural(pack)
    success = float(sigmoid(truth.logits(items, habits, np.zeros(draws.shape[:2]), pack)).mean())
    return 100.0 * (success + truth.world.label_noise * (1.0 - 2.0 * success))


def measure_safety(executor: Executor, months: int = IDLE_MONTHS) -> dict[str, list[str]]:
    """Run every kind of month and return the lines of each table."""
    return {
        "nothing to gain": list(_nothing_lines(executor, months)),
        "little to gain": list(_little_lines(executor, months)),
        "brought in": list(_brought_lines(executor, months)),
        "lost attempts": list(_lost_lines(executor, min(months, LOST_MONTHS))),
        "coverage": list(_coverage_lines(executor, min(months, COVERED_MONTHS))),
    }


def _nothing_lines(executor: Executor, months: int) -> Iterator[str]:
    yield (
        "| months of 20 nights (memorised: 15) | months | with anything in force | nights of them | points a night "
        "| worst month |"
    )
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in NOTHING_TO_GAIN:
        seeds = range(min(months, NOTHING_TO_GAIN[name].months))
        courses = list(executor.map(partial(nothing_to_gain, name), seeds))
        ever = sum(any(course.served) for course in courses) / len(courses)
        nights = figure(sum(map(bool, course.served)) / len(course.served) for course in courses).mean
        gain = figure(map(area, courses))
        worst = min(map(area, courses))
        points = f"{gain.mean:+.2f} ± {gain.half_width:.2f} | {worst:+.1f}"
        yield f"| {name} | {len(courses)} | {ever:.0%} | {nights:.1%} | {points} |"


def _little_lines(executor: Executor, months: int) -> Iterator[str]:
    nights = " / ".join(map(str, _LITTLE_NIGHTS))
    yield f"| 80 items, 73 % without lessons, all right ones | ever in force by night {nights} | points on night {nights} |"
    yield "| --- | --- | --- |"
    for name in LITTLE_TO_GAIN:
        courses = list(executor.map(partial(little_to_gain, name), range(min(months, MONTHS))))
        ever = " / ".join(f"{figure(any(one.served[:night]) for one in courses).mean:.0%}" for night in _LITTLE_NIGHTS)
        gains = " / ".join(f"{figure(one.gain[night - 1] for one in courses).mean:+.1f}" for night in _LITTLE_NIGHTS)
        yield f"| {name} | {ever} | {gains} |"


def _brought_lines(executor: Executor, months: int) -> Iterator[str]:
    nights = " / ".join(map(str, _BROUGHT_NIGHTS))
    yield f"| put in force by a person | worth | of eight in force after nights {nights} | points after nights {nights} |"
    yield "| --- | --- | --- | --- |"
    for name in BROUGHT_IN:
        worth, left, courses = zip(*executor.map(partial(brought_in, name), range(min(months, MONTHS))), strict=True)
        kept = " / ".join(f"{figure(one[night - 1] for one in left).mean:.1f}" for night in _BROUGHT_NIGHTS)
        gains = " / ".join(f"{figure(one.gain[night - 1] for one in courses).mean:+.1f}" for night in _BROUGHT_NIGHTS)
        yield f"| {name} | {figure(worth).mean:+.1f} | {kept} | {gains} |"


def _lost_lines(executor: Executor, months: int) -> Iterator[str]:
    yield "| months of 10 nights | nights with the losing lesson in force | points a night |"
    yield "| --- | --- | --- |"
    for name in _LOST:
        nights, areas = zip(*executor.map(partial(lost, name), range(months)), strict=True)
        yield f"| {name} | {figure(nights).mean:.0%} | {figure(areas)} |"


def _coverage_lines(executor: Executor, months: int) -> Iterator[str]:
    yield f"| world | {' | '.join(f'night {night}' for night in _COVERED_NIGHTS)} | lessons |"
    yield f"|{' --- |' * (len(_COVERED_NIGHTS) + 2)}"
    for world in _COVERED:
        found = list(executor.map(partial(covered, world), range(months)))
        of_night = [[inside for one in found for inside in one[night]] for night in _COVERED_NIGHTS]
        cells = (f"{sum(inside) / len(inside):.1%}" for inside in of_night)
        yield f"| {world} | {' | '.join(cells)} | {sum(map(len, of_night)):,} |"
