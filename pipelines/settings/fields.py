"""List the setting fields, derived from the JSON schema of the settings; parse their text, and describe invalid values.

Command line, environment, documentation and error messages all use this list. Values that may be secret are never shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from pydantic import ValidationError

from tfgrpo.pipelines.problems import shown_value
from tfgrpo.pipelines.settings.model import MODEL_ROLES
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.text import did_you_mean

SettingSchema: TypeAlias = Mapping[str, Any]

TRUTH_VALUES = {**dict.fromkeys(("true", "1", "on", "yes"), True), **dict.fromkeys(("false", "0", "off", "no"), False)}
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
_OF_ROLES = tuple(f"model.{role}." for role in MODEL_ROLES)
_HIDDEN = "a value that is not shown"
_NEVER_SHOWN = ("api_key", "headers", "extra_body", "actor.env", "actor.command", "notify.url")
_PLAIN_ADDRESS = re.compile(r"[a-z]+://[\w.-]*(?::\d+)?(?:/[\w./-]*)?")


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

    @property
    def of_role(self) -> bool:
        """Whether it is what a role may have in place of the field of ``model``, which declares it."""
        section, _, role = self.key.rpartition(".")[0].partition(".")
        return section == "model" and role in MODEL_ROLES


class InvalidValue(NamedTuple):
    """One invalid value in a settings tree."""

    key: str
    """Dotted key of the setting field."""
    path: str
    """Dotted path within the value of the field; empty for the value itself."""
    given: str
    accepted: str


@cache
def setting_fields() -> tuple[SettingField, ...]:
    """Return every setting field that is declared, in the order of the classes."""
    return tuple(field for field in fields_by_key().values() if field.flag or not field.of_role)


@cache
def fields_by_key() -> dict[str, SettingField]:
    """Return the setting fields by dotted key, those of ``model`` for each role, too."""
    return {field.key: field for field in _walk(_settings_schema(), "")}


@cache
def fields_by_env() -> dict[str, SettingField]:
    """Return the setting fields by environment variable."""
    return {field.env: field for field in setting_fields() if field.env is not None}


def read_value(field: SettingField, raw: object) -> object:
    """Return the value of a setting that is given as text or as a value, not yet checked.

    Raise ``ValueError`` for text that is no number or no JSON. A whole number is ``int`` of the whole trimmed text: no
    ``2.0``, no unit, no suffix.
    """
    text = str(raw) if field.type is bool and raw is not None else raw
    if not isinstance(text, str):
        return raw
    trimmed = text.strip()
    if field.optional and trimmed.lower() == "none" and "none" not in field.choices:
        return None
    if field.type is bool:
        return TRUTH_VALUES.get(trimmed.lower(), text)
    return json.loads(trimmed) if field.type in {tuple, dict} else field.type(trimmed)


def same_value(key: str | None, one: object, other: object) -> bool:
    """Return whether a setting is given the same value twice, be it as text or as a number."""
    field = fields_by_key().get(key or "")
    if field is not None:
        with suppress(ValueError, RecursionError):  # what cannot be read is refused elsewhere
            return read_value(field, one) == read_value(field, other)
    return one == other


def invalid_values(error: ValidationError) -> Iterator[InvalidValue]:
    """Yield each distinct error of a validation of ``Settings``."""
    seen = set()
    for detail in error.errors(include_url=False):
        kind, value = detail["type"], detail["input"]
        if kind == "too_short" and len(value) >= detail["ctx"]["min_length"]:
            continue  # only too short without the entries that are refused already
        key, path, schema, siblings = _located(detail["loc"])
        if (key, path) in seen:
            continue
        seen.add((key, path))
        given, accepted = "nothing" if kind == "missing" else shown_setting(value, key), _accepted_phrase(schema)
        if kind == "extra_forbidden":
            given, accepted = "an unknown key", did_you_mean(str(detail["loc"][-1]), siblings)
        elif kind == "value_error":
            accepted = str(detail["ctx"]["error"])
        elif kind == "string_too_short":
            accepted = "text that is not empty"
        yield InvalidValue(key, path, given, accepted)


def shown_setting(value: object, key: str) -> str:
    """Return the value of a setting field for a message."""
    address = isinstance(value, str) and _PLAIN_ADDRESS.fullmatch(value)
    scalar = not isinstance(value, dict | list | tuple)
    unsafe = key.endswith("base_url") or key == "actor.url"
    if key.endswith(_NEVER_SHOWN) or (scalar and unsafe and not address):
        return _HIDDEN
    return shown_value(value)


@cache
def _settings_schema() -> SettingSchema:
    """Return the JSON schema of all settings."""
    return Settings.model_json_schema()


def _expanded(schema: SettingSchema) -> SettingSchema:
    """Return a schema with its reference followed and without ``null`` among its types."""
    for each in schema.get("anyOf", ()):
        if each != {"type": "null"}:
            schema = schema | each
    reference = schema.get("$ref", "").rpartition("/")[2]
    return _settings_schema()["$defs"][reference] if reference else schema


def _accepted_phrase(schema: SettingSchema) -> str:
    """Return the accepted values as a phrase: ``a whole number of at least 2``."""
    phrase = _phrase(_expanded(schema))
    return f"{phrase}, or none" if _is_optional(schema) and not phrase.endswith("none") else phrase


def _is_optional(schema: SettingSchema) -> bool:
    return {"type": "null"} in schema.get("anyOf", ())


def _walk(section: SettingSchema, prefix: str) -> Iterator[SettingField]:
    for name, schema in section["properties"].items():
        below = _expanded(schema)
        if "properties" in below:
            yield from _walk(below, f"{prefix}{name}.")
        else:
            of_model = _expanded(_settings_schema()["properties"]["model"])["properties"]
            inherited = prefix in _OF_ROLES and schema == of_model[name]
            yield SettingField(
                key=f"{prefix}{name}",
                flag=None if inherited else schema.get("flag"),
                env=None if inherited else schema.get("env"),
                type=_TYPES[below["type"]],
                default=schema.get("default", {}),  # absent of a mapping, which a factory makes
                help=" ".join(schema.get("description", "").split()),
                choices=tuple(below.get("enum", ())),
                optional=_is_optional(schema),
                accepted=_accepted_phrase(schema),
            )


def _phrase(schema: SettingSchema) -> str:
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


def _located(loc: Sequence[int | str]) -> tuple[str, str, SettingSchema, Sequence[str]]:
    """Return field key, path within its value, the schema of what is accepted there, and the names of this level."""
    schema, siblings = _settings_schema(), tuple[str, ...]()
    path: list[str] = []
    for name in loc:
        level = _expanded(schema)
        siblings = tuple(level.get("properties", ()))
        below: SettingSchema | None  # None where any is accepted
        if siblings:
            below = level["properties"].get(name)
        elif isinstance(name, int):
            below = level.get("items") or next(iter(level.get("prefixItems", ())), None)
        else:
            below = level.get("additionalProperties")
        if below is None and not siblings:
            break  # pydantic names the members of a union here, which are no keys
        path.append(str(name))
        if below is None:
            break
        schema = below
    prefixes = (".".join(path[:end]) for end in range(len(path), 0, -1))
    key = next((prefix for prefix in prefixes if prefix in fields_by_key()), "")
    return key, ".".join(path)[len(key) :].lstrip("."), schema, siblings
