"""Effects of lessons from the records: choice of what to measure, forgetting, and the sum over a change of the library."""

from __future__ import annotations

import pytest

from tests.support.records.records import NOW, make_batch
from tfgrpo.flows.run.effects import effect_json, effect_text, effects_of, most_uncertain, sum_of_effects, task_effects
from tfgrpo.rewarders.statistics.effects import Effect
from tfgrpo.stores.experiences.measured import MeasuredLine, append_measured
from tfgrpo.stores.files.layout import TaskPaths


def line(number=0, *, drawn="a", complement="b", one=(1.0, 1.0, 1.0), other=(0.0, 0.0, 0.0), **changes):
    fields = {"run_id": "r", "simulated": True, "model": "m", "night": 0, "item_id": "q", "spread": 1.0}
    return MeasuredLine(
        group_id=f"g{number}",
        drawn=tuple(drawn),
        complement=tuple(complement),
        with_drawn=one,
        with_complement=other,
        created_at=NOW,
        **(fields | changes),
    )


def test_effects_are_shares_of_the_range_of_the_reward():
    unit = effects_of([line(number) for number in range(9)], 0)
    wide = effects_of([line(number, one=(10.0,) * 3, spread=10.0) for number in range(9)], 0)
    assert unit == wide
    assert unit["a"].mean > 0.0 > unit["b"].mean


def test_what_was_measured_long_ago_or_after_the_night_counts_for_nothing():
    old, later = line(0, night=0), line(1, night=61)
    assert effects_of([old, later], 60) == {}
    assert set(effects_of([line(2, drawn="c", night=60), old, later], 60)) == {"b", "c"}


def test_lessons_that_were_never_measured_come_first_and_keep_their_order():
    entries = make_batch(4)
    sure, unsure = Effect(0.0, 0.01, 600), Effect(0.0, 0.03, 6)
    effects = {"exp-0": sure, "exp-1": unsure, "exp-3": sure}
    assert [one.experience_id for one in most_uncertain(entries, effects, 2)] == ["exp-1", "exp-2"]
    assert most_uncertain(entries, effects, 9) == tuple(entries)


def test_the_sum_is_over_the_lessons_that_come_minus_those_that_go():
    first, second, third = make_batch(3)
    effects = {"exp-0": Effect(0.05, 0.01, 6), "exp-2": Effect(-0.02, 0.01, 6)}
    assert sum_of_effects([first, second], [second, third], effects) == pytest.approx(-0.07)
    assert sum_of_effects([first], [first, second], effects) is None


def test_an_effect_that_was_not_measured_is_no_zero():
    assert effect_json(None) is None
    assert effect_text(None) == "–"
    assert effect_text(Effect(-0.05, 0.01, 1200)) == "-5.0 points (-7.0 … -3.0), 1,200 rollouts"


def test_a_task_shows_the_effects_on_the_model_that_measured_last_and_was_as_simulated(tmp_path):
    paths = TaskPaths(tmp_path)
    assert task_effects(paths, simulated=True) == {}
    rows = [line(0), line(1, drawn="c", model="n"), line(2, drawn="d", simulated=False)]
    assert append_measured(paths.measured, rows) == 3
    assert append_measured(paths.measured, rows) == 0
    assert set(task_effects(paths, simulated=True)) == {"b", "c"}
    assert set(task_effects(paths, simulated=False)) == {"b", "d"}
