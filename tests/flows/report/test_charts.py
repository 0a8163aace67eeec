"""The marks of a chart stand where the numbers say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.flows.report.charts import HEIGHT, LEFT, RIGHT, TOP, WIDTH, Point, curve, intervals

values = st.lists(st.floats(-5, 5), min_size=1, max_size=60)


def points(*numbers, section="epoch 1"):
    return [Point(number, section, f"{number}") for number in numbers]


def test_without_points_there_is_no_curve():
    assert curve([]) is None


@given(values)
def test_every_mark_is_inside_the_picture_and_higher_values_stand_higher(numbers):
    drawn = curve(points(*numbers))
    assert all(LEFT <= mark.x <= WIDTH - RIGHT and TOP - 0.01 <= mark.y <= drawn.floor + 0.01 for mark in drawn.marks)
    order = sorted(range(len(numbers)), key=lambda at: numbers[at])
    heights = [drawn.marks[at].y for at in order]
    assert heights == sorted(heights, reverse=True)
    assert [mark.x for mark in drawn.marks] == sorted(mark.x for mark in drawn.marks)


def test_zero_and_one_are_always_on_the_axis():
    drawn = curve(points(0.5))
    assert [tick.text for tick in drawn.levels] == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert drawn.marks[0].y == pytest.approx((TOP + drawn.floor) / 2)
    assert drawn.path == f"{drawn.marks[0].x:.1f},{drawn.marks[0].y:.1f}"
    assert drawn.height == HEIGHT


def test_sections_are_captioned_in_their_middle_and_divided():
    drawn = curve([*points(0.1, 0.2), *points(0.3, 0.4, section="epoch 2")])
    assert [tick.text for tick in drawn.sections] == ["epoch 1", "epoch 2"]
    assert drawn.sections[0].at == pytest.approx((drawn.marks[0].x + drawn.marks[1].x) / 2)
    (divider,) = drawn.dividers
    assert drawn.marks[1].x < divider < drawn.marks[2].x


def test_many_marks_are_small():
    assert curve(points(*[0.5] * 10)).radius > curve(points(*[0.5] * 100)).radius


@given(values, st.floats(0, 1), st.floats(0, 1))
def test_intervals_stay_inside_the_plot_in_order(numbers, below, above):
    drawn = intervals([(f"{n}", n - below, n, n + above) for n in numbers])
    for row in drawn.rows:
        assert 0 <= row.low <= row.at <= row.high <= 100
    assert len({row.y for row in drawn.rows}) == len(numbers)
    assert max(row.y for row in drawn.rows) < drawn.floor
    assert 0 <= drawn.zero <= 100


def test_the_difference_bears_a_sign_and_the_arms_do_not():
    drawn = intervals([("before", 0.4, 0.5, 0.6), ("after", 0.6, 0.7, 0.8), ("difference", 0.1, 0.2, 0.3)])
    assert [row.text for row in drawn.rows] == [
        "0.500  (0.400 to 0.600)",
        "0.700  (0.600 to 0.800)",
        "+0.200  (+0.100 to +0.300)",
    ]
