"""Wall time that the model alone accounts for.

The journal of a run says which calls were made. Their ideal is the shortest schedule in which

* every call takes the latency given, which is that of the server and not what the client measured: what the client or
  the server lose on the way is not part of the ideal;
* at most ``concurrency`` calls are in flight;
* the calls of a rollout follow one another, a group's reflection waits for all its rollouts, and curation waits for all
  groups of its batch: the algorithm needs their answers;
* a batch begins when the one before it is curated, because it is attempted with the lessons of that curation.

Nothing else is counted: no start-up, no files, no Prefect, no scheduling. With equal latencies the calls of a batch form
an in-tree of unit tasks, for which *highest level first* is optimal (Hu, Parallel sequencing and assembly line problems,
Operations Research 9, 1961), so the figure is a bound that no implementation can beat.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

BATCH_ITEM = "batch"
_SWEPT = ("library", "none")


@dataclass(slots=True)
class GroupCalls:
    """How many calls a group made: of each rollout, one after another, and of the reflection on them."""

    rollouts: Counter[str] = field(default_factory=Counter)
    reflection: int = 0


@dataclass(slots=True)
class BatchCalls:
    """The calls of one batch: its groups, then the curation that ends it."""

    groups: defaultdict[str, GroupCalls] = field(default_factory=lambda: defaultdict(GroupCalls))
    curation: int = 0


def journal_keys(path: Path) -> Iterator[str]:
    """Key texts of the answered calls of a run, in file order."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if entry["kind"] == "reply" and "latency_s" in entry["payload"]:
                yield entry["key"]


def batches_of(keys: Iterable[str], batch_item: str = BATCH_ITEM) -> list[BatchCalls]:
    """Sort calls into batches. ``batch_item`` names calls of a whole batch.

    All arms of an epoch share its batches: both sides of a learning group, and both sides of a sweep.
    """
    batches: defaultdict[tuple[str, str], BatchCalls] = defaultdict(BatchCalls)
    for key in keys:
        epoch, arm, batch, item, rollout, _, role, _ = key.rpartition("#")[0].split("/")
        calls = batches[epoch, batch]
        # A learning group is one, whichever lessons its attempts have; in a sweep each side has a group of its own.
        group = f"{arm}/{item}" if arm in _SWEPT else item
        if item == batch_item:
            calls.curation += 1
        elif role == "rollout":
            calls.groups[group].rollouts[f"{arm}/{rollout}"] += 1
        else:
            calls.groups[group].reflection += 1
    return list(batches.values())


def rounds(batch: BatchCalls, concurrency: int) -> int:
    """Least number of rounds of at most ``concurrency`` calls each that a batch can be answered in."""
    left = [Counter(group.rollouts) for group in batch.groups.values()]
    reflections = [group.reflection for group in batch.groups.values()]
    count = 0
    while any(reflections) or any(left):
        for place, rollout in _highest(left, reflections, concurrency):
            if rollout is None:
                reflections[place] -= 1
                continue
            left[place][rollout] -= 1
            if not left[place][rollout]:
                del left[place][rollout]
        count += 1
    return count + batch.curation


def ideal_seconds(keys: Iterable[str], concurrency: int, latency_s: float) -> float:
    """Wall time in seconds of the shortest schedule of the calls."""
    return latency_s * sum(rounds(batch, concurrency) for batch in batches_of(keys))


def _highest(left: list[Counter[str]], reflections: list[int], most: int) -> list[tuple[int, str | None]]:
    """The calls that are ready, those with the longest rest before them first; ``None`` stands for the reflection."""
    ready: list[tuple[int, int, str | None]] = []
    for place, rollouts in enumerate(left):
        if rollouts:
            ready.extend((-calls - reflections[place], place, name) for name, calls in rollouts.items())
        elif reflections[place]:
            ready.append((-reflections[place], place, None))
    return [(place, name) for _, place, name in sorted(ready, key=lambda call: call[:2])[:most]]
