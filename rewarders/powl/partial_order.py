"""What follows from the pairs of a partial order? Its closure and its shortest description, over bit masks.

Knows nothing of models: the ordered things are 0, 1, … and bit j of mask i says that i comes before j.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stores.errors import PowlError


def bits(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def add_pairs(rows: list[int], left: int, right: int) -> None:
    """Put everything of the mask ``left`` before everything of ``right``."""
    if right:
        for position in bits(left):
            rows[position] |= right


def successors(count: int, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """For each of ``count`` things, the mask of all that come after it, directly or through others.

    Raises ``PowlError`` for a pair that names no thing or orders one before itself, and for a cycle.
    """
    direct = [0] * count
    for before, after in pairs:
        for position in (before, after):
            if not 0 <= position < count:
                raise PowlError(f"the order names child {position}; there are children 0 to {count - 1}")
        direct[before] |= 1 << after
    closed = [0] * count
    for position in reversed(_sorted(direct)):
        closed[position] = direct[position]
        for after in bits(direct[position]):
            closed[position] |= closed[after]
    return tuple(closed)


def predecessors(after: Sequence[int]) -> tuple[int, ...]:
    """The same relation looked at from the other end: the matrix of bits, turned over its diagonal as text."""
    digits = [f"{mask:0{len(after)}b}" for mask in reversed(after)]
    return tuple(int("".join(column), 2) for column in zip(*digits, strict=True))[::-1]


def covering_pairs(after: Sequence[int]) -> frozenset[tuple[int, int]]:
    """The pairs of a closure that do not follow from others: its transitive reduction."""
    pairs: set[tuple[int, int]] = set()
    for position, mask in enumerate(after):
        implied = 0
        for later in bits(mask):
            implied |= after[later]
        pairs.update((position, later) for later in bits(mask & ~implied))
    return frozenset(pairs)


def _sorted(direct: Sequence[int]) -> list[int]:
    """Every thing before all that come after it (Kahn 1962)."""
    open_before = [0] * len(direct)
    for mask in direct:
        for later in bits(mask):
            open_before[later] += 1
    ready = [position for position, left in enumerate(open_before) if not left]
    for position in ready:
        for later in bits(direct[position]):
            open_before[later] -= 1
            if not open_before[later]:
                ready.append(later)
    if len(ready) < len(direct):
        raise PowlError(f"the order goes round in a circle: {_circle(direct, open_before)}")
    return ready


def _circle(direct: Sequence[int], open_before: Sequence[int]) -> str:
    """One circle among the things that never became ready. Each of them has a predecessor there, so walk backwards."""
    stuck = {position for position, left in enumerate(open_before) if left}
    path: list[int] = []
    here = min(stuck)
    while here not in path:
        path.append(here)
        here = next(position for position in sorted(stuck) if direct[position] >> here & 1)
    circle = [here, *reversed(path[path.index(here) :])]
    shown = circle if len(circle) <= 8 else [*circle[:8]]
    return " -> ".join(map(str, shown)) + ("" if shown == circle else " -> …")
