"""Figures of courses over seeds, each with its 95 % interval, and the paired difference from another policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from benchmarks.worlds.engine import Course, run
from benchmarks.worlds.table import POLICIES
from benchmarks.worlds.world import VARIANTS, WORLDS
from tfgrpo.rewarders.statistics.summary import mean_and_error

SEEDS: Final = 30
_Z: Final = 1.959964
"""Quantile 0.975 of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Mean over seeds with the half-width of its 95 % interval."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ± {self.half_width:.1f}"


def figure(values: Iterable[float]) -> Figure:
    """Return the mean with its interval by Student's t."""
    estimate = mean_and_error(list(values))
    return Figure(estimate.mean, math.nan if estimate.se is None else _student(estimate.n - 1) * estimate.se)


def _student(freedom: int) -> float:
    """Return the quantile 0.975 of Student's t, by the expansion 26.7.5 of Abramowitz & Stegun (1964)."""
    first, second = (_Z**3 + _Z) / 4, (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    return _Z + first / freedom + second / freedom**2


def area(course: Course) -> float:
    """Return the area under the curve of true success, as the mean gain over the nights, in points."""
    return math.fsum(course.gain) / len(course.gain)


def nights_below(course: Course) -> int:
    """Return the nights on which what is served is worse than no lessons."""
    return sum(gain < 0.0 for gain in course.gain)


def calls_per_point(courses: Sequence[Course]) -> float | None:
    """Return calls of a night, rollouts and learner together, for each point of the area; None without a gain."""
    gained = figure(map(area, courses))
    calls = math.fsum((one.rollouts + one.learner_calls) / len(one.gain) for one in courses) / len(courses)
    return calls / gained.mean if gained.mean > gained.half_width else None


def paired(ours: Sequence[Course], others: Sequence[Course], value: Callable[[Course], float]) -> Figure:
    """Return ours minus theirs, seed by seed: both met the same worlds."""
    return figure(value(one) - value(other) for one, other in zip(ours, others, strict=True))


Table = Mapping[str, Mapping[str, Sequence[Course]]]
"""Courses by world and policy, in the order of the seeds."""


def measure(
    executor: Executor,
    seeds: int = SEEDS,
    worlds: Sequence[str] = (*WORLDS, *VARIANTS),
    policies: Sequence[str] = tuple(POLICIES),
) -> Table:
    """Run these policies in these worlds. The executor's processes share the work by world, policy and seed."""
    jobs = [(world, policy, seed) for world in worlds for policy in policies for seed in range(seeds)]
    courses = iter(list(executor.map(_course, jobs, chunksize=seeds)))
    return {world: {policy: [next(courses) for _ in range(seeds)] for policy in policies} for world in worlds}


def _course(job: tuple[str, str, int]) -> Course:
    world, policy, seed = job
    return run({**WORLDS, **VARIANTS}[world], POLICIES[policy], seed)
