"""Read the data of a run, from a split dataset, two datasets or a staged mix, and draw its cohorts by seed.

A dataset is split into learning and held-out items by a stable hash of their ids, the same in every run. Items with the
same text go to the same side, by the smallest of their ids: otherwise a lesson about one would be measured on the other.
So a repeat added under a smaller id may move the older item. Two datasets may share no id or text. Every item is drawn once
before any is drawn again, in an order that does not depend on the dataset's.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from tfgrpo.pipelines.datasets.datasets import Dataset, read_dataset, shipped_dataset
from tfgrpo.pipelines.datasets.items import Item, same_questions, text_digest
from tfgrpo.pipelines.settings.tree import MAX_GROUPS, LearningSettings, Settings
from tfgrpo.rewarders.registry import COMPARING
from tfgrpo.stores.errors import CappedProblems, DatasetError, Problem, ProblemCollector, SettingsError
from tfgrpo.stores.json_values import stream
from tfgrpo.stores.text import pluralize

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.items import LearningMix


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
    # Learning epochs of the earlier nights.
    before = (settings.night or 0) * max(settings.epochs - 1, 1)
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
        raise SettingsError.one("dataset.sealed", "no sealed items", "a share of the held-out items")
    return cohort_of([items[each] for each in _by_id(items)], settings, "sealed", population=len(items), actors=actors)


def _by_id(items: Sequence[Item]) -> list[int]:
    return sorted(range(len(items)), key=lambda index: items[index].id)


def _consecutive(pool: Sequence[int], size: int, seed: int) -> Iterator[list[int]]:
    # Always `size` different ones, out of shuffles of the pool, without end.
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
    times, draws = Counter[str](), list[int]()
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
        "assignments": {"min_instances": target, "max_instances": target, "target": target, "group_index": list(range(target))},
    }
    return Cohort(tuple(drawn), batches, tuple(draws), metadata)


MIN_LEARN = 1
MIN_HELD_OUT = 2
"""An interval of a paired difference needs two pairs."""
# With fewer, the interval of a gain is wider than most gains.
_FEW_SEALED = 50
_SALT = "tfgrpo held out\x1f"
_SEALING_SALT = "tfgrpo sealed\x1f"


@dataclass(frozen=True, slots=True)
class Split:
    """Items to learn on and items to measure on, each in the given order. No item is in both."""

    learn: Sequence[Item]
    held_out: Sequence[Item]


def split_items(items: Sequence[Item], held_out: float) -> Split:
    """Hold out about the share ``held_out`` of the items. Raise ``DatasetError`` if a side is too small."""
    split = Split(*_sides(items, held_out, _SALT))
    _refuse_too_few(split, f"{pluralize(len(items), 'item')}, {len(split.held_out)} of them held out")
    return split


def _sides(items: Sequence[Item], share: float, salt: str) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    # By a hash of their ids, about this share on the second side; equal texts stay together.
    deciding = {index: min(items[each].id for each in group) for group in same_questions(items) for index in group}
    sides: tuple[list[Item], list[Item]] = ([], [])
    for index, item in enumerate(items):
        digest = hashlib.sha256(f"{salt}{deciding.get(index, item.id)}".encode()).digest()
        # In [0, 1), by the id alone.
        position = int.from_bytes(digest[:6], "big") / 2**48
        sides[position < share].append(item)
    return tuple(sides[False]), tuple(sides[True])


def pair_datasets(learn: Sequence[Item], held_out: Sequence[Item]) -> Split:
    """Pair two datasets. Raise ``DatasetError`` for every held-out item whose id or text is learned on."""
    ids = {item.id: item for item in learn}
    texts = {text_digest(item): item for item in learn}
    accepted = "held-out items that are not learned on"
    problems = CappedProblems()
    for item in held_out:
        if item.id in ids:
            problems.add(Problem(item.source, f"the id {item.id!r}, also at {ids[item.id].source}", accepted))
        elif twin := texts.get(text_digest(item)):
            problems.add(Problem(item.source, f"the text of item {twin.id!r} at {twin.source}", accepted))
    problems.raise_problems(DatasetError, "evaluation dataset")
    split = Split(learn, held_out)
    _refuse_too_few(split, f"{pluralize(len(learn), 'item')} to learn on and {len(held_out)} held out")
    return split


def _refuse_too_few(split: Split, received: str) -> None:
    if len(split.learn) < MIN_LEARN or len(split.held_out) < MIN_HELD_OUT:
        accepted = f"at least {MIN_LEARN} to learn on and {MIN_HELD_OUT} held out: more items, or --eval-dataset"
        raise DatasetError.one("dataset", received, accepted)


@dataclass(frozen=True, slots=True)
class RunData:
    """The learning and held-out items of a run."""

    split: Split
    warnings: tuple[str, ...]
    domains: frozenset[str]
    mix: LearningMix | None
    """None for a dataset."""
    sealed: Sequence[Item] = ()
    """Items that only ``tfgrpo test`` attempts."""

    def cohort(self, epoch: int, settings: Settings) -> Cohort:
        """Return the items of a learning epoch."""
        return next(self._drawn(range(epoch, epoch + 1), settings.tfgrpo))

    def cohorts(self, epochs: int, settings: Settings) -> list[Cohort]:
        """Return epochs 1 to ``epochs``. Raise ``SettingsError`` for too many groups."""
        learning = settings.tfgrpo
        size = learning.sample_size
        groups = epochs * (min(size, len(self.split.learn)) if self.mix is None else size)
        if groups > MAX_GROUPS:
            received = f"{groups:,} groups in {pluralize(epochs, 'learning epoch')}"
            raise SettingsError.one("tfgrpo.sample_size", received, f"at most {MAX_GROUPS:,} groups in a run")
        return list(self._drawn(range(1, epochs + 1), learning))

    def _drawn(self, epochs: range, settings: LearningSettings) -> Iterator[Cohort]:
        if self.mix is None:
            yield from draw_cohorts(self.split.learn, epochs=epochs, settings=settings)
            return
        for epoch in epochs:
            drawn, draws = self.mix.draw(epoch, settings)
            cohort = cohort_of(drawn, settings, "learn", population=len(self.split.learn), epoch=epoch)
            yield replace(cohort, metadata={**cohort.metadata, "with_replacement": True, "mix": draws})


def read_data(settings: Settings, mix: LearningMix | None) -> RunData:
    """Return the data of a run on a staged mix, or without one on one or two datasets, sealed as the settings say.

    Raise ``DatasetError`` or ``SettingsError``.
    """
    read = read_every(settings, mix)
    comparing = [entry.name for entry in settings.rewarders if entry.weight > 0.0 and entry.name in COMPARING]
    bare = [dataset for dataset in read if not dataset.answers]
    # Every paid rollout would be ungraded.
    if comparing and bare:
        answers = f"answers in the field {settings.dataset.fields.answer!r}"
        accepted = f"{answers}, another name by dataset.fields.answer, or no {comparing[0]} rewarder"
        raise DatasetError([Problem(dataset.name, "no answer in any item", accepted) for dataset in bare])
    one, *other = (dataset.items for dataset in read)
    split = pair_datasets(one, *other) if other else split_items(one, settings.dataset.held_out)
    domains = frozenset().union(*(each.domains for each in read))
    warnings = tuple(warning for each in read for warning in each.warnings)
    if mix is not None:
        mix = replace(mix, items=split.learn)
        mix.refuse_empty(settings.tfgrpo)
        warnings = (*mix.advice(settings.tfgrpo), *warnings)
    share, sealed = settings.dataset.sealed, tuple[Item, ...]()
    if share:
        held_out, sealed = _sides(split.held_out, share, _SEALING_SALT)
        if min(len(held_out), len(sealed)) < MIN_HELD_OUT:
            received = f"{share:g}: {len(sealed)} of {pluralize(len(split.held_out), 'held-out item')}"
            raise DatasetError.one("dataset.sealed", received, f"at least {MIN_HELD_OUT} sealed and as many others")
        if len(sealed) < _FEW_SEALED:
            few = f"{len(sealed)} sealed items, fewer than {_FEW_SEALED}, prove a large gain only"
            warnings += (f"{few}, and each library is tested once",)
        split = Split(split.learn, held_out)
    return RunData(split, warnings, domains, mix, sealed)


def read_every(settings: Settings, mix: LearningMix | None) -> tuple[Dataset, ...]:
    """Return the data of a mix, or one or two datasets, whole. Raise ``DatasetError`` with all problems."""
    if mix is not None:
        return (mix.data(),)
    dataset, checks = settings.dataset, ProblemCollector()
    own = [each for each in (dataset.path, dataset.eval_path) if each is not None and dataset.path is not None]
    paths = own or [str(shipped_dataset(settings.simulated.world))]
    read = [data for path in paths for data in checks.run(read_dataset, path, dataset.fields)]
    checks.raise_problems()
    return tuple(read)
