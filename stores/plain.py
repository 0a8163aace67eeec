"""How does a frozen value stand in a line of a file? As the dictionaries, lists and scalars that JSON knows; copies nothing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, cast

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """A tree of dataclasses, sequences and mappings as JSON holds it.

    ``dataclasses.asdict`` copies every leaf deeply and costs ten times as much; here the leaves are those of ``value``.
    """
    kind = type(value)
    if kind in _LEAVES:  # most are; asking whether one is a mapping costs more than all the rest
        return value
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    names = _names(cast("Hashable", kind))
    return value if names is None else {name: plain(getattr(value, name)) for name in names}


def storable(text: str) -> str:
    """The text with lone surrogates replaced: they come out of tools and agents, and no UTF-8 file can carry them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


@cache
def _names(kind: Hashable) -> tuple[str, ...] | None:
    """Fields of a dataclass; None for any other type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None
