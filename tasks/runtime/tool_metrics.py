"""What did the tools of a rollout cost? One event per tool call, and their sums by tool.

Tokens are what the tool's result adds to the model's context, estimated at four characters a token because no tokeniser
is at hand; a price that nobody stated stays unknown and makes the sum unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfgrpo.stores.experiences.record import ToolStat
from tfgrpo.stores.usage import add_costs
from tfgrpo.tasks.shapes import ToolMetricEvent

_CHARS_PER_TOKEN = 4


def estimated_tokens(text: str) -> int:
    """Tokens of a text, rounded up; 0 only for the empty text."""
    return -(-len(text) // _CHARS_PER_TOKEN)


def sum_by_tool(events: Iterable[ToolMetricEvent]) -> tuple[ToolStat, ...]:
    """One entry per tool, by name. Failed calls count: they were paid for too."""
    return add_stats(
        ToolStat(tool=event.tool, tokens=event.tokens, latency_ms=event.latency_ms, cost_usd=event.cost_usd)
        for event in events
    )


def add_stats(stats: Iterable[ToolStat]) -> tuple[ToolStat, ...]:
    """Merge entries of the same tool; the order given does not matter beyond float rounding."""
    by_tool: dict[str, list[ToolStat]] = {}
    for stat in stats:
        by_tool.setdefault(stat.tool, []).append(stat)
    return tuple(
        ToolStat(
            tool=tool,
            tokens=sum(stat.tokens for stat in by_tool[tool]),
            latency_ms=sum(stat.latency_ms for stat in by_tool[tool]),
            cost_usd=add_costs(stat.cost_usd for stat in by_tool[tool]),
        )
        for tool in sorted(by_tool)
    )
