"""Aggregate ``metrics.jsonl`` by epoch in one pass: sums, means and percentiles.

Rewards and outcomes are kept apart by arm. Unknown values (a price, the reward of a group without scored rollouts) are
counted as unknown and enter no sum. Percentiles are exact, with linear interpolation between the two nearest values
(Hyndman and Fan 1996, type 7, numpy's default): the q-th of n sorted values is at position q/100 * (n - 1), from 0.
Exactness costs eight bytes per value.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from tfgrpo.stores.errors import CorruptFile

Summary: TypeAlias = dict[str, int | float | None]
PERCENTS: Final = (50, 90, 99)
METHOD: Final = "linear interpolation between order statistics (type 7)"


class Column:
    """A column of numbers; None is counted as unknown and enters no sum."""

    __slots__ = ("_unknown", "_values")

    def __init__(self) -> None:
        self._values = array("d")
        self._unknown = 0

    def add(self, value: float | None) -> None:
        """Add one value. Raises ``ValueError`` for NaN and infinity."""
        if value is None:
            self._unknown += 1
            return
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be summed up")
        self._values.append(value)

    def summary(self) -> Summary:
        """Return ``count``, ``unknown``, ``sum``, ``mean``, ``p50``, ``p90``, ``p99``; the last five None without values."""
        if not self._values:
            figures: Summary = dict.fromkeys(("sum", "mean", *(f"p{percent}" for percent in PERCENTS)))
        else:
            total = math.fsum(self._values)
            points = np.percentile(self._values, PERCENTS, method="linear")
            figures = {"sum": total, "mean": total / len(self._values)}
            figures |= {f"p{percent}": float(point) for percent, point in zip(PERCENTS, points, strict=True)}
        return {"count": len(self._values), "unknown": self._unknown, **figures}


@dataclass(slots=True)
class _Arm:
    outcomes: Counter[str] = field(default_factory=Counter)
    signals: Counter[str] = field(default_factory=Counter)
    reward_mean: Column = field(default_factory=Column)
    reward_spread: Column = field(default_factory=Column)
    latency_ms: Column = field(default_factory=Column)

    def add(self, line: dict[str, Any]) -> None:
        self.outcomes.update(line["outcomes"])
        self.signals[line["signal"]] += 1
        self.reward_mean.add(line["reward_mean"])
        self.reward_spread.add(line["reward_spread"])
        for latency in line["rollout_latency_ms"]:
            self.latency_ms.add(latency)

    def result(self) -> dict[str, Any]:
        return {
            "groups": self.signals.total(),
            "rollouts": self.outcomes.total(),
            "outcomes": dict(sorted(self.outcomes.items())),
            "signals": dict(sorted(self.signals.items())),
            "reward_mean": self.reward_mean.summary(),
            "reward_spread": self.reward_spread.summary(),
            "latency_ms": self.latency_ms.summary(),
        }


@dataclass(slots=True)
class _Tool:
    calls: int = 0
    tokens: int = 0
    errors: int = 0
    latency_ms: float = 0.0
    cost_usd: Column = field(default_factory=Column)

    def add(self, use: dict[str, Any]) -> None:
        self.calls += use["calls"]
        self.tokens += use["tokens"]
        self.errors += use["errors"]
        self.latency_ms += use["latency_ms"]
        self.cost_usd.add(use["cost_usd"])

    def result(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "errors": self.errors,
            "tokens": self.tokens,
            "latency_ms": self.latency_ms,
            "mean_latency_ms": self.latency_ms / self.calls if self.calls else None,
            "cost_usd": self.cost_usd.summary(),
        }


@dataclass(slots=True)
class _Epoch:
    phases: set[str] = field(default_factory=set)
    group_sizes: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    arms: dict[str, _Arm] = field(default_factory=dict)
    tools: dict[str, _Tool] = field(default_factory=dict)
    tool_cost_usd: Column = field(default_factory=Column)
    latency_ms: Column = field(default_factory=Column)

    def add(self, line: dict[str, Any]) -> None:
        if line["status"] == "failed":
            self.failures.append(line["reason"])
            return
        self.phases.add(line["phase"])
        self.group_sizes.add(line["group_size"])
        self.tool_cost_usd.add(line["tool_cost_usd"])
        self.latency_ms.add(line["latency_ms"])
        self.arms.setdefault(line["arm"], _Arm()).add(line)
        for use in line["tools"]:
            self.tools.setdefault(use["tool"], _Tool()).add(use)

    def result(self, epoch: int) -> dict[str, Any]:
        return {
            "tfgrpo_epoch": epoch,
            "status": "failed" if self.failures else "ok",
            "failures": self.failures,
            "phase": min(self.phases, default=None),
            "group_size": max(self.group_sizes, default=None),
            "tool_cost_usd": self.tool_cost_usd.summary(),
            "latency_ms": self.latency_ms.summary(),
            "arms": {name: arm.result() for name, arm in sorted(self.arms.items())},
            "tools": {name: tool.result() for name, tool in sorted(self.tools.items())},
        }


def aggregate(lines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the aggregates by epoch number as text, in order.

    ``tool_cost_usd`` and ``latency_ms`` of an epoch summarise its groups, ``latency_ms`` of an arm its rollouts.
    Raises ``CorruptFile`` with the number of the first invalid line.
    """
    epochs: dict[int, _Epoch] = {}
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            epochs.setdefault(line["tfgrpo_epoch"], _Epoch()).add(line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFile(f"metrics line {number}: {type(error).__name__}: {error}") from error
    return {str(number): epoch.result(number) for number, epoch in sorted(epochs.items())}
