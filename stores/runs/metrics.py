"""Metrics of a run's groups: ``metrics.jsonl``, one line per (run, epoch, group), and their sums by epoch.

A line that exists is not written again, so a resumed run may report its groups once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tfgrpo.stores.files.atomic import KeyedJsonl, read_lines, replace_json
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.frozen_json import to_builtins
from tfgrpo.stores.outcomes import Arm, Phase, Signal
from tfgrpo.stores.runs.per_epoch import METHOD, aggregate

SCHEMA_VERSION: Final = 1
_NO_LEARNING: Final[Mapping[int, Mapping[str, Any]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Use of one tool by the rollouts of a group, summed."""

    tool: str
    calls: int
    tokens: int
    cost_usd: float | None
    """None when the price of any call is unknown."""
    latency_ms: float
    errors: int


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """Measurements of one group, named as in its line."""

    run_id: str
    tfgrpo_epoch: int
    group_id: str
    group_size: int
    phase: Phase
    arm: Arm
    signal: Signal
    reward_mean: float | None
    """Over the scored rollouts; None when there is none."""
    reward_spread: float | None
    """Population standard deviation of the scored rewards; None below two of them."""
    outcomes: Mapping[str, int]
    """Rollouts by outcome."""
    rollout_latency_ms: tuple[float, ...]
    tools: tuple[ToolUse, ...]
    measured: bool = True
    """False when an agent called models, and perhaps tools, without the ledger."""

    @property
    def tool_cost_usd(self) -> float | None:
        """Cost of all tool calls; None when any is unknown or may be, 0 when no tool was called."""
        costs = [tool.cost_usd for tool in self.tools]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if self.measured and len(known) == len(costs) else None

    def to_line(self) -> dict[str, Any]:
        """Return the line with the literal keys of the specification."""
        fields = to_builtins(self)
        del fields["measured"]
        sums = {"tool_cost_usd": self.tool_cost_usd, "latency_ms": sum(self.rollout_latency_ms)}
        return {"schema": SCHEMA_VERSION, "status": "ok", **fields, **sums}


class MetricsStore:
    """The metrics of one run: ``metrics.jsonl`` and ``per-epoch.json`` in its directory. One writer."""

    def __init__(self, run_dir: Path) -> None:
        paths = RunPaths(run_dir)
        self.path = paths.metrics
        self.per_epoch_path = paths.per_epoch
        self._lines = KeyedJsonl(self.path, _key)

    def append_groups(self, groups: Iterable[GroupMetrics]) -> int:
        """Append a line for each new group, all or none, and return how many.

        Raises ``RecordRejected`` for NaN, ``StoreError``.
        """
        return self._lines.append([group.to_line() for group in groups])

    def append_failure(self, run_id: str, epoch: int, reason: str) -> bool:
        """Append that an epoch failed and its evidence is void, once per run and epoch."""
        line = {
            "schema": SCHEMA_VERSION,
            "run_id": run_id,
            "tfgrpo_epoch": epoch,
            "group_id": None,
            "status": "failed",
            "reason": reason,
        }
        return self._lines.append([line]) == 1

    def write_per_epoch(self, learning: Mapping[int, Mapping[str, Any]] = _NO_LEARNING) -> dict[str, Any]:
        """Aggregate the lines by epoch into ``per-epoch.json`` and return its content.

        ``learning``: reflections and curations of each epoch, requested and lost, which no line of a group has.
        """
        epochs = aggregate(read_lines(self.path))
        for number, steps in learning.items():
            if str(number) in epochs:
                epochs[str(number)]["learning"] = dict(steps)
        content = {"schema_version": SCHEMA_VERSION, "percentiles": METHOD, "epochs": epochs}
        replace_json(self.per_epoch_path, content)
        return content


def _key(line: dict[str, Any]) -> str:
    return f"{line['run_id']}\x1f{line['tfgrpo_epoch']}\x1f{line['group_id']}"
