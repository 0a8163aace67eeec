"""Weight items by difficulty: the more of an item's recorded groups were flat, the less often it is drawn.

Weights are from ``FLOOR`` to 1, never zero, because a flat item may become informative once lessons are learned.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.stores.files.layout import RunPaths, TaskPaths

FLOOR: Final = 0.1
"""Weight of an item whose groups were all flat; new items and those without flat groups have 1."""
RUNS: Final = 10
"""Number of the newest runs of the task that count."""
_FLAT = frozenset({"all_pass", "all_fail", "flat"})
_SEEN = _FLAT | {"mixed"}


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Groups of each item, and how many of them were flat. Groups with fewer than two rewards do not count."""

    flat: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, int] = field(default_factory=dict)

    def weight(self, item_id: str) -> float:
        """Return ``1 - (1 - FLOOR) * flat / seen``; 1 for a new item."""
        seen = self.seen.get(item_id, 0)
        return 1.0 - (1.0 - FLOOR) * self.flat.get(item_id, 0) / seen if seen else 1.0

    def with_run(self, run: RunPaths, *, before_epoch: int | None = None) -> Difficulty:
        """Return these counts plus those of a run's learning epochs, all or the ones before ``before_epoch``."""
        flat, seen = Counter(self.flat), Counter(self.seen)
        rows = map(json.loads, read_lines(run.groups)) if run.groups.is_file() else ()
        for row in rows:
            if row.get("phase") == "train" and (before_epoch is None or row["epoch"] < before_epoch):
                signal = row.get("signal")
                seen[row["item_id"]] += signal in _SEEN
                flat[row["item_id"]] += signal in _FLAT
        return Difficulty(flat, seen)

    def of(self, item_ids: Iterable[str]) -> Difficulty:
        """Return the counts of these items only."""
        known = [name for name in item_ids if self.seen.get(name)]
        return Difficulty({name: self.flat.get(name, 0) for name in known}, {name: self.seen[name] for name in known})

    def as_json(self) -> dict[str, Any]:
        """Return the counts as ``[flat, seen]`` and the weights below 1, for the manifest."""
        weights = {name: round(self.weight(name), 6) for name in sorted(self.seen) if self.weight(name) < 1.0}
        counts = {name: [self.flat.get(name, 0), self.seen[name]] for name in sorted(self.seen)}
        return {"kind": "difficulty", "floor": FLOOR, "flat_of_groups": counts, "weights": weights}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Difficulty:
        """Return the counts that ``as_json`` wrote."""
        counts: Mapping[str, Sequence[int]] = written["flat_of_groups"]
        return cls({name: pair[0] for name, pair in counts.items()}, {name: pair[1] for name, pair in counts.items()})


def difficulty_so_far(task: TaskPaths, *, model: str, simulated: bool) -> Difficulty:
    """Return the counts of a task's newest runs with this model: groups flat for one may differ for another."""
    runs = []
    for path in task.root.glob("runs/*/manifest.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if (manifest["model"], manifest["simulated"]) == (model, simulated):
                runs.append((str(manifest["started_at"]), path.parent))
    difficulty = Difficulty()
    for _, root in sorted(runs)[-RUNS:]:
        with suppress(CorruptFile, ValueError, KeyError, TypeError):
            difficulty = difficulty.with_run(RunPaths(root))
    return difficulty


def weighted_draw(weights: Sequence[float], size: int, rng: Random) -> list[int]:
    """Draw ``size`` indices without replacement, in proportion to the weights left, in the order drawn.

    Source: Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, 2006: the largest ``u ** (1 / w)``.
    """
    keys = [rng.random() ** (1.0 / weight) for weight in weights]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=True)[:size]
