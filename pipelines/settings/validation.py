"""Turn pydantic's validation errors into problems of setting fields. Values that may be secret are never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tfgrpo.pipelines.problems import did_you_mean, shown
from tfgrpo.pipelines.settings.addresses import completed_address
from tfgrpo.pipelines.settings.fields import JsonSchema, accepted_phrase, expanded, fields_by_key, settings_schema

_HIDDEN = "a value that is not shown"
_NEVER_SHOWN = frozenset({"model.api_key_env", "model.api_key_secret"})
_ADDRESSES = frozenset({"model.base_url", "selection.base_url"})
_PLAIN_ADDRESS = re.compile(r"[a-z]+://[\w.-]*(?::\d+)?(?:/[\w./-]*)?")


class InvalidValue(NamedTuple):
    """One invalid value in a settings tree."""

    key: str
    """Dotted key of the setting field."""
    path: str
    """Dotted path within the value of the field; empty for the value itself."""
    given: str
    accepted: str


def invalid_values(error: ValidationError) -> Iterator[InvalidValue]:
    """Yield each distinct error of a validation of ``Settings``."""
    seen = set()
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # only too short without the entries that are refused already
        invalid = _described(detail)
        if (invalid.key, invalid.path) not in seen:
            seen.add((invalid.key, invalid.path))
            yield invalid


def shown_setting(value: object, key: str) -> str:
    """Return the value of a setting field for a message."""
    address = isinstance(value, str) and (_PLAIN_ADDRESS.fullmatch(value) or completed_address(value))
    scalar = not isinstance(value, dict | list | tuple)
    if scalar and (key in _NEVER_SHOWN or (key in _ADDRESSES and not address)):
        return _HIDDEN
    return shown(value)


def _described(detail: ErrorDetails) -> InvalidValue:
    key, path, schema, siblings = _located(detail["loc"])
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return InvalidValue(key, path, "an unknown key", did_you_mean(str(detail["loc"][-1]), siblings))
    given = "nothing" if kind == "missing" else shown_setting(value, key)
    if kind == "value_error":
        return InvalidValue(key, path, given, str(detail["ctx"]["error"]))
    return InvalidValue(
        key, path, given, "text that is not empty" if kind == "string_too_short" else accepted_phrase(schema)
    )


def _located(loc: Sequence[int | str]) -> tuple[str, str, JsonSchema, Sequence[str]]:
    """Return field key, path within its value, the schema of what is accepted there, and the names of this level."""
    schema, siblings = settings_schema(), tuple[str, ...]()
    path: list[str] = []
    for name in loc:
        below = _below(schema, name)
        siblings = tuple(expanded(schema).get("properties", ()))
        if below is None and not siblings:
            break  # pydantic names the members of a union here, which are no keys
        path.append(str(name))
        if below is None:
            break
        schema = below
    prefixes = (".".join(path[:end]) for end in range(len(path), 0, -1))
    key = next((prefix for prefix in prefixes if prefix in fields_by_key()), "")
    return key, ".".join(path)[len(key) :].lstrip("."), schema, siblings


def _below(schema: JsonSchema, name: int | str) -> JsonSchema | None:
    """Return the schema of a key or an entry; None where any is accepted."""
    schema = expanded(schema)
    below: JsonSchema | None
    if "properties" in schema:
        below = schema["properties"].get(name)
    elif isinstance(name, int):
        below = schema.get("items") or next(iter(schema.get("prefixItems", ())), None)
    else:
        below = schema.get("additionalProperties")
    return below
