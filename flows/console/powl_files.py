"""Read a process model or a reference from a file: text, JSON or a footprint, by content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tfgrpo.rewarders.powl import Footprint, Model, PowlError, footprint, model_in, parse_json, parse_text, reference_in
from tfgrpo.rewarders.powl.footprints import Mode
from tfgrpo.stores.errors import DatasetError

Format: TypeAlias = Literal["auto", "text", "json"]
_REFERENCE: Final = "a process model as text or JSON, or a footprint as JSON"


def read_model(
    raw: bytes, form: Format, *, aliases: bool = False, warn: Callable[[PowlError], object] | None = None
) -> Model:
    """Return the model in ``raw``; ``warn`` gets what is suspicious in a text. Raise ``PowlError``."""
    text = _decoded(raw)
    if form == "json":
        return parse_json(text, fenced=True)
    return (parse_text if form == "text" else model_in)(text, aliases=aliases, warn=warn)


def read_reference(path: Path, mode: Mode) -> Footprint:
    """Return the footprint to compare with. Raise ``DatasetError``, also for one of another mode."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DatasetError.one("--reference", f"{path}: {error.strerror}", _REFERENCE) from error
    reference = parse_reference(raw, f"--reference {path}")
    if not isinstance(reference, Footprint):
        return footprint(reference, mode)
    if reference.mode != mode:
        given = f"a footprint of mode {reference.mode}"
        raise DatasetError.one(f"--reference {path}", given, f"--mode {reference.mode}")
    return reference


def parse_reference(raw: bytes, source: str) -> Model | Footprint:
    """Return the model or footprint in ``raw``. Raise ``DatasetError``, which names ``source``."""
    try:
        return reference_in(_decoded(raw))
    except PowlError as error:
        raise DatasetError.one(source, str(error), _REFERENCE) from error


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8").lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise PowlError(f"byte {error.start} is no UTF-8") from None
