"""What does a modelling mistake make of a process model? One rewriting of the tree for each pitfall of the ``powl`` world.

A mistake is of structure and knows nothing of the business: it is made wherever the tree gives occasion for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tfgrpo.rewarders.powl import Model, Operator, OperatorKind, Silent, labels_of
from tfgrpo.rewarders.powl.model import fold, walk
from tfgrpo.tasks.models.simulated.worlds.pitfalls import powl as pitfalls
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall

_Rewrite: TypeAlias = Callable[[Operator], Model]


def _instead_of(kind: OperatorKind, instead: OperatorKind) -> _Rewrite:
    def rewrite(node: Operator) -> Model:
        return Operator(instead, node.children) if node.kind == kind else node

    return rewrite


def _never_skipped(node: Operator) -> Model:
    """``XOR(a, SILENT())`` becomes ``a``."""
    left = tuple(child for child in node.children if not isinstance(child, Silent))
    if node.kind != "XOR" or not left or len(left) == len(node.children):
        return node
    return left[0] if len(left) == 1 else Operator("XOR", left)


def _never_back(node: Operator) -> Model:
    """``LOOP(a, b)`` becomes ``SEQUENCE(a, XOR(b, SILENT()))``; a loop with nothing in between is forgotten."""
    if node.kind != "LOOP":
        return node
    do, redo = node.children
    return do if isinstance(redo, Silent) else _joined([do, Operator("XOR", (redo, Silent()))])


def _end_in_last_branch(node: Operator) -> Model:
    """``SEQUENCE(XOR(a, b), c)`` becomes ``XOR(a, SEQUENCE(b, c))``, for every choice that something follows."""
    if node.kind != "SEQUENCE":
        return node
    parts: list[Model] = []
    waiting = list(node.children)
    while waiting:
        part = waiting.pop(0)
        if waiting and isinstance(part, Operator) and _is_choice(part):
            *branches, last = part.children
            part = Operator("XOR", (*branches, _joined([last, waiting.pop(0)])))
        parts.append(part)
    return _joined(parts)


def _is_choice(node: Operator) -> bool:
    return node.kind == "XOR" and len(node.children) > 1 and not any(isinstance(each, Silent) for each in node.children)


def _joined(parts: Iterable[Model]) -> Model:
    """One SEQUENCE, sequences in it opened."""
    opened: list[Model] = []
    for part in parts:
        opened.extend(part.children if isinstance(part, Operator) and part.kind == "SEQUENCE" else (part,))
    return opened[0] if len(opened) == 1 else Operator("SEQUENCE", tuple(opened))


@dataclass(frozen=True, slots=True)
class Mistake:
    """What falling into one pitfall does to a model."""

    pitfall: Pitfall
    rewrite: _Rewrite

    def occasions(self, model: Model) -> tuple[str, ...]:
        """Labels below the nodes at which it can be made, from the left; none where it cannot be made."""
        places = [node for node in walk(model) if isinstance(node, Operator) and self.rewrite(node) != node]
        return tuple(dict.fromkeys(label for place in places for label in labels_of(place)))

    def made_in(self, model: Model) -> Model:
        """The model with this mistake everywhere."""

        def combine(node: Model, parts: Sequence[Model]) -> Model:
            if not isinstance(node, Operator):
                return node
            return self.rewrite(Operator(node.kind, tuple(parts), node.order))

        return fold(model, combine)


MISTAKES: Final = (
    Mistake(pitfalls.SHARED_END, _end_in_last_branch),
    Mistake(pitfalls.OPTIONAL_STEP, _never_skipped),
    Mistake(pitfalls.REWORK_LOOP, _never_back),
    Mistake(pitfalls.ANY_ORDER, _instead_of("PARALLEL", "SEQUENCE")),
    Mistake(pitfalls.ONLY_SOME_WAIT, _instead_of("PARTIAL_ORDER", "PARALLEL")),
)
"""In the order in which they are made: none makes an occasion for one that comes after it."""


def mistakes_of(model: Model) -> tuple[Mistake, ...]:
    """Those that a model gives occasion for, in the order in which they are made."""
    return tuple(mistake for mistake in MISTAKES if mistake.occasions(model))
