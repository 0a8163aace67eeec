"""OpenAI's rules for schemas that are to be followed strictly."""

from collections.abc import Iterator, Mapping
from typing import Any


def strict_fault(schema: Mapping[str, Any]) -> str | None:
    """Return why a schema cannot be followed strictly: every object is closed, and all of its properties are required."""
    if schema.get("type") != "object":
        return "a strict schema is an object at its root"
    for path, node in _objects(schema, "schema"):
        if node.get("additionalProperties") is not False:
            return f"{path}: 'additionalProperties' is required to be supplied and to be false"
        missing = node.get("properties", {}).keys() - set(node.get("required", ()))
        if missing:
            return f"{path}: 'required' is required to include every key in properties; missing {min(missing)!r}"
    return None


def _objects(value: object, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, dict) and value.get("type") == "object":
        yield path, value
    for key, inner in parts:
        yield from _objects(inner, f"{path}.{key}")
