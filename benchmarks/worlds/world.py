"""Worlds of known truth: which habits of an actor help on which items, and what a lesson about one does.

An attempt shows or omits each of some dozens of habits. The *rules* among them raise or lower the logit of success on the
items that they matter for; *idle* habits do nothing; *tempting* ones accompany lucky attempts and harm when they are
followed. A lesson makes the actor show a habit, or omit it, nine times in ten, and every lesson in the prompt costs
attention. Rewards are 0 or 1, and a share of them may be wrong or lost; in some worlds they are graded.

All figures are in logits unless said otherwise. The true success of a prompt is computed over items and habits of its own,
the same for all policies of a seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Lesson: TypeAlias = tuple[int, bool]
"""A habit, and whether to show it (True) or to omit it."""
Pack: TypeAlias = frozenset[Lesson]

NOTHING: Final[Pack] = frozenset()
SLOTS: Final = 12
"""Lessons that one prompt carries."""
FAMILIES: Final = 4
_OBEYED: Final = 0.9
"""Share of attempts that follow a lesson of the prompt."""
_SCALE_ITEMS: Final = 1_500
"""Items over which true success is computed."""
_LOST: Final = 0.3
_JUDGES: Final = 0.3
"""Standard deviation of a graded reward around the probability of success."""


@dataclass(frozen=True, slots=True)
class World:
    """A kind of world; ``Truth`` is one of them, for one seed."""

    name: str
    description: str
    rules: int = 12
    idle: int = 12
    tempting: int = 0
    effect: float = 1.6
    """Of showing against omitting a rule, half to each side."""
    share: float = 0.25
    """Of the items that a rule matters for."""
    harm: float = 0.6
    """Of a tempting habit that is followed."""
    luck: float = 1.2
    """Of the hidden luck of an attempt, which tempting habits accompany."""
    attention: float = 0.02
    """Cost of one lesson in the prompt."""
    label_noise: float = 0.0
    """Share of rewards that are the wrong way round."""
    misjudged: float = 0.0
    """Share of reflections that name the wrong direction."""
    opposed: float = 0.0
    """Share of the rules that help in half of the families and hurt in the others."""
    twins: int = 0
    """Rules that another habit serves as well: a second lesson about it only costs attention."""
    drift_after: int | None = 10
    """Night after which a third of the rules turn round; None for never."""
    insight: float = 20.0
    """How much more often a reflection names a habit that matters than one that does not."""
    base: float = 0.0
    """Mean logit of an item."""
    unequal: float = 1.5
    """Standard deviation of the items' logits."""
    learned: int = 300
    held_out: int = 100
    """Items to learn on, and for sweeps."""
    memorised: bool = False
    """Whether rules matter for the items to learn on alone."""
    late: float = 0.0
    """Share of the wrong attempts of a group's second half that are right because they come later."""
    day: float = 0.0
    """Standard deviation of what a night adds to the logit of every attempt."""
    graded: float | None = None
    """Width of the range of graded rewards around 0.5; None for rewards of 0 and 1."""
    losing: frozenset[Lesson] = NOTHING
    """Lessons under which three tenths of the wrong attempts are lost."""
    repeated: float = 0.0
    """Share of the attempts that repeat the first one with their item and prompt."""

    @property
    def habits(self) -> int:
        """Number of habits."""
        return self.rules + self.idle + self.tempting


WORLDS: Final[Mapping[str, World]] = {
    world.name: world
    for world in (
        World("plain", "twelve rules, twelve idle habits"),
        World("noisy", "15 % of the rewards are wrong", label_noise=0.15),
        World("misjudged", "a fifth of the reflections name the wrong direction", misjudged=0.2),
        World("small", "all right lessons together are worth about five points", effect=0.45),
        World("tempting", "three habits accompany luck and harm when they are followed", tempting=3),
        World("opposed", "half of the rules help in two families of items and hurt in the others", opposed=0.5),
        World("twins", "six rules can be served by either of two habits", twins=6),
        World("crowded", "a lesson costs five times the attention", attention=0.1),
        World("unlearnable", "no habit matters, and lessons cost attention", effect=0.0, attention=0.036),
    )
}

VARIANTS: Final[Mapping[str, World]] = {
    world.name: world
    for world in (
        World(
            "many",
            "thirty rules, each for a tenth of the items and of larger effect, and thirty idle habits",
            rules=30,
            idle=30,
            effect=2.2,
            share=0.1,
        ),
        World("little insight", "as plain; reflections name what matters three times as often as what does not", insight=3.0),
        World("no insight", "as plain; reflections name any habit that differs", insight=1.0),
        World("graded", "as plain; judges grade from 0.4 to 0.6 on a range that is declared as 0 to 1", graded=0.2),
    )
}
"""Worlds of the comparison with credit."""


class Truth:
    """One world of one seed: items, effects, and what really helps."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._random = np.random.default_rng([seed, 1])
        self._signs = self._random.choice([-1.0, 1.0], size=world.rules)
        self._opposed = self._random.random(world.rules) < world.opposed
        self._natural = self._random.uniform(0.3, 0.7, size=world.habits)
        self._turned = np.zeros(world.rules, dtype=bool)
        self._success: dict[Pack, float] = {}
        self.today = 0.0
        """What this night adds to every logit."""
        self._scale = _Scale.drawn(world, np.random.default_rng([seed, 2]))

    def after_night(self, night: int) -> None:
        """Let a third of the rules turn round, if this is the night."""
        if self.world.drift_after == night:
            turning = self._random.permutation(self.world.rules)[: self.world.rules // 3]
            self._turned[turning] = True
            self._success.clear()

    @property
    def signs(self) -> Floats:
        """What showing each rule does, -1 or 1, in the families that do not oppose it."""
        return np.where(self._turned, -self._signs, self._signs)

    def effects(self, family: npt.NDArray[np.int64]) -> Floats:
        """Return the effects of the rules on items of these families, shape ``(items, rules)``."""
        signs = self.world.effect * self.signs
        of_family = np.array([signs] * (FAMILIES // 2) + [np.where(self._opposed, -signs, signs)] * (FAMILIES // 2))
        effects: Floats = of_family[family]
        return effects

    def natural(self, pack: Pack) -> Floats:
        """Return the probability that an attempt with this prompt shows each habit."""
        shown = self._natural.copy()
        for habit, show in pack:
            shown[habit] = _OBEYED if show else 1.0 - _OBEYED
        return shown

    def logits(self, items: Items, habits: Bools, luck: Floats, pack: Pack) -> Floats:
        """Return the logit of success of attempts; ``habits`` has the shape ``(items, attempts, habits)``."""
        world = self.world
        shown = self._served(habits)
        signs = shown - 0.5
        matter = self.effects(items.family) * items.matters
        gain = np.einsum("iar,ir->ia", signs, matter)
        followed = [habit for habit, show in pack if show and habit >= world.rules + world.idle]
        logits: Floats = items.base[:, None] + gain + luck
        if followed:
            logits -= world.harm * habits[:, :, followed].sum(axis=2)
        return logits - world.attention * len(pack)

    def success(self, pack: Pack) -> float:
        """Return the true success of a prompt, in points of 100, over items that no policy sees."""
        if pack not in self._success:
            self._success[pack] = self._measured(pack)
        return self._success[pack]

    def _measured(self, pack: Pack) -> float:
        scale = self._scale
        habits = (scale.draws < self._tempted(pack, scale.luck))[:, None, :]
        logits = self.logits(scale.items, habits, scale.luck[:, None], pack)
        return float(100.0 * sigmoid(logits).mean())

    def attempts(
        self, items: Items, pack: Pack, count: int, random: np.random.Generator, late: Bools | None = None
    ) -> tuple[Bools, Floats]:
        """Return habits and rewards of ``count`` attempts at each item under one prompt; the reward of a lost one is NaN.

        ``late``: whether these are the second half of the item's group; None for a whole group.
        """
        world = self.world
        luck = world.luck * random.standard_normal((len(items), count)) if world.tempting else None
        luck = np.zeros((len(items), count)) if luck is None else luck
        habits = random.random((len(items), count, world.habits)) < self._tempted(pack, luck)
        chances = sigmoid(self.logits(items, habits, luck, pack) + self.today)
        if world.graded is not None:
            quality = np.clip(chances + random.normal(0.0, _JUDGES, chances.shape), 0.0, 1.0)
            return habits, 0.5 + world.graded * (quality - 0.5)
        solved = random.random((len(items), count)) < chances
        if world.late and late is not None:
            solved |= late[:, None] & (random.random(solved.shape) < world.late)
        wrong = random.random((len(items), count)) < world.label_noise
        rewards = (solved ^ wrong).astype(np.float64)
        if world.repeated:
            again = random.random(rewards.shape) < world.repeated
            habits = np.where(again[:, :, None], habits[:, :1], habits)
            rewards = np.where(again, rewards[:, :1], rewards)
        if world.losing & pack:
            rewards[(rewards == 0.0) & (random.random(rewards.shape) < _LOST)] = np.nan
        return habits, rewards

    def wrong(self, pack: Pack) -> int:
        """Return the lessons that do not help: against a rule, tempting, or about nothing."""
        return sum(not self.right(lesson) for lesson in pack)

    def right(self, lesson: Lesson) -> bool:
        """Return whether a lesson is about a rule and in its direction."""
        habit, show = self.served(lesson)
        return self.world.effect > 0.0 and habit < self.world.rules and (self.signs[habit] > 0.0) == show

    def served(self, lesson: Lesson) -> Lesson:
        """Return the lesson on the rule that a twin habit stands for; any other as it is."""
        habit, show = lesson
        twin = habit - self.world.rules
        return (twin, show) if 0 <= twin < self.world.twins else lesson

    def plausible(self, items: Items) -> Floats:
        """Return how often a reflection names each habit that separates two attempts, relative to the others.

        A habit that matters for the item seems to have to do with the outcome, and so does a tempting one. Shape
        ``(items, habits)``.
        """
        world = self.world
        weights = np.ones((len(items), world.habits))
        if world.effect > 0.0:
            weights[:, : world.rules][items.matters] = world.insight
            twins = weights[:, world.rules : world.rules + world.twins]
            twins[items.matters[:, : world.twins]] = world.insight
        weights[:, world.rules + world.idle :] = world.insight
        return weights

    def _served(self, habits: Bools) -> Bools:
        shown = habits[:, :, : self.world.rules]
        if not self.world.twins:
            return shown
        shown = shown.copy()
        twins = habits[:, :, self.world.rules : self.world.rules + self.world.twins]
        # Whichever of the two departs from what is usual decides, so that one lesson about either is enough.
        positive = self.signs[: self.world.twins] > 0.0
        first = shown[:, :, : self.world.twins]
        shown[:, :, : self.world.twins] = np.where(positive, first | twins, first & twins)
        return shown

    def _tempted(self, pack: Pack, luck: Floats) -> Floats:
        """Return the probabilities of the habits; those of tempting ones, unless a lesson rules them, follow luck."""
        probabilities = self.natural(pack)
        first = self.world.rules + self.world.idle
        free = [habit for habit in range(first, self.world.habits) if (habit, True) not in pack and (habit, False) not in pack]
        if free:
            probabilities = np.broadcast_to(probabilities, (*luck.shape, self.world.habits)).copy()
            probabilities[..., free] = sigmoid(1.5 * luck)[..., None]
        return probabilities


@dataclass(frozen=True, slots=True)
class Items:
    """Some items of a world."""

    family: npt.NDArray[np.int64]
    base: Floats
    matters: Bools
    """Shape ``(items, rules)``: whether a rule matters for an item."""

    def __len__(self) -> int:
        return len(self.base)

    @classmethod
    def drawn(cls, world: World, count: int, random: np.random.Generator, *, learned: bool = False) -> Items:
        """Draw items, to learn on or others."""
        return cls(
            random.integers(FAMILIES, size=count),
            random.normal(world.base, world.unequal, size=count),
            random.random((count, world.rules)) < (world.share if learned or not world.memorised else 0.0),
        )

    def some(self, which: Sequence[int] | npt.NDArray[np.int64]) -> Items:
        """Return the items at these positions."""
        return Items(self.family[which], self.base[which], self.matters[which])


@dataclass(frozen=True, slots=True)
class _Scale:
    """What true success is measured on: the same draws for every prompt, so that differences are exact."""

    items: Items
    draws: Floats
    luck: Floats

    @classmethod
    def drawn(cls, world: World, random: np.random.Generator) -> _Scale:
        items = Items.drawn(world, _SCALE_ITEMS, random)
        luck = world.luck * random.standard_normal(_SCALE_ITEMS) if world.tempting else np.zeros(_SCALE_ITEMS)
        return cls(items, random.random((_SCALE_ITEMS, world.habits)), luck)


def sigmoid(logits: Floats) -> Floats:
    """Return the probabilities of these logits."""
    return np.asarray(1.0 / (1.0 + np.exp(-logits)), dtype=np.float64)
