"""The loop of one posterior: random halves of every group say what each lesson is worth, and what likely helps is in force.

The posterior and its constants are the product's own, ``rewarders/statistics/credit.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

import numpy as np

from benchmarks.worlds.engine import Arena, Group
from benchmarks.worlds.policies import BATCH, joined, opposite
from benchmarks.worlds.world import NOTHING, Items, Lesson, Pack
from tfgrpo.rewarders.statistics.credit import (
    RULES,
    Evidence,
    HeldOut,
    Posterior,
    Rules,
    aged_net,
    attempt_variance,
    comes_into_force,
    evidence,
    on_trial,
    posterior,
    row_weight,
    support,
)

_LESSONS: Final = 160
"""Two of each habit; more than any world has."""


class Credit:
    """Half of a group carries a random half of the lessons on trial, the other half carries the rest.

    What differs is credited to the lessons of the better half, after the support that contrasts gave them. The lessons that
    are probably worth more than nothing are swept against no lessons, and are in force while all rows and the held-out ones
    say that they help.
    """

    rules: Rules = RULES
    attempts, sweep = 4, 50
    """Attempts of a group, and held-out items of the sweep, each attempted twice with and without lessons."""

    def __init__(self) -> None:
        self.serving: Pack = NOTHING
        self._net = np.zeros(_LESSONS)
        self._rows = Evidence.none(_LESSONS)
        self._variance: float | None = None
        self._sides: list[tuple[float, ...]] = []
        self._known: list[int] = []
        self._held_out = HeldOut.before(self.rules)

    def night(self, arena: Arena) -> None:
        """Learn batch by batch, and sweep what would be in force against no lessons."""
        self._net, self._rows = aged_net(self._net, self.rules), self._rows.aged(rules=self.rules)
        for items in arena.batches((arena.left - 4 * self.sweep) // self.attempts, BATCH):
            self._learn(arena, items, self._lessons(self._on_trial(self._posterior())))
        self._variance, self._sides = attempt_variance(self._sides, self.rules), []
        self._decide(arena)

    def _learn(self, arena: Arena, items: Items, trial: Pack) -> None:
        """Attempt a batch in some divisions of the lessons, take its rows, and reflect on every group with a contrast."""
        for part in np.array_split(arena.random.permutation(len(items)), self.rules.designs if trial else 1):
            chosen, first = items.some(part), self.attempts // 2
            if not trial:
                groups = arena.attempt(chosen, NOTHING, self.attempts)
                self._sides += [group.rewards for group in groups]
            else:
                one = frozenset(lesson for lesson in sorted(trial) if arena.random.random() < 0.5)
                if self.attempts % 2:  # the odd attempt goes to either half
                    first += int(arena.random.integers(2))
                sides = arena.attempt(chosen, one, first), arena.attempt(chosen, trial - one, self.attempts - first)
                self._credit(one, trial - one, *sides)
                groups = [joined(pair) for pair in zip(*sides, strict=True)]
            for group in groups:
                if not group.flat:
                    self._reflect(arena, group, trial, first)

    def _credit(self, one: Pack, other: Pack, first: Sequence[Group], second: Sequence[Group]) -> list[float]:
        """Add a row for each item, and return their differences."""
        differences = [left.mean - right.mean for left, right in zip(first, second, strict=True)]
        self._sides += [group.rewards for group in (*first, *second)]
        if differences:
            membership = np.zeros((1, _LESSONS))
            membership[0, _indices(one)], membership[0, _indices(other)] = 1.0, -1.0
            weight = row_weight(len(first[0].rewards), len(second[0].rewards))
            # Rows of equal sides and weights are one row of their mean.
            mean, weights = np.array([fmean(differences)]), np.array([len(differences) * weight])
            self._rows += evidence(membership, mean, weights)
        return differences

    def _reflect(self, arena: Arena, group: Group, trial: Pack, first: int) -> None:
        """Count what contrasts of a group say for a lesson, and against its opposite."""
        for pair, across in arena.pairs(group, self.rules.contrasts, first if trial else None):
            lesson = arena.reflect(pair)
            if lesson is not None:
                self._count(lesson, 1.0)
            for judged in arena.judge(pair, trial):
                if lesson is None or judged[0] != lesson[0]:
                    self._count(judged, self.rules.across if across else 1.0)

    def _count(self, lesson: Lesson, weight: float) -> None:
        self._net[_index(lesson)] += weight
        self._net[_index(opposite(lesson))] -= weight

    def _posterior(self) -> Posterior:
        """Return the posterior of the lessons that anything is known about."""
        self._known = np.flatnonzero((self._net != 0.0) | (np.diag(self._rows.gram) != 0.0)).tolist()
        supported = support(self._net[self._known], self.rules)
        return posterior(self._rows.of(self._known), supported, self._variance, self.rules)

    def _on_trial(self, effects: Posterior) -> list[int]:
        """Return the positions of the lessons on trial."""
        subjects = [index // 2 for index in self._known]
        return on_trial(effects, self._net[self._known], subjects, self.rules)

    def _worthwhile(self, effects: Posterior) -> list[int]:
        """Return those of them that are probably worth more than nothing."""
        return [at for at in self._on_trial(effects) if effects.mean[at] > 0.0]

    def _lessons(self, positions: Sequence[int]) -> Pack:
        return frozenset((index // 2, bool(index % 2)) for index in (self._known[at] for at in positions))

    def _decide(self, arena: Arena) -> None:
        """Sweep what would be in force against no lessons, and let all rows decide."""
        library = self._lessons(self._worthwhile(self._posterior()))
        differences: list[float] = []
        if library:
            items = arena.held_out.some(arena.random.permutation(len(arena.held_out))[: self.sweep])
            sides = [arena.attempt(items, pack, 2) for pack in (library, NOTHING)]
            differences = self._credit(library, NOTHING, *sides)
        self._held_out = self._held_out.after(differences, self.rules)
        effects = self._posterior()
        follows = self._worthwhile(effects)
        total, held_out = effects.total(follows), self._held_out.gain
        likely = comes_into_force(total, held_out, served=bool(self.serving), rules=self.rules)
        self.serving = self._lessons(follows) if likely else NOTHING


def _index(lesson: Lesson) -> int:
    return 2 * lesson[0] + lesson[1]


def _indices(pack: Pack) -> list[int]:
    return sorted(map(_index, pack))
