"""Read text files in UTF-8, UTF-16 or Windows-1252, and name what is none of these."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Final

from tfgrpo.pipelines.datasets.rows import unreadable
from tfgrpo.stores.errors import DatasetError

_FEW: Final = 20
_SURELY_UTF8: Final = re.compile(
    rb"[\xc2\xc3][\x80-\xbf]|\xe2[\x80-\x84][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|(?:[\xc4-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}){2}"
)
"""Letters and signs in UTF-8, in sequences that texts in Windows-1252 do not have: read as that they would be garbled."""
_UNDEFINED: Final = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
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


def decoded_file(path: Path) -> tuple[str, str]:
    """Return the text of a file, with line feeds and without byte order mark, and a warning about what was assumed.

    Raise ``DatasetError`` for what is no text, or text in an encoding of which none can be sure.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise unreadable(str(path), error) from None
    other, warning = other_encoding(raw[:64]), ""
    if other and other != _UTF16:
        raise DatasetError.one(str(path), other, _TEXT)
    old_mac = b"\r" in raw.partition(b"\n")[0].rstrip(b"\r")
    try:
        text = raw.decode("utf-16" if other else "utf-8")
    except UnicodeDecodeError as error:
        if other:
            raise DatasetError.one(str(path), f"no UTF-16 at byte {error.start}", _TEXT) from None
        warning = _western(raw, str(path), old_mac=old_mac)
        text = raw.decode("cp1252")
    if "\r" in text.partition("\n")[0].rstrip("\r"):  # lines end in a carriage return alone, as on an old Mac
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removeprefix("\ufeff"), warning


def other_encoding(first_bytes: bytes) -> str:
    """Name what a file is by its first bytes, at least four; empty for text in UTF-8."""
    if first_bytes[:4] in {codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE}:
        return "text in UTF-32"
    if first_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _UTF16
    if named := next((name for mark, name in _MARKS.items() if first_bytes.lstrip().lower().startswith(mark)), ""):
        return named
    return "no text, or UTF-16 without a byte order mark" if b"\0" in first_bytes[:4] else ""


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
        given = "no UTF-8, and lines that end in a carriage return: probably Mac Roman (iconv -f MACINTOSH -t UTF-8)"
    elif undefined is not None:
        number, given = undefined, "bytes that neither UTF-8 nor Windows-1252 has"
    elif len(re.findall(rb"[\xc0-\xff]", text)) > _FEW + len(re.findall(rb"[A-Za-z]", text)):
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
