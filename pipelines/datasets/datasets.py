"""Read a dataset into items, report every bad row at once, and warn of what is unusual.

An unknown kind of file, a missing column, a repeated id or a line that does not parse is an error with ``path:line``.
Equal prompts and missing answers are warnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tfgrpo.pipelines.datasets.items import Item, item_of, same_questions
from tfgrpo.pipelines.datasets.rows import DatasetRow
from tfgrpo.pipelines.datasets.sources import open_source
from tfgrpo.pipelines.problems import CappedProblems
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.text import pluralize

_SHIPPED: Final = Path(__file__).parent.parent / "data"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Dataset:
    """The items of one dataset, in its order."""

    name: str
    """Path, or the name of a dataset of the hub."""
    items: tuple[Item, ...]
    warnings: tuple[str, ...]
    answers: int
    """Number of items with a reference answer."""
    domains: frozenset[str]


def load_dataset(path: str | Path, fields: FieldMap | None = None) -> tuple[Item, ...]:
    """Return the items of a dataset. Raise ``DatasetError`` with every bad row, at most fifty of them."""
    return read_dataset(path, fields).items


def read_dataset(path: str | Path, fields: FieldMap | None = None) -> Dataset:
    """Return the items of a dataset with its warnings. Raise ``DatasetError`` as ``load_dataset`` does."""
    fields = fields or FieldMap()
    source = open_source(str(path), fields)
    return read_rows(source.rows, source.name, fields, source.warnings)


def read_rows(
    rows: Iterable[DatasetRow | Problem], name: str, fields: FieldMap, warnings: Sequence[str] = ()
) -> Dataset:
    """Return the items of rows; ``warnings``: of their source. Raise ``DatasetError`` as ``load_dataset`` does."""
    items: dict[str, Item] = {}
    problems = CappedProblems()
    for row in rows:
        try:
            if isinstance(row, Problem):
                raise DatasetError([row])
            item = item_of(row.values, fields, number=len(items), source=row.source)
            if (first := items.setdefault(item.id, item)) is not item:
                raise DatasetError([_repeated(item, first)])
        except DatasetError as error:
            for problem in error.problems:
                problems.add(problem)
    if not items and not problems.total:
        problems.add(Problem(name, "no items", "at least one line with an item"))
    problems.raise_problems(DatasetError, name)
    every = tuple(items.values())
    answers = sum(bool(item.answer.strip()) for item in every)
    domains = frozenset(item.domain for item in every)
    return Dataset(name, every, (*warnings, *_warnings(every, answers, name)), answers, domains)


def _repeated(item: Item, first: Item) -> Problem:
    file, _, line = first.source.rpartition(":")
    where = f"of line {line}" if file == item.source.rpartition(":")[0] else f"at {first.source}"
    return Problem(item.source, f"the id {item.id!r} {where} again", "an id of its own for every item")


def _warnings(items: Sequence[Item], answers: int, name: str) -> Iterator[str]:
    same = same_questions(items)
    shown = "; ".join(", ".join(items[each].id for each in group[:_SHOWN]) for group in same[:_SHOWN])
    if len(same) == 1:
        more = f" and {len(same[0]) - _SHOWN:,} more" if len(same[0]) > _SHOWN else ""
        yield f"{name}: items {shown}{more} ask the same in the same words"
    elif same:
        more = f" and {len(same) - _SHOWN:,} more" if len(same) > _SHOWN else ""
        yield f"{name}: {len(same):,} sets of items ask the same in the same words: {shown}{more}"
    if answers < len(items):
        yield f"{name}: {len(items) - answers:,} of {pluralize(len(items), 'item')} without an answer to compare with"


def shipped_dataset(world: str) -> Path:
    """Return the path of the items of a simulated world."""
    return _SHIPPED / f"{world}.jsonl"


def shipped_held_out(world: str) -> Path | None:
    """Return the path of a simulated world's held-out items; None if they are split off its items."""
    path = _SHIPPED / f"{world}-held-out.jsonl"
    return path if path.is_file() else None
