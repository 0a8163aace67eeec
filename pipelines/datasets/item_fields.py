"""How does a row become an item? The fields by their mapped names, each checked; nothing is guessed and nothing changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError
from tfgrpo.stores.numeric import is_finite

_NAMES: Final = 20
_NAME_CHARS: Final = 60


def item_of(values: Mapping[str, Any], fields: FieldMap, *, number: int, source: str) -> Item:
    """The item in a row; its number names it where ``fields.id`` is none. Raises ``DatasetError`` naming the field."""
    reading = _Reading(values, source, fields)
    return Item(
        id=str(number) if fields.id is None else reading.text(fields.id, numbers=True, required=True),
        prompt=reading.text(fields.prompt, required=True),
        answer=reading.text(fields.answer, numbers=True),
        system_prompt=reading.text(fields.system_prompt),
        metadata=reading.metadata(fields.metadata),
        domain=reading.text(fields.domain),
        source=source,
    )


def value_at(values: Mapping[str, Any], name: str) -> object:
    """The value of a field: of that very name, else what its dotted name leads to through objects; None for nothing."""
    if name in values or "." not in name:
        return values.get(name)
    found: object = values
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def text_key(item: Item) -> str:
    """What an actor is asked, with runs of white space folded: equal for items that are the same question."""
    return "\x1f".join(" ".join(text.split()) for text in (item.system_prompt, item.prompt))


def text_digest(item: Item) -> int:
    """64 bits of the digest of ``text_key``."""
    return _digest(text_key(item))


def content_digest(item: Item) -> int:
    """64 bits of the digest of all that the run takes from an item."""
    return _digest("\x1f".join((*said_by(item), item.domain)))


def said_by(item: Item) -> list[str]:
    """What an item says to actors, rewarders and graders; metadata, which graders go by, last and only where there is any."""
    metadata = [json.dumps(dict(item.metadata), sort_keys=True, default=str)] if item.metadata else []
    return [item.id, item.prompt, item.answer, item.system_prompt, *metadata]


def _digest(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def shown_names(names: Iterable[str]) -> str:
    """Names of fields or columns as a message has them: not without end."""
    known = list(names)
    some = ", ".join(repr(name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…") for name in known[:_NAMES])
    return f"{some} and {len(known) - _NAMES} more" if len(known) > _NAMES else some or "(there are none)"


class _Reading:
    """Reads the fields of one row."""

    def __init__(self, values: Mapping[str, Any], source: str, fields: FieldMap) -> None:
        self._values = values
        self._source = source
        self._fields = fields

    def text(self, name: str, *, numbers: bool = False, required: bool = False) -> str:
        """A field as text, as given. Absent and null are empty; a number is its text where ``numbers`` are at home."""
        value = value_at(self._values, name)
        accepted = f"{'text or a number' if numbers else 'text'} in the field {name!r}"
        if value is None and required:
            given = f"no {name!r} among the fields {shown_names(self._values)}"
            raise DatasetError.one(self._source, given, f"{accepted}, {self._fields.otherwise(name)}")
        if value is None:
            value = ""
        if numbers and isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value):
            value = str(value)
        if not isinstance(value, str):
            given = str(value) if isinstance(value, float) else type(value).__name__
            raise DatasetError.one(self._source, f"{given} in the field {name!r}", accepted)
        if required and not value.strip():
            raise DatasetError.one(self._source, f"no {name!r}", f"{accepted} that is not empty")
        return value

    def metadata(self, name: str) -> Mapping[str, Any]:
        """A JSON object; absent and null are an empty one."""
        value = value_at(self._values, name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            given = f"{type(value).__name__} in the field {name!r}"
            raise DatasetError.one(self._source, given, f"a JSON object in the field {name!r}")
        return value
