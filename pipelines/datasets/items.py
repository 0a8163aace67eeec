"""Define an item, one task of a dataset, and read it from a row by the mapped names of its fields."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfgrpo.pipelines.problems import quoted_names
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError
from tfgrpo.stores.numeric import is_finite


@dataclass(frozen=True, slots=True)
class Item:
    """One task. ``answer`` is shown to rewarders and to the reflecting model, never to an actor."""

    id: str
    prompt: str
    answer: str
    """Empty when there is no reference answer."""
    system_prompt: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    source: str = ""
    """``path:line`` it was read from."""


def item_of(values: Mapping[str, Any], fields: FieldMap, *, number: int, source: str) -> Item:
    """Return the item of a row; ``number`` is its id where ``fields.id`` is None.

    Raise ``DatasetError`` naming the field.
    """
    row = _RowFields(values, source, fields)
    return Item(
        id=str(number) if fields.id is None else row.text(fields.id, numbers=True, required=True),
        prompt=row.text(fields.prompt, required=True),
        answer=row.text(fields.answer, numbers=True),
        system_prompt=row.text(fields.system_prompt),
        metadata=row.metadata(fields.metadata),
        domain=row.text(fields.domain),
        source=source,
    )


def text_digest(item: Item) -> int:
    """Return 64 bits of the digest of the prompts, with white space folded: equal for the same question."""
    return _digest("\x1f".join(" ".join(text.split()) for text in (item.system_prompt, item.prompt)))


def content_digest(item: Item) -> int:
    """Return 64 bits of the digest of all fields that a run uses."""
    return _digest("\x1f".join((*item_texts(item), item.domain)))


def item_texts(item: Item) -> list[str]:
    """Return the fields that actors, rewarders and graders read; metadata last, and only if there is any."""
    metadata = [json.dumps(dict(item.metadata), sort_keys=True, default=str)] if item.metadata else []
    return [item.id, item.prompt, item.answer, item.system_prompt, *metadata]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class _RowFields:
    """The fields of one row."""

    values: Mapping[str, Any]
    source: str
    map: FieldMap

    def text(self, name: str, *, numbers: bool = False, required: bool = False) -> str:
        """Return a field as text: absent and null are empty; a number becomes its text if ``numbers``."""
        value = self._value(name)
        accepted = f"{'text or a number' if numbers else 'text'} in the field {name!r}"
        if value is None and required:
            given = f"no {name!r} among the fields {quoted_names(self.values)}"
            raise DatasetError.one(self.source, given, f"{accepted}, {self.map.remedy(name)}")
        if value is None:
            value = ""
        if numbers and isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value):
            value = str(value)
        if not isinstance(value, str):
            given = str(value) if isinstance(value, float) else type(value).__name__
            raise DatasetError.one(self.source, f"{given} in the field {name!r}", accepted)
        if required and not value.strip():
            raise DatasetError.one(self.source, f"no {name!r}", f"{accepted} that is not empty")
        return value

    def metadata(self, name: str) -> Mapping[str, Any]:
        """Return a JSON object; an empty one if absent or null."""
        value = self._value(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            given = f"{type(value).__name__} in the field {name!r}"
            raise DatasetError.one(self.source, given, f"a JSON object in the field {name!r}")
        return value

    def _value(self, name: str) -> object:
        """Return the column of exactly this name, else the value at the dotted path; None if absent."""
        if name in self.values or "." not in name:
            return self.values.get(name)
        value: object = self.values
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value
