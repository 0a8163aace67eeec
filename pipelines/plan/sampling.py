"""Draw the items of an epoch by seed: every item once before any is drawn again.

The order of the dataset file does not matter. A draw from too few items is all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.stores.canonical import stream
from tfgrpo.stores.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Cohort:
    """The items of one epoch in order, and cut into batches."""

    items: tuple[Item, ...]
    batches: tuple[tuple[Item, ...], ...]
    draws: tuple[int, ...]
    """For each of ``items`` the number of its earlier draws in this epoch: above 0 only in a mix."""
    metadata: Mapping[str, Any]
    """Record of the draw for the manifest, as JSON (requirement 46)."""


def draw_cohorts(items: Sequence[Item], *, epochs: range, settings: LearningSettings) -> Iterator[Cohort]:
    """Yield the cohorts of consecutive epochs 1, 2, …: each of ``sample_size`` items, or all if there are fewer.

    Epochs, those of later nights included, take consecutive parts of one endless sequence of shuffles; an item that the
    epoch already has is skipped between two shuffles.
    """
    pool = _by_id(items)
    before = (settings.night or 0) * max(settings.epochs - 1, 1)  # learning epochs of the earlier nights
    drawn = _consecutive(pool, min(settings.sample_size, len(pool)), settings.seed)
    for epoch, indices in zip(epochs, islice(drawn, before + epochs.start - 1, None), strict=False):
        yield cohort_of([items[each] for each in indices], settings, "learn", population=len(pool), epoch=epoch)


def draw_evaluation(
    items: Sequence[Item], *, settings: LearningSettings, actors: int | None = None, saturated: bool = False
) -> Cohort:
    """Draw the held-out items of the sweep: all, or ``sample_size`` of them by the seed, others every night.

    So the sweeps of several nights are about all held-out items. ``saturated``: half of them. ``actors``: of each side.
    """
    pool = _by_id(items)
    size = min(settings.sample_size, len(pool))
    drawn = stream(settings.night_seed, "evaluation").sample(pool, -(-size // 2) if saturated else size)
    return cohort_of([items[each] for each in drawn], settings, "evaluation", population=len(pool), actors=actors)


def sealed_cohort(items: Sequence[Item], *, settings: LearningSettings, actors: int) -> Cohort:
    """Return all sealed items. Raise ``SettingsError`` without any."""
    if not items:
        accepted = "a share of the held-out items"
        raise SettingsError.one("dataset.sealed", "no sealed items", accepted)
    return cohort_of([items[each] for each in _by_id(items)], settings, "sealed", population=len(items), actors=actors)


def _by_id(items: Sequence[Item]) -> list[int]:
    """Return item indices in the order of the ids, independent of the file's."""
    return sorted(range(len(items)), key=lambda index: items[index].id)


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
        "with_replacement": False,
        "population": population,
        "requested": settings.sample_size,
        "drawn": len(drawn),
        "distinct": len(times),
        "batch_sizes": [len(batch) for batch in batches],
        "item_ids": [item.id for item in drawn],
        # The number of actors of each item and their indices (requirements 48, 56 and 57).
        "assignments": {
            "min_instances": target,
            "max_instances": target,
            "target": target,
            "group_index": list(range(target)),
        },
    }
    return Cohort(tuple(drawn), batches, tuple(draws), metadata)
