"""Policies that credit is compared with, as their sources describe them.

All work on habits instead of text, with the same idealised reflection. The docstring of a policy names its source and what
is left out; ``benchmarks/peers`` runs the packages themselves, where there are any.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np

from benchmarks.worlds.engine import Arena, Group
from benchmarks.worlds.world import NOTHING, SLOTS, Items, Lesson, Pack

BATCH: Final = 25
"""Items between two changes of a library."""


def opposite(lesson: Lesson) -> Lesson:
    """Return the lesson of the other direction."""
    return lesson[0], not lesson[1]


def proposals(arena: Arena, groups: Sequence[Group]) -> Counter[Lesson]:
    """Reflect on every group with a contrast and count the lessons."""
    lessons = (arena.reflect(group) for group in groups if not group.flat)
    return Counter(lesson for lesson in lessons if lesson is not None)


class NoLessons:
    """Learns nothing; the zero of every figure."""

    serving: Pack = NOTHING

    def night(self, arena: Arena) -> None:
        """Do nothing."""


class KeepEverything:
    """Keep every lesson of every contrast and serve the most frequent ones, without a gate.

    Training-Free GRPO (arXiv:2510.08191): groups of five, a library that is updated after every batch and never measured.
    """

    group_size = 5

    def __init__(self) -> None:
        self._counts: Counter[Lesson] = Counter()

    @property
    def serving(self) -> Pack:
        """The most frequent lessons, of two opposite ones the more frequent."""
        leading = [lesson for lesson, count in self._counts.most_common() if count > self._counts[opposite(lesson)]]
        return frozenset(leading[:SLOTS])

    def night(self, arena: Arena) -> None:
        """Spend all rollouts on learning."""
        for items in arena.batches(arena.left // self.group_size, BATCH):
            self._counts += proposals(arena, arena.attempt(items, self.serving, self.group_size))


class _Pool:
    """Candidate packs with the sum and the number of the rewards seen for each."""

    def __init__(self) -> None:
        self._scores: dict[Pack, tuple[float, int]] = {NOTHING: (0.0, 0)}

    def note(self, pack: Pack, rewards: Sequence[float]) -> None:
        total, count = self._scores.get(pack, (0.0, 0))
        self._scores[pack] = total + sum(rewards), count + len(rewards)

    def mean(self, pack: Pack) -> float:
        total, count = self._scores[pack]
        return total / count if count else 0.0

    def best(self, count: int) -> list[Pack]:
        return heapq.nlargest(count, self._scores, key=self.mean)


class Simba:
    """In the manner of DSPy's SIMBA: mini-batches, a softmax over a pool of prompts, a rule per varied item, a last look.

    After ``dspy.SIMBA`` (batch of 32, 6 candidates a step, 8 steps, temperature 0.2 for both draws, final look at the best
    of all steps); the batch is smaller here because a night has 800 rollouts. Demonstrations are left out: an item of
    these worlds has nothing to demonstrate.
    """

    batch, candidates, temperature = 16, 4, 0.2

    def __init__(self) -> None:
        self.serving: Pack = NOTHING
        self._pool = _Pool()

    def night(self, arena: Arena) -> None:
        """Improve the pool in steps, and serve the winner of a last look at the best."""
        winners = [self.serving]
        last_look = 200
        while arena.left - last_look >= 2 * self.batch * self.candidates:
            winners.append(self._step(arena))
        leaders = list(dict.fromkeys([*reversed(winners), *self._pool.best(3)]))[:4]
        items = arena.draw(last_look // len(leaders))
        seen = {pack: [group.rewards[0] for group in arena.attempt(items, pack, 1)] for pack in leaders}
        for pack, rewards in seen.items():
            self._pool.note(pack, rewards)
        self.serving = max(leaders, key=lambda pack: float(np.mean(seen[pack])))

    def _step(self, arena: Arena) -> Pack:
        items = arena.draw(self.batch)
        chosen = [self._draw(arena) for _ in range(self.candidates)]
        tried = [arena.attempt(items, pack, 1) for pack in chosen]
        for pack, groups in zip(chosen, tried, strict=True):
            self._pool.note(pack, [group.rewards[0] for group in groups])
        varied = [joined(groups) for groups in zip(*tried, strict=True)]
        varied = sorted((group for group in varied if not group.flat), key=lambda group: group.mean)
        fresh: list[Pack] = []
        for group in varied[: self.candidates]:
            lesson = arena.reflect(group)
            base = self._draw(arena)
            if lesson is not None:
                fresh.append(_with(base, lesson, arena))
        for pack in fresh:
            self._pool.note(pack, [group.rewards[0] for group in arena.attempt(items, pack, 1)])
        return max(fresh, key=self._pool.mean, default=self.serving)

    def _draw(self, arena: Arena) -> Pack:
        packs = self._pool.best(20)
        weights = np.exp(np.array([self._pool.mean(pack) for pack in packs]) / self.temperature)
        return packs[int(arena.random.choice(len(packs), p=weights / weights.sum()))]


class Gepa:
    """In the manner of GEPA: reflective mutation on small mini-batches, and a Pareto front over validation items.

    After ``gepa.optimize`` (arXiv:2507.19457): a parent is drawn from the candidates that are best on some validation item,
    in proportion to how many; a child is accepted if it beats its parent on the mini-batch, and only then scored on all
    validation items. Mini-batches have 5 items here (3 there), each with one lesson; merges are left out.
    """

    minibatch, validation = 5, 40

    def __init__(self) -> None:
        self.serving: Pack = NOTHING
        self._front: dict[Pack, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}

    def night(self, arena: Arena) -> None:
        """Mutate until the night's rollouts end, and serve the best mean of the validation items."""
        items = arena.held_out.some(np.arange(self.validation))
        self._front = {}
        self._validate(self.serving, items, arena)
        while arena.left >= 2 * self.minibatch + self.validation:
            self._mutate(items, arena)
        self.serving = max(self._front, key=lambda pack: float(self._front[pack].mean()))

    def _mutate(self, items: Items, arena: Arena) -> None:
        parent = self._parent(arena)
        batch = arena.draw(self.minibatch)
        before = arena.attempt(batch, parent, 1)
        # One attempt an item has no contrast of its own: what failed is compared with what succeeded on another item.
        lesson = arena.reflect(joined(before))
        if lesson is None or lesson in parent:
            return
        child = _with(parent, lesson, arena)
        after = arena.attempt(batch, child, 1)
        if sum(group.rewards[0] for group in after) > sum(group.rewards[0] for group in before):
            self._validate(child, items, arena)

    def _parent(self, arena: Arena) -> Pack:
        packs = list(self._front)
        scores = np.stack([self._front[pack] for pack in packs])
        wins = (scores == scores.max(axis=0)).sum(axis=1).astype(np.float64)
        return packs[int(arena.random.choice(len(packs), p=wins / wins.sum()))]

    def _validate(self, pack: Pack, items: Items, arena: Arena) -> None:
        self._front[pack] = np.array([group.rewards[0] for group in arena.attempt(items, pack, 1)])


class Ace:
    """In the manner of ACE: a growing playbook of bullets with counts of helpful and harmful, without a gate.

    After Agentic Context Engineering (arXiv:2510.04618): each attempt is reflected on alone against the known answer, the
    bullets in the prompt that it followed are marked by how it ended, and bullets marked harmful more often leave. The
    playbook has no slots, so that its attention is paid in full.
    """

    most = 40

    def __init__(self) -> None:
        self._helpful: Counter[Lesson] = Counter()
        self._harmful: Counter[Lesson] = Counter()
        self._playbook: dict[Lesson, None] = {}

    @property
    def serving(self) -> Pack:
        """The playbook."""
        return frozenset(self._playbook)

    def night(self, arena: Arena) -> None:
        """Go through pairs of attempts, batch by batch."""
        for items in arena.batches(arena.left // 2, BATCH):
            for group in arena.attempt(items, self.serving, 2):
                self._mark(group)
                if not group.flat:
                    self._extend(arena.reflect(group))
            self._refine()

    def _mark(self, group: Group) -> None:
        for habits, reward in zip(group.habits.tolist(), group.rewards, strict=True):
            followed = [lesson for lesson in self._playbook if habits[lesson[0]] == lesson[1]]
            (self._helpful if reward > 0.5 else self._harmful).update(followed)

    def _extend(self, lesson: Lesson | None) -> None:
        if lesson is not None and opposite(lesson) not in self._playbook and len(self._playbook) < self.most:
            self._playbook[lesson] = None

    def _refine(self) -> None:
        for lesson in [one for one in self._playbook if self._harmful[one] > self._helpful[one] + 2]:
            del self._playbook[lesson]


def joined(groups: Sequence[Group]) -> Group:
    """Return the attempts of several groups as one."""
    return Group(
        np.concatenate([group.habits for group in groups]),
        tuple(chain.from_iterable(group.rewards for group in groups)),
        np.add.reduce([group.plausible for group in groups]) / len(groups),
    )


def _with(pack: Pack, lesson: Lesson, arena: Arena) -> Pack:
    """Return the pack with a lesson, in place of its opposite and, where the slots are full, of any other."""
    kept = sorted(pack - {opposite(lesson), lesson})
    if len(kept) >= SLOTS:
        kept.pop(int(arena.random.integers(len(kept))))
    return frozenset([*kept, lesson])
