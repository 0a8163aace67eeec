"""Pairs of two arms, and what the gate decides on a sweep."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.arms import decide, evidence, items
from tfgrpo.pipelines.settings.learning import GateSettings
from tfgrpo.tasks.evaluation import Attempts, noise_floor
from tfgrpo.tasks.gate import decide_gate, fisher_test, sign_test


def test_pairs_are_means_of_scored_rollouts_alone():
    paired = evidence({"a": [1.0, None], "b": [0.0, 1.0]}, {"a": [0.0, 1.0], "b": [1.0, 1.0]})
    assert {pair.item_id: pair.difference for pair in paired.pairs} == {"a": -0.5, "b": 0.5}
    assert paired.lost == ()


def test_an_item_without_evidence_on_one_side_is_lost_never_a_zero():
    paired = evidence({"a": [None, None], "b": [1.0], "c": [1.0]}, {"a": [1.0, 1.0], "b": [None], "c": [1.0]})
    assert paired.lost == ("a", "b")
    assert paired.differences == (0.0,)
    assert paired.lost_share == pytest.approx(2 / 3)


rewards = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3)
)


@given(rewards, rewards, st.randoms(use_true_random=False))
def test_pairing_does_not_depend_on_order_and_swapping_arms_flips_signs(champion, candidate, chance):
    paired, shuffled = evidence(champion, candidate), list(champion.items())
    chance.shuffle(shuffled)
    assert evidence(dict(shuffled), candidate) == paired
    swapped = evidence(candidate, champion)
    assert swapped.differences == tuple(-difference for difference in paired.differences)
    assert swapped.lost == paired.lost
    decide_gate(paired, GateSettings())


def test_a_clear_gain_is_promoted():
    decision = decide(items(30, [0.0, 1.0]), items(30, [1.0, 1.0]))
    assert decision.decision == "promote"
    assert decision.interval.low > 0
    assert decision.interval.estimate == 0.5


def test_a_clear_loss_is_rejected():
    decision = decide(items(30, [1.0, 1.0]), items(30, [0.0, 1.0]))
    assert decision.decision == "reject"
    assert decision.interval.high < 0


def test_no_difference_is_undecided():
    assert decide(items(30, [0.0, 1.0]), items(30, [1.0, 0.0])).decision == "undecided"


def test_too_few_items_are_undecided():
    assert decide(items(3, [0.0, 0.0]), items(3, [1.0, 1.0])).decision == "undecided"


def test_identical_libraries_are_undecided():
    paired = evidence(items(30, [1.0]), items(30, [1.0]), identical=True)
    decision = decide_gate(paired, GateSettings())
    assert decision.decision == "undecided"
    assert "nothing to compare" in decision.reasons[0]


def test_too_much_lost_evidence_makes_the_gate_abstain():
    champion = {**items(30, [0.0]), **{f"lost{number}": [None] for number in range(10)}}
    candidate = {**items(30, [1.0]), **{f"lost{number}": [1.0] for number in range(10)}}
    decision = decide(champion, candidate)
    assert decision.decision == "undecided"
    assert decision.evidence.lost_share == 0.25
    assert decide(champion, candidate, max_lost_share=0.3).decision == "promote"


def test_no_scored_rollout_is_undecided_without_numbers():
    decision = decide({"a": [None]}, {"a": [None]})
    assert decision.decision == "undecided"
    assert decision.interval is None
    assert noise_floor(decision.evidence.pairs) is None


def test_rewards_on_another_scale_are_undecided():
    decision = decide(items(30, [0.0]), items(30, [5.0]))
    assert decision.decision == "undecided"
    assert "outside 0" in decision.reasons[0]


def test_regressions_beyond_the_limit_stop_a_promotion():
    champion = {**{f"gain{n}": [0.0] for n in range(60)}, **{f"loss{n}": [1.0] for n in range(10)}}
    candidate = {**{f"gain{n}": [1.0] for n in range(60)}, **{f"loss{n}": [0.0] for n in range(10)}}
    decision = decide(champion, candidate)
    assert decision.interval.low > 0
    assert decision.decision == "undecided"
    assert len(decision.regressions) == 10
    assert len(decision.recoveries) == 60
    assert decide(champion, candidate, max_regressions=0.2).decision == "promote"


def test_regressions_that_luck_hardly_makes_are_rejected():
    champion = {**{f"same{n}": [0.0, 1.0] for n in range(20)}, **{f"loss{n}": [1.0] for n in range(6)}}
    candidate = {**{f"same{n}": [0.0, 1.0] for n in range(20)}, **{f"loss{n}": [0.0] for n in range(6)}}
    decision = decide(champion, candidate)
    assert decision.interval.high > 0
    assert decision.decision == "reject"


def test_a_partial_loss_is_no_regression():
    decision = decide(items(5, [1.0, 1.0]), items(5, [1.0, 0.0]))
    assert decision.regressions == ()


@pytest.mark.parametrize(("worse", "better", "chance"), [(0, 0, 1.0), (5, 0, 1 / 32), (1, 1, 0.75), (0, 5, 1.0)])
def test_the_sign_test_has_its_known_values(worse, better, chance):
    assert sign_test(worse, better) == pytest.approx(chance)


def test_the_sign_test_of_a_large_sweep_is_a_chance_too():
    assert sign_test(600, 424) == pytest.approx(2.1056618e-8)
    assert sign_test(50_000, 50_000) == pytest.approx(0.5, abs=0.01)


def test_the_noise_floor_is_the_error_of_two_identical_arms():
    paired = evidence(items(4, [0.0, 1.0]), items(4, [1.0, 1.0]))
    assert noise_floor(paired.pairs) == pytest.approx(math.sqrt(4 * 0.5 / 2) / 4)


def test_single_attempts_have_no_noise_floor():
    assert noise_floor(evidence(items(4, [1.0]), items(4, [1.0])).pairs) is None


@pytest.mark.untraced
def test_identical_arms_are_hardly_ever_promoted():
    chance = random.Random(5)
    wrong = 0
    for _ in range(200):
        champion = {f"q{n}": [float(chance.random() < 0.5) for _ in range(2)] for n in range(40)}
        candidate = {f"q{n}": [float(chance.random() < 0.5) for _ in range(2)] for n in range(40)}
        wrong += decide(champion, candidate).decision == "promote"
    assert wrong <= 8


def test_limits_of_zero_let_clean_evidence_pass():
    decision = decide(items(60, [0.0]), items(60, [1.0]), max_lost_share=0.0, max_regressions=0.0)
    assert decision.decision == "promote"


@pytest.mark.parametrize(("before", "after"), [(1.5, 1.0), (1.0, 1.5), (-0.5, 0.0), (0.0, -0.5)])
def test_one_arm_on_another_scale_is_undecided(before, after):
    decision = decide(items(60, [before]), items(60, [after]))
    assert (decision.decision, decision.interval) == ("undecided", None)


def test_items_that_lost_their_evidence_do_not_make_regressions_rarer():
    champion = {**items(58, [0.0]), **{f"loss{n}": [1.0] for n in range(7)}, **{f"lost{n}": [None] for n in range(10)}}
    candidate = {**items(58, [1.0]), **{f"loss{n}": [0.0] for n in range(7)}, **{f"lost{n}": [1.0] for n in range(10)}}
    decision = decide(champion, candidate)
    assert decision.interval.low > 0
    assert decision.decision == "undecided"
    assert "7 of 65 items" in decision.reasons[0]


KNOWN = [
    ((3, 4), (1, 4), 34 / 70),  # the lady tasting tea
    ((1, 10), (11, 14), 0.0027594562),  # dieting men and women
    ((24, 200), (0, 200), 2 * math.comb(200, 24) / math.comb(400, 24)),
    ((0, 200), (0, 200), 1.0),
    ((5, 5), (5, 5), 1.0),
    ((0, 0), (0, 0), 1.0),
]


@pytest.mark.parametrize(("first", "second", "chance"), KNOWN)
def test_fishers_exact_test_has_its_known_values(first, second, chance):
    for one, other in ((first, second), (second, first)):
        assert fisher_test(Attempts(*one), Attempts(*other)) == pytest.approx(chance, rel=1e-4)


def test_fishers_exact_test_of_a_large_sweep_is_a_chance_too():
    assert fisher_test(Attempts(500, 50_000), Attempts(500, 50_000)) == pytest.approx(1.0)
    assert fisher_test(Attempts(900, 50_000), Attempts(500, 50_000)) < 1e-20


def test_lost_attempts_are_counted_by_arm_where_no_item_is_lost():
    champion, candidate = items(30, [1.0, 0.0]), items(30, [1.0, None])
    decision = decide(champion, candidate)
    assert decision.evidence.lost_share == 0.0
    assert (decision.evidence.champion_attempts, decision.evidence.candidate_attempts) == (
        Attempts(0, 60),
        Attempts(30, 60),
    )


def test_unequal_losses_are_counted_at_their_worst_for_either_side():
    champion, candidate = items(60, [1.0, 0.0]), items(60, [1.0, None])
    decision = decide(champion, candidate)
    assert decision.decision == "undecided"
    assert decision.interval.low < 0.0 < decision.interval.estimate == 0.5
    assert "candidate 60 of 120" in decision.reasons[-1]
    assert "Fisher's exact test" in decision.reasons[-1]
    # A candidate that is better even so is promoted, and one that is worse even at its best is rejected.
    better = decide({**items(200, [0.0, 0.0])}, {**items(200, [1.0, 1.0]), **{f"q{n}": [1.0, None] for n in range(20)}})
    assert (better.decision, len(better.reasons)) == ("promote", 2)
    worse = decide({**items(200, [1.0, 1.0])}, {**items(200, [0.0, 0.5]), **{f"q{n}": [0.0, None] for n in range(20)}})
    assert (worse.decision, len(worse.reasons)) == ("reject", 2)


def test_equal_losses_leave_the_interval_as_it_is():
    champion, candidate = items(40, [0.0, 0.0, None]), items(40, [1.0, 1.0, None])
    decision = decide(champion, candidate)
    assert (decision.decision, len(decision.reasons)) == ("promote", 1)


def test_items_lost_by_one_arm_count_at_their_worst_too():
    champion = {**items(60, [0.0]), **{f"lost{n}": [0.5] for n in range(14)}}
    candidate = {**items(60, [0.2]), **{f"lost{n}": [None] for n in range(14)}}
    assert decide(champion, candidate).interval.low < 0.0


@pytest.mark.parametrize("where", ["the candidate's wrong attempts", "the champion's right attempts"])
@pytest.mark.untraced
def test_loss_that_depends_on_the_outcome_promotes_hardly_ever(where):
    """200 nights in which nothing was learned, with 30 % of such attempts lost."""
    chance = random.Random(11)

    def attempts(skill, lose):
        made = [float(chance.random() < skill) for _ in range(2)]
        return [None if reward == lose and chance.random() < 0.3 else reward for reward in made]

    wrong = 0
    for _ in range(200):
        skills = {f"q{n}": chance.betavariate(0.8, 0.6) for n in range(60)}
        losing = (None, 0.0) if where.startswith("the candidate") else (1.0, None)
        champion = {item: attempts(skill, losing[0]) for item, skill in skills.items()}
        candidate = {item: attempts(skill, losing[1]) for item, skill in skills.items()}
        wrong += decide(champion, candidate).decision == "promote"
    assert wrong <= 10
