"""Transitive closure and reduction of partial orders over bit masks.

The ordered elements are 0, 1, …; bit j of mask i is set when i comes before j.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tfgrpo.stores.errors import PowlError


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the set bits, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def add_pairs(rows: list[int], left: int, right: int) -> None:
    """Relate every element of the mask ``left`` to every element of ``right``."""
    while left and right:
        lowest = left & -left
        rows[lowest.bit_length() - 1] |= right
        left ^= lowest


def successors(size: int, pairs: Collection[tuple[int, int]]) -> tuple[int, ...]:
    """Return for each of ``size`` elements the mask of all that come after it, directly or transitively.

    Raises ``PowlError`` for a pair with an unknown element, or with the same one twice, and for a cycle.
    """
    if not pairs:
        return (0,) * size
    direct = [0] * size
    for before, after in pairs:
        for position in (before, after):
            if not 0 <= position < size:
                raise PowlError(f"the order names child {position}; there are children 0 to {size - 1}")
        direct[before] |= 1 << after
    closed, order = list(direct), _sorted(direct)
    for place in reversed(range(size)):
        position = order[place]
        for later in _nearest(direct[position], order[place + 1 :], closed):
            closed[position] |= closed[later]
    return tuple(closed)


def predecessors(after: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse relation: the bit matrix, transposed as text."""
    if not any(after):
        return tuple(after)
    digits = [f"{mask:0{len(after)}b}" for mask in reversed(after)]
    return tuple(int("".join(column), 2) for column in zip(*digits, strict=True))[::-1]


def covering_pairs(after: Sequence[int]) -> frozenset[tuple[int, int]]:
    """Return the transitive reduction of a closure: the pairs that do not follow from others."""
    # An element before another one has more successors.
    order = sorted(range(len(after)), key=lambda position: -after[position].bit_count())
    return frozenset(
        (position, later)
        for place, position in enumerate(order)
        for later in _nearest(after[position], order[place + 1 :], after)
    )


def _nearest(mask: int, order: Iterable[int], after: Sequence[int]) -> Iterator[int]:
    """Yield the elements of the mask that come after no other of them. ``order`` lists all of them, earlier ones first.

    The successors of an element leave the mask at once, so a dense order costs as much as a chain.
    """
    for position in order:
        if not mask:
            return
        if mask >> position & 1:
            yield position
            mask &= ~(after[position] | 1 << position)


def _sorted(direct: Sequence[int]) -> list[int]:
    """Return a topological order: depth first, backwards (Tarjan 1976). ``graphlib`` would visit every pair."""
    done: list[int] = []
    closed = opened = 0
    for root in range(len(direct)):
        path = [] if closed >> root & 1 else [root]
        while path:
            here = path[-1]
            opened |= 1 << here
            ahead = direct[here] & ~closed
            if not ahead:
                closed |= 1 << path.pop()
                done.append(here)
                continue
            step = (ahead & -ahead).bit_length() - 1
            if opened >> step & 1:
                circle = [*path[path.index(step) :], step]
                shown = " -> ".join(map(str, circle[:8])) + ("" if len(circle) <= 8 else " -> …")
                raise PowlError(f"the order goes round in a circle: {shown}")
            path.append(step)
    return done[::-1]
