"""Which process model is in an answer, and which in a reference? Text and JSON, told apart by their beginning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tfgrpo.rewarders.powl import Footprint, Mode, Model, footprint, footprint_from_value, parse_json, parse_text
from tfgrpo.rewarders.powl.parsing.text import without_wrapping
from tfgrpo.stores.errors import PowlError

REFERENCE_KEYS: Final = ("reference", "footprint")
"""Where in an item's metadata a reference may stand, when the item has no answer: a model or a footprint."""


def model_in(answer: str, *, aliases: bool = False) -> Model:
    """The model in an answer, with reasoning in tags, code fences and, around text, prose. Raises ``PowlError``."""
    if without_wrapping(answer).lstrip().startswith("{"):
        return parse_json(answer, fenced=True)
    return parse_text(answer, aliases=aliases)


def reference_in(answer: str, metadata: Mapping[str, Any], mode: Mode, *, aliases: bool = False) -> Footprint | None:
    """The footprint to compare with: of the item's answer, else of its metadata; None when there is neither.

    Raises ``PowlError`` for a reference that is no model and no footprint, and for a footprint of another mode.
    """
    given = answer if answer.strip() else next((metadata[key] for key in REFERENCE_KEYS if metadata.get(key)), None)
    if given is None:
        return None
    value = _object(given)
    if value is None:
        if not isinstance(given, str):
            raise PowlError(f"{type(given).__name__} is no process model")
        return footprint(model_in(given, aliases=aliases), mode)
    if "direct_succession" not in value:
        return footprint(parse_json(value), mode)
    found = footprint_from_value(value)
    if found.mode != mode:
        raise PowlError(f"it is a footprint of mode {found.mode}, and the mode asked for is {mode}")
    return found


def first_line(error: PowlError) -> str:
    """Where and what is wrong, without the excerpt below it."""
    return str(error).split("\n", maxsplit=1)[0]


def _object(given: object) -> Mapping[str, Any] | None:
    """A reference that is an object, or the text of one."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return None
    return given if isinstance(given, Mapping) else None
