"""Which items are worth trying again? Those whose groups differed: the more of an item's groups were flat, the less often.

A weight lies between ``FLOOR`` and 1 and never at zero, because what is flat today may not be once lessons are learned.
It reads what runs recorded of their groups, and decides nothing else about a draw.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.stores.files.layout import RunPaths, TaskPaths

FLOOR: Final = 0.1
"""Weight of an item all of whose groups were flat; 1 is that of one that no group was flat of, or that is new."""
RUNS: Final = 10
"""Earlier runs of the task that are looked at, the newest."""
_FLAT = frozenset({"all_pass", "all_fail", "flat"})
_SEEN = _FLAT | {"mixed"}


@dataclass(frozen=True, slots=True)
class Difficulty:
    """How many groups of each item there were, and how many of them were flat. Groups without two rewards do not count."""

    flat: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, int] = field(default_factory=dict)

    def weight(self, item_id: str) -> float:
        """``1 - (1 - FLOOR) * flat / seen``; 1 for an item that was never seen."""
        seen = self.seen.get(item_id, 0)
        return 1.0 - (1.0 - FLOOR) * self.flat.get(item_id, 0) / seen if seen else 1.0

    def with_run(self, run: RunPaths, *, before_epoch: int | None = None) -> Difficulty:
        """These counts and those of a run's learning epochs, all of them or those before one."""
        flat, seen = Counter(self.flat), Counter(self.seen)
        for row in _groups(run):
            if row.get("phase") == "train" and (before_epoch is None or row["epoch"] < before_epoch):
                signal = row.get("signal")
                seen[row["item_id"]] += signal in _SEEN
                flat[row["item_id"]] += signal in _FLAT
        return Difficulty(flat, seen)

    def of(self, item_ids: Iterable[str]) -> Difficulty:
        """The counts of these items alone."""
        known = [name for name in item_ids if self.seen.get(name)]
        return Difficulty({name: self.flat.get(name, 0) for name in known}, {name: self.seen[name] for name in known})

    def as_json(self) -> dict[str, Any]:
        """For the manifest: the counts as ``[flat, seen]``, and the weights that are not 1."""
        weights = {name: round(self.weight(name), 6) for name in sorted(self.seen) if self.weight(name) < 1.0}
        counts = {name: [self.flat.get(name, 0), self.seen[name]] for name in sorted(self.seen)}
        return {"kind": "difficulty", "floor": FLOOR, "flat_of_groups": counts, "weights": weights}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Difficulty:
        """What ``as_json`` wrote."""
        counts: Mapping[str, Sequence[int]] = written["flat_of_groups"]
        return cls({name: pair[0] for name, pair in counts.items()}, {name: pair[1] for name, pair in counts.items()})


def difficulty_so_far(task: TaskPaths, *, model: str, simulated: bool) -> Difficulty:
    """What the newest runs of a task showed, of those with this model: what is flat for one need not be for another."""
    runs = []
    for path in task.root.glob("runs/*/manifest.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if (manifest["model"], manifest["simulated"]) == (model, simulated):
                runs.append((str(manifest["started_at"]), path.parent))
    found = Difficulty()
    for _, root in sorted(runs)[-RUNS:]:
        with suppress(CorruptFile, ValueError, KeyError, TypeError):
            found = found.with_run(RunPaths(root))
    return found


def weighted_draw(weights: Sequence[float], size: int, rng: Random) -> list[int]:
    """``size`` different places, each draw in proportion to the weights of those left, in the order drawn.

    Source: Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, 2006: the largest ``u ** (1 / w)``.
    """
    keys = [rng.random() ** (1.0 / weight) for weight in weights]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=True)[:size]


def _groups(run: RunPaths) -> Iterator[Mapping[str, Any]]:
    if run.groups.is_file():
        yield from map(json.loads, read_lines(run.groups))
