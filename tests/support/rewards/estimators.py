"""Compute advantages of batches, with made-up token lengths and greedy rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tfgrpo.rewarders.advantages.batch import batch_advantages
from tfgrpo.rewarders.advantages.estimators import ESTIMATORS, Estimator

Rewards = Sequence[Sequence[float]]
Floats = npt.NDArray[np.float64]
NAMES = sorted(ESTIMATORS)
OF_ONE_GROUP = [name for name in NAMES if "batch" not in ESTIMATORS[name].needs]

sane = st.floats(-100, 100).map(lambda value: round(value, 3))
batches = st.lists(st.lists(sane, min_size=2, max_size=6), min_size=1, max_size=5)


def lengths_of(rewards: Rewards) -> list[list[int]]:
    return [[1 + (7 * row + 3 * column) % 11 for column in range(len(group))] for row, group in enumerate(rewards)]


def greedy_of(rewards: Rewards) -> list[float]:
    return [group[0] / 2 for group in rewards]


def arrays(rewards: Rewards, name: str | Estimator, **more: Any) -> Floats:
    lengths, greedy = lengths_of(rewards), greedy_of(rewards)
    return batch_advantages(rewards, estimator=name, token_lengths=lengths, greedy=greedy, **more)


def present_values(values: Floats) -> list[list[float]]:
    """Return the values of each group without NaN, which fills absent rewards."""
    return [[value for value in row if not math.isnan(value)] for row in values.tolist()]
