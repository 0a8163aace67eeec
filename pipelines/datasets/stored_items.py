"""How are items kept that do not fit into memory? By an index: ids, places and digests; the items are read when needed.

Every function here takes plain sequences of items as well, and gives the same answers for them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from tfgrpo.pipelines.datasets.item_fields import content_digest, item_of, text_digest
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.datasets.source_base import RowSource, gone
from tfgrpo.pipelines.settings.data import FieldMap

_CHUNK = 256
"""Items read at once where all are looked at in turn."""


@dataclass(frozen=True, slots=True)
class ItemIndex:
    """Where the items of a source stand, in its order: their ids and 40 bytes each."""

    ids: list[str] = field(default_factory=list)
    places: array[int] = field(default_factory=lambda: array("Q"))
    lines: array[int] = field(default_factory=lambda: array("Q"))
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    texts: array[int] = field(default_factory=lambda: array("Q"))
    contents: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, item: Item, *, place: int, line: int, number: int) -> None:
        """Note an item of the source."""
        self.ids.append(item.id)
        self.places.append(place)
        self.lines.append(line)
        self.numbers.append(number)
        self.texts.append(text_digest(item))
        self.contents.append(content_digest(item))


@dataclass(frozen=True, slots=True, eq=False)
class StoredItems(Sequence[Item]):
    """Items of a source, or some of them, each read anew whenever it is asked for.

    An item that is no longer what it was when the index was made raises ``DatasetError``.
    """

    source: RowSource
    fields: FieldMap
    table: ItemIndex
    positions: Sequence[int]
    """Which of the indexed items, in this order."""

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> StoredItems: ...
    def __getitem__(self, index: int | slice) -> Item | StoredItems:
        if isinstance(index, slice):
            return self.pick(range(*index.indices(len(self))))
        return self.take([index])[0]

    def __iter__(self) -> Iterator[Item]:
        for first in range(0, len(self), _CHUNK):
            yield from self.take(range(first, min(first + _CHUNK, len(self))))

    def pick(self, places: Sequence[int]) -> StoredItems:
        """Some of these items; none of them is read."""
        return StoredItems(self.source, self.fields, self.table, array("Q", (self.positions[each] for each in places)))

    def take(self, places: Sequence[int]) -> tuple[Item, ...]:
        """Some of these items, read together."""
        wanted = [self.positions[each] for each in places]
        rows = self.source.values_at([self.table.places[each] for each in wanted])
        return tuple(self._checked(each, values) for each, values in zip(wanted, rows, strict=True))

    def _checked(self, position: int, values: Mapping[str, Any]) -> Item:
        table = self.table
        where = self.source.where(table.places[position], table.lines[position])
        item = item_of(values, self.fields, number=table.numbers[position], source=where)
        if content_digest(item) != table.contents[position]:
            raise gone(where)
        return item


def ids_of(items: Sequence[Item]) -> Sequence[str]:
    """The ids, without reading any item."""
    if isinstance(items, StoredItems):
        return [items.table.ids[each] for each in items.positions]
    return [item.id for item in items]


def texts_of(items: Sequence[Item]) -> Sequence[int]:
    """A digest of what each item asks: equal for items that ask the same in the same words."""
    if isinstance(items, StoredItems):
        return array("Q", (items.table.texts[each] for each in items.positions))
    return array("Q", map(text_digest, items))


def pick(items: Sequence[Item], places: Sequence[int]) -> Sequence[Item]:
    """Some of the items; those that are stored stay so."""
    return items.pick(places) if isinstance(items, StoredItems) else tuple(items[each] for each in places)


def take(items: Sequence[Item], places: Sequence[int]) -> tuple[Item, ...]:
    """Some of the items, in memory."""
    return items.take(places) if isinstance(items, StoredItems) else tuple(items[each] for each in places)


def equals(keys: Sequence[int]) -> list[list[int]]:
    """Places of keys that occur more than once, those of each together, in the order in which they first occur."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    groups: list[list[int]] = []
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or keys[order[end]] != keys[order[start]]:
            if end - start > 1:
                groups.append(order[start:end])
            start = end
    return sorted(groups)
