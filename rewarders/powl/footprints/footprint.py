"""How do the labels of a model relate to each other? Chooses the reading; each reading is a file of its own."""

from __future__ import annotations

from tfgrpo.rewarders.powl.footprints.block import block_rows
from tfgrpo.rewarders.powl.footprints.direct import directly_follows
from tfgrpo.rewarders.powl.footprints.order import eventually_follows
from tfgrpo.rewarders.powl.footprints.relations import MODES, Footprint, Mode, Rows
from tfgrpo.rewarders.powl.model import Activity, Model, walk
from tfgrpo.rewarders.powl.partial_order import bits, predecessors


def footprint(model: Model, mode: Mode = "block") -> Footprint:
    """Three relations between the labels of a model. Silent steps are in none of them.

    ``block`` relates whole blocks: all labels of a child of a SEQUENCE to all labels of the next one, all labels of
    different branches to each other. It does not depend on traces; a pair can be in several relations.
    ``direct`` is the footprint of the directly-follows relation a > b over the model's language (van der Aalst, Weijters
    and Maruster 2004): a -> b when a > b and not b > a, concurrent when both, exclusive when neither.
    ``order`` is the same over "b comes somewhere after a in some trace", the behavioural profile (Weidlich, Mendling and
    Weske 2011). In the last two exactly one holds between any two labels: one follows the other, or the other way round,
    or concurrent, or exclusive; a label that never comes twice is exclusive with itself.
    Raises ``ValueError`` for a mode that does not exist.
    """
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    labels = tuple(sorted({node.label for node in walk(model) if isinstance(node, Activity)}))
    index = {label: position for position, label in enumerate(labels)}
    if mode == "block":
        return Footprint(mode, labels, block_rows(model, index))
    if mode == "order":
        return Footprint(mode, labels, _compared(eventually_follows(model, index)))
    follows = directly_follows(model, index)
    return Footprint(
        mode,
        labels,
        _compared(follows.rows),
        frozenset(labels[position] for position in bits(follows.first)),
        frozenset(labels[position] for position in bits(follows.last)),
        follows.shortest,
    )


def as_footprint(given: Model | Footprint, mode: Mode) -> Footprint:
    """The footprint itself, or the one of a model in this mode."""
    return given if isinstance(given, Footprint) else footprint(given, mode)


def _compared(follows: list[int]) -> Rows:
    """A relation against its inverse: one way, both ways, neither."""
    inverse = predecessors(follows)
    everything = (1 << len(follows)) - 1
    return Rows(
        tuple(one & ~other for one, other in zip(follows, inverse, strict=True)),
        tuple(one & other for one, other in zip(follows, inverse, strict=True)),
        tuple(everything & ~(one | other) for one, other in zip(follows, inverse, strict=True)),
    )
