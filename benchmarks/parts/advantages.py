"""Speed of advantages computed as arrays, against a plain loop: ``python -m benchmarks.parts.advantages``.

100,000 groups of 8 under every estimator, against the shortest loop that computes the same, without any check, in the
same run; and one group alone, by ``rewarders.group_advantage``. All of it is CPU time: nothing here waits, and what else
the machine does is not measured along.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.table import Row, table
from tfgrpo.rewarders.advantages.batch import batch_advantages
from tfgrpo.rewarders.advantages.estimators import ESTIMATORS
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


# --- the shortest loops


def _centred(group: Sequence[float]) -> list[float]:
    mean = sum(group) / len(group)
    return [reward - mean for reward in group]


def _deviation(values: Sequence[float], ddof: int) -> float:
    """Of values whose mean is zero."""
    return math.sqrt(sum([value * value for value in values]) / (len(values) - ddof))


def _by_group(formula: Callable[[list[float]], list[float]]) -> Callable[[Batch], list[list[float]]]:
    return lambda batch: [formula(group) for group in batch.rewards]


def _normalised(ddof: int, epsilon: float, floor: float = 0.0) -> Callable[[Batch], list[list[float]]]:
    def formula(group: list[float]) -> list[float]:
        values = _centred(group)
        scale = max(_deviation(values, ddof), floor) + epsilon
        return [value / scale for value in values]

    return _by_group(formula)


def _leave_one_out(group: list[float]) -> list[float]:
    factor = len(group) / (len(group) - 1)
    return [value * factor for value in _centred(group)]


def _top_gap(group: list[float], *, divide: bool = False) -> list[float]:
    second, best = sorted(group)[-2:]
    gap = best - second
    if divide:
        gap /= _deviation(_centred(group), 1) + 1e-6
    values = [0.0] * len(group)
    values[group.index(best)] = gap
    return values


def _ranks(group: list[float]) -> list[float]:
    ordered = sorted(group)
    return [
        (ordered.index(reward) + (ordered.index(reward) + group.count(reward) - 1)) / (2 * len(group) - 2)
        for reward in group
    ]


def _batch_scaled(batch: Batch) -> list[list[float]]:
    mean = statistics.fmean([reward for group in batch.rewards for reward in group])
    scale = _deviation([reward - mean for group in batch.rewards for reward in group], 1) + 1e-4
    return [[value / scale for value in _centred(group)] for group in batch.rewards]


def _batch_whitened(batch: Batch) -> list[list[float]]:
    values = [_centred(group) for group in batch.rewards]
    scale = _deviation([value for row in values for value in row], 0) + 1e-8
    return [[value / scale for value in row] for row in values]


def _token_whitened(values: list[list[float]], batch: Batch) -> list[list[float]]:
    pairs = [
        pair for row, lengths in zip(values, batch.lengths, strict=True) for pair in zip(row, lengths, strict=True)
    ]
    tokens = sum([length for _, length in pairs])
    mean = sum([value * length for value, length in pairs]) / tokens
    scale = math.sqrt(sum([(value - mean) ** 2 * length for value, length in pairs]) / (tokens - 1) + 1e-8)
    return [[(value - mean) / scale for value in row] for row in values]


def _length_weighted(batch: Batch) -> list[list[float]]:
    rows = []
    for group, lengths in zip(batch.rewards, batch.lengths, strict=True):
        base = sum([reward * length for reward, length in zip(group, lengths, strict=True)]) / sum(lengths)
        rows.append([reward - base for reward in group])
    return rows


def _gpg(batch: Batch) -> list[list[float]]:
    count = sum([len(group) for group in batch.rewards])
    factor = count / sum([reward != 0.0 for group in batch.rewards for reward in group])
    return [[value * factor for value in _centred(group)] for group in batch.rewards]


LOOPS: dict[str, Callable[[Batch], list[list[float]]]] = {
    "grpo_population_eps1e-8": _normalised(0, 1e-8),
    "grpo_sample_eps1e-4": _normalised(1, 1e-4),
    "grpo_sample_eps1e-6": _normalised(1, 1e-6),
    "grpo_sample_eps1e-6_variance_floor": _normalised(1, 1e-6, 1e-3),
    "grpo_sample_eps1e-9": _normalised(1, 1e-9),
    "mean_only": _by_group(_centred),
    "batch_std_sample_eps1e-4": _batch_scaled,
    "group_center_then_batch_whiten_population_eps1e-8": _batch_whitened,
    "rloo": _by_group(_leave_one_out),
    "rloo_keep_single": _by_group(_leave_one_out),
    "reinforce_plus_plus": lambda batch: _token_whitened(batch.rewards, batch),
    "reinforce_plus_plus_baseline": lambda batch: _token_whitened([_centred(group) for group in batch.rewards], batch),
    "opo_length_weighted": _length_weighted,
    "remax": lambda batch: [
        [reward - base for reward in group] for group, base in zip(batch.rewards, batch.greedy, strict=True)
    ],
    "gpg": _gpg,
    "pass_at_k_top1_minus_top2": _by_group(_top_gap),
    "pass_at_k_normalised": _by_group(lambda group: _top_gap(group, divide=True)),
    "centered_rank": _by_group(lambda group: [rank - 0.5 for rank in _ranks(group)]),
    "normal_score": _by_group(
        lambda group: [_QUANTILE((rank * (len(group) - 1) + 1) / (len(group) + 1)) for rank in _ranks(group)]
    ),
}


def compared(given: Batch) -> Iterator[Row]:
    """One row for each estimator: CPU time as arrays over that as a loop. What both gave must be the same."""
    rewards, lengths, greedy = (np.array(values) for values in (given.rewards, given.lengths, given.greedy))
    for name, estimator in ESTIMATORS.items():
        start = time.process_time()
        looped = LOOPS[name](given)
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


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
