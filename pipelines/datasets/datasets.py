"""Read a dataset into items: from a text file, a Parquet file, a folder of files, or a Hugging Face dataset.

Every bad row is reported at once, and what is unusual is warned of. An unknown kind of file, a missing column, a repeated id or
a line that does not parse is an error with ``path:line``; equal prompts and missing answers are warnings. The extra
``parquet`` installs pyarrow, the extra ``hf`` installs ``datasets``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_jsonable_python

from tfgrpo.pipelines.datasets.items import Item, item_of, same_questions
from tfgrpo.pipelines.datasets.text_forms import (
    HUB_PREFIX,
    DatasetRow,
    DataSource,
    absolute_suffix,
    csv_source,
    decoded_file,
    json_rows,
    unreadable,
)
from tfgrpo.pipelines.settings.tree import METADATA, FieldMap, first_part
from tfgrpo.stores.errors import CappedProblems, DatasetError, Problem
from tfgrpo.stores.text import pluralize, quoted_names

_SHIPPED: Final = Path(__file__).parent.parent / "data"
_SHOWN: Final = 5
_WARNED: Final = 3
# Endings of text files, and the delimiters to try on their header; none for JSON.
_DELIMITERS: Final = {".jsonl": "", ".ndjson": "", ".csv": ",;\t|", ".tsv": "\t,;|", ".json": ""}
_PARQUET: Final = ".parquet"
_REMEDIES: Final = {
    ".gz .bz2 .xz .zst .zip .tar .tgz .7z .rar": ": unpack it",
    ".xlsx .xls .xlsm .xlsb .ods .numbers": ": save the sheet as CSV UTF-8",
    ".txt .text .dat .log .md": ": let the name of JSON lines end in .jsonl, that of a table in .csv",
    ".yaml .yml .xml .html .db .sqlite .sqlite3 .sql .pkl .pickle .npy .npz": ": write it as JSON lines",
    ".arrow .feather .orc .avro": ": write it as Parquet, or give the folder that `save_to_disk` wrote",
}
_ACCEPTED: Final = "a .jsonl, .json, .csv, .tsv or .parquet file, a folder of such files, or hf:name of a Hugging Face dataset"
_BATCH: Final = 1024
_HUB_NAME: Final = re.compile(r"hf:(?P<path>[^#]+?)(?::(?P<config>[^:/\\#]+))?(?:#(?P<split>[^#]+))?")
# Types of columns that are read only for a field: decoding them takes other libraries, and much memory.
_NOT_TEXT: Final = re.compile(r"\b(?:Image|Audio|Video|Pdf|Nifti)\(|binary\b(?!'?:)")
_HUB_ACCEPTED: Final = "hf:owner/name, hf:owner/name:config or a folder, with #split behind it if it is not #train"


@dataclass(frozen=True, slots=True)
class Dataset:
    """The items of one dataset, in its order."""

    name: str
    items: tuple[Item, ...]
    warnings: tuple[str, ...]
    answers: int
    domains: frozenset[str]


def load_dataset(path: str | Path, fields: FieldMap | None = None) -> tuple[Item, ...]:
    """Return the items of a dataset. Raise ``DatasetError`` with every bad row, at most fifty of them."""
    return read_dataset(path, fields).items


def read_dataset(path: str | Path, fields: FieldMap | None = None) -> Dataset:
    """Return the items of a dataset with its warnings. Raise ``DatasetError`` as ``load_dataset`` does."""
    fields = fields or FieldMap()
    source = open_source(str(path), fields)
    return read_rows(source.rows, source.name, fields, source.warnings)


def read_rows(rows: Iterable[DatasetRow | Problem], name: str, fields: FieldMap, warnings: Sequence[str] = ()) -> Dataset:
    """Return the items of rows; ``warnings``: of their source. Raise ``DatasetError`` as ``load_dataset`` does."""
    items: dict[str, Item] = {}
    problems = CappedProblems()
    for row in rows:
        try:
            if isinstance(row, Problem):
                raise DatasetError([row])
            item = item_of(row.values, fields, number=len(items), source=row.source)
            if (first := items.setdefault(item.id, item)) is not item:
                file, _, line = first.source.rpartition(":")
                where = f"of line {line}" if file == item.source.rpartition(":")[0] else f"at {first.source}"
                accepted = "an id of its own for every item"
                raise DatasetError.one(item.source, f"the id {item.id!r} {where} again", accepted)
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


def _warnings(items: Sequence[Item], answers: int, name: str) -> Iterator[str]:
    same = same_questions(items)
    shown = "; ".join(", ".join(items[each].id for each in group[:_SHOWN]) for group in same[:_SHOWN])
    count = len(same) if len(same) > 1 else sum(map(len, same))
    shown += f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    if len(same) == 1:
        yield f"{name}: items {shown} ask the same in the same words"
    elif same:
        yield f"{name}: {count:,} sets of items ask the same in the same words: {shown}"
    if 0 < answers < len(items):
        yield f"{name}: {len(items) - answers:,} of {pluralize(len(items), 'item')} without an answer to compare with"


def shipped_dataset(world: str) -> Path:
    """Return the path of the items of a simulated world. Raise ``DatasetError`` for one that is not shipped."""
    path = _SHIPPED / f"{world}.jsonl"
    if not path.is_file():
        raise DatasetError.one("--dataset", f"no items of the world {world!r}", "a file with its items")
    return path


def open_source(name: str, fields: FieldMap) -> DataSource:
    """Return the source of this name. Raise ``DatasetError`` for an unknown kind, or a file that cannot be read."""
    path = Path(name)
    if name.startswith(HUB_PREFIX):
        return _hub(name, fields)
    if not path.is_dir():
        return _file(path, fields)
    return _hub(f"{HUB_PREFIX}{name}", fields) if _is_saved(path) else _folder(path, fields)


def _file(path: Path, fields: FieldMap) -> DataSource:
    kind = path.suffix.lower()
    if kind == _PARQUET:
        return _parquet(str(path), fields)
    if kind in _DELIMITERS:
        text, warning = decoded_file(path)
        warnings = (warning,) if warning else ()
        if _DELIMITERS[kind]:
            return csv_source(text, str(path), fields, _DELIMITERS[kind], warnings)
        return DataSource(str(path), json_rows(text, str(path), fields.required), None, warnings)
    if not path.exists():
        raise DatasetError.one(str(path), f"no such file{absolute_suffix(str(path))}", _ACCEPTED)
    remedy = next((text for kinds, text in _REMEDIES.items() if kind in kinds.split()), "")
    raise DatasetError.one(str(path), f"a file that ends in {path.suffix or 'nothing'!r}{remedy}", _ACCEPTED)


def _folder(path: Path, fields: FieldMap) -> DataSource:
    files = (each for each in path.rglob("*") if each.suffix.lower() in (*_DELIMITERS, _PARQUET) and each.is_file())
    names = sorted(each for each in files if not any(part.startswith(".") for part in each.relative_to(path).parts))
    # A .json file among files of other kinds describes them, as `dataset_info.json` does.
    data = [each for each in names if each.suffix.lower() != ".json"] or names
    if not data:
        raise DatasetError.one(str(path), "a folder without data", _ACCEPTED)
    sources = [_file(each, fields) for each in data]
    warnings = [warning for source in sources for warning in source.warnings]
    more = [f"{path}: {len(warnings) - _WARNED:,} more files are read so"] if len(warnings) > _WARNED else []
    rows = chain.from_iterable(source.rows for source in sources)
    return DataSource(str(path), rows, sources[0].header, (*warnings[:_WARNED], *more))


def _parquet(name: str, fields: FieldMap) -> DataSource:
    parquet, arrow = (_imported(each, name, "parquet", "pyarrow") for each in ("pyarrow.parquet", "pyarrow"))

    def records(file: Any, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for batch in file.iter_batches(batch_size=_BATCH, columns=columns):
            yield from batch.to_pylist()

    try:
        # Read here, because pyarrow would replace the system's message by one of its own.
        file = parquet.ParquetFile(BytesIO(Path(name).read_bytes()))
    except OSError as error:
        raise unreadable(name, error) from None
    except arrow.ArrowException as error:
        raise DatasetError.one(name, " ".join(str(error).split())[:200], "a Parquet file") from None
    schema = file.schema_arrow
    types = dict(zip(schema.names, map(str, schema.types), strict=True))
    return DataSource(name, _table_rows(partial(records, file), types, name, fields), list(types))


def _hub(name: str, fields: FieldMap) -> DataSource:
    match = _HUB_NAME.fullmatch(name)
    if match is None:
        raise DatasetError.one("dataset.path", repr(name), _HUB_ACCEPTED)
    library = _imported("datasets", name, "hf", "datasets")
    path, split = match["path"], match["split"] or "train"
    try:
        saved = library.load_from_disk(path) if _is_saved(Path(path)) else None
        table = saved if saved is not None else library.load_dataset(path, match["config"], split=split)
    except Exception as error:  # noqa: BLE001 - hub, network and files raise many types; each becomes a DatasetError
        received = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise DatasetError.one(name, received, _HUB_ACCEPTED) from None
    if isinstance(saved, library.DatasetDict):
        if split not in saved:
            splits = sorted(saved)
            accepted = f"one of {', '.join(splits)}, as {HUB_PREFIX}{path}#{splits[0]}"
            raise DatasetError.one(f"{HUB_PREFIX}{path}", f"no split {split!r}", accepted)
        table = saved[split]

    def records(columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        # Row by row takes twenty times as long.
        for batch in table.select_columns(columns).iter(batch_size=_BATCH):
            yield from (dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True))

    types = {each: str(feature) for each, feature in table.features.items()}
    return DataSource(name, _table_rows(records, types, name, fields), list(types))


def _is_saved(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()
    )


def _imported(module: str, name: str, extra: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        received = f"data that only {package} reads, which cannot be imported ({error})"
        raise DatasetError.one(name, received, f"the extra {extra!r}: pip install 'tfgrpo[{extra}]'") from None


def _table_rows(
    records: Callable[[Sequence[str]], Iterable[Mapping[str, Any]]], types: Mapping[str, str], name: str, fields: FieldMap
) -> Iterator[DatasetRow | Problem]:
    if problems := [
        Problem(name, f"no column {each!r} among {quoted_names(types)}", f"a column {each!r}, {fields.remedy(each)}")
        for each in fields.required
        if first_part(each, types) not in types
    ]:
        raise DatasetError(problems)
    needed = {first_part(each, types) for each in (*fields.required, *fields.withheld, METADATA)}
    columns = [column for column, kind in types.items() if column in needed or not _NOT_TEXT.search(kind)]
    withheld = {first_part(each, columns) for each in (*fields.withheld, METADATA)}
    for number, record in enumerate(records(columns), start=1):
        # As JSON values: dates as text; NaN as null, except in fields, which refuse it.
        further = {column: value for column, value in record.items() if column not in withheld}
        values = to_jsonable_python(further, fallback=str, bytes_mode="base64", inf_nan_mode="null")
        own = {column: value for column, value in record.items() if column in withheld}
        yield DatasetRow(f"{name}:{number}", to_jsonable_python(own, fallback=str, bytes_mode="base64") | values)
