"""Validity first, then behaviour: the stage follows from the history alone, and does not flicker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agents.rounds import past_round
from tfgrpo.tasks.learning.curriculum_stage import BEHAVIOUR, VALIDITY, StageThresholds, decide_stage


def good(count, reward=0.9):
    return [past_round(reward, 4, 4)] * count


def stage(history, *, reference=True, **more):
    return decide_stage(history, reference=reference, **more).stage


def test_a_new_task_begins_with_validity():
    assert stage([]) == VALIDITY


def test_production_with_a_reference_is_behaviour_at_once():
    assert stage([], use="production") == BEHAVIOUR
    assert stage([], use="production", reference=False) == VALIDITY


def test_development_stays_with_validity():
    assert stage(good(50), use="development") == VALIDITY


def test_ten_high_rounds_in_a_row_move_on_and_nine_do_not():
    assert stage(good(9)) == VALIDITY
    decision = decide_stage(good(10), reference=True)
    assert decision.stage == BEHAVIOUR
    assert decision.why == "10 rounds in a row were above 0.8, with 100% usable answers"
    assert stage([*good(9), past_round(0.5, 4, 4), *good(9)]) == VALIDITY


@pytest.mark.parametrize("reward", [0.8, 0.5])
def test_the_reward_has_to_be_exceeded(reward):
    assert stage(good(10, reward)) == VALIDITY


def test_earlier_bad_rounds_lower_the_mean():
    assert stage([*good(10, 0.1), *good(10)]) == VALIDITY
    assert stage([*good(1, 0.1), *good(20, 0.95)]) == BEHAVIOUR


def test_the_share_of_usable_answers_has_to_be_exceeded():
    assert stage([past_round(0.9, 20, 19)] * 10) == VALIDITY
    assert stage([past_round(0.9, 100, 96)] * 10) == BEHAVIOUR


def test_a_round_without_a_reward_ends_the_streak():
    assert stage([*good(9), past_round(None, 0, 0), *good(1)]) == VALIDITY


@given(st.lists(st.builds(past_round, st.none() | st.floats(0, 1), st.just(4), st.integers(0, 4)), max_size=60))
def test_behaviour_is_never_rewarded_without_a_reference(history):
    for use in ("history", "production", "development"):
        assert stage(history, reference=False, use=use) == VALIDITY


def test_a_reached_stage_is_kept_within_the_margin():
    assert stage([*good(10), *good(40, 0.75)]) == BEHAVIOUR
    decision = decide_stage([*good(10), *good(10, 0.65)], reference=True)
    assert decision.stage == VALIDITY
    assert "fell to 0.65" in decision.why


def test_it_falls_back_when_answers_become_unusable():
    decision = decide_stage([*good(10), *[past_round(0.9, 4, 3)] * 10], reference=True)
    assert (decision.stage, "usable answers" in decision.why) == (VALIDITY, True)


def test_a_few_bad_rounds_do_not_make_it_fall_back():
    assert stage([*good(10), *good(9, 0.0)]) == BEHAVIOUR


def test_without_any_grade_or_answer_a_reached_stage_is_kept():
    assert stage([*good(10), *[past_round(None, 0, 0)] * 20]) == BEHAVIOUR


def test_the_reference_decides_last():
    decision = decide_stage(good(10), reference=False)
    assert decision.stage == VALIDITY
    assert decision.why.startswith("there is no reference, although ")


@pytest.mark.parametrize("limits", [{"min_reward": 0.9}, {"rounds": 11}, {"min_parsed": 0.98}])
def test_each_threshold_keeps_a_task_in_its_stage(limits):
    rounds = [past_round(0.85, 100, 97)] * 10
    assert stage(rounds) == BEHAVIOUR
    assert stage(rounds, thresholds=StageThresholds(**limits)) == VALIDITY
