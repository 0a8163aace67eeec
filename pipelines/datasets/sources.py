"""Open the source that a dataset setting names; read text files in any encoding that can be told, and folders of files.

The files of a folder follow each other by name.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from tfgrpo.pipelines.datasets.csv_text import csv_columns, csv_rows
from tfgrpo.pipelines.datasets.json_text import json_rows
from tfgrpo.pipelines.datasets.rows import PREFIX, Row, RowSource, absolute_suffix, unreadable
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

_CHUNK: Final = 1 << 18
_FIRST: Final = 64
_FEW: Final = 20
_SHOWN: Final = 3
_SURELY_UTF8: Final = re.compile(
    rb"[\xc2\xc3][\x80-\xbf]|\xe2[\x80-\x84][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|(?:[\xc4-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}){2}"
)
"""Letters and signs in UTF-8, in sequences that texts in Windows-1252 do not have: read as that they would be garbled."""
_UNDEFINED: Final = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_LETTERS: Final = re.compile(rb"[\xc0-\xff]")
_ASCII_LETTERS: Final = re.compile(rb"[A-Za-z]")
_TEXT: Final = "text in UTF-8, or in UTF-16 with a byte order mark"
_UTF16: Final = "text in UTF-16"
_MARKS: Final = {
    b"pk\x03\x04": "a zip archive, as .xlsx files are: save its sheet as CSV UTF-8, or unpack it",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an old Excel: save its sheet as CSV UTF-8",
    b"\x1f\x8b": "data compressed by gzip: unpack it",
    b"par1": "a Parquet file: let its name end in .parquet",
    b"sqlite format 3": "a database of SQLite: export a table as CSV",
    b"%pdf-": "a PDF",
    b"version https://git-lfs": "a pointer of Git LFS in place of the data: git lfs pull",
    b"<!doctype html": "a web page in place of the data",
    b"<html": "a web page in place of the data",
}
"""What files are that are no text, or not the text that was meant, by their first bytes in lower case."""
_DELIMITERS: Final = {".jsonl": "", ".ndjson": "", ".csv": ",;\t", ".tsv": "\t,;", ".json": ""}
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


def open_source(name: str, fields: FieldMap) -> RowSource:
    """Return the source of this name. Raise ``DatasetError`` for an unknown kind; nothing is read yet."""
    path = Path(name)
    if not name.startswith(PREFIX) and not path.is_dir():
        return _file(path, fields)
    from tfgrpo.pipelines.datasets.tables import HubSource, is_saved  # noqa: PLC0415 - most datasets are text files

    if name.startswith(PREFIX):
        return HubSource(name, fields)
    return HubSource(f"{PREFIX}{name}", fields) if is_saved(path) else _folder(path, fields)


def _file(path: Path, fields: FieldMap) -> RowSource:
    kind = path.suffix.lower()
    if kind == _PARQUET:
        from tfgrpo.pipelines.datasets.tables import ParquetSource  # noqa: PLC0415 - as in open_source

        return ParquetSource(str(path), fields)
    if kind in _DELIMITERS:
        return _TextSource(str(path), fields, _DELIMITERS[kind])
    if not path.exists():
        raise DatasetError.one(str(path), f"no such file{absolute_suffix(str(path))}", _ACCEPTED)
    remedy = next((text for kinds, text in _REMEDIES.items() if kind in kinds.split()), "")
    raise DatasetError.one(str(path), f"a file that ends in {path.suffix or 'nothing'!r}{remedy}", _ACCEPTED)


def _folder(path: Path, fields: FieldMap) -> _FolderSource:
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
    return _FolderSource(str(path), fields, tuple(_file(each, fields) for each in data))


@dataclass(frozen=True)
class _FolderSource(RowSource):
    """Several files as one dataset."""

    files: tuple[RowSource, ...]

    def columns(self) -> list[str]:
        """Return the columns of the first file."""
        return self.files[0].columns()

    def rows(self) -> Iterator[Row | Problem]:
        """Yield the rows of every file in turn."""
        for file in self.files:
            yield from file.rows()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the files, of many the first ones."""
        warnings = [warning for file in self.files for warning in file.warnings]
        more = [f"{self.name}: {len(warnings) - _SHOWN:,} more files are read so"] if len(warnings) > _SHOWN else []
        return (*warnings[:_SHOWN], *more)


@dataclass(frozen=True)
class _TextSource(RowSource):
    """A text file: JSON in any of its forms, or separated values."""

    delimiters: str
    """Delimiters to try on the header of separated values, the likeliest first; empty for JSON."""

    def rows(self) -> Iterator[Row | Problem]:
        """Yield every row in file order."""
        with self._opened() as stream:
            if self.delimiters:
                yield from csv_rows(stream, self.name, self.fields, self.delimiters)
            else:
                yield from json_rows(stream, self.name, self.fields.required)

    def columns(self) -> list[str]:
        """Return the names in the header of separated values, else as any source does."""
        if not self.delimiters:
            return super().columns()
        with self._opened() as stream:
            return csv_columns(stream, self.fields, self.delimiters)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was assumed of the encoding."""
        return (self._encoding.warning,) if self._encoding.warning else ()

    @cached_property
    def _encoding(self) -> _Encoding:
        try:
            with Path(self.name).open("rb") as stream:
                return _encoding_of(stream, self.name)
        except OSError as error:
            raise unreadable(self.name, error) from None

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        encoding = self._encoding
        try:
            with Path(self.name).open("rb") as stream:
                yield _as_utf8(stream, self.name, encoding)
        except OSError as error:
            raise unreadable(self.name, error) from None


class _Encoding(NamedTuple):
    """How the bytes of a text file are read."""

    name: str = "utf-8"
    old_mac: bool = False
    """Lines end in a carriage return alone."""
    warning: str = ""


def other_encoding(first_bytes: bytes) -> str:
    """Name what a file is by its first bytes, at least four; empty for text in UTF-8."""
    if first_bytes[:4] in {codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE}:
        return "text in UTF-32"
    if first_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _UTF16
    if named := next((name for mark, name in _MARKS.items() if first_bytes.lstrip().lower().startswith(mark)), ""):
        return named
    return "no text, or UTF-16 without a byte order mark" if b"\0" in first_bytes[:4] else ""


def _encoding_of(stream: BinaryIO, name: str) -> _Encoding:
    """Return the encoding of a file. Raise ``DatasetError`` for what is no text, or text of which none can be sure."""
    first = stream.read(_CHUNK)
    other = other_encoding(first[:_FIRST])
    if other and other != _UTF16:
        raise DatasetError.one(name, other, _TEXT)
    old_mac = b"\r" in first.partition(b"\n")[0].rstrip(b"\r")
    if other:
        return _Encoding("utf-16")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        chunk = first
        while chunk:
            decoder.decode(chunk)
            chunk = stream.read(_CHUNK)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        stream.seek(0)
        return _Encoding("cp1252", warning=_western(stream.read(), name, old_mac=old_mac))
    return _Encoding(old_mac=old_mac)


def _western(raw: bytes, name: str, *, old_mac: bool) -> str:
    """Return a warning about text that is read as Windows-1252. Raise ``DatasetError`` if it is probably not that."""
    lines = [*enumerate(raw.split(b"\n"), start=1)]
    foreign = [(number, line) for number, line in lines if not _is_utf8(line)]
    number, text = foreign[0][0], b"".join(line for _, line in foreign)
    garbled = next((at for at, line in lines if _SURELY_UTF8.search(line) or line.startswith(codecs.BOM_UTF8)), None)
    undefined = next((at for at, line in foreign if _UNDEFINED.search(line)), None)
    given = ""
    if b"\0" in raw:
        number, given = raw.partition(b"\0")[0].count(b"\n") + 1, "a zero byte, which is no text"
    elif garbled is not None:
        given = f"bytes that are no UTF-8, while line {garbled} is UTF-8: a file in two encodings"
    elif old_mac:
        given = (
            "no UTF-8, and lines that end in a carriage return alone: probably Mac Roman (iconv -f MACINTOSH -t UTF-8)"
        )
    elif undefined is not None:
        number, given = undefined, "bytes that neither UTF-8 nor Windows-1252 has"
    elif len(_LETTERS.findall(text)) > _FEW + len(_ASCII_LETTERS.findall(text)):
        given = "no UTF-8, and probably no Windows-1252: most of its letters would have accents"
    if given:
        raise DatasetError.one(f"{name}:{number}", given, _TEXT)
    return (
        f"{name}: line {number} is no UTF-8, so the file is read as Windows-1252 (cp1252), which Excel writes in Western "
        f"Europe; `iconv -f CP1252 -t UTF-8 FILE` converts it, or save it as CSV UTF-8"
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_utf8(stream: BinaryIO, name: str, encoding: _Encoding) -> BinaryIO:
    """Return the text in UTF-8, behind its byte order mark, with line feeds; what needs converting is read into memory."""
    if encoding.name == "utf-8" and not encoding.old_mac:
        stream.seek(len(codecs.BOM_UTF8) if stream.read(3) == codecs.BOM_UTF8 else 0)
        return stream
    try:
        text = stream.read().decode(encoding.name).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DatasetError.one(name, f"no {encoding.name.upper()} at byte {error.start}", _TEXT) from None
    if "\r" in text.partition("\n")[0].rstrip("\r"):
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return BytesIO(text.encode())
