"""List the setting fields, derived from the JSON schema of the settings, and parse their text.

Command line, environment, documentation and error messages all use this list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from tfgrpo.pipelines.settings.tree import Settings

JsonSchema: TypeAlias = Mapping[str, Any]

TRUE_WORDS = ("true", "1", "on", "yes")
FALSE_WORDS = ("false", "0", "off", "no")
_NONE = "none"
_TYPES = {"boolean": bool, "integer": int, "number": float, "string": str, "array": tuple, "object": dict}
_PHRASES = {
    "boolean": "true, false, 1, 0, on, off, yes or no",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
}
_BOUNDS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "below {}",
}


@dataclass(frozen=True, slots=True)
class SettingField:
    """One settable value: its dotted key, option and environment variable."""

    key: str
    flag: str | None
    """Command-line option. None: set by ``--set KEY=VALUE`` or the pipeline file."""
    env: str | None
    type: type
    """``bool``, ``int``, ``float``, ``str``; ``tuple`` or ``dict`` when its text is JSON."""
    default: object
    """As JSON."""
    help: str
    choices: tuple[str, ...]
    """The accepted words; empty for any text."""
    optional: bool
    """``none`` unsets it."""
    accepted: str
    """The accepted values as a phrase."""


@cache
def setting_fields() -> tuple[SettingField, ...]:
    """Return every setting field, in the order of the classes."""
    return tuple(_walk(settings_schema(), ""))


@cache
def fields_by_key() -> dict[str, SettingField]:
    """Return the setting fields by dotted key."""
    return {field.key: field for field in setting_fields()}


@cache
def fields_by_env() -> dict[str, SettingField]:
    """Return the setting fields by environment variable."""
    return {field.env: field for field in setting_fields() if field.env is not None}


def parse_text(field: SettingField, text: str) -> object:
    """Return the value of a text, not yet checked against its range. Raise ``ValueError``.

    A whole number is ``int`` of the whole trimmed text: no ``2.0``, no unit, no suffix.
    """
    trimmed = text.strip()
    if field.optional and trimmed.lower() == _NONE:
        return None
    if field.type is bool:
        return parse_bool(trimmed)
    if field.type in {int, float}:
        return field.type(trimmed)
    if field.type is str:
        return trimmed
    return json.loads(trimmed)


def parse_bool(text: str) -> bool:
    """Parse one of eight words, in any case. Raise ``ValueError``."""
    word = text.strip().lower()
    if word not in TRUE_WORDS + FALSE_WORDS:
        raise ValueError(f"not a truth value: {text!r}")
    return word in TRUE_WORDS


@cache
def settings_schema() -> JsonSchema:
    """Return the JSON schema of all settings."""
    return Settings.model_json_schema()


def expanded(schema: JsonSchema) -> JsonSchema:
    """Return a schema with its reference followed and without ``null`` among its types."""
    for each in schema.get("anyOf", ()):
        if each != {"type": "null"}:
            schema = schema | each
    reference = schema.get("$ref", "").rpartition("/")[2]
    return settings_schema()["$defs"][reference] if reference else schema


def accepted_phrase(schema: JsonSchema) -> str:
    """Return the accepted values as a phrase: ``a whole number of at least 2``."""
    phrase = _phrase(expanded(schema))
    return f"{phrase}, or none" if _is_optional(schema) else phrase


def _is_optional(schema: JsonSchema) -> bool:
    return {"type": "null"} in schema.get("anyOf", ())


def _walk(section: JsonSchema, prefix: str) -> Iterator[SettingField]:
    for name, schema in section["properties"].items():
        below = expanded(schema)
        if "properties" in below:
            yield from _walk(below, f"{prefix}{name}.")
        else:
            yield SettingField(
                key=f"{prefix}{name}",
                flag=schema.get("flag"),
                env=schema.get("env"),
                type=_TYPES[below["type"]],
                default=schema.get("default", {}),
                help=" ".join(schema.get("description", "").split()),
                choices=tuple(below.get("enum", ())),
                optional=_is_optional(schema),
                accepted=accepted_phrase(schema),
            )


def _phrase(schema: JsonSchema) -> str:
    if "enum" in schema:
        *words, last = schema["enum"]
        return f"{', '.join(words)} or {last}"
    if schema.get("type") is None:
        return "text, a finite number, true or false, or a list or mapping of those"
    phrase = _PHRASES[schema["type"]]
    if schema.get("minItems") == 1:
        return f"{phrase} that is not empty"
    if "minimum" in schema and "maximum" in schema:
        return f"{phrase} from {_number(schema['minimum'])} to {_number(schema['maximum'])}"
    bounds = [words.format(_number(schema[bound])) for bound, words in _BOUNDS.items() if bound in schema]
    return f"{phrase} {' and '.join(bounds)}".strip()


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
