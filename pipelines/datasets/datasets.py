"""Read a dataset into items, report every bad row at once, and warn of what is unusual.

An unknown kind of file, a missing column, a repeated id or a line that does not parse is an error with ``path:line``.
Equal prompts and missing answers are warnings. A large dataset is indexed instead of kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.pipelines.datasets.items import Item, ItemIndex, StoredItems, equals, ids_of, item_of, item_texts, texts_of
from tfgrpo.pipelines.datasets.sources import Row, RowSource, open_source
from tfgrpo.pipelines.problems import CappedProblems
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.text import pluralize

_SHIPPED = Path(__file__).parent.parent / "data"
_SHOWN = 5
_MAX_CHARS = 32_000_000
"""Most characters of a dataset in memory; of a larger one only an index is."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The items of one dataset, in its order."""

    name: str
    """Path, or the name of a dataset of the hub."""
    items: Sequence[Item]
    """In memory, or ``StoredItems`` when they are too many."""
    warnings: tuple[str, ...]
    answers: int
    """Number of items with a reference answer."""
    domains: frozenset[str]


def load_dataset(path: str | Path, fields: FieldMap | None = None) -> tuple[Item, ...]:
    """Return the items of a dataset in memory. Raise ``DatasetError`` with every bad row, at most fifty of them."""
    return tuple(read_dataset(path, fields).items)


def read_dataset(path: str | Path, fields: FieldMap | None = None, *, held_chars: int = _MAX_CHARS) -> Dataset:
    """Return the items of a dataset with its warnings. Raise ``DatasetError`` as ``load_dataset`` does.

    ``held_chars``: the longest dataset, in characters of prompts and answers, whose items stay in memory.
    """
    return read_source(open_source(str(path), fields or FieldMap()), held_chars=held_chars)


def read_source(source: RowSource, *, held_chars: int = _MAX_CHARS) -> Dataset:
    """Return the items of a source. Raise ``DatasetError`` as ``load_dataset`` does."""
    reader = _Reader(source, held_chars)
    for row in source.rows():
        if isinstance(row, Problem):
            reader.problems.add(row)
        else:
            reader.add(row)
    return reader.dataset()


def shipped_dataset(world: str) -> Path:
    """Return the path of the items of a simulated world."""
    return _SHIPPED / f"{world}.jsonl"


def shipped_held_out(world: str) -> Path | None:
    """Return the path of a simulated world's held-out items; None if they are split off its items."""
    path = _SHIPPED / f"{world}-held-out.jsonl"
    return path if path.is_file() else None


class _Reader:
    """Collects items, problems and statistics of one source."""

    def __init__(self, source: RowSource, held_chars: int) -> None:
        self._source = source
        self._index = ItemIndex()
        self._kept: list[Item] | None = []
        self._chars_left = held_chars
        self._first_with_id: dict[str, int] = {}
        self.problems = CappedProblems()
        self._answers = 0
        self._domains: set[str] = set()

    def add(self, row: Row) -> None:
        """Record the item of the next row, or its problems."""
        where = self._source.where(row.position, row.line)
        try:
            item = item_of(row.values, self._source.fields, number=len(self._index.ids), source=where)
        except DatasetError as error:
            for problem in error.problems:
                self.problems.add(problem)
            return
        index = self._index
        earlier = self._first_with_id.setdefault(item.id, len(index.ids))
        if earlier < len(index.ids):
            line, position = index.lines[earlier], index.positions[earlier]
            same_file = self._source.where(position, row.line) == where
            first = f"of line {line}" if same_file else f"at {self._source.where(position, line)}"
            self.problems.add(Problem(where, f"the id {item.id!r} {first} again", "an id of its own for every item"))
        index.add(item, position=row.position, line=row.line)
        self._count(item)

    def dataset(self) -> Dataset:
        """Return the dataset. Raise ``DatasetError`` with all problems."""
        name = self._source.name
        if not self._index.ids and not self.problems.total:
            self.problems.add(Problem(name, "no items", "at least one line with an item"))
        self.problems.raise_problems(DatasetError, name)
        stored = StoredItems(self._source, self._index, range(len(self._index.ids)))
        items = stored if self._kept is None else tuple(self._kept)
        return Dataset(name, items, tuple(self._warnings(items)), self._answers, frozenset(self._domains))

    def _count(self, item: Item) -> None:
        self._answers += bool(item.answer.strip())
        self._domains.add(item.domain)
        if self._kept is not None:
            self._chars_left -= sum(map(len, item_texts(item)))
            self._kept.append(item)
            if self._chars_left < 0:
                self._kept = None  # from here on items are read again when they are used

    def _warnings(self, items: Sequence[Item]) -> Iterator[str]:
        path = self._source.name
        yield from self._source.warnings
        same, ids = equals(texts_of(items)), ids_of(items)
        shown = "; ".join(", ".join(ids[each] for each in group[:_SHOWN]) for group in same[:_SHOWN])
        if len(same) == 1:
            more = f" and {len(same[0]) - _SHOWN:,} more" if len(same[0]) > _SHOWN else ""
            yield f"{path}: items {shown}{more} ask the same in the same words"
        elif same:
            more = f" and {len(same) - _SHOWN:,} more" if len(same) > _SHOWN else ""
            yield f"{path}: {len(same):,} sets of items ask the same in the same words: {shown}{more}"
        if without := len(items) - self._answers:
            yield f"{path}: {without:,} of {pluralize(len(items), 'item')} without an answer to compare with"
