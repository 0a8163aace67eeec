"""The world ``benchmarks.powl.world:WORLD``: descriptions of business processes, whose models go wrong in structure.

Its items, next to this file, are written by hand; none are generated. A mistake is a rewriting of the model's tree,
independent of the business, so that lessons learned in some kinds of business help in others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.rewarders.powl import Model, Operator, Silent, labels_of, model_in, parse_text, structural_key, to_text
from tfgrpo.rewarders.powl.model import OperatorKind, fold, walk
from tfgrpo.stores.errors import PowlError
from tfgrpo.tasks.models.simulated.puzzle import Puzzle, Solution, Solver, World

_Rewrite: TypeAlias = Callable[[Operator], Model]


def _replaced(kind: OperatorKind, by: OperatorKind) -> _Rewrite:
    return lambda node: Operator(by, node.children) if node.kind == kind else node


def _without_skip(node: Operator) -> Model:
    """``XOR(a, SILENT())`` becomes ``a``."""
    kept = tuple(child for child in node.children if not isinstance(child, Silent))
    if node.kind != "XOR" or not kept or len(kept) == len(node.children):
        return node
    return kept[0] if len(kept) == 1 else Operator("XOR", kept)


def _without_loop(node: Operator) -> Model:
    """``LOOP(a, b)`` becomes ``SEQUENCE(a, XOR(b, SILENT()))``, and ``LOOP(a, SILENT())`` becomes ``a``."""
    if node.kind != "LOOP":
        return node
    do, redo = node.children
    return do if isinstance(redo, Silent) else _sequence([do, Operator("XOR", (redo, Silent()))])


def _end_in_last_branch(node: Operator) -> Model:
    """``SEQUENCE(XOR(a, b), c)`` becomes ``XOR(a, SEQUENCE(b, c))``, for every choice with a successor."""
    if node.kind != "SEQUENCE":
        return node
    children: list[Model] = []
    rest = list(node.children)
    while rest:
        child = rest.pop(0)
        if rest and isinstance(child, Operator) and _is_choice(child):
            *branches, last = child.children
            child = Operator("XOR", (*branches, _sequence([last, rest.pop(0)])))
        children.append(child)
    return _sequence(children)


def _is_choice(node: Operator) -> bool:
    return node.kind == "XOR" and len(node.children) > 1 and not any(isinstance(each, Silent) for each in node.children)


def _sequence(models: Iterable[Model]) -> Model:
    """Return one SEQUENCE, with the sequences in it flattened."""
    flat: list[Model] = []
    for model in models:
        flat.extend(model.children if isinstance(model, Operator) and model.kind == "SEQUENCE" else (model,))
    return flat[0] if len(flat) == 1 else Operator("SEQUENCE", tuple(flat))


@dataclass(frozen=True, slots=True)
class Mistake:
    """What one pitfall does to a model."""

    name: str
    """Name of the pitfall."""
    rewrite: _Rewrite

    def occasions(self, model: Model) -> tuple[str, ...]:
        """Return the labels below the nodes at which it can be made, from the left; none where it cannot be made."""
        nodes = [node for node in walk(model) if isinstance(node, Operator) and self.rewrite(node) != node]
        return tuple(dict.fromkeys(label for node in nodes for label in labels_of(node)))

    def made_in(self, model: Model) -> Model:
        """Return the model with this mistake everywhere."""

        def combine(node: Model, children: Sequence[Model]) -> Model:
            if not isinstance(node, Operator):
                return node
            return self.rewrite(Operator(node.kind, tuple(children), node.order))

        return fold(model, combine)


# In the order in which they are made: none makes an occasion for one that comes after it.
MISTAKES: Final = (
    Mistake("shared_end", _end_in_last_branch),
    Mistake("optional_step", _without_skip),
    Mistake("rework_loop", _without_loop),
    Mistake("any_order", _replaced("PARALLEL", "SEQUENCE")),
    Mistake("only_some_wait", _replaced("PARTIAL_ORDER", "PARALLEL")),
)


class ProcessDescription(Puzzle):
    """A description of a process, whole: its kind is its id."""

    def solved(self, solver: Solver) -> str:
        """Return a step for each possible mistake, and the model."""
        solution = Solution(self, solver)
        right = model = _MODELS[self.kind]
        for mistake in MISTAKES:
            if occasions := mistake.occasions(right):
                if not solution.avoids(mistake.name):
                    model = mistake.made_in(model)
                solution.step(", ".join(occasions))
        return solution.answered(to_text(model))

    def agrees(self, output: str) -> bool:
        """Whether an output contains the right model, in any notation."""
        try:
            return structural_key(model_in(output)) == structural_key(_MODELS[self.kind])
        except PowlError:
            return False


ITEMS: Final = tuple(Path(__file__).with_name(f"{name}.jsonl") for name in ("items", "held-out"))
"""Files of the items to learn on and to measure on."""
_ALL: Final = [item for path in ITEMS for item in load_dataset(path)]
_MODELS: Final = {item.id: parse_text(item.answer) for item in _ALL}


class _Processes(World):
    def recognise(self, text: str) -> Puzzle | None:
        """Return the description that a text contains."""
        return next((self.puzzle(self, item.id, {}) for item in _ALL if item.prompt in text), None)


WORLD = _Processes("powl", __file__, ProcessDescription)
