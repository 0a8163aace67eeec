"""Compute every estimator group by group and as arrays, with made-up token lengths and greedy rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tfgrpo.rewarders.advantages.batch import batch_advantages, batch_statistics
from tfgrpo.rewarders.advantages.estimators import ESTIMATORS, Estimator, EstimatorName
from tfgrpo.rewarders.advantages.group import group_advantage

Rewards = Sequence[Sequence[float]]
Floats = npt.NDArray[np.float64]
NAMES = sorted(ESTIMATORS)

sane = st.floats(-100, 100).map(lambda value: round(value, 3))
batches = st.lists(st.lists(sane, min_size=2, max_size=6), min_size=1, max_size=5)


def group_by_group(
    rewards: Rewards,
    name: EstimatorName | Estimator,
    lengths: Rewards | None = None,
    greedy: Sequence[float] | None = None,
) -> list[tuple[float, ...]]:
    """Return the advantages of each group, one call per group: what the arrays must equal."""
    statistics = batch_statistics(rewards, lengths)
    return [
        group_advantage(
            group,
            name,
            token_lengths=None if lengths is None else lengths[index],
            batch=statistics,
            greedy=None if greedy is None else greedy[index],
        ).advantages
        for index, group in enumerate(rewards)
    ]


def lengths_of(rewards: Rewards) -> list[list[int]]:
    return [[1 + (7 * row + 3 * column) % 11 for column in range(len(group))] for row, group in enumerate(rewards)]


def greedy_of(rewards: Rewards) -> list[float]:
    return [group[0] / 2 for group in rewards]


def arrays(rewards: Rewards, name: EstimatorName | Estimator, **more: Any) -> Floats:
    lengths, greedy = lengths_of(rewards), greedy_of(rewards)
    return batch_advantages(rewards, estimator=name, token_lengths=lengths, greedy=greedy, **more)


def present_values(values: Floats) -> list[list[float]]:
    """Return the values of each group without NaN, which fills absent rewards."""
    return [[value for value in row if not math.isnan(value)] for row in values.tolist()]
