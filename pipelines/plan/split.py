"""Split items into learning and held-out ones by a stable hash of their ids, the same in every run.

Items with the same text go to the same side, by the smallest of their ids: otherwise a lesson about one would be
measured on the other. So a repeat added under a smaller id may move the older item. Two datasets may share no id or text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.datasets.stored_items import equals, ids_of, pick, texts_of
from tfgrpo.pipelines.problems import CappedProblems
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.text import pluralize

MIN_LEARN = 1
MIN_HELD_OUT = 2
"""An interval of a paired difference needs two pairs."""
_SALT = "tfgrpo held out\x1f"


@dataclass(frozen=True, slots=True)
class Split:
    """Items to learn on and items to measure on, each in the given order. No item is in both."""

    learn: Sequence[Item]
    held_out: Sequence[Item]


def split_items(items: Sequence[Item], held_out: float) -> Split:
    """Hold out about the share ``held_out`` of the items. Raise ``DatasetError`` if a side is too small."""
    ids = ids_of(items)
    deciding = {index: min(ids[each] for each in group) for group in equals(texts_of(items)) for index in group}
    sides: tuple[list[int], list[int]] = ([], [])
    for index, name in enumerate(ids):
        digest = hashlib.sha256(f"{_SALT}{deciding.get(index, name)}".encode()).digest()
        share = int.from_bytes(digest[:6], "big") / 2**48  # in [0, 1), by the id alone
        sides[share < held_out].append(index)
    split = Split(learn=pick(items, sides[False]), held_out=pick(items, sides[True]))
    _refuse_too_few(split, f"{pluralize(len(items), 'item')}, {len(split.held_out)} of them held out")
    return split


def pair_datasets(learn: Sequence[Item], held_out: Sequence[Item]) -> Split:
    """Pair two datasets. Raise ``DatasetError`` for every held-out item whose id or text is learned on."""
    ids = {name: index for index, name in enumerate(ids_of(learn))}
    texts = {text: index for index, text in enumerate(texts_of(learn))}
    accepted = "held-out items that are not learned on"
    problems = CappedProblems()
    for index, (name, text) in enumerate(zip(ids_of(held_out), texts_of(held_out), strict=True)):
        if name in ids:
            given = f"the id {name!r}, also at {learn[ids[name]].source}"
            problems.add(Problem(held_out[index].source, given, accepted))
        elif text in texts:
            twin = learn[texts[text]]
            problems.add(Problem(held_out[index].source, f"the text of item {twin.id!r} at {twin.source}", accepted))
    problems.raise_problems(DatasetError, "evaluation dataset")
    split = Split(learn, held_out)
    _refuse_too_few(split, f"{pluralize(len(learn), 'item')} to learn on and {len(held_out)} held out")
    return split


def _refuse_too_few(split: Split, given: str) -> None:
    if len(split.learn) < MIN_LEARN or len(split.held_out) < MIN_HELD_OUT:
        accepted = f"at least {MIN_LEARN} to learn on and {MIN_HELD_OUT} held out: more items, or --eval-dataset"
        raise DatasetError.one("dataset", given, accepted)
