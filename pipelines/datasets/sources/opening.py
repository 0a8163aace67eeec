"""Open the source that a dataset setting names, by its prefix, its file ending or the files in its folder."""

from __future__ import annotations

from pathlib import Path

from tfgrpo.pipelines.datasets.sources.base import PREFIX, RowSource, absolute_suffix
from tfgrpo.pipelines.datasets.sources.files import FolderSource, TextSource
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError

_DELIMITERS = {".jsonl": "", ".ndjson": "", ".csv": ",;\t", ".tsv": "\t,;", ".json": ""}
"""Endings of text files, and the delimiters to try on their header; none for JSON."""
_PARQUET = ".parquet"
_ACCEPTED = "a .jsonl, .json, .csv, .tsv or .parquet file, a folder of such files, or hf:name of a Hugging Face dataset"


def open_source(name: str, fields: FieldMap) -> RowSource:
    """Return the source of this name. Raise ``DatasetError`` for an unknown kind; nothing is read yet."""
    path = Path(name)
    if not name.startswith(PREFIX) and not path.is_dir():
        return _file(path, fields)
    from tfgrpo.pipelines.datasets.sources.hub import HubSource, is_saved  # noqa: PLC0415 - most datasets are text files

    if name.startswith(PREFIX):
        return HubSource(name, fields)
    return HubSource(f"{PREFIX}{name}", fields) if is_saved(path) else _folder(path, fields)


def _file(path: Path, fields: FieldMap) -> RowSource:
    kind = path.suffix.lower()
    if kind == _PARQUET:
        from tfgrpo.pipelines.datasets.sources.tables import ParquetSource  # noqa: PLC0415 - as in open_source

        return ParquetSource(path, fields)
    if kind in _DELIMITERS:
        return TextSource(path, fields, _DELIMITERS[kind])
    ending = f"a file that ends in {path.suffix or 'nothing'!r}"
    given = ending if path.exists() else f"no such file{absolute_suffix(str(path))}"
    raise DatasetError.one(str(path), given, _ACCEPTED)


def _folder(path: Path, fields: FieldMap) -> FolderSource:
    """Return every file of a known kind below a folder, ordered by path, without hidden ones.

    A .json file among files of other kinds describes them, as ``dataset_info.json`` does, and is skipped too.
    """
    files = sorted(
        each
        for each in path.rglob("*")
        if each.suffix.lower() in (*_DELIMITERS, _PARQUET)
        and each.is_file()
        and not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    data = [each for each in files if each.suffix.lower() != ".json"] or files
    if not data:
        raise DatasetError.one(str(path), "a folder without data", _ACCEPTED)
    return FolderSource(path, tuple(_file(each, fields) for each in data))
