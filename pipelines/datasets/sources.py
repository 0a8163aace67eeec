"""What kind of source does a dataset setting name? Told by its ending, its prefix or what lies in its folder."""

from __future__ import annotations

from pathlib import Path

from tfgrpo.pipelines.datasets.source_base import RowSource, looked_at
from tfgrpo.pipelines.datasets.source_files import FolderSource, TextSource
from tfgrpo.pipelines.datasets.source_hub import PREFIX, HubSource, is_saved
from tfgrpo.pipelines.datasets.source_tables import ParquetSource
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError

_TEXTS = {".jsonl": "", ".ndjson": "", ".csv": ",;\t", ".tsv": "\t,;", ".json": ""}
"""Endings of text files, with the delimiters that their header is tried with; none for JSON."""
_TABLES = (".parquet",)
_ACCEPTED = "a .jsonl, .json, .csv, .tsv or .parquet file, a folder of such files, or hf:name of a Hugging Face dataset"


def open_source(name: str, fields: FieldMap) -> RowSource:
    """The source of this name. Raises ``DatasetError`` for a kind that nobody reads; whether it is there, reading tells."""
    if name.startswith(PREFIX):
        return HubSource(name, fields)
    path = Path(name)
    if path.is_dir():
        return HubSource(f"{PREFIX}{name}", fields) if is_saved(path) else _folder(path, fields)
    return _file(path, fields)


def _file(path: Path, fields: FieldMap) -> RowSource:
    kind = path.suffix.lower()
    if kind in _TABLES:
        return ParquetSource(path, fields)
    if kind in _TEXTS:
        return TextSource(path, fields, _TEXTS[kind])
    ending = f"a file that ends in {path.suffix or 'nothing'!r}"
    given = ending if path.exists() else f"no such file{looked_at(str(path))}"
    raise DatasetError.one(str(path), given, _ACCEPTED)


def _folder(path: Path, fields: FieldMap) -> FolderSource:
    """Every file of a known kind below a folder, in the order of their paths; hidden ones are left out.

    A .json file beside files of other kinds describes them, as ``dataset_info.json`` does, and is left out too.
    """
    found = sorted(
        each
        for each in path.rglob("*")
        if each.suffix.lower() in (*_TEXTS, *_TABLES)
        and each.is_file()
        and not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    data = [each for each in found if each.suffix.lower() != ".json"] or found
    if not data:
        raise DatasetError.one(str(path), "a folder without data", _ACCEPTED)
    return FolderSource(path, tuple(_file(each, fields) for each in data))
