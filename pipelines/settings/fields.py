"""List the setting fields, derived from the settings classes, and parse their text.

Command line, environment, documentation and error messages all use this list.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from tfgrpo.pipelines.settings.tree import Settings

TRUE_WORDS = ("true", "1", "on", "yes")
FALSE_WORDS = ("false", "0", "off", "no")
_NONE = "none"


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
    help: str
    choices: tuple[str, ...] = ()
    """The accepted words; empty for any text."""
    optional: bool = False
    """``none`` unsets it."""
    accepted: str = ""
    """The accepted values as a phrase."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An annotation without ``Annotated`` and ``| None``."""

    annotation: Any
    metadata: tuple[Any, ...]
    optional: bool = False


def shape_of(annotation: object, metadata: tuple[Any, ...] = ()) -> Shape:
    """Strip ``Annotated`` and ``| None``, and collect the constraints."""
    optional = False
    while True:
        arguments = get_args(annotation)
        if get_origin(annotation) is Annotated:
            annotation, metadata = arguments[0], (*metadata, *_flat(arguments[1:]))
        elif get_origin(annotation) in {Union, types.UnionType} and type(None) in arguments and len(arguments) == 2:
            annotation, optional = next(part for part in arguments if part is not type(None)), True
        else:
            return Shape(annotation, metadata, optional)


def field_shape(field: FieldInfo) -> Shape:
    """Return the shape of a field of a settings class."""
    return shape_of(field.annotation, tuple(field.metadata))


def accepted_phrase(shape: Shape) -> str:
    """Return the accepted values as a phrase: ``a whole number of at least 2``."""
    phrase = _phrase(shape.annotation, shape.metadata)
    return f"{phrase}, or none" if shape.optional else phrase


@cache
def setting_fields() -> tuple[SettingField, ...]:
    """Return every setting field, in the order of the classes."""
    return tuple(_walk(Settings, ""))


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


def section_of(key: str) -> type[BaseModel] | None:
    """Return the settings class at a dotted key; None for a setting field or an unknown key."""
    section: type[BaseModel] = Settings
    for name in key.split(".") if key else ():
        field = section.model_fields.get(name)
        below = field.annotation if field is not None else None
        if not is_section(below):
            return None
        section = below
    return section


def is_section(annotation: object) -> TypeGuard[type[BaseModel]]:
    """Return whether an annotation is a settings class."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _walk(section: type[BaseModel], prefix: str) -> Iterator[SettingField]:
    for name, field in section.model_fields.items():
        key = f"{prefix}{name}"
        if is_section(field.annotation):
            yield from _walk(field.annotation, f"{key}.")
        else:
            yield _setting_field(key, field)


def _setting_field(key: str, field: FieldInfo) -> SettingField:
    shape = field_shape(field)
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    flag, env = extra.get("flag"), extra.get("env")
    origin = get_origin(shape.annotation)
    choices = tuple(str(word) for word in get_args(shape.annotation)) if origin is Literal else ()
    return SettingField(
        key=key,
        flag=str(flag) if flag is not None else None,
        env=str(env) if env is not None else None,
        type=str if origin is Literal else origin or shape.annotation,
        default=field.get_default(call_default_factory=True),
        help=" ".join((field.description or "").split()),
        choices=choices,
        optional=shape.optional,
        accepted=accepted_phrase(shape),
    )


def _phrase(annotation: object, metadata: tuple[Any, ...]) -> str:
    if get_origin(annotation) is Literal:
        *words, last = (str(word) for word in get_args(annotation))
        return f"{', '.join(words)} or {last}"
    if annotation in {int, float}:
        return " ".join(["a whole number" if annotation is int else "a number", *_bounds(metadata)])
    if annotation in {str, bool}:
        return "text" if annotation is str else "true, false, 1, 0, on, off, yes or no"
    if annotation is JsonValue:
        return "text, a finite number, true or false, or a list or mapping of those"
    if get_origin(annotation) is dict or is_section(annotation):
        return "a mapping"
    return "a list that is not empty" if any(isinstance(part, MinLen) for part in metadata) else "a list"


def _bounds(metadata: tuple[Any, ...]) -> list[str]:
    low = next((part for part in metadata if isinstance(part, Ge | Gt)), None)
    high = next((part for part in metadata if isinstance(part, Le | Lt)), None)
    if isinstance(low, Ge) and isinstance(high, Le):
        return [f"from {_number(low.ge)} to {_number(high.le)}"]
    words = []
    if low is not None:
        words.append(f"of at least {_number(low.ge)}" if isinstance(low, Ge) else f"above {_number(low.gt)}")
    if high is not None:
        words.append(f"of at most {_number(high.le)}" if isinstance(high, Le) else f"below {_number(high.lt)}")
    return [" and ".join(words)] if words else []


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _flat(metadata: tuple[Any, ...]) -> Iterator[Any]:
    for part in metadata:
        yield from part.metadata if isinstance(part, FieldInfo) else (part,)
