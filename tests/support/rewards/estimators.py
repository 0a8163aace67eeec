"""Every estimator as a loop over groups and as arrays, with lengths and greedy rewards made from the place."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from tfgrpo.rewarders.advantages.batch import batch_advantages
from tfgrpo.rewarders.advantages.estimators import ESTIMATORS
from tfgrpo.rewarders.advantages.formulas import batch_statistics
from tfgrpo.rewarders.advantages.group import group_advantage

NAMES = sorted(ESTIMATORS)

sane = st.floats(-100, 100).map(lambda value: round(value, 3))
batches = st.lists(st.lists(sane, min_size=2, max_size=6), min_size=1, max_size=5)


def plain(rewards, name, lengths=None, greedy=None):
    """The loop over single groups that the arrays stand for."""
    statistics = batch_statistics(rewards, lengths)
    return [
        group_advantage(
            group,
            name,
            token_lengths=None if lengths is None else lengths[place],
            batch=statistics,
            greedy=None if greedy is None else greedy[place],
        ).advantages
        for place, group in enumerate(rewards)
    ]


def lengths_of(rewards):
    return [[1 + (7 * place + 3 * index) % 11 for index in range(len(group))] for place, group in enumerate(rewards)]


def greedy_of(rewards):
    return [group[0] / 2 for group in rewards]


def arrays(rewards, name, **more):
    lengths, greedy = lengths_of(rewards), greedy_of(rewards)
    return batch_advantages(rewards, estimator=name, token_lengths=lengths, greedy=greedy, **more)


def rows(values):
    """The values that are there, by group."""
    return [[value for value in row if not math.isnan(value)] for row in values.tolist()]
