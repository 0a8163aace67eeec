"""Validity first, then behaviour: the stage follows from the history alone, and does not flicker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs.selections import past
from tfgrpo.tasks.selection.history import BEHAVIOUR, VALIDITY, decide_stage, record_round, recorded_rounds


def past_round(reward, answered, valid):
    return past("s", reward=reward, answered=answered, valid=valid)


def good(count, reward=0.9):
    return [past_round(reward, 4, 4)] * count


def stage(history, *, reference=True, **more):
    return decide_stage(history, reference=reference, **more).stage


@pytest.mark.parametrize(
    ("history", "wanted"),
    [
        (good(0), VALIDITY),
        (good(9), VALIDITY),
        ([*good(9), past_round(0.5, 4, 4), *good(9)], VALIDITY),
        ([*good(9), past_round(None, 0, 0), *good(1)], VALIDITY),
        (good(10, 0.8), VALIDITY),
        ([*good(10, 0.1), *good(10)], VALIDITY),
        ([*good(1, 0.1), *good(20, 0.95)], BEHAVIOUR),
        ([past_round(0.9, 20, 19)] * 10, VALIDITY),
        ([past_round(0.9, 100, 96)] * 10, BEHAVIOUR),
        ([*good(10), *good(40, 0.75)], BEHAVIOUR),
        ([*good(10), *good(9, 0.0)], BEHAVIOUR),
        ([*good(10), *[past_round(None, 0, 0)] * 20], BEHAVIOUR),
    ],
)
def test_the_stage_follows_from_the_history(history, wanted):
    assert stage(history) == wanted


def test_without_a_task_or_asked_for_behaviour_is_at_once_rewarded_and_validity_stays():
    assert stage(None) == stage([], asked=BEHAVIOUR) == BEHAVIOUR
    assert stage(None, reference=False) == stage([], asked=BEHAVIOUR, reference=False) == VALIDITY
    assert stage(good(50), asked=VALIDITY) == VALIDITY


def test_ten_high_rounds_in_a_row_move_on_and_nine_do_not():
    assert stage(good(9)) == VALIDITY
    decision = decide_stage(good(10), reference=True)
    assert decision.stage == BEHAVIOUR
    assert decision.why == "10 rounds in a row were above 0.8, with 100% usable answers"


@given(st.lists(st.builds(past_round, st.none() | st.floats(0, 1), st.just(4), st.integers(0, 4)), max_size=60))
def test_behaviour_is_never_rewarded_without_a_reference(history):
    for asked in ("auto", BEHAVIOUR, VALIDITY):
        assert stage(history, reference=False, asked=asked) == VALIDITY


def test_it_falls_back_when_rewards_or_usable_answers_do():
    decision = decide_stage([*good(10), *good(10, 0.65)], reference=True)
    assert (decision.stage, "fell to 0.65" in decision.why) == (VALIDITY, True)
    decision = decide_stage([*good(10), *[past_round(0.9, 4, 3)] * 10], reference=True)
    assert (decision.stage, "usable answers" in decision.why) == (VALIDITY, True)


def test_the_reference_decides_last():
    decision = decide_stage(good(10), reference=False)
    assert decision.stage == VALIDITY
    assert decision.why.startswith("there is no reference, although ")


def test_rounds_are_read_in_order_and_by_kind_of_model(tmp_path):
    path = tmp_path / "selections.jsonl"
    rounds = [past("a"), past("b", simulated=False), past("c", chosen=None, reward=None, cost_usd=None)]
    assert [record_round(path, each) for each in (*rounds, rounds[0])] == [True, True, True, False]
    assert list(recorded_rounds(path, simulated=True)) == [rounds[0], rounds[2]]
    assert list(recorded_rounds(path, simulated=False)) == [rounds[1]]
    assert path.stat().st_mode & 0o777 == 0o600
