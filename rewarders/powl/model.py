"""Process models: frozen trees of activities, silent steps and five operators that are always well-formed.

A tree that breaks a rule raises ``PowlError`` when it is made. Only the parsers recurse, two frames a level, so a
model of the greatest depth fits on any usual stack.

SEQUENCE runs its children in order, XOR runs one of them, PARALLEL all of them in any interleaving. LOOP has two
children, do and redo: do runs once, and then any number of times redo followed by do. PARTIAL_ORDER runs all of them;
a pair (i, j) of its order requires that child i finishes before child j starts (Kourani and van Zelst 2023,
"POWL: Partially Ordered Workflow Language").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from tfgrpo.rewarders.powl.partial_order import covering_pairs, successors
from tfgrpo.stores.errors import PowlError

OperatorKind: TypeAlias = Literal["SEQUENCE", "XOR", "PARALLEL", "LOOP", "PARTIAL_ORDER"]
OPERATORS: Final[tuple[OperatorKind, ...]] = get_args(OperatorKind)

MAX_DEPTH: Final = 200
"""Nested operators of the deepest model."""
MAX_NODES: Final = 2_000
"""Activities, silent steps and operators of the largest model."""
ROOT_ID: Final = "n"
"""Default id of a root; child i of node p is ``p.i``."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """What a node without children has in common with an operator."""

    id: str | None = field(default=None, compare=False, repr=False, kw_only=True)
    children: ClassVar[tuple[Model, ...]] = ()
    depth: ClassVar[int] = 0
    size: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_text(self.id, "an id")


@dataclass(frozen=True, slots=True)
class Activity(_Leaf):
    """A step with a label. Two activities are equal when their labels are; ``id`` does not count."""

    label: str

    def __post_init__(self) -> None:
        _check_text(self.label, "a label", optional=False)
        _check_text(self.id, "an id")


@dataclass(frozen=True, slots=True)
class Silent(_Leaf):
    """An invisible step, which is in no trace. ``XOR(a, SILENT())`` makes ``a`` optional."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operator:
    """A kind and its children in order. Equal when kind, children and order are; ids do not count.

    ``order`` is for PARTIAL_ORDER alone and is reduced to the pairs that do not follow from others.
    Raises ``PowlError`` for no children, a child that is no model, a LOOP without exactly two, an order that is cyclic
    or names a missing child, and a tree that is too deep or too large.
    """

    kind: OperatorKind
    children: tuple[Model, ...]
    order: frozenset[tuple[int, int]] = frozenset()
    id: str | None = field(default=None, kw_only=True)
    depth: int = field(init=False)
    """Nested operators, including this one."""
    size: int = field(init=False)
    """Nodes of this tree."""

    def __post_init__(self) -> None:
        kind, children, order = self.kind, tuple(self.children), self.order
        for child in children:
            check_model(child)
        _check_text(self.id, "an id")
        if kind not in OPERATORS:
            raise PowlError(f"{kind!r} is no operator; there are {', '.join(OPERATORS)}")
        if not children:
            raise PowlError(f"{kind} has no children")
        if kind == "LOOP" and len(children) != 2:
            raise PowlError(f"LOOP takes exactly two children, do and redo, and has {len(children)}")
        if order and kind != "PARTIAL_ORDER":
            raise PowlError(f"only PARTIAL_ORDER takes an order, not {kind}")
        depth, size = 1 + max(child.depth for child in children), 1 + sum(child.size for child in children)
        if depth > MAX_DEPTH:
            raise PowlError(f"the model has more than {MAX_DEPTH} levels")
        if size > MAX_NODES:
            raise PowlError(f"the model has more than {MAX_NODES:,} nodes")
        reduced = covering_pairs(successors(len(children), order)) if order else frozenset()
        for name, value in (("children", children), ("order", reduced), ("depth", depth), ("size", size)):
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return _flat(self) == _flat(other) if isinstance(other, Operator) else NotImplemented

    def __hash__(self) -> int:
        return hash(_flat(self))

    def __repr__(self) -> str:
        return f"Operator({self.kind}, {self.size} nodes, labels {labels_of(self)[:4]!r})"

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Sequence[_Flat]]]:
        return _rebuilt, (_flat(self, ids=True),)


Model: TypeAlias = Activity | Silent | Operator
_Flat: TypeAlias = Activity | Silent | tuple[OperatorKind, int, frozenset[tuple[int, int]], str | None]
"""A leaf, or an operator with the number of its children in their place."""


class Site(NamedTuple):
    """A node with its position."""

    node: Model
    pointer: str
    """JSON pointer in the model's JSON."""
    id: str
    """The node's own id, else its path."""
    above: frozenset[str]
    """Ids of all nodes above."""


def walk(model: Model) -> Iterator[Model]:
    """Yield every node, parents before children, children in order."""
    check_model(model)
    waiting: list[Model] = [model]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def sites(model: Model) -> Iterator[Site]:
    """Yield every node with its position, in the order of ``walk``."""
    check_model(model)
    waiting = [(Site(model, "", model.id or ROOT_ID, frozenset()), ROOT_ID)]
    while waiting:
        site, path = waiting.pop()
        yield site
        if isinstance(site.node, Operator):
            above = site.above | {site.id}
            for index, child in reversed([*enumerate(site.node.children)]):
                below = f"{path}.{index}"
                waiting.append((Site(child, f"{site.pointer}/children/{index}", child.id or below, above), below))


def fold(model: Model, combine: Callable[[Model, Sequence[_T]], _T]) -> _T:
    """Compute a value from the leaves up, in the reverse order of ``walk``: from a node and the values of its children."""
    done: list[_T] = []
    for node in reversed([*walk(model)]):
        done.append(combine(node, [done.pop() for _ in node.children]))
    return done[0]


def labels_of(model: Model) -> tuple[str, ...]:
    """Return the labels of the activities from left to right, with repetitions."""
    return tuple(node.label for node in walk(model) if isinstance(node, Activity))


def check_model(given: object) -> None:
    """Raise ``PowlError`` unless it is a model: unparsed text would count as a silent step."""
    if not isinstance(given, Activity | Silent | Operator):
        raise PowlError(f"expected a process model, received {type(given).__name__}")


def _flat(model: Model, *, ids: bool = False) -> tuple[_Flat, ...]:
    """Return the nodes in the order of ``walk``, for comparing and pickling: both would recurse otherwise."""
    return tuple(
        (node.kind, len(node.children), node.order, node.id if ids else None) if isinstance(node, Operator) else node
        for node in walk(model)
    )


def _rebuilt(flat: Sequence[_Flat]) -> Model:
    done: list[Model] = []
    for node in reversed(flat):
        if isinstance(node, tuple):
            kind, count, order, identity = node
            done.append(Operator(kind, tuple(done.pop() for _ in range(count)), order, id=identity))
        else:
            done.append(node)
    return done[0]


def _check_text(given: object, what: str, *, optional: bool = True) -> None:
    if given is None and optional:
        return
    if not isinstance(given, str) or not given.strip():
        raise PowlError(f"{what} is text that is not blank")
    if _SURROGATE.search(given):
        raise PowlError(f"{what} holds half a surrogate pair, which is no text")
