"""Credit of lessons: closed forms, the normal equations, coverage of the intervals, who is on trial, what is in force."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from tfgrpo.rewarders.statistics.credit import (
    POINTS,
    RULES,
    Effect,
    Evidence,
    HeldOut,
    Posterior,
    aged_net,
    attempt_variance,
    comes_into_force,
    differences_of,
    evidence,
    mean_difference,
    on_trial,
    posterior,
    row_weight,
    support,
)

NO_WORD = replace(RULES, word_mean=0.0, word_sd=1e-9)
"""Rules under which support is worth nothing, so that lessons are independent before any row."""
NOISE = POINTS**2 * 0.2


def rows(generator, count, lessons):
    """Random rows: memberships, differences, weights."""
    membership = generator.choice([-1.0, 0.0, 1.0], size=(count, lessons))
    return membership, generator.normal(0.0, 0.4, count), generator.choice([0.5, 0.75, 1.0], size=count)


def normals(mean, sd):
    """A posterior of independent lessons."""
    return Posterior(np.array(mean), np.diag(np.square(sd)), Effect(0.0, 1.0))


# --- known answers


def test_without_rows_the_posterior_is_the_prior():
    effects = posterior(Evidence(np.zeros((2, 2)), np.zeros(2)), np.array([1.0, 0.0]))
    assert effects.mean == pytest.approx([1.5 - 0.3, -0.3])
    assert [one.sd for one in effects.effects()] == pytest.approx([math.hypot(2.0, 0.75), 0.75])
    assert effects.word == pytest.approx((1.5, 2.0))
    assert posterior(Evidence(np.zeros((0, 0)), np.zeros(0)), np.array([])).total([]) == Effect(0.0, 0.0)


def test_one_lesson_has_the_posterior_of_a_normal_mean():
    effects = posterior(evidence(np.ones((30, 1)), np.full(30, 0.05), np.ones(30)), np.zeros(1), 0.2, NO_WORD)
    precision = 30 / NOISE + 1 / 0.75**2
    assert effects.mean[0] == pytest.approx((30 * 5.0 / NOISE - 0.3 / 0.75**2) / precision)
    assert effects.effects()[0].sd == pytest.approx(precision**-0.5)


def test_two_lessons_of_opposite_halves_share_the_difference_and_their_sum_stays_as_unknown_as_it_was():
    effects = posterior(evidence(np.array([[1.0, -1.0]] * 400), np.full(400, 0.04), np.ones(400)), np.zeros(2), 0.2, NO_WORD)
    own = 2 * 0.75**2  # of the difference of two, of which the rows are; the sum is independent of it
    left = 1 / (400 / NOISE + 1 / own)
    difference, total = effects.mean[0] - effects.mean[1], effects.total([0, 1])
    assert difference == pytest.approx(left * 400 * 4.0 / NOISE)
    assert total == (pytest.approx(-0.6), pytest.approx(math.sqrt(own)))
    assert effects.effects()[0].sd == pytest.approx(math.sqrt((own + left) / 4))


def test_the_word_of_reflections_is_learned_from_rows_of_supported_lessons():
    membership, supported = np.array([[1.0, 1.0, -1.0]] * 900), np.array([1.0, 1.0, 0.0])
    heard, noise = (posterior(evidence(membership, np.full(900, gain), np.ones(900)), supported).word for gain in (0.08, 0.0))
    assert heard.mean > 2.0
    assert noise.mean < 0.5
    assert heard.sd < RULES.word_sd


def test_the_posterior_agrees_with_the_normal_equations_of_every_row_and_prior():
    generator = np.random.default_rng(0)
    membership, differences, weights = rows(generator, 200, 7)
    supported = generator.uniform(-1.5, 1.5, 7)
    effects = posterior(evidence(membership, differences, weights), supported, 0.17)
    # Least squares of (word, own effects): whitened rows, and one row more for each prior.
    scale = np.sqrt(weights / (POINTS**2 * 0.17))
    design = np.vstack(
        [scale[:, None] * np.hstack([(membership @ supported)[:, None], membership]), np.diag([1 / 2.0, *[1 / 0.75] * 7])]
    )
    target = np.concatenate([scale * POINTS * differences, [1.5 / 2.0, *[-0.3 / 0.75] * 7]])
    solved, *_ = np.linalg.lstsq(design, target, rcond=None)
    assert effects.mean == pytest.approx(solved[0] * supported + solved[1:])
    assert effects.word.mean == pytest.approx(solved[0])
    combined = np.hstack([supported[:, None], np.eye(7)]) @ np.linalg.inv(design.T @ design)
    assert effects.covariance == pytest.approx(combined @ np.hstack([supported[:, None], np.eye(7)]).T)


def test_the_order_of_rows_and_how_they_are_summed_changes_nothing():
    generator = np.random.default_rng(1)
    membership, differences, weights = rows(generator, 90, 5)
    order, whole = generator.permutation(90), evidence(membership, differences, weights)
    one, other = (evidence(membership[part], differences[part], weights[part]) for part in (order[:40], order[40:]))
    assert one.gram + other.gram == pytest.approx(whole.gram)
    assert one.moment + other.moment == pytest.approx(whole.moment)


def test_a_lesson_of_no_row_can_be_left_out():
    membership, differences, weights = rows(np.random.default_rng(2), 50, 4)
    membership[:, 1] = 0.0
    whole, supported = evidence(membership, differences, weights), np.array([0.5, 1.0, -0.5, 0.2])
    rest = [3, 0, 2]
    about_rest = evidence(membership[:, rest], differences, weights)
    assert posterior(about_rest, supported[rest]).mean == pytest.approx(posterior(whole, supported).mean[rest])


def test_old_support_is_bounded_and_forgotten():
    assert aged_net(np.array([10.0, 100.0, -100.0])) == pytest.approx([8.0, 16.0, -16.0])
    assert support(np.array([5.0, 40.0, -40.0, 0.0])) == pytest.approx([0.5, 1.5, -1.5, 0.0])


def test_the_weight_of_a_row_is_its_inverse_variance_in_attempts_and_a_side_without_attempts_is_no_row():
    assert (row_weight(1, 1), row_weight(2, 2), row_weight(2, 3)) == pytest.approx((0.5, 1.0, 1.2))
    with pytest.raises(ValueError, match="0 and 2 scored attempts"):
        row_weight(0, 2)


def test_the_variance_of_an_attempt_is_that_of_differences_times_weights_pooled_over_rows_of_equal_lessons():
    one_each = [("a", (1.0,), (0.0,)), ("a", (0.0,), (1.0,))]  # weight 1/2, squares 1 + 1, one degree of freedom
    two_each = [("b", (1.0, 0.0), (0.0, 0.0)), ("b", (1.0, 1.0), (0.0, 0.0))]  # weight 1, squares 1/16 + 1/16
    nothing = [("a", (), (1.0,)), ("b", (1.0,), ()), ("c", (1.0,), (0.0,))]  # no difference, and one without another
    found = differences_of([*one_each, *two_each, *nothing])
    # Four more degrees of freedom of 0.12.
    assert attempt_variance(found.values()) == pytest.approx((1.0 + 1 / 8 + 0.48) / 6)
    assert attempt_variance([]) == pytest.approx(RULES.first_variance)
    assert attempt_variance(differences_of([("a", (0.5, 0.5), (0.4,))] * 500).values()) == RULES.least_variance


def test_an_effect_is_likely_by_its_normal_distribution():
    effect = Effect(1.5, 1.0)
    interval = effect.interval(80)
    assert effect.likely == pytest.approx(NormalDist().cdf(1.5))
    assert (interval.low, interval.high) == (pytest.approx(1.5 - 1.959964), pytest.approx(1.5 + 1.959964))
    assert (interval.n, interval.confidence) == (80, 0.95)
    assert Effect(0.0, 0.0).likely == 0.5


# --- coverage


@pytest.mark.parametrize("attempts", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_intervals_of_single_lessons_cover_in_95_percent_of_simulated_nights(attempts):
    generator, lessons, inside = np.random.default_rng(attempts), 10, []
    for _ in range(100):
        supported = generator.uniform(-0.5, 1.5, lessons)
        word = generator.normal(RULES.word_mean, RULES.word_sd)
        truth = word * supported + generator.normal(RULES.own_mean, RULES.own_sd, lessons)
        rows, sides = Evidence(np.zeros((lessons, lessons)), np.zeros(lessons)), []
        for _ in range(4):  # nights of 150 items in 18 divisions; effects are those of the whole month
            for _ in range(18):
                division = len(sides)
                membership = generator.choice([-1.0, 1.0], lessons)
                items, first = generator.beta(2.0, 2.0, 8), attempts // 2
                rewards = [
                    generator.random((size, 8)) < np.clip(items + side.astype(float) @ truth / POINTS, 0.0, 1.0)
                    for size, side in ((first, membership > 0), (attempts - first, membership < 0))
                ]
                pairs = zip(*(side.T.astype(float).tolist() for side in rewards), strict=True)
                sides += [(division, *pair) for pair in pairs]
                differences = rewards[0].mean(axis=0) - rewards[1].mean(axis=0)
                weights = np.full(8, row_weight(first, attempts - first))
                more = evidence(np.tile(membership, (8, 1)), differences, weights)
                rows = Evidence(rows.gram + more.gram, rows.moment + more.moment)
        variance = attempt_variance(differences_of(sides).values())
        for effect, true in zip(posterior(rows, supported, variance).effects(), truth, strict=True):
            interval = effect.interval(1)
            inside.append(interval.low <= true <= interval.high)
    assert 0.93 <= np.mean(inside) <= 0.97


# --- on trial, in force


def test_the_interval_of_a_mean_difference_covers_it_and_a_few_equal_differences_are_not_exact():
    generator = np.random.default_rng(11)
    runs = generator.choice([-1.0, 0.0, 1.0], size=(1000, 40), p=[0.1, 0.6, 0.3])
    intervals = [mean_difference(run).interval(40) for run in runs]
    assert 0.93 <= np.mean([each.low <= 20.0 <= each.high for each in intervals]) <= 0.97
    assert mean_difference([0.5] * 4) == pytest.approx((50.0, 100 * math.sqrt(RULES.least_variance / 4)))


def test_on_trial_are_the_best_supported_lessons_of_opposites_the_better_and_beyond_the_slots_those_surely_worth_it():
    effects = normals([-0.1 * at for at in range(1, 31)], [0.5] * 30)  # even when none is worth more than nothing
    assert on_trial(effects, np.ones(30), range(30)) == list(range(RULES.slots))
    assert on_trial(effects, -np.ones(30), range(30)) == []
    opposites = normals([0.2, 0.4, -0.1, -0.3], [0.5] * 4)
    assert on_trial(opposites, np.array([3.0, 1.0, 2.0, 4.0]), [0, 0, 1, 1]) == [1, 2]
    effects = normals([2.0] * 15 + [0.2] * 5, [0.5] * 20)
    assert on_trial(effects, np.ones(20), range(20)) == list(range(15))
    many = normals([2.0] * 60, [0.5] * 60)
    assert len(on_trial(many, np.ones(60), range(60))) == RULES.most_on_trial


def test_the_gain_on_held_out_items_follows_the_sweeps_and_drifts_between_them():
    before = HeldOut.before()
    after = before.after([0.5, -0.5, 0.5, 0.5])
    variance, error = 3.0**2 + 0.5**2, POINTS**2 * 0.1875 / 4
    assert after.mean == pytest.approx(25.0 * variance / (variance + error))
    assert after.variance == pytest.approx(1 / (1 / variance + 1 / error))
    assert before.after([]) == HeldOut(0.0, variance)
    # Equal differences are no certainty: the variance of one is at least that of the rules.
    assert before.after([0.1] * 4).variance == pytest.approx(1 / (1 / variance + 4 / (POINTS**2 * 0.02)))


def test_a_sweep_far_below_what_the_nights_before_promise_begins_the_gain_on_held_out_items_anew():
    before, error = HeldOut(20.0, 4.0), math.sqrt(POINTS**2 * RULES.least_variance / 50)
    edge = 20.0 - 3.0 * math.hypot(2.0, RULES.held_drift, error)
    assert not before.after([(edge + 0.01) / POINTS] * 50).broke
    after = before.after([(edge - 0.01) / POINTS] * 50)
    assert after.broke
    share = 9.0 / (9.0 + error**2)
    assert (after.mean, after.variance) == pytest.approx((share * (edge - 0.01), (1 - share) * 9.0))
    assert not after.after([]).broke
    assert not before.after([0.9] * 50).broke, "what is better than it was may be learned"
    assert not HeldOut.before().after([-0.3] * 50).broke, "no night before promised anything"


def test_a_library_is_in_force_where_both_agree_and_one_that_a_person_chose_while_both_are_above_zero():
    sure, held, weak = Effect(3.4, 2.0), Effect(1.0, 1.5), Effect(0.3, 1.0)
    assert comes_into_force(sure, held)
    assert not comes_into_force(weak, held)
    assert not comes_into_force(sure, weak)
    assert comes_into_force(weak, weak, by_person=True)
    assert not comes_into_force(Effect(-0.1, 1.0), held, by_person=True)
    assert not comes_into_force(sure, Effect(-0.1, 1.0), by_person=True)
    assert not comes_into_force(Effect(0.0, 0.0), held, by_person=True)  # an empty library


def test_what_reflections_speak_against_is_not_on_trial_for_their_being_wrong():
    swept = evidence(np.ones((24, 3)), np.full(24, -0.5), np.full(24, row_weight(2, 2)))
    rows = Evidence(np.pad(swept.gram, (0, 1)), np.pad(swept.moment, (0, 1)))
    net = np.array([6.0, 5.0, 4.0, -3.0])  # all that they speak for was swept, and did badly
    effects = posterior(rows, support(net), 0.12)
    assert effects.word.mean < 0.0 < effects.mean[3]
    assert 3 not in on_trial(effects, net, [0, 1, 2, 3])
