"""Transitive closure and reduction of partial orders over bit masks.

The ordered elements are 0, 1, …; bit j of mask i is set when i comes before j.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

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
    direct = [0] * size
    for before, after in pairs:
        for position in (before, after):
            if not 0 <= position < size:
                raise PowlError(f"the order names child {position}; there are children 0 to {size - 1}")
        direct[before] |= 1 << after
    reached, closed = [0] * size, 0
    for root in range(size if pairs else 0):
        path = [] if closed >> root & 1 else [root]
        while path:
            here = path[-1]
            ahead = direct[here] & ~reached[here]
            step = (ahead & -ahead).bit_length() - 1
            if not ahead:
                closed |= 1 << path.pop()
            elif closed >> step & 1:
                # What the successor reaches is not visited again, so a dense order costs as much as a chain.
                reached[here] |= reached[step] | 1 << step
            elif step in path:
                circle = [*path[path.index(step) :], step]
                shown = " -> ".join(map(str, circle[:8])) + ("" if len(circle) <= 8 else " -> …")
                raise PowlError(f"the order goes round in a circle: {shown}")
            else:
                path.append(step)
    return tuple(reached)


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
    pairs = []
    for place, position in enumerate(order, 1):
        remaining = after[position]
        for later in order[place:] if remaining else ():
            if remaining >> later & 1:
                pairs.append((position, later))
                remaining &= ~(after[later] | 1 << later)
                if not remaining:
                    break
    return frozenset(pairs)
