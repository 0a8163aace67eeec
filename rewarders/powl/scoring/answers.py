"""Find the process model in an answer, and the footprint of a reference: text or JSON, by the first character."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tfgrpo.rewarders.powl import Footprint, Model, footprint, footprint_from_value, parse_json, parse_text
from tfgrpo.rewarders.powl.footprints import Mode
from tfgrpo.rewarders.powl.parsing.text import without_wrapping
from tfgrpo.stores.errors import PowlError

REFERENCE_KEYS: Final = ("reference", "footprint")
"""Metadata of an item without an answer that may be its reference: a model or a footprint."""


def model_in(answer: str, *, aliases: bool = False) -> Model:
    """Return the model in an answer with reasoning tags, code fences and, around text, prose. Raises ``PowlError``."""
    if without_wrapping(answer).lstrip().startswith("{"):
        return parse_json(answer, fenced=True)
    return parse_text(answer, aliases=aliases)


def reference_in(answer: str, metadata: Mapping[str, Any], mode: Mode, *, aliases: bool = False) -> Footprint | None:
    """Return the reference footprint: of the item's answer, else of its metadata; None without either.

    Raises ``PowlError`` for a reference that is neither model nor footprint, and for a footprint of another mode.
    """
    given = answer if answer.strip() else next((metadata[key] for key in REFERENCE_KEYS if metadata.get(key)), None)
    if given is None:
        return None
    value = given
    if isinstance(given, str):
        try:
            value = json.loads(given)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, Mapping):
        if not isinstance(given, str):
            raise PowlError(f"{type(given).__name__} is no process model")
        return footprint(model_in(given, aliases=aliases), mode)
    if "direct_succession" not in value:
        return footprint(parse_json(value), mode)
    reference = footprint_from_value(value)
    if reference.mode != mode:
        raise PowlError(f"it is a footprint of mode {reference.mode}, and the mode asked for is {mode}")
    return reference


def first_line(error: PowlError) -> str:
    """Return position and reason of an error, without the excerpt."""
    return str(error).split("\n", maxsplit=1)[0]
