"""The loop of one posterior: random halves of every group say what each lesson is worth, and what likely helps is in force.

The posterior and its constants are the product's own, ``rewarders/statistics/credit.py``. Sums over rows are kept here, so
that a month takes a second; ``benchmarks/worlds/product.py`` has the product's own sums, and a test that both decide alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from benchmarks.worlds.engine import Arena, Group
from benchmarks.worlds.policies import BATCH, joined, opposite
from benchmarks.worlds.world import NOTHING, Bools, Items, Lesson, Pack
from tfgrpo.rewarders.statistics.credit import (
    RULES,
    Differences,
    Effect,
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
from tfgrpo.stores.experiences.credit import PERSON_GROUPS

_LESSONS: Final = 160
"""Two of each habit; more than any world has."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What follows from all rows and words so far."""

    on_trial: Pack
    follows: Pack
    """Those of them that are probably worth more than nothing."""
    total: Effect
    held_out: Effect


class Credit:
    """Half of a group carries a random half of the lessons on trial, the other half carries the rest.

    What differs is credited to the lessons of the better half, after the support that contrasts gave them. The lessons that
    are probably worth more than nothing are swept against no lessons, and are in force while all rows and the held-out ones
    say that they likely help.
    """

    rules: Rules = RULES
    attempts, sweep = 4, 50
    """Attempts of a group, and held-out items of the sweep, each attempted twice with and without lessons."""
    tosses = True
    """Whether each group tosses which half comes first."""

    def __init__(self, brought_in: Iterable[Lesson] = ()) -> None:
        """Begin with what a person has put in force, with the support of some groups."""
        self.serving: Pack = frozenset(brought_in)
        self._by_person = bool(self.serving)
        self._nights = 0
        self._net = np.zeros(_LESSONS)
        self._net[_indices(self.serving)] = PERSON_GROUPS
        self._rows = Evidence(np.zeros((_LESSONS, _LESSONS)), np.zeros(_LESSONS))
        self._sides: list[dict[Hashable, Differences]] = [defaultdict(Differences)]
        self._known: list[int] = []
        self._before = HeldOut.before(self.rules)
        self._swept: list[float] = []

    def night(self, arena: Arena) -> None:
        """Learn batch by batch, and sweep what would be in force against no lessons."""
        swept = min(self.sweep, len(arena.held_out))
        if self._nights:
            self._age()
        self._nights += 1
        for items in arena.batches((arena.left - 4 * swept) // self.attempts, BATCH):
            self._learn(arena, items, self.standing().on_trial)
        library = self.standing().follows
        if library:
            items = arena.held_out.some(arena.random.permutation(len(arena.held_out))[:swept])
            sides = [arena.attempt(items, pack, 2) for pack in (library, NOTHING)]
            self._credit(library, NOTHING, *sides, sweep=True)
        after = self.standing(library)
        likely = comes_into_force(after.total, after.held_out, by_person=self._by_person, rules=self.rules)
        self.serving = after.follows if likely else NOTHING
        self._by_person &= bool(self.serving)

    def _learn(self, arena: Arena, items: Items, trial: Pack) -> None:
        """Attempt a batch in some divisions of the lessons, take its rows, and reflect on every group with a contrast."""
        for part in np.array_split(arena.random.permutation(len(items)), self.rules.designs if trial else 1):
            chosen, first = items.some(part), self.attempts // 2
            if not trial:
                groups = [(group, 0) for group in arena.attempt(chosen, NOTHING, self.attempts)]
            else:
                one = frozenset(lesson for lesson in sorted(trial) if arena.random.random() < 0.5)
                if self.attempts % 2:  # the odd attempt goes to either half
                    first += int(arena.random.integers(2))
                late = self._late(arena, len(chosen))
                sides = (
                    arena.attempt(chosen, one, first, late),
                    arena.attempt(chosen, trial - one, self.attempts - first, ~late),
                )
                self._credit(one, trial - one, *sides)
                groups = [(joined(pair), len(pair[0].rewards)) for pair in zip(*sides, strict=True)]
            for group, half in groups:
                if not group.flat:
                    self._reflect(arena, group, trial, half)

    def _late(self, arena: Arena, groups: int) -> Bools:
        """Return for each group whether its first half comes second."""
        tossed: Bools = arena.random.random(groups) < 0.5
        return tossed if self.tosses else np.zeros(groups, dtype=bool)

    def _reflect(self, arena: Arena, group: Group, trial: Pack, half: int) -> None:
        """Count what contrasts of a group say for a lesson, and against its opposite."""
        for pair, across in arena.pairs(group, self.rules.contrasts, half if trial else None):
            lesson = arena.reflect(pair)
            if lesson is not None:
                self._count(lesson, 1.0)
            for judged in arena.judge(pair, trial):
                if lesson is None or judged[0] != lesson[0]:
                    self._count(judged, self.rules.across if across else 1.0)

    def _age(self) -> None:
        """Begin another night."""
        self._net = aged_net(self._net, self.rules)
        self._rows = Evidence(*(self.rules.row_memory * sums for sums in self._rows))
        self._sides = [self._sides[-1], defaultdict(Differences)]
        if self._swept or self._before != HeldOut.before(self.rules):
            self._before = self._before.after(self._swept, self.rules)
        self._swept = []

    def _credit(self, one: Pack, other: Pack, first: Sequence[Group], second: Sequence[Group], *, sweep: bool = False) -> None:
        """Add a row for each item with a reward on both sides."""
        lessons = (self._nights, sweep, one, other)
        night = self._sides[-1]
        for left, right in zip(first, second, strict=True):
            night[lessons] = night[lessons].after(left.rewards, right.rewards)
        pairs = [pair for pair in zip(first, second, strict=True) if all(group.rewards for group in pair)]
        differences = np.array([left.mean - right.mean for left, right in pairs])
        if pairs:
            membership = np.zeros((1, _LESSONS))
            membership[0, _indices(one)], membership[0, _indices(other)] = 1.0, -1.0
            weights = np.array([row_weight(len(left.rewards), len(right.rewards)) for left, right in pairs])
            # Rows of equal sides are one row of their weighted mean.
            mean = np.array([float(weights @ differences) / weights.sum()])
            more = evidence(membership, mean, weights.sum(keepdims=True))
            self._rows = Evidence(self._rows.gram + more.gram, self._rows.moment + more.moment)
        if sweep:
            self._swept = differences.tolist()

    def _count(self, lesson: Lesson, weight: float) -> None:
        self._net[_index(lesson)] += weight
        self._net[_index(opposite(lesson))] -= weight

    def standing(self, swept: Pack | None = None) -> Standing:
        """Return what follows from all rows and words so far; ``swept`` is what the night's sweep carried, after it."""
        effects = self.posterior()
        subjects = [index // 2 for index in self._known]
        trial = on_trial(effects, self._net[self._known], subjects, self.rules)
        known = self.known()
        worth = [at for at in trial if effects.mean[at] > 0.0 and (swept is None or known[at] in swept)]
        held_out = self._before.after(self._swept, self.rules).gain
        return Standing(self._lessons(trial), self._lessons(worth), effects.total(worth), held_out)

    def posterior(self) -> Posterior:
        """Return the posterior of the lessons that anything is known about."""
        self._known = np.flatnonzero((self._net != 0.0) | (np.diag(self._rows.gram) != 0.0)).tolist()
        supported = support(self._net[self._known], self.rules)
        variance = attempt_variance(chain.from_iterable(map(dict.values, self._sides)), self.rules)
        rows = Evidence(self._rows.gram[np.ix_(self._known, self._known)], self._rows.moment[self._known])
        return posterior(rows, supported, variance, self.rules)

    def known(self) -> list[Lesson]:
        """Return the lessons of the posterior, in its order."""
        return [(index // 2, bool(index % 2)) for index in self._known]

    def _lessons(self, positions: Sequence[int]) -> Pack:
        known = self.known()
        return frozenset(known[at] for at in positions)


def _index(lesson: Lesson) -> int:
    return 2 * lesson[0] + lesson[1]


def _indices(pack: Pack) -> list[int]:
    return sorted(map(_index, pack))
