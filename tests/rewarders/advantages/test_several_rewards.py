"""Several rewards of a rollout are normalised before they are added up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tfgrpo.rewarders.advantages.batch import multi_reward_advantages


def test_several_rewards_are_normalised_before_they_are_added_up():
    parts = {"exact": [[0.0, 1.0], [1.0, 1.0]], "style": [[90.0, 10.0], [40.0, 60.0]]}
    values = multi_reward_advantages(parts, {"exact": 1.0, "style": 0.5}, epsilon=0.0)
    unit = 1 / math.sqrt(2)
    sums = np.array([[-unit + 0.5 * unit, unit - 0.5 * unit], [-0.5 * unit, 0.5 * unit]])
    np.testing.assert_allclose(values, (sums - sums.mean()) / sums.std(ddof=1), rtol=1e-9)


def test_a_part_that_is_absent_leaves_the_others_and_a_rollout_without_any_has_none():
    parts = {"a": [[0.0, 1.0, None]], "b": [[None, 1.0, None]]}
    values = multi_reward_advantages(parts, {"a": 1.0, "b": 1.0})
    assert np.isfinite(values[0, :2]).all()
    assert math.isnan(values[0, 2])
    assert np.isnan(multi_reward_advantages({"a": [[None]]}, {"a": 1.0})).all()
    assert multi_reward_advantages({"a": [[1.0]]}, {"a": 1.0}, epsilon=0.0).tolist() == [[0.0]]


@pytest.mark.parametrize(
    ("parts", "weights", "message"),
    [
        ({}, {}, "number for each"),
        ({"a": [[0.0, 1.0]]}, {"b": 1.0}, "number for each of"),
        ({"a": [[0.0, 1.0]]}, {"a": math.inf}, "a finite number for each of .*'a': inf"),
        ({"a": [[0.0, 1.0]], "b": [[0.0]]}, {"a": 1.0, "b": 1.0}, "expected one shape"),
    ],
)
def test_several_rewards_that_do_not_fit_together_are_refused(parts, weights, message):
    with pytest.raises(ValueError, match=message):
        multi_reward_advantages(parts, weights)


@pytest.mark.parametrize("weight", [1e200, 1.7e308])
def test_several_rewards_whose_sum_has_no_finite_spread_are_refused_and_get_no_zero(weight):
    with pytest.raises(ValueError, match="finite"):
        multi_reward_advantages({"a": [[0.0, 1.0, 5.0]], "b": [[0.0, 1.0, 5.0]]}, {"a": weight, "b": weight})
