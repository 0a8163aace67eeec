"""Figures of the report: what is unknown is not zero, and the marks of a chart stand where the numbers say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.flows.report.figures import (
    Scale,
    decimal,
    dollars,
    interval_scale,
    percent,
    reward_scale,
    seconds,
    tokens,
    whole,
)
from tfgrpo.flows.report.files import RoleCost

values = st.lists(st.floats(-5, 5), min_size=1, max_size=60)


def test_costs_of_unknown_price_are_not_zero():
    known, unknown, silent = RoleCost(), RoleCost(), RoleCost()
    known.add({"kind": "reply", "payload": {"usage": [10, 5, 0, 0], "cost_usd": 0.25, "latency_s": 2.0}})
    known.add({"kind": "reply", "payload": {"usage": None, "cost_usd": None, "latency_s": 4.0}})
    unknown.add({"kind": "reply", "payload": {"usage": [1, 1, 0, 0], "cost_usd": None, "latency_s": 0.1}})
    silent.add({"kind": "failure", "payload": {}})
    costs = [each.usd.summary() for each in (known, unknown, silent)]
    assert [dollars(cost["sum"], cost["unknown"]) for cost in costs] == ["$0.2500 + 1 unknown", "unknown", "–"]
    assert tokens(known.prompt, known.without_usage) == "10 + unknown"
    assert (silent.calls, silent.failures) == (0, 1)


def test_figures_are_written_for_people():
    assert (decimal(None), whole(None), seconds(None), percent(None)) == ("–", "–", "–", "–")
    assert (seconds(0.0123), seconds(2.0), whole(1234.4)) == ("12 ms", "2.0 s", "1,234")
    assert (percent(0.25), percent(0.25, 1200), tokens(0, 0)) == ("25 %", "25 % of 1,200", "–")


@given(values)
def test_every_mark_is_inside_the_plot_and_higher_values_stand_higher(numbers):
    scale = reward_scale(numbers)
    places = [scale(number) for number in sorted(numbers)]
    assert all(scale.end <= place <= scale.start for place in places)
    assert places == sorted(places, reverse=True)


def test_zero_and_one_are_always_on_the_axis():
    scale = reward_scale([0.5])
    assert scale.quarters == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert scale(0.5) == pytest.approx((scale.start + scale.end) / 2)


@given(values)
def test_intervals_stay_inside_the_chart(bounds):
    scale = interval_scale(bounds)
    assert all(0 <= scale(bound) <= 100 for bound in [0.0, *bounds])


def test_a_scale_may_run_backwards():
    scale = Scale(0, 4, 100, 0)
    assert [scale(value) for value in (0, 1, 4)] == [100, 75, 0]
