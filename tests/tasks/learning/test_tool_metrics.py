from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.experiences.store import ToolStat
from tfgrpo.tasks.learning.curate import sum_by_tool

stats = st.lists(
    st.builds(
        ToolStat,
        tool=st.sampled_from(["add", "look"]),
        tokens=st.integers(0, 100),
        cost_usd=st.none() | st.floats(0, 1),
        latency_ms=st.floats(0, 1000),
    )
)


@given(stats)
def test_sums_by_tool_keep_every_token_and_never_turn_unknown_into_zero(calls):
    sums = sum_by_tool(calls)
    assert sum(stat.tokens for stat in sums) == sum(call.tokens for call in calls)
    assert [stat.tool for stat in sums] == sorted({call.tool for call in calls})
    for stat in sums:
        costs = [call.cost_usd for call in calls if call.tool == stat.tool]
        assert (stat.cost_usd is None) == (None in costs)
        if None not in costs:
            assert stat.cost_usd == pytest.approx(sum(costs))
