"""Which items make up the cohort of an epoch? A seeded draw: every item once before any comes again.

The order of the dataset file plays no part, and nothing is drawn from global randomness. It refuses no size: where
there are fewer items than asked for, a draw without replacement is all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.items import Item
from pipelines.settings import LearningSettings
from stores.seeds import stream


@dataclass(frozen=True, slots=True)
class Cohort:
    """The items of one epoch in the order they are tried, cut into batches."""

    items: tuple[Item, ...]
    batches: tuple[tuple[Item, ...], ...]
    draws: tuple[int, ...]
    """For each of ``items``, how often it was drawn before in this epoch: all 0 without replacement."""
    metadata: Mapping[str, Any]
    """How the draw was made, as JSON for the manifest (requirement 46)."""


def draw_cohort(items: Sequence[Item], *, epoch: int, settings: LearningSettings) -> Cohort:
    """The cohort of epoch 1, 2, …: ``sample_size`` items, or all when there are fewer.

    Epochs share one endless sequence of shuffles and take consecutive parts of it; an item that the epoch has already
    is left out at the seam between two shuffles. With ``with_replacement``, ``sample_size`` independent draws from all.
    """
    pool = sorted(items, key=lambda item: item.id)
    if settings.with_replacement and pool:
        drawn = stream(settings.seed, "cohort", "with replacement", epoch).choices(pool, k=settings.sample_size)
    else:
        drawn = _consecutive(pool, min(settings.sample_size, len(pool)), epoch, settings.seed)
    return _cohort(drawn, epoch=epoch, population=len(pool), settings=settings, purpose="learn")


def draw_evaluation(items: Sequence[Item], *, settings: LearningSettings) -> Cohort:
    """The held-out items of the sweep: all, or ``sample_size`` of them drawn by the seed."""
    pool = sorted(items, key=lambda item: item.id)
    size = min(settings.sample_size, len(pool))
    drawn = stream(settings.seed, "evaluation").sample(pool, size)
    return _cohort(drawn, epoch=settings.epochs, population=len(pool), settings=settings, purpose="evaluation")


def _consecutive(pool: Sequence[Item], size: int, epoch: int, seed: int) -> list[Item]:
    waiting: list[Item] = []
    shuffles = _shuffles(pool, seed)
    drawn: list[Item] = []
    for _ in range(epoch):
        drawn, waiting = _take(waiting, size, shuffles)
    return drawn


def _take(waiting: list[Item], size: int, shuffles: Iterator[list[Item]]) -> tuple[list[Item], list[Item]]:
    drawn, rest = waiting[:size], waiting[size:]
    if len(drawn) == size:
        return drawn, rest
    seen = {item.id for item in drawn}
    fresh = next(shuffles)
    more = [item for item in fresh if item.id not in seen][: size - len(drawn)]
    taken = {item.id for item in more}
    return drawn + more, [item for item in fresh if item.id not in taken]


def _shuffles(pool: Sequence[Item], seed: int) -> Iterator[list[Item]]:
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


def _cohort(drawn: Sequence[Item], *, epoch: int, population: int, settings: LearningSettings, purpose: str) -> Cohort:
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
