"""Figures of the report: what is unknown is not zero, and the marks of a chart stand where the numbers say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.flows.console.figures import decimal, dollars, percent, points, seconds, tokens, whole
from tfgrpo.flows.report.night import round_scale
from tfgrpo.flows.report.page import RoleCost
from tfgrpo.stores.experiences.decisions import Gain

values = st.lists(st.floats(-60, 60), min_size=2, max_size=60)


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
def test_the_grid_of_a_scale_is_round_and_holds_every_value_and_zero(numbers):
    low, high = min(0.0, *numbers), max(1.0, *numbers)
    scale = round_scale(low, high)
    assert scale.low <= low + 1e-9
    assert scale.high >= high - 1e-9
    assert 2 <= len(scale.lines) <= 9
    assert min(map(abs, scale.lines)) < 1e-9
    places = [scale(number) for number in sorted(numbers)]
    assert all(scale.end <= place <= scale.start for place in places)
    assert places == sorted(places, reverse=True)


def test_gains_are_written_with_their_interval():
    assert points(None) == "–"
    assert points({"mean": 1.24, "low": -0.3, "high": 2.75}) == "+1.2 (-0.3 … +2.8)"
    assert points(Gain(mean=1.24, sd=1.0, low=-0.3, high=2.75, likely=0.9)) == "+1.2 (-0.3 … +2.8)"
