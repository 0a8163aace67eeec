"""Read tables as rows: Parquet files, and Hugging Face datasets by name or from a saved folder.

The extra ``parquet`` installs pyarrow, the extra ``hf`` installs ``datasets``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_jsonable_python

from tfgrpo.pipelines.datasets.json_text import strict_json
from tfgrpo.pipelines.datasets.rows import HUB_PREFIX, DatasetRow, DataSource, unreadable
from tfgrpo.pipelines.settings.tree import METADATA, FieldMap, first_part
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.text import quoted_names

_BATCH: Final = 1024
_HUB_NAME: Final = re.compile(r"hf:(?P<path>[^#]+?)(?::(?P<config>[^:/\\#]+))?(?:#(?P<split>[^#]+))?")
_NOT_TEXT: Final = re.compile(r"\b(?:Image|Audio|Video|Pdf|Nifti)\(|binary\b(?!'?:)")
"""Types of columns that are read only for a field: decoding them takes other libraries, and much memory."""
_HUB_ACCEPTED: Final = "hf:owner/name, hf:owner/name:config or a folder, with #split behind it if it is not #train"


def parquet_source(name: str, fields: FieldMap) -> DataSource:
    """Return the rows of a Parquet file. Raise ``DatasetError`` if pyarrow is missing, or the file is none."""
    parquet = imported("pyarrow.parquet", name, extra="parquet", package="pyarrow")
    arrow_error = imported("pyarrow", name, extra="parquet", package="pyarrow").ArrowException

    def records(file: Any, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for batch in file.iter_batches(batch_size=_BATCH, columns=columns):
            yield from batch.to_pylist()

    try:
        # Read here, because pyarrow would replace the system's message by one of its own.
        file = parquet.ParquetFile(BytesIO(Path(name).read_bytes()))
    except OSError as error:
        raise unreadable(name, error) from None
    except arrow_error as error:
        raise DatasetError.one(name, " ".join(str(error).split())[:200], "a Parquet file") from None
    schema = file.schema_arrow
    types = dict(zip(schema.names, map(str, schema.types), strict=True))
    return DataSource(name, _rows(partial(records, file), types, name, fields), list(types))


def hub_source(name: str, fields: FieldMap) -> DataSource:
    """Return the rows of one split of a Hugging Face dataset. Raise ``DatasetError`` if library or dataset is missing."""
    match = _HUB_NAME.fullmatch(name)
    if match is None:
        raise DatasetError.one("dataset.path", repr(name), _HUB_ACCEPTED)
    library = imported("datasets", name, extra="hf", package="datasets")
    try:
        table = _loaded(library, match["path"], match["config"], match["split"] or "train")
    except DatasetError:
        raise
    except Exception as error:  # noqa: BLE001 - hub, network and files raise many types; each becomes a DatasetError
        given = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise DatasetError.one(name, given, _HUB_ACCEPTED) from None

    def records(columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for batch in table.select_columns(columns).iter(batch_size=_BATCH):  # row by row takes twenty times as long
            yield from (dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True))

    types = {each: str(feature) for each, feature in table.features.items()}
    return DataSource(name, _rows(records, types, name, fields), list(types))


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by ``save_to_disk`` of ``datasets``."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()
    )


def imported(module: str, name: str, *, extra: str, package: str) -> Any:
    """Import a module of an optional package. Raise ``DatasetError`` naming the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        given = f"data that only {package} reads, which cannot be imported ({error})"
        raise DatasetError.one(name, given, f"the extra {extra!r}: pip install 'tfgrpo[{extra}]'") from None


def _loaded(library: Any, path: str, config: str | None, split: str) -> Any:
    if not is_saved(Path(path)):
        return library.load_dataset(path, config, split=split)
    saved = library.load_from_disk(path)
    if not isinstance(saved, library.DatasetDict):
        return saved
    if split not in saved:
        splits = sorted(saved)
        accepted = f"one of {', '.join(splits)}, as {HUB_PREFIX}{path}#{splits[0]}"
        raise DatasetError.one(f"{HUB_PREFIX}{path}", f"no split {split!r}", accepted)
    return saved[split]


def _rows(
    records: Callable[[Sequence[str]], Iterable[Mapping[str, Any]]],
    types: Mapping[str, str],
    name: str,
    fields: FieldMap,
) -> Iterator[DatasetRow | Problem]:
    """Yield the rows of the needed columns. Raise ``DatasetError`` for required ones that are missing."""
    if problems := [
        Problem(name, f"no column {each!r} among {quoted_names(types)}", f"a column {each!r}, {fields.remedy(each)}")
        for each in fields.required
        if first_part(each, types) not in types
    ]:
        raise DatasetError(problems)
    needed = {first_part(each, types) for each in (*fields.required, *fields.withheld)}
    columns = [column for column, kind in types.items() if column in needed or not _NOT_TEXT.search(kind)]
    for number, record in enumerate(records(columns), start=1):
        try:
            yield DatasetRow(f"{name}:{number}", _values(record, fields))
        except ValueError as error:
            yield Problem(f"{name}:{number}", str(error), f"a JSON object in the field {METADATA!r}")


def _values(record: Mapping[str, Any], fields: FieldMap) -> dict[str, Any]:
    """Return a record as JSON values: dates as text, metadata text parsed. Raise ``ValueError``.

    NaN is null, except in fields, which refuse it.
    """
    withheld = {first_part(name, record) for name in fields.withheld}
    further = {name: value for name, value in record.items() if name not in withheld}
    own = {name: value for name, value in record.items() if name in withheld}
    values: dict[str, Any] = to_jsonable_python(own, fallback=str, bytes_mode="base64")
    values |= to_jsonable_python(further, fallback=str, bytes_mode="base64", inf_nan_mode="null")
    metadata = values.get(METADATA)
    if isinstance(metadata, str):
        values[METADATA] = strict_json(metadata)
    return values
