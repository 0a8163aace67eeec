"""Effects of single lessons: known answers, coverage of the intervals, and what is and is not called harmful."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tfgrpo.rewarders.statistics.effects import DISCOUNT, HARMFUL, PRIOR_SD, MeasuredGroup, lesson_effects

A, B = frozenset({"a"}), frozenset({"b"})


def group(drawn, complement, one, other, night=0):
    return MeasuredGroup(frozenset(drawn), frozenset(complement), tuple(one), tuple(other), night)


def test_one_lesson_alone_has_the_posterior_of_a_normal_mean():
    # Halves of (1, 0, 1) against (0, 0, 1): a difference of 1/3; within-half squares 2/3 each, 4 degrees of freedom, and
    # 4 more attempts of variance 1/4: noise (4/3 + 1) / 8 an attempt, of which a difference of halves of three has 2/3.
    effect = lesson_effects([group("a", "", (1, 0, 1), (0, 0, 1))], 0)["a"]
    variance = (4 / 3 + 1) / 8 * (1 / 3 + 1 / 3)
    precision = 1 / variance + 1 / PRIOR_SD**2
    assert effect.mean == pytest.approx((1 / 3) / variance / precision)
    assert effect.sd == pytest.approx(precision**-0.5)
    assert effect.rollouts == 6


def test_a_lesson_of_the_drawn_half_and_one_of_the_complement_share_the_difference_with_opposite_signs():
    effects = lesson_effects([group("a", "b", (1, 1, 1), (0, 0, 0))] * 20, 0)
    assert effects["a"].mean == pytest.approx(-effects["b"].mean)
    assert effects["a"].mean > 0.0


def test_without_measurements_there_is_no_effect_and_a_lost_half_counts_for_nothing():
    assert lesson_effects([], 3) == {}
    assert lesson_effects([group("a", "b", (1, 1), ())], 0) == {}
    kept = group("a", "b", (1, 0), (0, 0))
    assert lesson_effects([kept, group("a", "b", (), (1, 1, 1))], 0) == lesson_effects([kept], 0)


def test_older_nights_weigh_less():
    fresh = lesson_effects([group("a", "", (1, 0, 1), (1, 0, 0), night=4)], 4)["a"]
    old = lesson_effects([group("a", "", (1, 0, 1), (1, 0, 0), night=0)], 4)["a"]
    information = 1 / fresh.sd**2 - 1 / PRIOR_SD**2
    assert 1 / old.sd**2 - 1 / PRIOR_SD**2 == pytest.approx(information * DISCOUNT**4)
    assert abs(old.mean) < abs(fresh.mean)


def test_a_night_that_is_yet_to_come_weighs_no_more_than_this_one():
    groups = [group("a", "", (1, 0, 1), (1, 0, 0), night=night) for night in (0, 9_999)]
    assert lesson_effects(groups, 0) == lesson_effects([replace(each, night=0) for each in groups], 0)


def test_effects_have_the_unit_of_the_reward():
    ones = [group("a", "b", (1, 0, 1), (0, 0, 1)), group("a", "b", (1, 1, 1), (1, 0, 1))]
    tens = [group("a", "b", [10 * x for x in g.with_drawn], [10 * x for x in g.with_complement]) for g in ones]
    one, ten = lesson_effects(ones, 0)["a"], lesson_effects(tens, 0, spread=10.0)["a"]
    assert (ten.mean, ten.sd) == (pytest.approx(10 * one.mean), pytest.approx(10 * one.sd))


def test_harm_is_the_probability_of_an_effect_below_zero():
    effect = lesson_effects([group("a", "", (0, 0, 0), (1, 1, 1))] * 30, 0)["a"]
    assert effect.harm == pytest.approx(0.5 * math.erfc(effect.mean / effect.sd / math.sqrt(2)))
    assert effect.harm > HARMFUL
    low, high = effect.interval().low, effect.interval().high
    assert (low + high) / 2 == pytest.approx(effect.mean)
    assert high - low == pytest.approx(2 * 1.959964 * effect.sd, rel=1e-5)


def nights(generator, effects, nights, groups, *, uneven=0.0, items=280):
    """Measuring groups of six over nights: items mostly always or never solved, lessons that add up."""
    ease = generator.beta(0.5, 0.5, size=items)
    touched = generator.normal(1.0, uneven, size=(items, len(effects))) if uneven else np.ones((items, len(effects)))
    measured = []
    for night in range(nights):
        for item in generator.integers(items, size=groups):
            z = generator.random(len(effects)) < 0.5
            halves = []
            for members in (z, ~z):
                chance = np.clip(0.2 + 0.6 * ease[item] + (effects * touched[item])[members].sum(), 0, 1)
                halves.append((generator.random(3) < chance).astype(float))
            names = [frozenset(f"L{i}" for i in np.flatnonzero(members)) for members in (z, ~z)]
            measured.append(MeasuredGroup(*names, *map(tuple, halves), night))
    return measured


@pytest.mark.untraced
@pytest.mark.parametrize("uneven", [0.0, 1.0])
def test_intervals_of_95_percent_hold_the_truth_93_to_97_times_in_a_hundred(uneven):
    generator = np.random.default_rng(5)
    held = []
    for _ in range(150):
        effects = generator.normal(0.0, PRIOR_SD, size=10)
        found = lesson_effects(nights(generator, effects, 3, 60, uneven=uneven), 2)
        intervals = [found[f"L{number}"].interval() for number in range(len(effects))]
        held += [one.low <= truth <= one.high for one, truth in zip(intervals, effects, strict=True)]
    assert 0.93 <= np.mean(held) <= 0.97


def _called_harmful(generator, effects, groups):
    """Shares of the harmful and of the helpful lessons that were called harmful on any of five nights."""
    harmful, helpful = [], []
    for _ in range(4_000 // groups):
        shuffled = effects[generator.permutation(len(effects))]
        measured = nights(generator, shuffled, 5, groups)
        ever = set()
        for night in range(5):
            so_far = lesson_effects([one for one in measured if one.night <= night], night)
            ever |= {name for name, effect in so_far.items() if effect.harm > HARMFUL}
        harmful += [f"L{number}" in ever for number in np.flatnonzero(shuffled < 0.0)]
        helpful += [f"L{number}" in ever for number in np.flatnonzero(shuffled > 0.0)]
    return np.mean(harmful), np.mean(helpful)


@pytest.mark.untraced
def test_with_the_usual_share_great_harm_is_found_within_five_nights_and_help_is_not_taken_for_it():
    effects = np.array([-0.08, -0.12, *[0.03] * 6, *[0.0] * 4])
    harmful, helpful = _called_harmful(np.random.default_rng(6), effects, groups=25)
    assert harmful >= 0.8
    assert helpful <= 0.05


@pytest.mark.untraced
def test_a_thousand_rollouts_a_night_find_harm_of_three_points():
    effects = np.array([-0.03, -0.03, *[0.03] * 6, *[0.0] * 4])
    harmful, helpful = _called_harmful(np.random.default_rng(7), effects, groups=167)
    assert harmful >= 0.8
    assert helpful <= 0.1
