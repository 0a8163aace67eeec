"""Index the items of a dataset too large for memory: ids, positions and digests; items are read again on access.

The functions below take sequences of items in memory as well, with the same results.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from tfgrpo.pipelines.datasets.items import Item, content_digest, item_of, text_digest
from tfgrpo.pipelines.datasets.sources import RowSource, row_changed
from tfgrpo.pipelines.settings.data import FieldMap

_CHUNK = 256
"""Items read together by an iteration over all."""


def _numbers() -> array[int]:
    return array("Q")


@dataclass(frozen=True, slots=True)
class ItemIndex:
    """The items of a source in its order: their ids and 40 bytes each."""

    ids: list[str] = field(default_factory=list)
    positions: array[int] = field(default_factory=_numbers)
    lines: array[int] = field(default_factory=_numbers)
    numbers: array[int] = field(default_factory=_numbers)
    texts: array[int] = field(default_factory=_numbers)
    contents: array[int] = field(default_factory=_numbers)

    def add(self, item: Item, *, position: int, line: int, number: int) -> None:
        """Append an item of the source."""
        self.ids.append(item.id)
        self.positions.append(position)
        self.lines.append(line)
        self.numbers.append(number)
        self.texts.append(text_digest(item))
        self.contents.append(content_digest(item))


@dataclass(frozen=True, slots=True, eq=False)
class StoredItems(Sequence[Item]):
    """Some or all items of a source, read again on every access.

    Raise ``DatasetError`` for an item that has changed since it was indexed.
    """

    source: RowSource
    fields: FieldMap
    table: ItemIndex
    chosen: Sequence[int]
    """Which of the indexed items, in this order."""

    def __len__(self) -> int:
        return len(self.chosen)

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

    def pick(self, indices: Sequence[int]) -> StoredItems:
        """Return some of these items without reading them."""
        return StoredItems(self.source, self.fields, self.table, array("Q", (self.chosen[each] for each in indices)))

    def take(self, indices: Sequence[int]) -> tuple[Item, ...]:
        """Return some of these items, read together."""
        wanted = [self.chosen[each] for each in indices]
        rows = self.source.values_at([self.table.positions[each] for each in wanted])
        return tuple(self._checked(each, values) for each, values in zip(wanted, rows, strict=True))

    def _checked(self, entry: int, values: Mapping[str, Any]) -> Item:
        table = self.table
        where = self.source.where(table.positions[entry], table.lines[entry])
        item = item_of(values, self.fields, number=table.numbers[entry], source=where)
        if content_digest(item) != table.contents[entry]:
            raise row_changed(where)
        return item


def ids_of(items: Sequence[Item]) -> Sequence[str]:
    """Return the ids without reading any item."""
    if isinstance(items, StoredItems):
        return [items.table.ids[each] for each in items.chosen]
    return [item.id for item in items]


def texts_of(items: Sequence[Item]) -> Sequence[int]:
    """Return a digest of each item's question: equal for items that ask the same in the same words."""
    if isinstance(items, StoredItems):
        return array("Q", (items.table.texts[each] for each in items.chosen))
    return array("Q", map(text_digest, items))


def pick(items: Sequence[Item], indices: Sequence[int]) -> Sequence[Item]:
    """Return some of the items; stored ones stay stored."""
    return items.pick(indices) if isinstance(items, StoredItems) else tuple(items[each] for each in indices)


def take(items: Sequence[Item], indices: Sequence[int]) -> tuple[Item, ...]:
    """Return some of the items in memory."""
    return items.take(indices) if isinstance(items, StoredItems) else tuple(items[each] for each in indices)


def equals(keys: Sequence[int]) -> list[list[int]]:
    """Return the indices of keys that occur more than once, grouped by key, in order of first occurrence."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    groups: list[list[int]] = []
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or keys[order[end]] != keys[order[start]]:
            if end - start > 1:
                groups.append(order[start:end])
            start = end
    return sorted(groups)
