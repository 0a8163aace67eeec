"""Estimate the tokens of tool results, and sum tool use by tool.

Tokens are estimated at four characters each, because no tokenizer is at hand.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfgrpo.stores.experiences.record import ToolStat
from tfgrpo.stores.usage import add_costs
from tfgrpo.tasks.shapes import ToolMetricEvent

_CHARS_PER_TOKEN = 4


def estimated_tokens(text: str) -> int:
    """Return tokens of a text, rounded up; 0 only for the empty text."""
    return -(-len(text) // _CHARS_PER_TOKEN)


def sum_by_tool(events: Iterable[ToolMetricEvent]) -> tuple[ToolStat, ...]:
    """Return one entry per tool, by name. Failed calls count, because they cost as much."""
    return add_stats(
        ToolStat(tool=event.tool, tokens=event.tokens, latency_ms=event.latency_ms, cost_usd=event.cost_usd)
        for event in events
    )


def add_stats(stats: Iterable[ToolStat]) -> tuple[ToolStat, ...]:
    """Merge entries of the same tool, independent of their order (up to float rounding)."""
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
