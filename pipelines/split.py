"""Which items are held out? A stable hash of the item id decides, so that the answer never changes between runs.

Seed and file order play no part. Items with the same text go to the same side, by the smallest of their ids: otherwise
a lesson about the one would be measured on the other. It refuses two sides that share an id or a text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.datasets import text_key
from pipelines.items import Item
from pipelines.problems import capped
from stores.errors import DatasetError, Problem

MIN_LEARN = 1
MIN_HELD_OUT = 2
"""An interval of a paired difference needs two pairs."""
_SALT = "tfgrpo held out\x1f"


@dataclass(frozen=True, slots=True)
class Split:
    """Items to learn on and items to measure on, each in the order given. No item is in both."""

    learn: tuple[Item, ...]
    held_out: tuple[Item, ...]


def split_items(items: Sequence[Item], held_out: float) -> Split:
    """Hold out about the share ``held_out`` of the items. Raises ``DatasetError`` when a side comes out too small."""
    owner: dict[str, str] = {}
    for item in items:
        key = text_key(item)
        owner[key] = min(item.id, owner.get(key, item.id))
    away = [_hashed(owner[text_key(item)]) < held_out for item in items]
    split = Split(
        learn=tuple(item for item, out in zip(items, away, strict=True) if not out),
        held_out=tuple(item for item, out in zip(items, away, strict=True) if out),
    )
    _refuse_too_few(split, f"{len(items)} items of which {len(split.held_out)} are held out")
    return split


def pair_datasets(learn: Sequence[Item], held_out: Sequence[Item]) -> Split:
    """Two datasets as given. Raises ``DatasetError`` for every held-out item whose id or text is learned on."""
    ids = {item.id: item for item in learn}
    texts = {text_key(item): item for item in learn}
    accepted = "held-out items that are not learned on"
    problems = []
    for item in held_out:
        if item.id in ids:
            problems.append(Problem(item.source, f"the id {item.id!r}, also at {ids[item.id].source}", accepted))
        elif text_key(item) in texts:
            twin = texts[text_key(item)]
            problems.append(Problem(item.source, f"the text of item {twin.id!r} at {twin.source}", accepted))
    if problems:
        raise DatasetError(capped(problems, "evaluation dataset"))
    split = Split(tuple(learn), tuple(held_out))
    _refuse_too_few(split, f"{len(learn)} items to learn on and {len(held_out)} held out")
    return split


def _refuse_too_few(split: Split, given: str) -> None:
    if len(split.learn) < MIN_LEARN or len(split.held_out) < MIN_HELD_OUT:
        accepted = f"at least {MIN_LEARN} to learn on and {MIN_HELD_OUT} held out: more items, or --eval-dataset"
        raise DatasetError.one("dataset", given, accepted)


def _hashed(item_id: str) -> float:
    """A number in [0, 1) that depends on the id alone."""
    digest = hashlib.sha256(f"{_SALT}{item_id}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
