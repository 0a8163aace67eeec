"""Speed of advantages computed as arrays, against a plain loop: ``python -m benchmarks advantages``.

100,000 groups of 8 under every estimator, against the shortest loop that computes the same, without any check, in the
same run; and one group alone, by ``group_advantage``. All of it is CPU time: nothing here waits, and what else
the machine does is not measured along.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from benchmarks.table import Row
from tfgrpo.rewarders.advantages.batch import ESTIMATORS, Estimator, EstimatorKind, batch_advantages
from tfgrpo.rewarders.advantages.group import group_advantage

GROUPS, SIZE, REPEATS, CALLS = 100_000, 8, 5, 20_000
ONE_GROUP_US, SHARE_OF_LOOP = 2.0, 0.2
_QUANTILE = lru_cache(statistics.NormalDist().inv_cdf)


@dataclass(frozen=True, slots=True)
class Batch:
    """The same rewards as lists and as arrays."""

    rewards: list[list[float]]
    lengths: list[list[float]]
    greedy: list[float]


def batch(groups: int = GROUPS, size: int = SIZE) -> Batch:
    """Random rewards in steps of 1/16, so that there are ties, and lengths of completions."""
    rng = np.random.default_rng(0)
    rewards = rng.integers(0, 17, (groups, size)) / 16.0
    return Batch(rewards.tolist(), rng.integers(1, 500, (groups, size)).astype(float).tolist(), [0.5] * groups)


# --- the shortest loops, of groups that all have several rewards and no floor of their variance

Rows: TypeAlias = list[list[float]]


def _centred(rewards: Rows) -> Rows:
    means = [sum(group) / len(group) for group in rewards]
    return [[reward - mean for reward in group] for group, mean in zip(rewards, means, strict=True)]


def _deviation(values: Sequence[float], ddof: int) -> float:
    """Of values whose mean is zero."""
    return math.sqrt(sum([value * value for value in values]) / (len(values) - ddof))


def _over(values: Rows, scale: float) -> Rows:
    return [[value / scale for value in row] for row in values]


def _group_std(given: Batch, by: Estimator) -> Rows:
    rows = []
    for values in _centred(given.rewards):
        scale = max(_deviation(values, by.ddof), by.variance_floor) + by.epsilon
        rows.append([value / scale for value in values])
    return rows


def _over_batch(given: Batch, by: Estimator) -> Rows:
    values = _centred(given.rewards)
    mean = statistics.fmean([reward for group in given.rewards for reward in group]) if by.kind == "batch_std" else 0.0
    flat = [value - mean for row in (values if by.kind == "batch_whiten" else given.rewards) for value in row]
    return _over(values, _deviation(flat, by.ddof) + by.epsilon)


def _token_whitened(given: Batch, by: Estimator) -> Rows:
    values = _centred(given.rewards) if by.centred else given.rewards
    pairs = [pair for row, lengths in zip(values, given.lengths, strict=True) for pair in zip(row, lengths, strict=True)]
    tokens = sum([length for _, length in pairs])
    mean = sum([value * length for value, length in pairs]) / tokens
    scale = math.sqrt(sum([(value - mean) ** 2 * length for value, length in pairs]) / (tokens - 1) + by.epsilon)
    return [[(value - mean) / scale for value in row] for row in values]


def _length_weighted(given: Batch, _: Estimator) -> Rows:
    rows = []
    for group, lengths in zip(given.rewards, given.lengths, strict=True):
        base = sum([reward * length for reward, length in zip(group, lengths, strict=True)]) / sum(lengths)
        rows.append([reward - base for reward in group])
    return rows


def _gpg(given: Batch, _: Estimator) -> Rows:
    nonzero = sum([reward != 0.0 for group in given.rewards for reward in group])
    return _over(_centred(given.rewards), nonzero / sum(map(len, given.rewards)))


def _top_gap(given: Batch, by: Estimator) -> Rows:
    rows = []
    for group in given.rewards:
        second, best = sorted(group)[-2:]
        values = [0.0] * len(group)
        scale = _deviation(_centred([group])[0], by.ddof) + by.epsilon if by.normalised else 1.0
        values[group.index(best)] = (best - second) / scale
        rows.append(values)
    return rows


def _ranked(given: Batch, by: Estimator) -> Rows:
    rows = []
    for group in given.rewards:
        ordered, size = sorted(group), len(group)
        places = [ordered.index(reward) + (group.count(reward) - 1) / 2 for reward in group]
        rows.append([_QUANTILE((at + 1) / (size + 1)) if by.normalised else at / (size - 1) - 0.5 for at in places])
    return rows


LOOPS: dict[EstimatorKind, Callable[[Batch, Estimator], Rows]] = {
    "group_std": _group_std,
    "mean_only": lambda given, _: _centred(given.rewards),
    "leave_one_out": lambda given, _: _over(_centred(given.rewards), (SIZE - 1) / SIZE),
    "length_baseline": _length_weighted,
    "greedy_baseline": lambda given, _: [
        [reward - base for reward in group] for group, base in zip(given.rewards, given.greedy, strict=True)
    ],
    "rank": _ranked,
    "top_gap": _top_gap,
    "batch_std": _over_batch,
    "batch_whiten": _over_batch,
    "token_whiten": _token_whitened,
    "gpg": _gpg,
}


def compared(given: Batch) -> Iterator[Row]:
    """One row for each estimator: CPU time as arrays over that as a loop. What both gave must be the same."""
    rewards, lengths, greedy = (np.array(values) for values in (given.rewards, given.lengths, given.greedy))
    for name, estimator in ESTIMATORS.items():
        start = time.process_time()
        looped = LOOPS[estimator.kind](given, estimator)
        loop_s = time.process_time() - start
        seconds = []
        for _ in range(REPEATS):
            start = time.process_time()
            arrays = batch_advantages(rewards, estimator=estimator, token_lengths=lengths, greedy=greedy)
            seconds.append(time.process_time() - start)
        np.testing.assert_allclose(arrays, looped, rtol=1e-9, atol=1e-9, err_msg=name)
        median = statistics.median(seconds)
        note = f"{median * 1e3:.1f} ms as arrays, {loop_s * 1e3:.0f} ms as a loop: {loop_s / median:.0f} times"
        yield Row(f"advantages: arrays / loop, {name}", median / loop_s, "x", SHARE_OF_LOOP, note)


def alone() -> Row:
    """One group under the default estimator, in microseconds of CPU, as it is called in a run."""
    given, rounds, each = batch(64), CALLS // 64, []
    for _ in range(REPEATS * 3):
        start = time.process_time()
        for _ in range(rounds):
            for group in given.rewards:
                group_advantage(group)
        each.append((time.process_time() - start) / (rounds * 64) * 1e6)
    return Row(f"advantages: one group of {SIZE}", statistics.median(each), "µs", ONE_GROUP_US, "group_advantage")


def measure() -> list[Row]:
    """Measure one group alone, then every estimator over the batch."""
    return [alone(), *compared(batch())]
