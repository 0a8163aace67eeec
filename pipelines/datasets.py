"""Which items does a dataset file hold? JSONL or CSV read into ``Item``s, every bad line reported at once.

It refuses to guess: an unknown file type, a missing column, a repeated id or a line that does not parse is an error
that names ``path:line``. What is only odd (equal prompts, unused columns, missing answers) comes back as warnings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.dataset_rows import Row, csv_rows, jsonl_rows
from pipelines.items import Item
from pipelines.problems import capped, did_you_mean
from pipelines.settings import FieldMap
from stores.errors import DatasetError, Problem

_READERS = {".jsonl": jsonl_rows, ".ndjson": jsonl_rows, ".csv": csv_rows}
_SHIPPED = Path(__file__).parent / "data"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Dataset:
    """The items of one file, in file order, and what is odd about them."""

    path: Path
    items: tuple[Item, ...]
    warnings: tuple[str, ...]


def load_dataset(path: str | Path, fields: FieldMap | None = None) -> tuple[Item, ...]:
    """The items of a dataset file. Raises ``DatasetError`` with every bad line (fifty are shown, the rest counted)."""
    return read_dataset(path, fields).items


def read_dataset(path: str | Path, fields: FieldMap | None = None) -> Dataset:
    """The items of a dataset file together with its warnings. Raises ``DatasetError`` as ``load_dataset`` does."""
    path, fields = Path(path), fields or FieldMap()
    rows, problems = _rows(path, fields)
    items: list[Item] = []
    lines: dict[str, int] = {}
    for row in rows:
        try:
            item = _item(row, path, fields)
        except DatasetError as error:
            problems.extend(error.problems)
            continue
        if item.id in lines:
            given = f"the id {item.id!r} of line {lines[item.id]} again"
            problems.append(Problem(item.source, given, "an id of its own for every item"))
        lines.setdefault(item.id, row.line)
        items.append(item)
    if not items and not problems:
        problems.append(Problem(str(path), "no items", "at least one line with an item"))
    if problems:
        raise DatasetError(capped(sorted(problems, key=_line_of), str(path)))
    return Dataset(path, tuple(items), tuple(_warnings(path, items, rows, fields)))


def shipped_dataset(world: str) -> Path:
    """Path of the items of a simulated world."""
    return _SHIPPED / f"{world}.jsonl"


def twins(items: Iterable[Item]) -> tuple[tuple[Item, ...], ...]:
    """Items that ask the same in the same words, grouped; they stay different items all the same."""
    by_text: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_text[text_key(item)].append(item)
    return tuple(tuple(group) for group in by_text.values() if len(group) > 1)


def text_key(item: Item) -> str:
    """What an actor is asked, with runs of white space folded: equal for items that are the same question."""
    return "\x1f".join(" ".join(text.split()) for text in (item.system_prompt, item.prompt))


def _rows(path: Path, fields: FieldMap) -> tuple[list[Row], list[Problem]]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DatasetError.one(str(path), f"a file that ends in {path.suffix or 'nothing'!r}", "a .jsonl or .csv file")
    rows: list[Row] = []
    problems: list[Problem] = []
    try:
        with path.open("rb") as stream:
            for found in reader(stream, str(path), fields):
                if isinstance(found, Row):
                    rows.append(found)
                else:
                    problems.append(found)
    except OSError as error:
        raise DatasetError.one(str(path), error.strerror or type(error).__name__, "a file that can be read") from None
    return rows, problems


def _item(row: Row, path: Path, fields: FieldMap) -> Item:
    source = f"{path}:{row.line}"
    return Item(
        id=_text(row, source, fields.id, numbers=True, required=True),
        prompt=_text(row, source, fields.prompt, required=True),
        answer=_text(row, source, fields.answer, numbers=True),
        system_prompt=_text(row, source, fields.system_prompt),
        metadata=_metadata(row, source, fields.metadata),
        domain=_text(row, source, fields.domain),
        source=source,
    )


def _text(row: Row, source: str, name: str, *, numbers: bool = False, required: bool = False) -> str:
    """A field as text, as given. Absent and null are empty; a number is its text where ``numbers`` are at home."""
    value = row.values.get(name)
    accepted = f"{'text or a number' if numbers else 'text'} in the field {name!r}"
    if value is None:
        value = ""
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise DatasetError.one(source, f"{type(value).__name__} in the field {name!r}", accepted)
    if required and not value.strip():
        raise DatasetError.one(source, f"no {name!r}", f"{accepted} that is not empty")
    return value


def _metadata(row: Row, source: str, name: str) -> Mapping[str, Any]:
    value = row.values.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        given = f"{type(value).__name__} in the field {name!r}"
        raise DatasetError.one(source, given, f"a JSON object in the field {name!r}")
    return value


def _warnings(path: Path, items: Sequence[Item], rows: Sequence[Row], fields: FieldMap) -> Iterator[str]:
    for group in twins(items)[:_SHOWN]:
        yield f"{path}: items {', '.join(item.id for item in group[:_SHOWN])} ask the same in the same words"
    if (more := len(twins(items)) - _SHOWN) > 0:
        yield f"{path}: {more} more sets of items ask the same in the same words"
    known = tuple(fields.model_dump().values())
    unused = Counter(name for row in rows for name in row.values if name not in known)
    for name, count in sorted(unused.items()):
        yield f"{path}: the field {name!r} of {count} items is not used; used are {did_you_mean(name, known)}"
    if without := sum(not item.answer.strip() for item in items):
        yield f"{path}: {without} of {len(items)} items have no answer to compare with"


def _line_of(problem: Problem) -> int:
    return int(problem.source.rpartition(":")[2]) if problem.source.rpartition(":")[2].isdigit() else 0
