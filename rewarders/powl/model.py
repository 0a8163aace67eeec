"""Process models: frozen trees of activities, silent steps and five operators, always well-formed; their keys and faults.

A tree that breaks a rule raises ``PowlError`` when it is made.

SEQUENCE runs its children in order, XOR runs one of them, PARALLEL all of them in any interleaving. LOOP has two
children, do and redo: do runs once, and then any number of times redo followed by do. PARTIAL_ORDER runs all of them;
a pair (i, j) of its order requires that child i finishes before child j starts (Kourani and van Zelst 2023,
"POWL: Partially Ordered Workflow Language"). Orders are bit masks: bit j of mask i is set when i comes before j.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar, get_args

from tfgrpo.stores.errors import PowlError

Severity: TypeAlias = Literal["error", "warning"]
OperatorKind: TypeAlias = Literal["SEQUENCE", "XOR", "PARALLEL", "LOOP", "PARTIAL_ORDER"]
OPERATORS: Final[tuple[OperatorKind, ...]] = get_args(OperatorKind)

MAX_DEPTH: Final = 100
MAX_NODES: Final = 2_000
ROOT_ID: Final = "n"
"""Default id of a root; child i of node p is ``p.i``."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_T = TypeVar("_T")


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
    """Return for each element the mask of all that come after it. Raises ``PowlError`` for an unknown element and a cycle."""
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
    for following, position in enumerate(order, 1):
        remaining = after[position]
        for later in order[following:] if remaining else ():
            if remaining >> later & 1:
                pairs.append((position, later))
                remaining &= ~(after[later] | 1 << later)
                if not remaining:
                    break
    return frozenset(pairs)


@dataclass(frozen=True, slots=True)
class _Leaf:
    id: str | None = field(default=None, compare=False, repr=False, kw_only=True)
    children: ClassVar[tuple[Model, ...]] = ()
    depth: ClassVar[int] = 0
    size: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.id is not None:
            _check_text(self.id, "an id")


@dataclass(frozen=True, slots=True)
class Activity(_Leaf):
    """A step with a label. Two activities are equal when their labels are; ``id`` does not count."""

    label: str

    def __post_init__(self) -> None:
        _check_text(self.label, "a label")
        _Leaf.__post_init__(self)


@dataclass(frozen=True, slots=True)
class Silent(_Leaf):
    """An invisible step, which is in no trace. ``XOR(a, SILENT())`` makes ``a`` optional."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind and its children in order. Equal when kind, children and order are; ids do not count.

    ``order`` is for PARTIAL_ORDER alone and is reduced to the pairs that do not follow from others. Raises ``PowlError``
    for a tree that is not well-formed, too deep or too large.
    """

    kind: OperatorKind
    children: tuple[Model, ...] = field(repr=False)
    order: frozenset[tuple[int, int]] = frozenset()
    id: str | None = field(default=None, compare=False, kw_only=True)
    depth: int = field(init=False, compare=False, repr=False)
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        kind, children, order = self.kind, tuple(self.children), self.order
        for child in children:
            _check_model(child)
        if self.id is not None:
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

    def __deepcopy__(self, _: object) -> Self:
        # A copy of the deepest model would not fit on the stack, and there is nothing to change in it.
        return self


Model: TypeAlias = Activity | Silent | Operator


class Site(NamedTuple):
    """A node with its position."""

    node: Model
    pointer: str
    id: str
    """The node's own id, else its path."""
    above: frozenset[str]


def walk(model: Model) -> Iterator[Model]:
    """Yield every node, parents before children, children in order."""
    _check_model(model)
    waiting: list[Model] = [model]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def sites(model: Model) -> Iterator[Site]:
    """Yield every node with its position, in the order of ``walk``."""
    _check_model(model)
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


def _check_model(value: object) -> None:
    # Unparsed text would count as a silent step.
    if not isinstance(value, Activity | Silent | Operator):
        raise PowlError(f"expected a process model, received {type(value).__name__}")


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise PowlError(f"{what} is text that is not blank")
    if _SURROGATE.search(text):
        raise PowlError(f"{what} holds half a surrogate pair, which is no text")


class _Form(NamedTuple):
    kind: str
    key: str
    parts: tuple[_Form, ...] = ()


def structural_key(model: Model) -> str:
    """Return a hexadecimal digest, equal for models that differ only in spelling.

    Ignored are: ids; the order of children but in a SEQUENCE or LOOP; an operator around a single child, or in one of its
    own kind; silent steps in a SEQUENCE or a PARALLEL; whether a chain or an empty order is written as PARTIAL_ORDER.
    """
    return fold(model, _form).key


def label_fingerprint(model: Model) -> str:
    """Return all labels, with repetitions, by UTF-16 code units, joined by an arrow; operators do not count."""
    # As Java compares strings, so that keys of earlier systems stay the same.
    return " → ".join(sorted(labels_of(model), key=lambda label: label.encode("utf-16-be")))


def _form(node: Model, parts: Sequence[_Form]) -> _Form:
    if isinstance(node, Silent):
        return _SILENT
    if isinstance(node, Activity):
        return _Form("ACTIVITY", _digest("ACTIVITY", node.label))
    if node.kind == "LOOP":
        return _Form("LOOP", _digest("LOOP", *(part.key for part in parts)))
    return _ordered(node, parts) if node.kind == "PARTIAL_ORDER" else _flattened(node.kind, parts)


def _flattened(kind: str, parts: Iterable[_Form]) -> _Form:
    flat = [inner for part in parts for inner in (part.parts if part.kind == kind else (part,))]
    if kind != "XOR":
        flat = [part for part in flat if part.kind != "SILENT"]
    if kind != "SEQUENCE":
        flat.sort(key=lambda part: part.key)
    if len(flat) < 2:
        return flat[0] if flat else _SILENT
    return _Form(kind, _digest(kind, *(part.key for part in flat)), tuple(flat))


def _ordered(node: Operator, parts: Sequence[_Form]) -> _Form:
    # Silent parts are removed, and the parts that they separated stay ordered.
    visible = [child for child, part in enumerate(parts) if part.kind != "SILENT"]
    mask = sum(1 << child for child in visible)
    after = [later & mask if mask >> child & 1 else 0 for child, later in enumerate(successors(len(parts), node.order))]
    if not any(after):
        return _flattened("PARALLEL", parts)
    chain = sorted(visible, key=lambda child: -after[child].bit_count())
    if [after[child].bit_count() for child in chain] == [*reversed(range(len(visible)))]:
        return _flattened("SEQUENCE", (parts[child] for child in chain))

    def keys(children: int) -> list[str]:
        return sorted(parts[child].key for child in bits(children))

    before = predecessors(after)
    # Each part with all before and after it: that tells all orders apart whose parts have different labels.
    around = (_digest(parts[child].key, *keys(before[child]), "before", *keys(after[child])) for child in visible)
    return _Form("PARTIAL_ORDER", _digest("PARTIAL_ORDER", *sorted(around)))


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


_SILENT: Final = _Form("SILENT", _digest("SILENT"))


class Finding(NamedTuple):
    """An error, which makes a model invalid, or a warning."""

    code: str
    message: str
    pointer: str
    node_id: str
    severity: Severity

    def __str__(self) -> str:
        return f"{self.severity} at {self.pointer or 'the root'}: {self.message}"


@dataclass(frozen=True, slots=True)
class Validation:
    """All findings, from the root down."""

    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make the model invalid."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings that are suspicious but allowed."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")


def validate(model: Model, *, allowed_labels: Collection[str] | None = None) -> Validation:
    """Return all errors and warnings of a model: its ids, its labels, and operators around a single child."""
    every = [*sites(model)]
    ids, labels = Counter(site.id for site in every), Counter(labels_of(model))
    allowed = None if allowed_labels is None else frozenset(allowed_labels)

    def findings_at(site: Site) -> Iterator[Finding]:
        position = (site.pointer, site.id)
        label = site.node.label if isinstance(site.node, Activity) else None
        if site.id in site.above:
            yield Finding("ancestor-id", f"a node above has the id {site.id!r} too", *position, "error")
        elif ids[site.id] > 1:
            yield Finding("repeated-id", f"the id {site.id!r} is given {ids[site.id]} times", *position, "warning")
        if len(site.node.children) == 1:
            yield Finding("single-child", "an operator around a single child does nothing", *position, "warning")
        if label is not None and allowed is not None and label not in allowed:
            reason = f"{label!r} is none of the {len(allowed)} allowed labels"
            yield Finding("label-not-allowed", reason, *position, "error")
        if label is not None and labels[label] > 1:
            yield Finding("repeated-label", f"{label!r} is there {labels[label]} times", *position, "warning")

    findings = [finding for site in every for finding in findings_at(site)]
    if not labels:
        reason = "the model has no activity, only silent steps"
        findings.insert(0, Finding("no-activity", reason, "", every[0].id, "error"))
    return Validation(tuple(findings))
