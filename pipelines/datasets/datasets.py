"""Which items does a dataset hold? Its rows read into ``Item``s, every bad row reported at once.

It refuses to guess: an unknown kind of file, a missing column, a repeated id or a line that does not parse is an error
that names ``path:line``. What is only odd (equal prompts, unused columns, missing answers) comes back as warnings. A
large dataset is not held: its items are read again when they are needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.pipelines.datasets.item_fields import item_of, text_key
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.datasets.rows import Row
from tfgrpo.pipelines.datasets.source_base import RowSource, field_names, first_part
from tfgrpo.pipelines.datasets.sources import open_source
from tfgrpo.pipelines.datasets.stored_items import ItemIndex, StoredItems, equals, ids_of, texts_of
from tfgrpo.pipelines.problems import did_you_mean
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.text import pluralize

__all__ = [
    "Dataset",
    "load_dataset",
    "read_dataset",
    "read_source",
    "shipped_dataset",
    "shipped_held_out",
    "text_key",
]

_SHIPPED = Path(__file__).parent.parent / "data"
_SHOWN = 5
_MAX_PROBLEMS = 50
_HELD_CHARS = 32_000_000
"""Most characters of a dataset that are held in memory; of a larger one only an index is."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The items of one dataset, in its order, and what is odd about them."""

    path: Path
    """As given; a name of the hub for what is no file."""
    items: Sequence[Item]
    """In memory, or read when asked for when they are too many."""
    warnings: tuple[str, ...]
    answers: int
    """Items that have an answer to compare with."""
    domains: frozenset[str]


def load_dataset(path: str | Path, fields: FieldMap | None = None) -> tuple[Item, ...]:
    """The items of a dataset, all in memory. Raises ``DatasetError`` with every bad row (fifty shown, the rest counted)."""
    return tuple(read_dataset(path, fields).items)


def read_dataset(path: str | Path, fields: FieldMap | None = None, *, held_chars: int = _HELD_CHARS) -> Dataset:
    """The items of a dataset together with its warnings. Raises ``DatasetError`` as ``load_dataset`` does.

    ``held_chars``: longest dataset, in characters of prompts and answers, whose items stay in memory.
    """
    fields = fields or FieldMap()
    return read_source(open_source(str(path), fields), fields, Path(path), held_chars=held_chars)


def read_source(source: RowSource, fields: FieldMap, path: Path, *, held_chars: int = _HELD_CHARS) -> Dataset:
    """The items of a source, called by ``path`` in messages. Raises ``DatasetError`` as ``load_dataset`` does."""
    reading = _Reading(source, fields, held_chars)
    for found in source.rows():
        reading.add(found)
    return reading.dataset(path)


def shipped_dataset(world: str) -> Path:
    """Path of the items of a simulated world."""
    return _SHIPPED / f"{world}.jsonl"


def shipped_held_out(world: str) -> Path | None:
    """Path of the held-out items that a simulated world brings in a file of their own; None: they are split off."""
    path = _SHIPPED / f"{world}-held-out.jsonl"
    return path if path.is_file() else None


class _Reading:
    """Reads one source from end to end."""

    def __init__(self, source: RowSource, fields: FieldMap, held_chars: int) -> None:
        self._source = source
        self._fields = fields
        self._index = ItemIndex()
        self._held: list[Item] | None = []
        self._left = held_chars
        self._places: dict[str, int] = {}
        self._rows = 0
        self._problems: list[Problem] = []
        self._more = 0
        self._columns: Counter[tuple[str, ...]] = Counter()
        self._answers = 0
        self._domains: set[str] = set()

    def add(self, found: Row | Problem) -> None:
        """Take in the next row, or what is wrong with it."""
        if isinstance(found, Problem):
            self._refuse(found)
            return
        number, self._rows = self._rows, self._rows + 1
        where = self._source.where(found.place, found.line)
        try:
            item = item_of(found.values, self._fields, number=number, source=where)
        except DatasetError as error:
            self._refuse(*error.problems)
            return
        earlier = self._places.setdefault(item.id, len(self._index.ids))
        if earlier < len(self._index.ids):
            before = self._index.lines[earlier]
            at = self._source.where(self._index.places[earlier], before)
            line = f"of line {before}" if at.rpartition(":")[0] == where.rpartition(":")[0] else f"at {at}"
            self._refuse(Problem(where, f"the id {item.id!r} {line} again", "an id of its own for every item"))
        self._index.add(item, place=found.place, line=found.line, number=number)
        self._count(item, found)

    def dataset(self, path: Path) -> Dataset:
        """What came of it. Raises ``DatasetError`` for everything that was refused."""
        if not self._index.ids and not self._problems:
            self._refuse(Problem(str(path), "no items", "at least one line with an item"))
        if self._more:
            accepted = f"{len(self._problems) + self._more} problems fewer"
            self._problems.append(Problem(str(path), f"{self._more} more problems", accepted))
        if self._problems:
            raise DatasetError(self._problems)
        positions = range(len(self._index.ids))
        stored = StoredItems(self._source, self._fields, self._index, positions)
        items = stored if self._held is None else tuple(self._held)
        return Dataset(path, items, tuple(self._warnings(path, items)), self._answers, frozenset(self._domains))

    def _refuse(self, *problems: Problem) -> None:
        for problem in problems:
            if len(self._problems) < _MAX_PROBLEMS:
                self._problems.append(problem)
            else:
                self._more += 1

    def _count(self, item: Item, row: Row) -> None:
        self._answers += bool(item.answer.strip())
        self._domains.add(item.domain)
        self._columns[tuple(row.values)] += 1
        if self._held is not None:
            self._left -= len(item.prompt) + len(item.answer) + len(item.system_prompt)
            self._held.append(item)
            if self._left < 0:
                self._held = None

    def _warnings(self, path: Path, items: Sequence[Item]) -> Iterator[str]:
        same = equals(texts_of(items))
        ids = ids_of(items)
        for group in same[:_SHOWN]:
            yield f"{path}: items {', '.join(ids[each] for each in group[:_SHOWN])} ask the same in the same words"
        if (more := len(same) - _SHOWN) > 0:
            yield f"{path}: {more} more sets of items ask the same in the same words"
        known = field_names(self._fields)
        unused: Counter[str] = Counter()
        for columns, count in self._columns.items():
            used = {first_part(name, columns) for name in known}
            unused.update({name: count for name in columns if name not in used})
        for name, count in sorted(unused.items()):
            yield f"{path}: the field {name!r} of {pluralize(count, 'item')} is not used; used are {did_you_mean(name, known)}"
        if without := len(items) - self._answers:
            yield f"{path}: {without} of {pluralize(len(items), 'item')} without an answer to compare with"
