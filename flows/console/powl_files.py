"""Read a process model or a reference from a file: text, JSON, a footprint or an event log, by content or file name."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tfgrpo.rewarders.powl import Footprint, Model, PowlError, footprint, footprint_from_value, parse_json, parse_text
from tfgrpo.rewarders.powl.event_log import discover_model, is_event_log
from tfgrpo.rewarders.powl.footprints import Mode
from tfgrpo.rewarders.powl.text import without_wrapping
from tfgrpo.stores.errors import DatasetError

Format: TypeAlias = Literal["auto", "text", "json"]
_REFERENCE: Final = "a process model as text or JSON, a footprint as JSON, or the file of an event log (.xes, .csv)"


def read_model(
    raw: bytes, form: Format, *, aliases: bool = False, warn: Callable[[PowlError], object] | None = None
) -> Model:
    """Return the model in ``raw``; ``warn`` gets what is suspicious in a text. Raise ``PowlError``."""
    text = _decoded(raw)
    if form == "json" or (form == "auto" and without_wrapping(text).lstrip().startswith("{")):
        return parse_json(text, fenced=True)
    return parse_text(text, aliases=aliases, warn=warn)


def read_reference(path: Path, mode: Mode) -> Footprint:
    """Return the footprint to compare with. Raise ``DatasetError`` as ``load_reference``, or for another mode."""
    reference = load_reference(path)
    if not isinstance(reference, Footprint):
        return footprint(reference, mode)
    if reference.mode != mode:
        given = f"a footprint of mode {reference.mode}"
        raise DatasetError.one(f"--reference {path}", given, f"--mode {reference.mode}")
    return reference


def load_reference(path: Path) -> Model | Footprint:
    """Return the model or footprint in a file, or the model discovered from an event log. Raise ``DatasetError``."""
    if is_event_log(path):
        return discover_model(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DatasetError.one("--reference", f"{path}: {error.strerror}", _REFERENCE) from error
    return parse_reference(raw, f"--reference {path}")


def parse_reference(raw: bytes, source: str) -> Model | Footprint:
    """Return the model or footprint in ``raw``. Raise ``DatasetError``, which names ``source``."""
    try:
        with suppress(ValueError, RecursionError):
            value = json.loads(_decoded(raw))
            if isinstance(value, dict) and "direct_succession" in value:
                return footprint_from_value(value)
        return read_model(raw, "auto")
    except PowlError as error:
        raise DatasetError.one(source, str(error), _REFERENCE) from error


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8").lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise PowlError(f"byte {error.start} is no UTF-8") from None
