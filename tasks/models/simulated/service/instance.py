"""What is a smallest value that follows a JSON schema? For schemas that the simulated model does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EMPTY: Mapping[str, Any] = {"boolean": False, "null": None, "array": [], "object": {}}


def minimal_instance(schema: Mapping[str, Any], text: str) -> Any:
    """A value with all required parts, ``text`` where a string is free; of several kinds the first is taken."""
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return minimal_instance(schema[key][0], text)
    kind = schema.get("type", "object")
    return _of_kind(kind[0] if isinstance(kind, list) else kind, schema, text)


def _of_kind(kind: str, schema: Mapping[str, Any], text: str) -> Any:
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: minimal_instance(properties.get(name, {}), text) for name in schema.get("required", ())}
    if kind == "array":
        return [minimal_instance(schema.get("items", {}), text)] * schema.get("minItems", 0)
    if kind in {"number", "integer"}:
        return schema.get("minimum", 0)
    return text[: schema.get("maxLength", len(text))] if kind == "string" else _EMPTY[kind]
