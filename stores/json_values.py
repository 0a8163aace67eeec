"""JSON values: read from text that may be none, frozen, turned back into builtins, and in a canonical form with digests of it.

Frozen lists are tuples, frozen objects are dictionaries that refuse changes. Equal values stay equal, hashable,
picklable and serialisable. Values outside JSON are refused.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, NoReturn, TypeAlias, cast

Json: TypeAlias = Any
"""A JSON value: string, number, boolean, None, or sequences and mappings of them."""

_MAX_DEPTH: Final = 200
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


class FrozenDict(dict[str, Any]):
    """A JSON object that cannot be changed at any depth; equal to the ``dict`` with the same content.

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
        return _from_frozen, (dict(self),)


def json_of(raw: str | bytes) -> Any:
    """Return the JSON value of a text, or None if it is not JSON."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return made


FINITE: Final = json.JSONDecoder(parse_constant=_no_constant)
"""Refuses NaN and infinity."""
UNIQUE: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)
"""Refuses them, and a key twice in one object."""


def load_json(text: str, decoder: json.JSONDecoder = FINITE) -> Any:
    """Parse JSON. Raise ``ValueError``, also for text nested too deep."""
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("JSON nested without end") from None


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def frozen(value: Json, depth: int = 0) -> Json:
    """Return a deeply immutable copy of a JSON value.

    Raises ``TypeError`` for values outside JSON (a key that is not a string, an object of another class), and
    ``ValueError`` for values nested more than 200 deep, or in themselves.
    """
    if value is None or isinstance(value, str | int | float | FrozenDict):
        return value
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return _from_frozen(_frozen_items(value, depth))
    if isinstance(value, list | tuple):
        return tuple(frozen(inner, depth + 1) for inner in value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def to_builtins(value: Any) -> Any:
    """Return a tree of dataclasses, sequences and mappings as dicts, lists and scalars."""
    # `dataclasses.asdict` copies every scalar deeply and costs ten times as much.
    kind = type(value)
    # Most are, and the isinstance checks below cost more than all the rest.
    if kind in _SCALARS:
        return value
    if isinstance(value, tuple | list):
        return [to_builtins(each) for each in value]
    if isinstance(value, Mapping):
        return {key: to_builtins(each) for key, each in value.items()}
    names = _field_names(cast("Hashable", kind))
    return value if names is None else {name: to_builtins(getattr(value, name)) for name in names}


def _from_frozen(items: dict[str, Any]) -> FrozenDict:
    # The items are frozen already: freezing them again would double the cost of a record.
    made: FrozenDict = FrozenDict.__new__(FrozenDict)
    dict.update(made, items)
    return made


def _frozen_items(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"the key {key!r} of a JSON object is not a string")
    return {key: frozen(inner, depth + 1) for key, inner in value.items()}


@cache
def _field_names(kind: Hashable) -> tuple[str, ...] | None:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


EMPTY = FrozenDict()


_BOM = "\ufeff"
_SEED_BITS = 53
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
compact_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""Returns JSON without white space, keys in their order. Raises ``ValueError`` for NaN and infinity."""


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no white space and unescaped characters. Raises ``ValueError`` for NaN and infinity."""
    return _ENCODER.encode(value)


def canonical_text(data: bytes) -> str:
    """Return a text file without byte order mark and with LF line ends. Raises ``UnicodeDecodeError`` when it is not UTF-8."""
    return data.decode("utf-8").removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")


def sha256_hex(data: str | bytes) -> str:
    """Return the SHA-256 in lower-case hex; text is encoded as UTF-8."""
    return hashlib.sha256(data.encode("utf-8") if isinstance(data, str) else data).hexdigest()


def key_digest(key: str | bytes) -> int:
    """Return a key in 128 bits, for an index in memory: a third of the text's size, collisions are negligible."""
    data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    return int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "big")


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a seed for one purpose: a function of its arguments alone, in ``[0, 2**53)``, so that JSON keeps it exact.

    ``derive_seed(0, "rollout", 1, "q-17", 0)`` and any other purpose are statistically independent.
    """
    # With the type, so that 1 and "1" are two purposes.
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in purpose)])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _SEED_BITS)


def stream(seed: int, *purpose: str | int) -> random.Random:
    """Return a separate random generator for one purpose."""
    return random.Random(derive_seed(seed, *purpose))
