"""Run one policy in one world for some nights, on the same budget of rollouts as every other."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Protocol

import numpy as np

from benchmarks.worlds.world import NOTHING, Bools, Floats, Items, Lesson, Pack, Truth, World

ROLLOUTS_A_NIGHT = 800
NIGHTS = 20


class Policy(Protocol):
    """What learns. Made anew for each seed; nights follow each other."""

    @property
    def serving(self) -> Pack:
        """The lessons in the prompt of the agent by day."""
        ...

    def night(self, arena: Arena) -> None:
        """Learn for one night, with at most the rollouts of the arena."""
        ...


@dataclass(frozen=True, slots=True)
class Group:
    """The attempts at one item under one prompt."""

    habits: Bools
    """Shape ``(attempts, habits)``; lost attempts are left out."""
    rewards: tuple[float, ...]
    plausible: Floats
    """Shape ``(habits,)``: what a reflection looks at, see ``Truth.plausible``. Not for policies."""
    lost: int = 0

    @property
    def flat(self) -> bool:
        """Whether there is no contrast, since all rewards are equal."""
        return len(set(self.rewards)) < 2

    @property
    def mean(self) -> float:
        """Mean reward."""
        return math.fsum(self.rewards) / len(self.rewards)


class Arena:
    """What a policy may do in one night: attempt items and reflect on groups. Both are counted."""

    def __init__(self, truth: Truth, train: Items, held_out: Items, random: np.random.Generator) -> None:
        self.train, self.held_out, self.random = train, held_out, random
        self.left = ROLLOUTS_A_NIGHT
        self.learner_calls = 0
        self.truth = truth
        """Not for policies."""

    def attempt(self, items: Items, pack: Pack, count: int, late: Bools | None = None) -> list[Group]:
        """Return a group of ``count`` attempts for each item. Raises ``ValueError`` beyond the budget of the night.

        ``late``: for each item, whether these come after the other half of its group; None where there is no other half.
        """
        self.left -= count * len(items)
        if self.left < 0:
            raise ValueError(f"{-self.left} rollouts more than the {ROLLOUTS_A_NIGHT} of a night")
        habits, rewards = self.truth.attempts(items, pack, count, self.random, late)
        plausible = self.truth.plausible(items)
        groups = [Group(*one) for one in zip(habits, map(tuple, rewards.tolist()), plausible, strict=True)]
        return [_kept(group) for group in groups] if self.truth.world.losing else groups

    def draw(self, count: int) -> Items:
        """Return some of the items to learn on, without repetition."""
        return self.train.some(self.random.permutation(len(self.train))[:count])

    def batches(self, items: int, batch: int) -> Iterator[Items]:
        """Yield batches of items to learn on; no item comes twice before all have come."""
        order = self.random.permutation(len(self.train))
        for start in range(0, items, batch):
            yield self.train.some(np.take(order, range(start, min(start + batch, items)), mode="wrap"))

    def pairs(self, group: Group, most: int, half: int | None = None) -> Iterator[tuple[Group, bool]]:
        """Yield up to ``most`` contrasts of one of the best attempts with one of the worst, and whether it is across halves.

        No attempt is in two while others have its reward. Of a group whose first ``half`` attempts had another prompt,
        pairs of one half come first.
        """
        bounds = (max(group.rewards), min(group.rewards))
        best, worst = (
            self.random.permutation([at for at, reward in enumerate(group.rewards) if reward == bound]).tolist()
            for bound in bounds
        )

        def across(two: tuple[int, int]) -> bool:
            return half is not None and (two[0] < half) != (two[1] < half)

        left, used = list(product(best, worst)), set[int]()
        for _ in range(min(most, max(len(best), len(worst)))):
            two = min(left, key=lambda pair: (len(used.intersection(pair)), across(pair)))
            left.remove(two)
            used.update(two)
            yield Group(group.habits[[*two]], bounds, group.plausible), across(two)

    def reflect(self, group: Group) -> Lesson | None:
        """Name one habit in which the best and the worst attempt differ, as the best one has it; None where they agree.

        The reflection is idealised: it sees habits, not text. Habits that seem to have to do with the outcome are named
        more often, and a share of its lessons has the wrong direction.
        """
        self.learner_calls += 1
        best, worst = self._extremes(group)
        of_best, of_worst = group.habits[best].tolist(), group.habits[worst].tolist()
        rows = zip(of_best, of_worst, group.plausible.tolist(), strict=True)
        weights = list(accumulate(likely if one != other else 0.0 for one, other, likely in rows))
        if not weights[-1]:
            return None
        habit = bisect_right(weights, self.random.random() * weights[-1])
        show = of_best[habit]
        return habit, show != (self.random.random() < self.truth.world.misjudged)

    def judge(self, group: Group, pack: Pack) -> Iterator[Lesson]:
        """Yield what the same reflection says of the lessons in the prompt: a lesson if it helped, its opposite if it misled.

        It judges lessons in which the best and the worst attempt differ, those that seem to have to do with the outcome
        more often, and a share of its judgements has the wrong direction. It costs no call of its own.
        """
        best, worst = self._extremes(group)
        likely = (group.plausible / group.plausible.max()).tolist()
        of_best, of_worst = group.habits[best].tolist(), group.habits[worst].tolist()
        for habit, _ in sorted(pack):
            shown = of_best[habit]
            if shown != of_worst[habit] and self.random.random() < likely[habit]:
                yield habit, shown != (self.random.random() < self.truth.world.misjudged)

    def _extremes(self, group: Group) -> tuple[int, int]:
        """Return the positions of one of the best and one of the worst attempts."""
        rewards = group.rewards
        best, worst = (self._one_of(rewards, bound(rewards)) for bound in (max, min))
        return best, worst

    def _one_of(self, rewards: Sequence[float], value: float) -> int:
        """Return one of the positions that have this reward."""
        positions = [position for position, reward in enumerate(rewards) if reward == value]
        return positions[int(self.random.random() * len(positions))]


def _kept(group: Group) -> Group:
    """Return a group without the attempts that were lost."""
    scored = [at for at, reward in enumerate(group.rewards) if not math.isnan(reward)]
    rewards = tuple(group.rewards[at] for at in scored)
    return Group(group.habits[scored], rewards, group.plausible, len(group.rewards) - len(scored))


@dataclass(frozen=True, slots=True)
class Course:
    """What a policy did in one world of one seed, night by night."""

    gain: tuple[float, ...]
    """True success of what is served, in points above no lessons."""
    served: tuple[Pack, ...]
    """The lessons in force."""
    wrong: tuple[int, ...]
    """How many of them do not help."""
    rollouts: int
    learner_calls: int
    changes_for_the_worse: int
    """Nights after which what is served is worse than before."""


def run(world: World, policy: Callable[[], Policy], seed: int, nights: int = NIGHTS) -> Course:
    """Return the course of one policy. All policies meet the same world of a seed."""
    truth, days = Truth(world, seed), np.random.default_rng([seed, 5])
    drawn = np.random.default_rng([seed, 3])
    train = Items.drawn(world, world.learned, drawn, learned=True)
    held_out = Items.drawn(world, world.held_out, drawn)
    learner = policy()
    gains, served, wrong, rollouts, calls, worse = [], [], [], 0, 0, 0
    for night in range(1, nights + 1):
        truth.today = world.day * days.standard_normal()
        arena = Arena(truth, train, held_out, np.random.default_rng([seed, 4, night]))
        before = truth.success(learner.serving)
        learner.night(arena)
        rollouts += ROLLOUTS_A_NIGHT - arena.left
        calls += arena.learner_calls
        after = truth.success(learner.serving)
        worse += after < before
        gains.append(after - truth.success(NOTHING))
        served.append(learner.serving)
        wrong.append(truth.wrong(learner.serving))
        truth.after_night(night)
    return Course(tuple(gains), tuple(served), tuple(wrong), rollouts, calls, worse)
