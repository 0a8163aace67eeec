"""Metrics of a run's groups: ``metrics.jsonl``, one line per (run, epoch, group), and their sums by epoch.

A line that exists is not written again, so a resumed run may report its groups once more. By epoch, rewards and
outcomes are kept apart by arm. The two sides of a group, each with a random half of the lessons, are no arms. Unknown
values (a price, the reward of a group without scored rollouts) are counted as unknown and enter no sum. Percentiles are
exact, with linear interpolation between the two nearest values (Hyndman and Fan 1996, type 7, numpy's default): the
q-th of n sorted values is at position q/100 * (n - 1), from 0.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import numpy as np

from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.atomic import replace_json
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import LineFile, read_objects
from tfgrpo.stores.json_values import to_builtins
from tfgrpo.stores.ledger import add_costs
from tfgrpo.stores.outcomes import Arm, Phase, Signal

METRICS_SCHEMA: Final = 1
Summary: TypeAlias = dict[str, int | float | None]
PERCENTS: Final = (50, 90, 99)
METHOD: Final = "linear interpolation between order statistics (type 7)"
# What reading values of another shape raises.
_INVALID: Final = (ValueError, KeyError, TypeError, AttributeError)
_RANDOM_SIDES: Final = frozenset({"one", "other"})
_TOOL_SUMS: Final = ("calls", "errors", "tokens", "latency_ms")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Use of one tool by the rollouts of a group or a run, summed."""

    tool: str
    calls: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0
    """None when the price of any call is unknown."""
    latency_ms: float = 0.0
    errors: int = 0

    @classmethod
    def by_tool(cls, uses: Iterable[Self]) -> tuple[Self, ...]:
        """Return the sums, one for each tool, by name."""
        sums: dict[str, Self] = {}
        for use in uses:
            so_far = sums.get(use.tool, cls(use.tool))
            counts = {name: getattr(so_far, name) + getattr(use, name) for name in ("calls", "tokens", "latency_ms", "errors")}
            sums[use.tool] = replace(so_far, cost_usd=add_costs((so_far.cost_usd, use.cost_usd)), **counts)
        return tuple(total for _, total in sorted(sums.items()))


@dataclass(frozen=True, slots=True)
class HalfMetrics:
    """Measurements of one side of a group, or of a whole group, named as in its line."""

    arm: Arm
    signal: Signal
    reward_mean: float | None
    """Over the scored rollouts; None when there is none."""
    reward_spread: float | None
    """Population standard deviation of the scored rewards; None below two of them."""
    outcomes: Mapping[str, int]
    rollout_latency_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GroupMetrics(HalfMetrics):
    """Measurements of one group."""

    run_id: str
    tfgrpo_epoch: int
    group_id: str
    group_size: int
    phase: Phase
    tools: tuple[ToolUse, ...]
    measured: bool = True
    """False when an agent called models, and perhaps tools, without the ledger."""
    halves: tuple[HalfMetrics, ...] = ()
    """Empty for a group without two sides."""

    @property
    def tool_cost_usd(self) -> float | None:
        """Cost of all tool calls; None when any is unknown or may be, 0 when no tool was called."""
        return add_costs(tool.cost_usd for tool in self.tools) if self.measured else None

    def to_line(self) -> dict[str, Any]:
        """Return the line with the literal keys of the specification."""
        fields = to_builtins(self)
        del fields["measured"]
        if not self.halves:
            del fields["halves"]
        sums = {"tool_cost_usd": self.tool_cost_usd, "latency_ms": sum(self.rollout_latency_ms)}
        return {"schema": METRICS_SCHEMA, "status": "ok", **fields, **sums}


class MetricsStore:
    """The metrics of one run: ``metrics.jsonl`` and ``per-epoch.json`` in its directory. One writer."""

    def __init__(self, run_dir: Path) -> None:
        self.path, self.per_epoch_path = RunPaths(run_dir).metrics, RunPaths(run_dir).per_epoch
        self.lines = LineFile(self.path, "{run_id}\x1f{tfgrpo_epoch}\x1f{group_id}".format_map)

    def append_groups(self, groups: Iterable[GroupMetrics]) -> int:
        """Append a line for each new group, all or none, and return how many.

        Raises ``RecordRejected`` for NaN, ``StoreError``.
        """
        return self.lines.add([group.to_line() for group in groups])

    def append_failure(self, run_id: str, epoch: int, reason: str) -> bool:
        """Append that rewarders failed in an epoch, once per run and epoch."""
        line = {"run_id": run_id, "tfgrpo_epoch": epoch, "group_id": None, "status": "failed", "reason": reason}
        return self.lines.add([{"schema": METRICS_SCHEMA, **line}]) == 1

    def write_per_epoch(self, learning: Mapping[int, Mapping[str, Any]] | None = None) -> dict[str, Any]:
        """Aggregate the lines by epoch into ``per-epoch.json`` and return its content.

        ``learning``: reflections and curations of each epoch, requested and lost, which no line of a group has.
        """
        epochs = aggregate(read_objects(self.path), self.path)
        for number, steps in (learning or {}).items():
            if str(number) in epochs:
                epochs[str(number)]["learning"] = dict(steps)
        content = {"schema_version": METRICS_SCHEMA, "percentiles": METHOD, "epochs": epochs}
        replace_json(self.per_epoch_path, content)
        return content


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


def aggregate(lines: Iterable[Mapping[str, Any]], source: object = "metrics") -> dict[str, dict[str, Any]]:
    """Return the aggregates by epoch number as text, in order. Memory grows with the figures alone, not with the lines.

    ``tool_cost_usd`` and ``latency_ms`` of an epoch summarise its groups, ``latency_ms`` of an arm its rollouts.
    Raises ``CorruptFile`` with the ``source`` and the number of the first invalid line.
    """
    epochs: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            epoch = index(line["tfgrpo_epoch"])
            if epoch not in epochs:
                epochs[epoch] = {"tfgrpo_epoch": epoch, "status": "ok", "failures": [], "phase": None, "group_size": None}
                epochs[epoch] |= {"tool_cost_usd": Column(), "latency_ms": Column(), "arms": {}, "tools": {}}
            _add(epochs[epoch], line)
        except _INVALID as error:
            raise CorruptFile(f"{source} line {number}: {type(error).__name__}: {error}") from error
    return {str(number): _summary(each) for number, each in sorted(epochs.items())}


def _add(epoch: dict[str, Any], line: Mapping[str, Any]) -> None:
    if line["status"] == "failed":
        epoch["status"] = "failed"
        epoch["failures"].append(line["reason"])
        return
    epoch["phase"] = min(epoch["phase"] or line["phase"], line["phase"])
    epoch["group_size"] = max(epoch["group_size"] or 0, line["group_size"])
    epoch["tool_cost_usd"].add(line["tool_cost_usd"])
    epoch["latency_ms"].add(line["latency_ms"])
    sides = [side for side in line.get("halves", ()) if side["arm"] not in _RANDOM_SIDES]
    for part in sides or (line,):
        if part["arm"] not in epoch["arms"]:
            counts = {"groups": 0, "rollouts": 0, "outcomes": Counter(), "signals": Counter()}
            columns = {name: Column() for name in ("reward_mean", "reward_spread", "latency_ms")}
            epoch["arms"][part["arm"]] = counts | columns
        arm = epoch["arms"][part["arm"]]
        arm["groups"] += 1
        arm["outcomes"].update(part["outcomes"])
        arm["rollouts"] = arm["outcomes"].total()
        arm["signals"][part["signal"]] += 1
        arm["reward_mean"].add(part["reward_mean"])
        arm["reward_spread"].add(part["reward_spread"])
        for latency in part["rollout_latency_ms"]:
            arm["latency_ms"].add(latency)
    for use in line["tools"]:
        tool = epoch["tools"].setdefault(use["tool"], dict.fromkeys(_TOOL_SUMS, 0) | {"cost_usd": Column()})
        tool |= {name: tool[name] + use[name] for name in _TOOL_SUMS}
        tool["mean_latency_ms"] = tool["latency_ms"] / tool["calls"] if tool["calls"] else None
        tool["cost_usd"].add(use["cost_usd"])


def _summary(value: Any) -> Any:
    if isinstance(value, Column):
        return value.summary()
    return {name: _summary(each) for name, each in sorted(value.items())} if isinstance(value, dict) else value
