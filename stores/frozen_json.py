"""How is a JSON value kept from changing? Lists become tuples and objects become mappings that refuse to be written to.

Equal values stay equal, and what is frozen can still be pickled and serialised. What is no JSON value is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from tfgrpo.stores.plain import plain

Json: TypeAlias = Any
"""A JSON value: text, number, truth value, None, or sequences and mappings of them."""

_DEEPEST = 200


class FrozenDict(dict[str, Any]):
    """A JSON object that cannot be changed, nor anything in it; equal to the plain ``dict`` with the same content.

    Takes what ``dict`` takes, and raises what ``frozen`` raises.
    """

    __slots__ = ()

    def __init__(self, *content: Any, **more: Any) -> None:
        super().__init__()
        dict.update(self, _frozen_items(dict(*content, **more), 0))

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this mapping is part of a frozen record; copy it with dict() to change it")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], FrozenDict], tuple[dict[str, Any]]]:
        return _holding, (dict(self),)


def frozen(value: Json, depth: int = 0) -> Json:
    """A copy that shares nothing that can change with ``value``.

    Raises ``TypeError`` for what is no JSON value (a key that is no text, an object of a class of its own), and
    ``ValueError`` for one that is nested more than 200 deep, or in itself.
    """
    if value is None or isinstance(value, str | int | float | FrozenDict):
        return value
    if depth > _DEEPEST:
        raise ValueError(f"nested more than {_DEEPEST} deep")
    if isinstance(value, Mapping):
        return _holding(_frozen_items(value, depth))
    if isinstance(value, list | tuple):
        return tuple(frozen(inner, depth + 1) for inner in value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def thawed(value: Json) -> Json:
    """A plain copy of a frozen value, with lists and dicts that may be changed."""
    return plain(value)


def _holding(items: dict[str, Any]) -> FrozenDict:
    """The object with items that are frozen already: going through them again would double the cost of every record."""
    made: FrozenDict = FrozenDict.__new__(FrozenDict)
    dict.update(made, items)
    return made


def _frozen_items(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    return {_key(key): frozen(inner, depth + 1) for key, inner in value.items()}


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"the key {key!r} of a JSON object is no text")


EMPTY = FrozenDict()
"""The frozen object without keys."""
