"""Draw the items of an epoch by seed: every item once before any is drawn again.

The order of the dataset file does not matter. A draw without replacement from too few items is all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.datasets.stored_items import ids_of, take
from tfgrpo.pipelines.plan.curriculum import weighted_draw
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.stores.seeds import stream


@dataclass(frozen=True, slots=True)
class Cohort:
    """The items of one epoch in order, and cut into batches."""

    items: tuple[Item, ...]
    batches: tuple[tuple[Item, ...], ...]
    draws: tuple[int, ...]
    """For each of ``items`` the number of its earlier draws in this epoch: all 0 without replacement."""
    metadata: Mapping[str, Any]
    """Record of the draw for the manifest, as JSON (requirement 46)."""


def draw_cohort(
    items: Sequence[Item], *, epoch: int, settings: LearningSettings, weights: Sequence[float] | None = None
) -> Cohort:
    """Draw the cohort of epoch 1, 2, …: ``sample_size`` items, or all if there are fewer.

    Epochs, those of later nights included, take consecutive parts of one endless sequence of shuffles; an item that the
    epoch already has is skipped between two shuffles. With ``with_replacement``: ``sample_size`` independent draws.
    With ``weights``, one above 0 for each item, every epoch draws separately, in proportion to them.
    """
    pool = _by_id(items)
    drawn = next(_draws(pool, settings, weights, first=epoch))
    return cohort_of(take(items, drawn), epoch=epoch, population=len(pool), settings=settings, purpose="learn")


def draw_cohorts(
    items: Sequence[Item], *, epochs: int, settings: LearningSettings, weights: Sequence[float] | None = None
) -> Iterator[Cohort]:
    """Yield the cohorts of epochs 1 to ``epochs`` as ``draw_cohort`` draws them, shuffling only once."""
    pool = _by_id(items)
    for epoch, drawn in enumerate(islice(_draws(pool, settings, weights), epochs), start=1):
        yield cohort_of(take(items, drawn), epoch=epoch, population=len(pool), settings=settings, purpose="learn")


def _draws(
    pool: Sequence[int], settings: LearningSettings, weights: Sequence[float] | None, *, first: int = 1
) -> Iterator[list[int]]:
    """Yield the item indices of an epoch and of every later one."""
    seed, size = settings.seed_of("train"), min(settings.sample_size, len(pool))
    ordered = None if weights is None else [weights[index] for index in pool]
    if settings.with_replacement and pool:
        streams = (stream(seed, "cohort", "with replacement", epoch) for epoch in count(first))
        return (rng.choices(pool, weights=ordered, k=settings.sample_size) for rng in streams)
    if ordered is not None:
        streams = (stream(seed, "cohort", "weighted", epoch) for epoch in count(first))
        return ([pool[lot] for lot in weighted_draw(ordered, size, rng)] for rng in streams)
    return islice(_consecutive(pool, size, settings.seed), settings.epochs_before + first - 1, None)


def draw_evaluation(items: Sequence[Item], *, settings: LearningSettings) -> Cohort:
    """Draw the held-out items of the sweep: all, or ``sample_size`` of them by the seed."""
    pool = _by_id(items)
    size = min(settings.sample_size, len(pool))
    drawn = stream(settings.seed, "evaluation").sample(pool, size)
    return cohort_of(
        take(items, drawn), epoch=settings.epochs, population=len(pool), settings=settings, purpose="evaluation"
    )


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
    drawn: Sequence[Item], *, epoch: int, population: int, settings: LearningSettings, purpose: str
) -> Cohort:
    """Return drawn items as a cohort: cut into batches, with the record of the draw."""
    step, target = settings.batch_size, settings.actors_per_item
    low, high = settings.instance_bounds if settings.enabled else (target, target)
    times: Counter[str] = Counter()
    draws = []
    for item in drawn:
        draws.append(times[item.id])
        times[item.id] += 1
    batches = tuple(tuple(drawn[start : start + step]) for start in range(0, len(drawn), step))
    metadata = {
        "purpose": purpose,
        "epoch": epoch,
        "seed": settings.seed,
        "night": settings.night or 0,
        "with_replacement": settings.with_replacement and purpose == "learn",
        "population": population,
        "requested": settings.sample_size,
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
