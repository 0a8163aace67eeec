"""Open the source that a dataset setting names: a text file, a Parquet file, a folder of files, a Hugging Face dataset.

The files of a folder follow each other by name.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Final

from tfgrpo.pipelines.datasets.csv_text import csv_source
from tfgrpo.pipelines.datasets.encodings import decoded_file
from tfgrpo.pipelines.datasets.json_text import json_rows
from tfgrpo.pipelines.datasets.rows import HUB_PREFIX, DataSource, absolute_suffix
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError

_SHOWN: Final = 3
_DELIMITERS: Final = {".jsonl": "", ".ndjson": "", ".csv": ",;\t|", ".tsv": "\t,;|", ".json": ""}
"""Endings of text files, and the delimiters to try on their header; none for JSON."""
_PARQUET: Final = ".parquet"
_REMEDIES: Final = {
    ".gz .bz2 .xz .zst .zip .tar .tgz .7z .rar": ": unpack it",
    ".xlsx .xls .xlsm .xlsb .ods .numbers": ": save the sheet as CSV UTF-8",
    ".txt .text .dat .log .md": ": let the name of JSON lines end in .jsonl, that of a table in .csv",
    ".yaml .yml .xml .html .db .sqlite .sqlite3 .sql .pkl .pickle .npy .npz": ": write it as JSON lines",
    ".arrow .feather .orc .avro": ": write it as Parquet, or give the folder that `save_to_disk` wrote",
}
"""What to do about files of other kinds, by their endings."""
_ACCEPTED: Final = (
    "a .jsonl, .json, .csv, .tsv or .parquet file, a folder of such files, or hf:name of a Hugging Face dataset"
)


def open_source(name: str, fields: FieldMap) -> DataSource:
    """Return the source of this name. Raise ``DatasetError`` for an unknown kind, or a file that cannot be read."""
    path = Path(name)
    if not name.startswith(HUB_PREFIX) and not path.is_dir():
        return _file(path, fields)
    from tfgrpo.pipelines.datasets.tables import hub_source, is_saved  # noqa: PLC0415 - most datasets are text files

    if name.startswith(HUB_PREFIX):
        return hub_source(name, fields)
    return hub_source(f"{HUB_PREFIX}{name}", fields) if is_saved(path) else _folder(path, fields)


def _file(path: Path, fields: FieldMap) -> DataSource:
    kind = path.suffix.lower()
    if kind == _PARQUET:
        from tfgrpo.pipelines.datasets.tables import parquet_source  # noqa: PLC0415 - as in open_source

        return parquet_source(str(path), fields)
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
    """Return every file of a known kind below a folder, ordered by path, without hidden ones.

    A .json file among files of other kinds describes them, as ``dataset_info.json`` does, and is skipped too.
    """
    names = sorted(
        each
        for each in path.rglob("*")
        if each.suffix.lower() in (*_DELIMITERS, _PARQUET)
        and each.is_file()
        and not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    data = [each for each in names if each.suffix.lower() != ".json"] or names
    if not data:
        raise DatasetError.one(str(path), "a folder without data", _ACCEPTED)
    files = [_file(each, fields) for each in data]
    warnings = [warning for file in files for warning in file.warnings]
    more = [f"{path}: {len(warnings) - _SHOWN:,} more files are read so"] if len(warnings) > _SHOWN else []
    rows = chain.from_iterable(file.rows for file in files)
    return DataSource(str(path), rows, files[0].header, (*warnings[:_SHOWN], *more))
