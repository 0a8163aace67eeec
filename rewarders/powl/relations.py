"""Footprints: three relations between labels, stored as bit masks and shown as sets of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress, product
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from tfgrpo.stores.errors import PowlError

Mode: TypeAlias = Literal["block", "direct", "order"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
Pairs: TypeAlias = frozenset[tuple[str, str]]


class Rows(NamedTuple):
    """Three relations over the same labels: bit j of mask i is set when label i is related to label j."""

    direct_succession: tuple[int, ...]
    concurrency: tuple[int, ...]
    exclusive: tuple[int, ...]


RELATIONS: Final = Rows._fields
_TRUTH: Final = bytes.maketrans(b"01", b"\x00\x01")


@dataclass(frozen=True, repr=False)
class Footprint:
    """Relations between the labels of a model, in one of three readings; see ``footprint``.

    Footprints are equal when all their fields are; one read from JSON has no start, end and length. Sets of pairs are
    made on first use.
    """

    mode: Mode
    activities: tuple[str, ...]
    """Every label once, sorted."""
    rows: Rows
    start_activities: frozenset[str] | None = None
    """First labels of traces; mode ``direct`` only."""
    end_activities: frozenset[str] | None = None
    """Last labels of traces; mode ``direct`` only."""
    min_trace_length: int | None = None
    """Activities of the shortest trace; mode ``direct`` only."""

    @cached_property
    def direct_succession(self) -> Pairs:
        """Pairs (a, b): a is followed by b and not the reverse; mode ``block`` may have both directions."""
        return self._pairs(self.rows.direct_succession)

    @cached_property
    def concurrency(self) -> Pairs:
        """Pairs in either order; both directions are listed."""
        return self._pairs(self.rows.concurrency)

    @cached_property
    def exclusive(self) -> Pairs:
        """Pairs of which neither follows the other; both directions are listed."""
        return self._pairs(self.rows.exclusive)

    @property
    def sequence(self) -> Pairs:
        """``direct_succession`` under its name in process mining."""
        return self.direct_succession

    @property
    def parallel(self) -> Pairs:
        """``concurrency`` under its name in process mining."""
        return self.concurrency

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {count_of(rows)}" for name, rows in zip(RELATIONS, self.rows, strict=True))
        return f"Footprint({self.mode}: {len(self.activities)} activities; {counts})"

    def _pairs(self, rows: Sequence[int]) -> Pairs:
        # Labels of one block mostly share a mask, which is expanded once.
        by_mask: dict[int, list[str]] = {}
        for label, mask in zip(self.activities, rows, strict=True):
            by_mask.setdefault(mask, []).append(label)
        related = (product(labels, self._labels(mask)) for mask, labels in by_mask.items())
        return frozenset(chain.from_iterable(related))

    def _labels(self, mask: int) -> Iterator[str]:
        # By way of the binary digits, which is ten times as fast as testing bits one by one.
        return compress(self.activities, f"{mask:b}"[::-1].encode().translate(_TRUTH))


def footprint_of_pairs(
    mode: Mode,
    *,
    direct_succession: Iterable[tuple[str, str]] = (),
    concurrency: Iterable[tuple[str, str]] = (),
    exclusive: Iterable[tuple[str, str]] = (),
    activities: Iterable[str] = (),
) -> Footprint:
    """Return a footprint of pairs of labels; ``activities`` need only name labels that are in no pair."""
    relations = tuple(frozenset(pairs) for pairs in (direct_succession, concurrency, exclusive))
    labels = tuple(sorted({*activities, *(label for pairs in relations for pair in pairs for label in pair)}))
    index = {label: position for position, label in enumerate(labels)}
    masks = [[0] * len(labels) for _ in relations]
    for pairs, rows in zip(relations, masks, strict=True):
        for left, right in pairs:
            rows[index[left]] |= 1 << index[right]
    return Footprint(mode, labels, Rows(*map(tuple, masks)))


def footprint_to_value(footprint: Footprint) -> dict[str, Any]:
    """Return a JSON object with sorted pairs, which ``footprint_from_value`` reads."""
    value: dict[str, Any] = {"mode": footprint.mode, "activities": list(footprint.activities)}
    for name in RELATIONS:
        value[name] = [list(pair) for pair in sorted(getattr(footprint, name))]
    for name in ("start_activities", "end_activities"):
        known = getattr(footprint, name)
        value[name] = None if known is None else sorted(known)
    value["min_trace_length"] = footprint.min_trace_length
    return value


def footprint_from_value(value: Mapping[str, Any]) -> Footprint:
    """Return the footprint of an object with ``direct_succession``, ``concurrency``, ``exclusive`` as lists of pairs.

    ``mode`` defaults to ``block``. Start and end activities and the trace length are not read. Raises ``PowlError``
    with a JSON pointer.
    """
    received: object = value
    if not isinstance(received, Mapping):
        raise PowlError(f"expected an object with a footprint, received {type(value).__name__}", pointer="")
    mode = value.get("mode", "block")
    if mode not in MODES:
        raise PowlError(f"expected one of {', '.join(MODES)}", pointer="/mode")
    relations = {name: _read_pairs(value.get(name, []), f"/{name}") for name in RELATIONS}
    labels = value.get("activities", [])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise PowlError("expected a list of labels", pointer="/activities")
    return footprint_of_pairs(mode, activities=labels, **relations)


def count_of(rows: Sequence[int]) -> int:
    """Return the number of pairs in a relation."""
    return sum(mask.bit_count() for mask in rows)


def _read_pairs(value: Any, pointer: str) -> list[tuple[str, str]]:
    if not isinstance(value, list):
        raise PowlError("expected a list of pairs of labels", pointer=pointer)
    for index, pair in enumerate(value):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(label, str) for label in pair):
            raise PowlError("expected a pair of labels", pointer=f"{pointer}/{index}")
    return [(pair[0], pair[1]) for pair in value]
