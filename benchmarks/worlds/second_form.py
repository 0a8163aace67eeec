"""The second form of the loop, switch by switch: signed accounts, test then learn, a measured share.

Retold on habits with the product's own constants, capital and estimates of effects. Gate and prompts are those of the
product in ``benchmarks/worlds/service.py``; here the reflection is idealised, as for every other policy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from benchmarks.worlds.engine import Arena, Group
from benchmarks.worlds.policies import BATCH, joined, opposite
from benchmarks.worlds.world import NOTHING, SLOTS, Items, Lesson, Pack
from tfgrpo.rewarders.statistics.effects import HARMFUL, ONCE_PROVEN, MeasuredGroup, lesson_effects
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.accounts import (
    FORGETTING,
    JOINS_FROM,
    LEAST_GROUPS,
    LEAST_SUPPORT,
    LEAVES_BELOW,
    MOST_SUPPORT,
    RETIRED_NIGHTS,
    STAYS_FROM,
)

_CONFIDENCE: Final = 0.95
_MEASURED: Final = 14
"""Most lessons of one night's measurement."""
_GROUP: Final = 6
"""Attempts of a measuring group."""


class Accounts:
    """Net support of every lesson: carried from night to night, with a bound."""

    def __init__(self) -> None:
        self._net: defaultdict[Lesson, float] = defaultdict(float)
        self._spoken: defaultdict[Lesson, set[int]] = defaultdict(set)
        self._tried: defaultdict[Lesson, float] = defaultdict(float)
        self._trials: defaultdict[Lesson, float] = defaultdict(float)
        self._standing: Pack = NOTHING

    def night(self) -> None:
        """Forget a part."""
        for lesson in self._net:
            self._net[lesson] = FORGETTING * min(MOST_SUPPORT, self._net[lesson])
        for lesson in self._trials:
            self._tried[lesson] *= FORGETTING
            self._trials[lesson] *= FORGETTING

    def count(self, lesson: Lesson, group: int, weight: float = 1.0) -> None:
        """Note a contrast of a group, by its number, in favour of a lesson: it counts against the opposite."""
        self._spoken[lesson].add(group)
        self._net[lesson] += weight
        self._net[opposite(lesson)] -= weight

    def judge(self, lesson: Lesson, weight: float) -> None:
        """Note that a lesson of the prompt helped, or with a negative weight that it misled."""
        self._tried[lesson] += weight
        self._trials[lesson] += abs(weight)

    def successor(self, candidate: Pack, champion: Pack) -> Pack:
        """Return the lessons of the candidate that follow on a champion; on an empty one all do."""
        least = {one: STAYS_FROM if one in champion else JOINS_FROM for one in candidate}
        sure = {one: self._tried[one] / math.sqrt(max(1.0, self._trials[one])) for one in candidate}
        return frozenset(one for one in candidate if not champion or sure[one] >= least[one])

    def candidate(self, champion: Pack, retired: Pack) -> Pack:
        """Return the lessons in force: enough support to come in, any support to stay, the strongest first."""
        standing = self._standing | champion
        enough = {one for one, groups in self._spoken.items() if len(groups) >= LEAST_GROUPS}
        least = {one: 0.0 if one in standing else LEAST_SUPPORT for one in self._net if one in enough | standing}
        fitting = [one for one in least if self._net[one] > 0.0 and self._net[one] >= least[one] and one not in retired]
        self._standing = frozenset(sorted(fitting, key=lambda one: -self._net[one])[:SLOTS])
        return self._standing

    def leaving(self, champion: Pack) -> Pack:
        """Return the lessons with too much against them."""
        return frozenset(lesson for lesson in champion if self._net[lesson] < LEAVES_BELOW)


class SignedAccounts:
    """Groups of two as before, but every contrast counts for a lesson and against its opposite, over nights.

    An undecided candidate goes on, and its evidence is carried as a capital.
    """

    attempts, sweep = 2, 100
    """Attempts of a group, and items of the sweep."""
    contrasts = 1
    """Most contrasts of a group; each is evidence of its own."""
    by_halves = False
    """Whether two attempts of one half are contrasted first, and judgements across the halves count half."""
    judges = False
    """Whether a reflection also judges the lessons in the prompts."""

    @property
    def share(self) -> float:
        """Share of the rollouts of every night but the first, which measures lessons."""
        return 0.0

    def __init__(self) -> None:
        self.serving: Pack = NOTHING
        self._accounts = Accounts()
        self._capital = Capital()
        self._effects = Effects()
        self._groups = 0

    def night(self, arena: Arena) -> None:
        """Learn, measure the lessons, and compare candidate and champion on held-out items."""
        self._accounts.night()
        self._effects.night()
        measured = int(arena.left * self.share) if self._effects.nights > 1 else 0
        for items in arena.batches((arena.left - 4 * self.sweep - measured) // self.attempts, BATCH):
            for group, pack in self._attempts(arena, items):
                if not group.flat:
                    self._learn(arena, group, pack)
            self._leave()
        self._effects.measure(arena, self.serving | self._candidate, measured)
        self._leave()
        self._decide(arena)

    @property
    def _candidate(self) -> Pack:
        return self._accounts.candidate(self.serving, self._effects.retired)

    def _attempts(self, arena: Arena, items: Items) -> list[tuple[Group, Pack]]:
        candidate = self._candidate
        return [(group, candidate) for group in arena.attempt(items, candidate, self.attempts)]

    def _learn(self, arena: Arena, group: Group, pack: Pack) -> None:
        self._groups += 1
        half = self.attempts // 2 if self.by_halves and pack else None
        for pair, across in arena.pairs(group, self.contrasts, half):
            weight, lesson = 0.5 if across else 1.0, arena.reflect(pair)
            named = set() if lesson is None else {lesson, opposite(lesson)}
            judged = [other for other in arena.judge(pair, pack) if other not in named] if self.judges else []
            if lesson is not None:
                self._accounts.count(lesson, self._groups)
            for one in judged:
                self._accounts.count(one, self._groups, weight)
            for one in judged if lesson is None else [lesson, *judged]:
                if {one, opposite(one)} & pack:
                    self._accounts.judge(*((one, weight) if one in pack else (opposite(one), -weight)))

    def _leave(self) -> None:
        rest = self.serving - self._accounts.leaving(self.serving) - self._effects.retired
        if rest != self.serving:  # another champion, against which nothing is proved yet
            self.serving, self._capital = rest, Capital()

    def _decide(self, arena: Arena) -> None:
        candidate = self._candidate
        if candidate == self.serving:
            return
        items = arena.held_out.some(arena.random.permutation(len(arena.held_out))[: self.sweep])
        before, after = (arena.attempt(items, pack, 2) for pack in (self.serving, candidate))
        differences = _differences(before, after)
        self._capital = self._capital.after(differences)
        if self._capital.reaches(_CONFIDENCE) and math.fsum(differences) >= 0.0:
            self.serving, self._capital = candidate, Capital()


class TestThenLearn(SignedAccounts):
    """Half of each group of four runs under the champion, half under the candidate: what differs is evidence, then both teach.

    The best and the worst of the four are contrasted, whichever half they are in, and the reflection also judges the lessons
    that were in the prompts.
    """

    __test__ = False  # no test, though its name begins like one
    attempts, sweep, judges = 4, 50, True

    def _attempts(self, arena: Arena, items: Items) -> list[tuple[Group, Pack]]:
        candidate, baseline, half = self._candidate, self._baseline, self.attempts // 2
        if candidate == baseline:
            return super()._attempts(arena, items)
        before, after = (arena.attempt(items, pack, half) for pack in (baseline, candidate))
        self._capital = self._capital.after(_differences(before, after))
        return [(joined(pair), baseline | candidate) for pair in zip(before, after, strict=True)]

    @property
    def _baseline(self) -> Pack:
        """What the first half of a group runs under."""
        return self.serving


class TwoContrasts(TestThenLearn):
    """That, with a second contrast of each group: of the attempts next to the best and the worst."""

    contrasts = 2


class AgainstNone(TwoContrasts):
    """Half of each group runs without lessons, for ever, and what is proven is that the candidates are better than none.

    Then what is served follows the candidate: lessons that helped attempts which were given them, unless the sweep between
    what is served and what would be speaks against it. Attempts of one half are contrasted first; what is said of a lesson
    in the prompts across the halves counts half.
    """

    by_halves = True

    @property
    def _baseline(self) -> Pack:
        return NOTHING

    def _leave(self) -> None:
        self._serve(self.serving - self._accounts.leaving(self.serving) - self._effects.retired)

    def _serve(self, pack: Pack) -> None:
        if self.serving and not pack:  # what was proven before was of lessons that are gone
            self._capital = Capital()
        self.serving = pack

    def _decide(self, arena: Arena) -> None:
        successor = self._accounts.successor(self._candidate, self.serving)
        if successor == self.serving:
            return
        items = arena.held_out.some(arena.random.permutation(len(arena.held_out))[: self.sweep])
        before, after = (arena.attempt(items, pack, 2) for pack in (self.serving, successor))
        differences = _differences(before, after)
        if not self.serving:
            self._capital = self._capital.after(differences)
        if self._capital.reaches(_CONFIDENCE) and math.fsum(differences) >= 0.0:
            self._serve(successor)


class Measured(AgainstNone):
    """The loop as it ships: from the second night on a share of the rollouts measures single lessons, a third once proven."""

    @property
    def share(self) -> float:
        """Share of the rollouts of this night."""
        return 0.15 * (ONCE_PROVEN if self._capital.reaches(_CONFIDENCE) else 1.0)


def _differences(before: Sequence[Group], after: Sequence[Group]) -> list[float]:
    return [other.mean - one.mean for one, other in zip(before, after, strict=True)]


class Effects:
    """Measuring groups of all nights, and the lessons that are out because of them."""

    def __init__(self) -> None:
        self._groups: list[MeasuredGroup] = []
        self._sure: dict[str, float] = {}
        self._out: dict[Lesson, int] = {}
        self.nights = 0

    @property
    def retired(self) -> Pack:
        """Lessons that are out."""
        return frozenset(lesson for lesson, night in self._out.items() if self.nights - night < RETIRED_NIGHTS)

    def night(self) -> None:
        """Begin a night."""
        self.nights += 1

    def measure(self, arena: Arena, lessons: Pack, rollouts: int) -> None:
        """Attempt items under random halves of the lessons, the least certain first, and retire what harms."""
        if rollouts < _GROUP or len(lessons) < 2:
            return
        pool = sorted(lessons, key=lambda lesson: (self._sure.get(str(lesson), 0.0), lesson))[:_MEASURED]
        for items in arena.batches(rollouts // _GROUP, 1):
            drawn = frozenset(lesson for lesson in pool if arena.random.random() < 0.5)
            halves = drawn, frozenset(pool) - drawn
            one, other = (frozenset(map(str, half)) for half in halves)
            rewards = [arena.attempt(items, half, _GROUP // 2)[0].rewards for half in halves]
            self._groups.append(MeasuredGroup(one, other, rewards[0], rewards[1], self.nights))
        found = lesson_effects(self._groups, self.nights)
        self._sure = {name: -effect.sd for name, effect in found.items()}
        for lesson in pool:
            if str(lesson) in found and found[str(lesson)].harm > HARMFUL:
                self._out[lesson] = self.nights
