"""Replace whole files atomically, and append lines to files in other programs' forms."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tfgrpo.stores.errors import CorruptFile, RecordRejected
from tfgrpo.stores.files.lines import LineFile, disk, open_regular
from tfgrpo.stores.json_values import sha256_hex


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines in another program's form, without checksums, in one write; created 0600 with its parents.

    An incomplete last line is moved to ``<name>.torn`` first. Raises ``StoreError`` when the disk refuses (the file is then
    as before), ``ValueError`` for a line with a newline in it.
    """
    text = "".join(f"{line}\n" for line in lines)
    if text.count("\n") != len(lines):
        raise ValueError("a line cannot contain a newline")
    if lines:
        with closing(LineFile(path)) as file, file:
            file.cut_incomplete()
            file.write(text.encode("utf-8"))


def read_lines(path: Path) -> Iterator[str]:
    """Yield the complete lines of a file in another program's form; none without one. Raises ``CorruptFile``."""
    if not path.exists():
        return
    with disk(path), open(path, "rb", opener=open_regular) as file:
        for number, data in enumerate(file, start=1):
            if data.endswith(b"\n"):
                try:
                    yield data[:-1].decode("utf-8")
                except UnicodeDecodeError as error:
                    raise CorruptFile(f"{path}: line {number} is not UTF-8") from error


def read_json(path: Path, what: str) -> dict[str, Any] | None:
    """Return a file that is one JSON object; None without a file. Raises ``CorruptFile`` when it is not ``what``."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            value = json.loads(file.read())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path}: is not {what}: {error}") from error
    if not isinstance(value, dict):
        raise CorruptFile(f"{path}: is not {what}: not an object")
    return value


def replace_json(path: Path, value: Any) -> None:
    """Replace a file by this value as indented JSON with sorted keys. Raises ``RecordRejected`` for values outside JSON."""
    replace_text(path, _indented(value, path))


def replace_signed(path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a file as ``replace_json`` does, with the SHA-256 of its content in ``sha256``; return the content."""
    text, digest = _signed(value, path)
    replace_text(path, text)
    return {**value, "sha256": digest}


def is_signed_file(path: Path, content: Mapping[str, Any]) -> bool:
    """Return whether a file that was read as ``content`` is as ``replace_signed`` wrote it, byte by byte but for line ends."""
    return path.read_bytes().replace(b"\r\n", b"\n") == _signed(content, path)[0].encode()


def _signed(content: Mapping[str, Any], path: Path) -> tuple[str, str]:
    # The digest is that of the text in which it is empty.
    unsigned = _indented({**content, "sha256": ""}, path)
    digest = sha256_hex(unsigned)
    # Two spaces in: a key of the object itself, as no string of JSON holds a line break.
    return unsigned.replace('\n  "sha256": ""', f'\n  "sha256": "{digest}"', 1), digest


def _indented(value: Any, path: Path) -> str:
    try:
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RecordRejected(f"{path}: {error}") from error


def replace_text(path: Path, text: str) -> None:
    """Replace a file: a reader sees the old text or the new one. 0600, parents are created.

    Raises ``RecordRejected`` when the text is not Unicode, ``StoreError`` when the disk refuses (the old file stays).
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordRejected(f"{path}: {error}") from error
    with replacing(path, "cannot be replaced") as temporary, temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path, refusal: str = "cannot be written") -> Iterator[Path]:
    """Yield a new empty file that replaces ``path`` after the block, 0600; an error in the block removes it.

    Raises ``StoreError`` with the ``refusal`` for every ``OSError``. Parents are created.
    """
    with disk(path, refusal):
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder: only within one file system is a replacement atomic.
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(fd)
        temporary = Path(name)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
