"""Draw the items of an epoch by seed: every item once before any is drawn again.

The order of the dataset file does not matter. A draw without replacement from too few items is all of them. The more of
an item's recorded groups were flat, the less often it is drawn: weights by difficulty are from ``FLOOR`` to 1, never
zero, because a flat item may become informative once lessons are learned.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice
from random import Random
from typing import Any, Final

from tfgrpo.pipelines.datasets.items import Item, ids_of, take
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.stores.canonical import stream
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.files.atomic import read_rows
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape

FLOOR: Final = 0.1
"""Weight of an item whose groups were all flat; new items and those without flat groups have 1."""
RUNS: Final = 10
"""Number of the newest runs of the task that count."""
_FLAT = frozenset({"all_pass", "all_fail", "flat"})
_SEEN = _FLAT | {"mixed"}


MEASURING_SIZE: Final = 6
"""Attempts of a group that measures single lessons."""
_FEWEST_MEASURING: Final = 4
"""Groups below which nothing is measured: they would show nothing."""


def measuring_groups(settings: LearningSettings, attempts: int) -> int:
    """Return how many groups measure single lessons in a run with so many attempts otherwise."""
    groups = math.floor(settings.measured_share * attempts / MEASURING_SIZE)
    return groups if settings.enabled and groups >= _FEWEST_MEASURING else 0


@dataclass(frozen=True, slots=True)
class Cohort:
    """The items of one epoch in order, and cut into batches."""

    items: tuple[Item, ...]
    batches: tuple[tuple[Item, ...], ...]
    draws: tuple[int, ...]
    """For each of ``items`` the number of its earlier draws in this epoch: all 0 without replacement."""
    metadata: Mapping[str, Any]
    """Record of the draw for the manifest, as JSON (requirement 46)."""


def draw_cohorts(
    items: Sequence[Item], *, epochs: range, settings: LearningSettings, weights: Sequence[float] | None = None
) -> Iterator[Cohort]:
    """Yield the cohorts of consecutive epochs 1, 2, …: each of ``sample_size`` items, or all if there are fewer.

    Epochs, those of later nights included, take consecutive parts of one endless sequence of shuffles; an item that the
    epoch already has is skipped between two shuffles. With ``with_replacement``: ``sample_size`` independent draws.
    With ``weights``, one above 0 for each item, every epoch draws separately, in proportion to them.
    """
    pool = _by_id(items)
    for epoch, drawn in zip(epochs, _draws(pool, settings, weights, epochs.start), strict=False):
        yield cohort_of(take(items, drawn), settings, "learn", population=len(pool), epoch=epoch)


def _draws(
    pool: Sequence[int], settings: LearningSettings, weights: Sequence[float] | None, first: int
) -> Iterator[list[int]]:
    """Yield the item indices of an epoch and of every later one."""
    seed, size = settings.seed_of("train"), settings.items_of(len(pool))
    ordered = None if weights is None else [weights[index] for index in pool]
    if settings.with_replacement and pool:
        streams = (stream(seed, "cohort", "with replacement", epoch) for epoch in count(first))
        drawn = settings.items_of(settings.sample_size)
        return (rng.choices(pool, weights=ordered, k=drawn) for rng in streams)
    if ordered is not None:
        streams = (stream(seed, "cohort", "weighted", epoch) for epoch in count(first))
        return ([pool[lot] for lot in weighted_draw(ordered, size, rng)] for rng in streams)
    before = (settings.night or 0) * max(settings.epochs - 1, 1)  # learning epochs of the earlier nights
    return islice(_consecutive(pool, size, settings.seed), before + first - 1, None)


def draw_evaluation(
    items: Sequence[Item], *, settings: LearningSettings, actors: int | None = None, nightly: bool = True
) -> Cohort:
    """Draw the held-out items of the sweep: all, or ``sample_size`` of them by the seed, others every night.

    So the evidence of several nights is about all held-out items, and no candidate is chosen by the luck of some of them.
    ``actors``: of each library. Without ``nightly``: the same items every night, as before learning rules 4.
    """
    pool = _by_id(items)
    size = settings.items_of(len(pool))
    seed = settings.seed_of("train") if nightly else settings.seed
    drawn = stream(seed, "evaluation").sample(pool, size)
    return cohort_of(take(items, drawn), settings, "evaluation", population=len(pool), actors=actors)


def sealed_cohort(items: Sequence[Item], *, settings: LearningSettings, actors: int) -> Cohort:
    """Return all sealed items. Raise ``SettingsError`` without any."""
    if not items:
        accepted = "a share of the held-out items, or a file as dataset.sealed_path"
        raise SettingsError.one("dataset.sealed", "no sealed items", accepted)
    return cohort_of(take(items, _by_id(items)), settings, "sealed", population=len(items), actors=actors)


def _by_id(items: Sequence[Item]) -> list[int]:
    """Return item indices in the order of the ids, independent of the file's."""
    ids = ids_of(items)
    return sorted(range(len(ids)), key=ids.__getitem__)


def _consecutive(pool: Sequence[int], size: int, seed: int) -> Iterator[list[int]]:
    """Yield ``size`` different indices after another out of shuffles of the pool, without end."""
    rest: list[int] = []
    shuffles = count()
    while True:
        drawn, rest = rest[:size], rest[size:]
        if len(drawn) < size:
            shuffled = list(pool)
            stream(seed, "cohort", "pass", next(shuffles)).shuffle(shuffled)
            seen = set(drawn)
            more = [index for index in shuffled if index not in seen][: size - len(drawn)]
            taken = set(more)
            drawn, rest = drawn + more, [index for index in shuffled if index not in taken]
        yield drawn


def cohort_of(
    drawn: Sequence[Item],
    settings: LearningSettings,
    purpose: str,
    *,
    population: int,
    epoch: int | None = None,
    actors: int | None = None,
) -> Cohort:
    """Return drawn items as a cohort: cut into batches, with the record of the draw.

    ``epoch`` None: the last one. ``actors`` per item; None: as the settings say.
    """
    step, target = settings.batch_size, actors or settings.actors_per_item
    low, high = settings.instance_bounds if settings.enabled and actors is None else (target, target)
    times: Counter[str] = Counter()
    draws = []
    for item in drawn:
        draws.append(times[item.id])
        times[item.id] += 1
    batches = tuple(tuple(drawn[start : start + step]) for start in range(0, len(drawn), step))
    metadata = {
        "purpose": purpose,
        "epoch": settings.epochs if epoch is None else epoch,
        "seed": settings.seed,
        "night": settings.night or 0,
        "with_replacement": settings.with_replacement and purpose == "learn",
        "population": population,
        "requested": settings.items_of(settings.sample_size),
        "drawn": len(drawn),
        "distinct": len(times),
        "batch_sizes": [len(batch) for batch in batches],
        "item_ids": [item.id for item in drawn],
        # The number of actors of each item and their indices (requirements 48, 56 and 57).
        "assignments": {
            "min_instances": low,
            "max_instances": high,
            "target": target,
            "group_index": list(range(target)),
        },
    }
    return Cohort(tuple(drawn), batches, tuple(draws), metadata)


@dataclass(frozen=True, slots=True)
class Difficulty:
    """How many groups of each item were flat, of how many. Groups with fewer than two rewards do not count."""

    groups: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def weight(self, item_id: str) -> float:
        """Return ``1 - (1 - FLOOR) * flat / seen``; 1 for a new item."""
        flat, seen = self.groups.get(item_id, (0, 1))
        return 1.0 - (1.0 - FLOOR) * flat / seen

    def with_run(self, run: RunPaths, *, before_epoch: int | None = None) -> Difficulty:
        """Return these counts plus those of a run's learning epochs, all or the ones before ``before_epoch``."""
        groups = dict(self.groups)
        for row in read_rows(run.groups):
            learned = row.get("phase") == "train" and (before_epoch is None or row["epoch"] < before_epoch)
            if learned and row.get("signal") in _SEEN:
                flat, seen = groups.get(row["item_id"], (0, 0))
                groups[row["item_id"]] = flat + (row["signal"] in _FLAT), seen + 1
        return Difficulty(groups)

    def of(self, item_ids: Iterable[str]) -> Difficulty:
        """Return the counts of these items only."""
        return Difficulty({name: self.groups[name] for name in item_ids if name in self.groups})

    def as_json(self) -> dict[str, Any]:
        """Return the counts as ``[flat, seen]`` and the weights below 1, for the manifest."""
        weights = {name: round(self.weight(name), 6) for name in sorted(self.groups) if self.weight(name) < 1.0}
        counts = {name: list(self.groups[name]) for name in sorted(self.groups)}
        return {"kind": "difficulty", "floor": FLOOR, "flat_of_groups": counts, "weights": weights}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Difficulty:
        """Return the counts that ``as_json`` wrote."""
        return cls({name: (flat, seen) for name, (flat, seen) in written["flat_of_groups"].items()})


def difficulty_so_far(task: TaskPaths, *, model: str, simulated: bool) -> Difficulty:
    """Return the counts of a task's newest runs with this model: groups flat for one may differ for another."""
    runs = []
    for path in task.root.glob("runs/*/manifest.json"):
        # A damaged one is named by `tfgrpo runs`; without it items are only drawn more evenly.
        with suppress(CorruptFile, OSError):
            manifest = ManifestFile(path).read()
            if (manifest.get("model"), manifest.get("simulated")) == (model, simulated):
                runs.append((str(manifest.get("started_at")), path.parent))
    difficulty = Difficulty()
    for _, root in sorted(runs)[-RUNS:]:
        with suppress(CorruptFile), expected_shape(root):
            difficulty = difficulty.with_run(RunPaths(root))
    return difficulty


def weighted_draw(weights: Sequence[float], size: int, rng: Random) -> list[int]:
    """Draw ``size`` indices without replacement, in proportion to the weights left, in the order drawn.

    Source: Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, 2006: the largest ``u ** (1 / w)``.
    """
    keys = [rng.random() ** (1.0 / weight) for weight in weights]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=True)[:size]
