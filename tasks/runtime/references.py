"""Which callable does ``module:attr`` name? Or why it cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfgrpo.rewarders.importing import referred_to


def looks_like_reference(text: str) -> bool:
    """Whether the text has the form ``package.module:attr``."""
    module, colon, attribute = text.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def import_callable(reference: str) -> Callable[..., Any]:
    """The callable that a reference names. Raises ``ValueError`` saying what is missing."""
    if not looks_like_reference(reference):
        raise ValueError("not of the form module:attr")
    try:
        found = referred_to(reference)
    except ValueError as error:
        raise ValueError(f"importing it failed: {error}") from error
    if not callable(found):
        raise ValueError(f"it is a {type(found).__name__}, which cannot be called")
    return found
