"""Which items make up the cohort of an epoch? A seeded draw: every item once before any comes again.

The order of the dataset file plays no part, and nothing is drawn from global randomness. It refuses no size: where
there are fewer items than asked for, a draw without replacement is all of them.
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
    """The items of one epoch in the order they are tried, cut into batches."""

    items: tuple[Item, ...]
    batches: tuple[tuple[Item, ...], ...]
    draws: tuple[int, ...]
    """For each of ``items``, how often it was drawn before in this epoch: all 0 without replacement."""
    metadata: Mapping[str, Any]
    """How the draw was made, as JSON for the manifest (requirement 46)."""


def draw_cohort(
    items: Sequence[Item], *, epoch: int, settings: LearningSettings, weights: Sequence[float] | None = None
) -> Cohort:
    """The cohort of epoch 1, 2, …: ``sample_size`` items, or all when there are fewer.

    Epochs, also those of later nights, share one endless sequence of shuffles and take consecutive parts of it; an item
    that the epoch has already is left out at the seam between two shuffles. With ``with_replacement``, ``sample_size``
    independent draws from all.
    With ``weights``, one for each item and above 0, every epoch draws for itself, in proportion to them.
    """
    pool = _by_id(items)
    drawn = next(_draws(pool, settings, weights, first=epoch))
    return cohort_of(take(items, drawn), epoch=epoch, population=len(pool), settings=settings, purpose="learn")


def draw_cohorts(
    items: Sequence[Item], *, epochs: int, settings: LearningSettings, weights: Sequence[float] | None = None
) -> Iterator[Cohort]:
    """The cohorts of epochs 1 to ``epochs``, each as ``draw_cohort`` draws it, without shuffling again for each."""
    pool = _by_id(items)
    for epoch, drawn in enumerate(islice(_draws(pool, settings, weights), epochs), start=1):
        yield cohort_of(take(items, drawn), epoch=epoch, population=len(pool), settings=settings, purpose="learn")


def _draws(
    pool: Sequence[int], settings: LearningSettings, weights: Sequence[float] | None, *, first: int = 1
) -> Iterator[list[int]]:
    """Places of the items of an epoch, and of every one after it."""
    seed, size = settings.seed_of("train"), min(settings.sample_size, len(pool))
    ordered = None if weights is None else [weights[place] for place in pool]
    if settings.with_replacement and pool:
        streams = (stream(seed, "cohort", "with replacement", epoch) for epoch in count(first))
        return (rng.choices(pool, weights=ordered, k=settings.sample_size) for rng in streams)
    if ordered is not None:
        streams = (stream(seed, "cohort", "weighted", epoch) for epoch in count(first))
        return ([pool[lot] for lot in weighted_draw(ordered, size, rng)] for rng in streams)
    return islice(_consecutive(pool, size, settings.seed), settings.epochs_before + first - 1, None)


def draw_evaluation(items: Sequence[Item], *, settings: LearningSettings) -> Cohort:
    """The held-out items of the sweep: all, or ``sample_size`` of them drawn by the seed."""
    pool = _by_id(items)
    size = min(settings.sample_size, len(pool))
    drawn = stream(settings.seed, "evaluation").sample(pool, size)
    return cohort_of(
        take(items, drawn), epoch=settings.epochs, population=len(pool), settings=settings, purpose="evaluation"
    )


def _by_id(items: Sequence[Item]) -> list[int]:
    """Places of the items in the order of their ids, in which that of the file plays no part."""
    ids = ids_of(items)
    return sorted(range(len(ids)), key=ids.__getitem__)


def _consecutive(pool: Sequence[int], size: int, seed: int) -> Iterator[list[int]]:
    waiting: list[int] = []
    shuffles = _shuffles(pool, seed)
    while True:
        drawn, waiting = _take(waiting, size, shuffles)
        yield drawn


def _take(waiting: list[int], size: int, shuffles: Iterator[list[int]]) -> tuple[list[int], list[int]]:
    drawn, rest = waiting[:size], waiting[size:]
    if len(drawn) == size:
        return drawn, rest
    seen = set(drawn)
    fresh = next(shuffles)
    more = [place for place in fresh if place not in seen][: size - len(drawn)]
    taken = set(more)
    return drawn + more, [place for place in fresh if place not in taken]


def _shuffles(pool: Sequence[int], seed: int) -> Iterator[list[int]]:
    turn = 0
    while True:
        fresh = list(pool)
        stream(seed, "cohort", "pass", turn).shuffle(fresh)
        yield fresh
        turn += 1


def _assignments(settings: LearningSettings) -> dict[str, Any]:
    """How many actors each item is assigned to, and by which index each is known (requirements 48, 56 and 57)."""
    target = settings.actors_per_item
    low, high = settings.instance_bounds if settings.enabled else (target, target)
    return {"min_instances": low, "max_instances": high, "target": target, "group_index": list(range(target))}


def cohort_of(
    drawn: Sequence[Item], *, epoch: int, population: int, settings: LearningSettings, purpose: str
) -> Cohort:
    """Items in the order they were drawn, cut into batches, with the story of the draw."""
    step = settings.batch_size
    counted: Counter[str] = Counter()
    draws = []
    for item in drawn:
        draws.append(counted[item.id])
        counted[item.id] += 1
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
        "distinct": len(counted),
        "batch_sizes": [len(batch) for batch in batches],
        "item_ids": [item.id for item in drawn],
        "assignments": _assignments(settings),
    }
    return Cohort(tuple(drawn), batches, tuple(draws), metadata)
