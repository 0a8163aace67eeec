"""Where would a vendor refuse what a looser server lets pass? Rules that cost nothing here and a night elsewhere.

A fake that takes more than the original hides faults of its clients. Names of functions and schemas, and schemas that are
to be followed strictly, keep OpenAI's rules here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"


def strict_fault(schema: Mapping[str, Any]) -> str | None:
    """Why a schema cannot be followed strictly: every object is closed, and all of its properties are required."""
    if schema.get("type") != "object":
        return "a strict schema is an object at its root"
    for place, part in _objects(schema, "schema"):
        if part.get("additionalProperties") is not False:
            return f"{place}: 'additionalProperties' is required to be supplied and to be false"
        missing = part.get("properties", {}).keys() - set(part.get("required", ()))
        if missing:
            return f"{place}: 'required' is required to include every key in properties; missing {min(missing)!r}"
    return None


def _objects(value: object, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, dict):
        if value.get("type") == "object":
            yield place, value
        for key, inner in value.items():
            yield from _objects(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _objects(inner, f"{place}.{index}")
