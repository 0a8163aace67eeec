"""What does ``module:attr`` name? Imports it, or says why it cannot be had."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def looks_like_reference(text: str) -> bool:
    """Whether the text has the form ``package.module:attr``."""
    module, colon, attribute = text.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def import_callable(reference: str) -> Callable[..., Any]:
    """The callable that a reference names. Raises ``ValueError`` saying what is missing."""
    if not looks_like_reference(reference):
        raise ValueError("not of the form module:attr")
    module_name, _, attribute = reference.partition(":")
    _look_in_working_directory()
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(f"importing {module_name} failed: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ValueError(f"{module_name} has no callable {attribute}")
    call: Callable[..., Any] = found
    return call


def _look_in_working_directory() -> None:
    """An installed script does not search the directory it is called in, where a user's own module usually lies."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
