"""Turn pydantic's validation errors into problems of setting fields. Values that may be secret are never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tfgrpo.pipelines.problems import did_you_mean, shown
from tfgrpo.pipelines.settings.addresses import completed_address
from tfgrpo.pipelines.settings.fields import Shape, accepted_phrase, field_shape, fields_by_key, is_section, shape_of
from tfgrpo.pipelines.settings.tree import Settings

_HIDDEN = "a value that is not shown"
_NEVER_SHOWN = frozenset({"model.api_key_env", "model.api_key_secret"})
_ADDRESSES = frozenset({"model.base_url", "selection.base_url"})
_PLAIN_ADDRESS = re.compile(r"[a-z]+://[\w.-]*(?::\d+)?(?:/[\w./-]*)?")


@dataclass(frozen=True, slots=True)
class InvalidValue:
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
    key, path, shape, siblings = _located(detail["loc"])
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return InvalidValue(key, path, "an unknown key", did_you_mean(str(detail["loc"][-1]), siblings))
    given = "nothing" if kind == "missing" else shown_setting(value, key)
    if kind == "value_error":
        return InvalidValue(key, path, given, str(detail["ctx"]["error"]))
    return InvalidValue(
        key, path, given, "text that is not empty" if kind == "string_too_short" else accepted_phrase(shape)
    )


def _located(loc: Sequence[int | str]) -> tuple[str, str, Shape, Sequence[str]]:
    """Return field key, path within its value, the shape expected there, and the names known at this level."""
    shape, siblings = Shape(Settings, ()), tuple[str, ...]()
    path: list[str] = []
    for name in loc:
        below = _below(shape, name)
        siblings = tuple(shape.annotation.model_fields) if is_section(shape.annotation) else ()
        if below is None and not siblings:
            break  # pydantic names the members of a union here, which are no keys
        path.append(str(name))
        if below is None:
            break
        shape = below
    prefixes = (".".join(path[:end]) for end in range(len(path), 0, -1))
    key = next((prefix for prefix in prefixes if prefix in fields_by_key()), "")
    return key, ".".join(path)[len(key) :].lstrip("."), shape, siblings


def _below(shape: Shape, name: int | str) -> Shape | None:
    annotation: Any = shape.annotation
    if is_section(annotation):
        field = annotation.model_fields.get(str(name))
        return field_shape(field) if field is not None else None
    if get_origin(annotation) is dict:
        return shape_of(get_args(annotation)[1])
    if get_origin(annotation) is tuple and isinstance(name, int):
        return shape_of(get_args(annotation)[0])
    return None
