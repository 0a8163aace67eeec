from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.usage import add_costs
from tfgrpo.tasks.runtime.tool_metrics import estimated_tokens, sum_by_tool
from tfgrpo.tasks.shapes import ToolMetricEvent

events = st.lists(
    st.builds(
        ToolMetricEvent,
        epoch=st.just(1),
        group_id=st.just("g"),
        tool=st.sampled_from(["add", "look"]),
        tokens=st.integers(0, 100),
        cost_usd=st.none() | st.floats(0, 1),
        latency_ms=st.floats(0, 1000),
        ok=st.booleans(),
    )
)


@given(events)
def test_sums_by_tool_keep_every_token_and_never_turn_unknown_into_zero(calls):
    stats = sum_by_tool(calls)
    assert sum(stat.tokens for stat in stats) == sum(call.tokens for call in calls)
    assert [stat.tool for stat in stats] == sorted({call.tool for call in calls})
    for stat in stats:
        costs = [call.cost_usd for call in calls if call.tool == stat.tool]
        assert (stat.cost_usd is None) == (None in costs)
        if None not in costs:
            assert stat.cost_usd == pytest.approx(sum(costs))


def test_estimates_round_up():
    assert [estimated_tokens(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_one_unknown_cost_makes_the_sum_unknown():
    assert add_costs([0.1, None]) is None
    assert add_costs([]) == 0.0
