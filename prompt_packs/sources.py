"""Read the manifest and sources of a pack from its directory; they are verified in ``tfgrpo.prompt_packs.stamps``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tfgrpo.prompt_packs.models import PromptPackManifest
from tfgrpo.stores.canonical import canonical_text
from tfgrpo.stores.errors import PackError, Problem

MANIFEST = "manifest.json"
MAX_SOURCE_BYTES = 256 * 1024


def read_manifest(directory: Path) -> PromptPackManifest:
    """Read ``manifest.json`` strictly. Raise ``PackError`` with all its problems."""
    path = directory / MANIFEST
    text = read_text(directory, MANIFEST)
    try:
        json.loads(text, object_pairs_hook=_no_key_twice)
        manifest = PromptPackManifest.model_validate_json(text)
    except ValidationError as error:
        raise PackError([_problem(path, dict(part)) for part in error.errors()]) from None
    except (ValueError, RecursionError) as error:
        raise PackError.one(str(path), str(error) or type(error).__name__, "a JSON object") from None
    if manifest.id != directory.resolve().name and manifest.id != directory.name:
        raise PackError.one(str(path), f"id {manifest.id!r}", f"the name of its directory, {directory.name!r}")
    return manifest


def read_text(directory: Path, name: str) -> str:
    """Read one file of a pack as UTF-8, without byte order mark, with LF line ends.

    Raise ``PackError`` if it is missing, not UTF-8, too large, no plain file, or a link to outside the directory.
    """
    path = directory / name
    try:
        if not path.resolve(strict=True).is_relative_to(directory.resolve(strict=True)):
            raise PackError.one(str(path), "a link that leaves the pack", "a file inside the pack")
        if not path.is_file():
            raise PackError.one(str(path), "no plain file", "a text file")
        with path.open("rb") as stream:
            raw = stream.read(MAX_SOURCE_BYTES + 1)
    except OSError as error:
        given = "no such file" if isinstance(error, FileNotFoundError) else type(error).__name__
        raise PackError.one(str(path), given, "a readable text file") from None
    if len(raw) > MAX_SOURCE_BYTES:
        raise PackError.one(str(path), "a larger file", f"at most {MAX_SOURCE_BYTES} bytes")
    try:
        return canonical_text(raw)
    except ValueError:
        raise PackError.one(str(path), "bytes that are not UTF-8", "UTF-8 text") from None


def read_sources(directory: Path, manifest: PromptPackManifest) -> tuple[dict[str, str], tuple[Problem, ...]]:
    """Read every source of the manifest: return texts by name with their headers, and the problems of the others."""
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for name in manifest.source_names:
        try:
            texts[name] = read_text(directory, name)
        except PackError as error:
            problems += error.problems
    return texts, tuple(problems)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key twice in one object")
    return unique


def _problem(path: Path, part: dict[str, Any]) -> Problem:
    where = ".".join(map(str, part["loc"])) or "manifest"
    given = "nothing" if part["type"] == "missing" else repr(part["input"])[:80]
    return Problem(f"{path}: {where}", given, part["msg"])
