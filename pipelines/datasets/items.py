"""Define an item, one task of a dataset, read it from a row by the mapped names of its fields, and index many.

Items of a dataset too large for memory are indexed by id, position and digest, and read again on access. The functions on
sequences take items in memory as well, with the same results.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, overload

from tfgrpo.pipelines.datasets.sources import RowSource, row_changed
from tfgrpo.pipelines.problems import quoted_names
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.canonical import key_digest
from tfgrpo.stores.errors import DatasetError
from tfgrpo.stores.numeric import is_number

_CHUNK = 256
"""Items read together by an iteration over all."""


@dataclass(frozen=True, slots=True)
class Item:
    """One task. ``answer`` is shown to rewarders and to the reflecting model, never to an actor."""

    id: str
    prompt: str
    answer: str
    """Empty when there is no reference answer."""
    system_prompt: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    source: str = ""
    """``path:line`` it was read from."""


def item_of(values: Mapping[str, Any], fields: FieldMap, *, number: int, source: str) -> Item:
    """Return the item of a row; ``number`` is its id where ``fields.id`` is None.

    Raise ``DatasetError`` naming the field.
    """
    text = partial(_text, values, source)
    return Item(
        id=str(number) if fields.id is None else text(fields.id, numbers=True, remedy=fields.remedy(fields.id)),
        prompt=text(fields.prompt, remedy=fields.remedy(fields.prompt)),
        answer=text(fields.answer, numbers=True),
        system_prompt=text(fields.system_prompt),
        metadata=_metadata(values, source, fields.metadata),
        domain=text(fields.domain),
        source=source,
    )


def _text(values: Mapping[str, Any], source: str, name: str, *, numbers: bool = False, remedy: str = "") -> str:
    """Return a field as text: absent and null are empty, unless there is a ``remedy``; a number becomes its text."""
    value = _value(values, name)
    accepted = f"{'text or a number' if numbers else 'text'} in the field {name!r}"
    if value is None and remedy:
        given = (
            f"null in the field {name!r}" if name in values else f"no {name!r} among the fields {quoted_names(values)}"
        )
        raise DatasetError.one(source, given, f"{accepted}, {remedy}")
    if value is None:
        return ""
    if numbers and is_number(value, allow_nan=False):
        value = str(value)
    if not isinstance(value, str):
        given = str(value) if isinstance(value, float) else type(value).__name__
        raise DatasetError.one(source, f"{given} in the field {name!r}", accepted)
    if remedy and not value.strip():
        raise DatasetError.one(source, f"no {name!r}", f"{accepted} that is not empty")
    return value


def _metadata(values: Mapping[str, Any], source: str, name: str) -> Mapping[str, Any]:
    value = _value(values, name)
    if value is not None and not isinstance(value, dict):
        given = f"{type(value).__name__} in the field {name!r}"
        raise DatasetError.one(source, given, f"a JSON object in the field {name!r}")
    return value or {}


def _value(values: Mapping[str, Any], name: str) -> object:
    """Return the column of exactly this name, else the value at the dotted path; None if absent."""
    if name in values or "." not in name:
        return values.get(name)
    value: object = values
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def text_digest(item: Item) -> int:
    """Return 64 bits of the digest of the prompts, with white space folded: equal for the same question."""
    return key_digest("\x1f".join(" ".join(text.split()) for text in (item.system_prompt, item.prompt))) >> 64


def content_digest(item: Item) -> int:
    """Return 64 bits of the digest of all fields that a run uses."""
    return key_digest("\x1f".join((*item_texts(item), item.domain))) >> 64


def item_texts(item: Item) -> list[str]:
    """Return the fields that actors, rewarders and graders read; metadata last, and only if there is any."""
    metadata = [json.dumps(dict(item.metadata), sort_keys=True, default=str)] if item.metadata else []
    return [item.id, item.prompt, item.answer, item.system_prompt, *metadata]


_numbers = partial(array, "Q")


@dataclass(frozen=True, slots=True)
class ItemIndex:
    """The items of a source in its order: their ids and 32 bytes each."""

    ids: list[str] = field(default_factory=list)
    positions: array[int] = field(default_factory=_numbers)
    lines: array[int] = field(default_factory=_numbers)
    texts: array[int] = field(default_factory=_numbers)
    contents: array[int] = field(default_factory=_numbers)

    def add(self, item: Item, *, position: int, line: int) -> None:
        """Append an item of the source."""
        self.ids.append(item.id)
        self.positions.append(position)
        self.lines.append(line)
        self.texts.append(text_digest(item))
        self.contents.append(content_digest(item))


@dataclass(frozen=True, slots=True, eq=False)
class StoredItems(Sequence[Item]):
    """Some or all items of a source, read again on every access.

    Raise ``DatasetError`` for an item that has changed since it was indexed.
    """

    source: RowSource
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
        return StoredItems(self.source, self.table, array("Q", (self.chosen[each] for each in indices)))

    def take(self, indices: Sequence[int]) -> tuple[Item, ...]:
        """Return some of these items, read together."""
        wanted = [self.chosen[each] for each in indices]
        rows = self.source.values_at([self.table.positions[each] for each in wanted])
        return tuple(self._checked(each, values) for each, values in zip(wanted, rows, strict=True))

    def _checked(self, entry: int, values: Mapping[str, Any]) -> Item:
        table = self.table
        where = self.source.where(table.positions[entry], table.lines[entry])
        item = item_of(values, self.source.fields, number=entry, source=where)
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
    groups = ([*group] for _, group in groupby(order, key=keys.__getitem__))
    return sorted(group for group in groups if len(group) > 1)
