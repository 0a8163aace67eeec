"""What the gate sees in simulated months: ``python -m benchmarks.learning.gate``.

Every night is one sweep of 100 items, five attempts under each library, decided by the product's own gate on the evidence
of the nights so far; the evidence starts anew as in a run. Items are mostly always right or always wrong: the success
probabilities are those of a Beta(0.2, 0.2) distribution. A gain multiplies the odds of all items by one factor, so that
the mean over the items is higher by it. Bars are upper ones, so that power is shown as the share of months without a
promotion.

The rows of ours beside a t test (z > 1.96 after every night, on all differences so far) show what is lost to it, and
that it promotes without any gain in far more than 5 % of the months.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from benchmarks.table import Row, table
from tfgrpo.pipelines.settings.learning import GateSettings
from tfgrpo.rewarders.scorer import UNIT, Range
from tfgrpo.rewarders.statistics.summary import Floats
from tfgrpo.tasks.evaluation import ItemPair, PairedEvidence
from tfgrpo.tasks.gate import Carried, decide_gate

MONTHS, NIGHTS, WEEK = 200, 30, 5
ITEMS, ATTEMPTS, POOL = 100, 5, 400
_SETTLED, _GAIN, _LOST = 0.2, 0.05, 0.3
_SETTINGS: Final = GateSettings()
_IMPROVED: Final = 0.02
_Z: Final = 1.96
_SELDOM: Final = 2.42
"""Threshold of a t test after every night that is wrong in one month of twenty, as the gate promises at most."""
_TENTH: Final = (0.45, 0.55)
_NOISE: Final = 0.3
"""Standard deviation of a graded reward around the quality of its item, as a share of the tenth."""


@dataclass(frozen=True, slots=True)
class World:
    """A champion and a candidate on one set of items."""

    champion: Floats
    """Success probabilities, or qualities from 0 to 1, by item."""
    candidate: Floats
    attempts: int = ATTEMPTS
    graded: bool = False
    lost: float = 0.0
    """Share of the candidate's wrong attempts that bring no reward."""
    swept: int | None = None
    """Items drawn for a sweep; None: all."""
    redrawn: bool = True
    """Whether every night draws others."""
    reused: bool = False
    """Whether the champion is attempted in the first night only, and these attempts count in all others."""
    improved: float = 0.0
    """By how much both libraries are better from the second night on, as when an endpoint has a better model."""


@dataclass(frozen=True, slots=True)
class Month:
    """The first night with a promotion, under the gate and under two t tests; None without one."""

    gate: int | None
    t_test: int | None
    seldom: int | None
    """Under one with the threshold that is wrong as seldom as the gate may be."""


def binary(rng: np.random.Generator, gain: float, *, attempts: int = ATTEMPTS, lost: float = 0.0) -> World:
    """Return a world of right and wrong answers in which the candidate is better by ``gain`` on average."""
    before = np.clip(rng.beta(_SETTLED, _SETTLED, ITEMS), 1e-9, 1 - 1e-9)
    return World(before, raised(before, gain), attempts=attempts, lost=lost)


def unlike(rng: np.random.Generator, *, redrawn: bool) -> World:
    """Return a world of 400 items, some better and some worse under the candidate, without a gain on average."""
    before = np.clip(rng.beta(_SETTLED, _SETTLED, POOL), 1e-9, 1 - 1e-9)
    odds = np.exp(rng.normal(0.0, 2.0, POOL))
    after = 1 / (1 + (1 / before - 1) / odds)
    return World(before, raised(after, float(before.mean() - after.mean())), swept=ITEMS, redrawn=redrawn)


def graded(rng: np.random.Generator, gain: float) -> World:
    """Return a world of rewards in a tenth of the range from 0 to 1; ``gain`` is a share of that tenth."""
    before = rng.uniform(0.2, 0.8, ITEMS)
    return World(before, before + gain, graded=True)


def raised(chances: Floats, gain: float) -> Floats:
    """Return success probabilities whose odds are multiplied by one factor, with a mean higher by ``gain``."""
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        after = 1 / (1 + (1 / chances - 1) * math.exp(-middle))
        low, high = (low, middle) if float((after - chances).mean()) > gain else (middle, high)
    return after if gain else chances


def month(world: World, rng: np.random.Generator, nights: int = NIGHTS, score_range: Range = UNIT) -> Month:
    """Decide night after night until the first promotion of each kind."""
    carried, gate, t_test, seldom = Carried(), None, None, None
    items, differences, first = _drawn(world, rng), list[float](), dict[str, ItemPair]()
    for night in range(1, nights + 1):
        items = _drawn(world, rng) if world.redrawn else items
        if night == 2 and world.improved:
            better = [raised(each, world.improved) for each in (world.champion, world.candidate)]
            world = replace(world, champion=better[0], candidate=better[1])
        evidence = _sweep(world, items, rng)
        if world.reused:
            pairs = (replace(each, champion=first.setdefault(each.item_id, each).champion) for each in evidence.pairs)
            evidence = replace(evidence, pairs=tuple(pairs))
        differences += evidence.differences
        t_test = night if t_test is None and _t(differences) > _Z else t_test
        seldom = night if seldom is None and _t(differences) > _SELDOM else seldom
        if gate is None:
            decision = decide_gate(evidence, _SETTINGS, score_range, carried=carried)
            if decision.decision == "promote":
                gate = night
            nights_behind = 0 if decision.given_up else decision.nights
            carried = Carried.after(decision.decision, decision.capital, nights_behind, _SETTINGS.confidence)
        if None not in (gate, t_test, seldom):
            break
    return Month(gate, t_test, seldom)


def _drawn(world: World, rng: np.random.Generator) -> Sequence[int]:
    every = len(world.champion)
    return range(every) if world.swept is None else rng.choice(every, world.swept, replace=False).tolist()


def _sweep(world: World, items: Sequence[int], rng: np.random.Generator) -> PairedEvidence:
    arms = [_rewards(world, chances[list(items)], rng) for chances in (world.champion, world.candidate)]
    keeps = [np.ones_like(arms[0], dtype=bool), (arms[1] > 0.0) | (rng.random(arms[1].shape) >= world.lost)]
    pairs = []
    for item, *of_item in zip(items, *arms, *keeps, strict=True):
        before, after = (tuple(rewards[kept].tolist()) for rewards, kept in zip(of_item[:2], of_item[2:], strict=True))
        pairs.append(ItemPair(str(item), before, after, world.attempts - len(before), world.attempts - len(after)))
    lost = tuple(pair for pair in pairs if not pair.candidate)
    return PairedEvidence(tuple(pair for pair in pairs if pair.candidate), lost, identical=False)


def _rewards(world: World, chances: Floats, rng: np.random.Generator) -> Floats:
    shape = (len(chances), world.attempts)
    if world.graded:
        low, high = _TENTH
        quality = np.clip(chances[:, None] + rng.normal(0.0, _NOISE, shape), 0.0, 1.0)
        return np.asarray(low + (high - low) * quality)
    return np.asarray(rng.random(shape) < chances[:, None], dtype=np.float64)


def _t(differences: Sequence[float]) -> float:
    values = np.asarray(differences)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) / error if error else 0.0


def shares(
    make: Callable[[np.random.Generator], World], nights: int = NIGHTS, score_range: Range = UNIT, months: int = MONTHS
) -> tuple[float, float, float]:
    """Return the percentages of months with a promotion, under the gate and under the two t tests."""
    found = []
    for seed in range(months):
        rng = np.random.default_rng([seed, nights])
        found.append(month(make(rng), rng, nights, score_range))
    gate, t_test, seldom = (
        100 * sum(night is not None for night in nights_of) / months
        for nights_of in zip(*((each.gate, each.t_test, each.seldom) for each in found), strict=True)
    )
    return gate, t_test, seldom


def measure(months: int = MONTHS) -> list[Row]:
    """Simulate every kind of month."""
    return [*_false(months), *_power(months), *_graded(months)]


def _false(months: int) -> Iterator[Row]:
    worlds: dict[str, Callable[[np.random.Generator], World]] = {
        "no gain": lambda rng: binary(rng, 0.0),
        "no gain, 30 % of the wrong attempts lost": lambda rng: binary(rng, 0.0, lost=_LOST),
        "no gain over 400 items, others every night": lambda rng: unlike(rng, redrawn=True),
    }
    for name, make in worlds.items():
        gate, t_test, _ = shares(make, months=months)
        yield Row(f"gate: {name}, promoted within 30 nights", gate, "%", 5.0, f"t test {t_test:.3g} %")
    reused: dict[str, Callable[[np.random.Generator], World]] = {
        "no gain, the champion attempted in the first night only": lambda rng: replace(binary(rng, 0.0), reused=True),
        "the same, both better by 2 points afterwards": lambda rng: replace(
            binary(rng, 0.0), reused=True, improved=_IMPROVED
        ),
    }
    for name, make in reused.items():
        gate, t_test, _ = shares(make, months=months // 4)
        note = f"t test {t_test:.3g} %: why the champion is attempted again every night"
        yield Row(f"gate: {name}", gate, "%", None, note)
    gate, t_test, _ = shares(lambda rng: unlike(rng, redrawn=False), months=months // 4)
    note = f"t test {t_test:.3g} %: why every night draws other items"
    yield Row("gate: no gain over 400 items, the same 100 every night", gate, "%", None, note)


def _power(months: int) -> Iterator[Row]:
    for attempts, nights, bar in ((ATTEMPTS, WEEK, 20.0), (2, WEEK, None), (ATTEMPTS, 1, None), (2, 1, None)):
        gate, t_test, _ = shares(partial(binary, gain=_GAIN, attempts=attempts), nights, months=months)
        within = "one night" if nights == 1 else f"{nights} nights"
        name = f"gate: +5 points, groups of {attempts}, missed in {within}"
        yield Row(name, 100 - gate, "%", bar, f"a t test misses {100 - t_test:.3g} %")


def _graded(months: int) -> Iterator[Row]:
    gate, t_test, _ = shares(lambda rng: graded(rng, _GAIN), WEEK, _TENTH, months)
    note = f"{gate:.3g} % against {t_test:.3g} % in 5 nights"
    yield Row("gate: +5 points of a declared tenth, power below a t test", 100 * (1 - gate / t_test), "%", 20.0, note)
    gate, t_test, seldom = shares(lambda rng: graded(rng, 0.02), WEEK, _TENTH, months)
    note = f"{gate:.3g} % against {seldom:.3g} % in 5 nights; {t_test:.3g} % by one that is wrong in one month of seven"
    name = "gate: +2 points of a declared tenth, power below a t test that is wrong in one month of twenty"
    yield Row(name, 100 * (1 - gate / seldom), "%", None, note)
    gate, t_test, _ = shares(lambda rng: graded(rng, _GAIN), WEEK, UNIT, months)
    note = f"{gate:.3g} % against {t_test:.3g} %: declare the range that is used"
    yield Row("gate: the same, declared 0 to 1", 100 * (1 - gate / t_test), "%", None, note)


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
