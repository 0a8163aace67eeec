"""A world by its name, and what the worlds share: a recognised item, the turns of an attempt, and a worked solution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cache, cached_property
from importlib import import_module
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from tfgrpo.tasks.models.simulated.worlds.data import Pitfall, Slots, Template, advice_of, world_data
from tfgrpo.tasks.models.simulated.worlds.lexicon import Lexicon

GeneratedName: TypeAlias = Literal["arithmetic", "ledger-tools", "unlearnable"]
WorldName: TypeAlias = Literal[GeneratedName, "powl"]
_CENT = Decimal("0.01")


class Solver:
    """Decides how an attempt goes. This one makes exactly the named mistakes; items are generated and checked with it."""

    def __init__(self, hit: Iterable[str] = ()) -> None:
        self.hit = frozenset(hit)

    def avoids(self, pitfall: str) -> bool:
        """Whether this attempt avoids the pitfall of that name."""
        return pitfall not in self.hit

    def shown(self, pitfall: Pitfall, *, avoided: bool) -> str:
        """Return how a step reads that avoided the pitfall or hit it: here the first of the wordings."""
        return (pitfall.shown_avoided if avoided else pitfall.shown_hit)[0]

    def lucky(self, share: float) -> bool:  # noqa: ARG002
        """True in this share of attempts, independent of the prompt; here in those without mistakes."""
        return not self.hit


class PuzzleCall(NamedTuple):
    """A tool call that the actor asks for."""

    tool: str
    arguments: Mapping[str, Any]


class PuzzleResult(NamedTuple):
    """The text that a tool returned."""

    tool: str
    result: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What happened since the item was shown: the steps written and the tool results."""

    steps: tuple[str, ...] = ()
    results: tuple[PuzzleResult, ...] = ()
    tools: frozenset[str] = frozenset()
    """Names of the tools offered."""

    def results_of(self, tool: str) -> list[str]:
        """Return what one tool returned, in order."""
        return [done.result for done in self.results if done.tool == tool]


class Turn(NamedTuple):
    """One turn of the actor: text, and calls unless it is the last turn."""

    text: str
    calls: tuple[PuzzleCall, ...] = ()


@dataclass(frozen=True)
class Puzzle(ABC):
    """One item, recognised in the text of its prompt."""

    world: ClassVar[WorldName]
    template: Template
    slots: Slots

    @classmethod
    def recognise(cls, text: str) -> Self | None:
        """Return the item whose template the text contains, of several the first; None when there is none."""
        for template in open_world(cls.world).templates:
            if template.anchor in text and (match := template.pattern.search(text)):
                return cls(template, match.groupdict())
        return None

    @abstractmethod
    def attempt(self, solver: Solver, dialogue: Dialogue) -> Turn:
        """Return the next turn of an attempt."""

    def solved(self, solver: Solver) -> str:
        """Return the last text of a whole attempt."""
        return self.attempt(solver, Dialogue()).text

    def agrees(self, output: str) -> bool:
        """Whether an output states the right answer."""
        return answer_of(output) == answer_of(self.solved(Solver()))


@dataclass(frozen=True)
class World:
    """A closed family of items with their pitfalls, as ``<world>.yaml`` has it."""

    name: WorldName
    templates: tuple[Template, ...]
    pitfalls: Mapping[str, Pitfall]
    """What its items test, and so what its lessons can be about."""

    @cached_property
    def puzzle(self) -> type[Puzzle]:
        """Its kind of item."""
        # Imported by its name, ``ledger`` for ``ledger-tools``: a run needs one of these modules.
        kind: type[Puzzle] = import_module(f"{__package__}.{self.name.partition('-')[0]}").PUZZLE
        return kind

    @cached_property
    def lexicon(self) -> Lexicon:
        """Recognises advice on the pitfalls."""
        return Lexicon(self.pitfalls)


@cache
def open_world(name: WorldName) -> World:
    """Return a world by its name."""
    raw = world_data(name)
    templates = tuple(Template(kind, **row) for kind, row in raw["templates"].items())
    pitfalls = {}
    for pitfall, row in raw["pitfalls"].items():
        advice = {key: advice_of(row[key]) for key in ("good_advice", "bad_advice")}
        pitfalls[pitfall] = Pitfall(pitfall, **{**row, **advice})
    return World(name, templates, pitfalls)


class Solution:
    """Numbered steps of a worked solution. A pitfall that was met shows in the next step."""

    def __init__(self, puzzle: Puzzle, solver: Solver, earlier: tuple[str, ...] = ()) -> None:
        self.pitfalls = open_world(puzzle.world).pitfalls
        self.slots = puzzle.slots
        self._solver = solver
        self._steps = list(earlier)
        self._earlier = len(earlier)
        self._shown: list[str] = []

    def avoids(self, name: str) -> bool:
        """Whether the attempt avoids the pitfall."""
        avoided = self._solver.avoids(name)
        self._shown.append(self._solver.shown(self.pitfalls[name], avoided=avoided))
        return avoided

    def step(self, working: str, *numbers: Decimal) -> None:
        """Write one step, with the pitfalls met since the last one. ``numbers`` take the places of ``{}``."""
        shown = "; ".join(self._shown)
        self._shown.clear()
        text = working.format(*map(decimal_text, numbers)) if numbers else working
        self._steps.append(f"Step {len(self._steps) + 1}: {shown + ': ' if shown else ''}{text}")

    def new_steps(self) -> str:
        """Return the steps of this turn."""
        return "\n".join(self._steps[self._earlier :])

    def answered(self, answer: object) -> str:
        """Return all steps and the answer."""
        return "\n".join([*self._steps, f"Answer: {answer}"])


def to_cents(value: Decimal) -> Decimal:
    """Round to cents, halves away from zero."""
    return value.quantize(_CENT, rounding=ROUND_HALF_UP)


def decimal_text(value: Decimal) -> str:
    """Return a number with at most six decimals, without exponent and trailing zeros."""
    text = f"{value.quantize(Decimal('0.000001'), rounding=ROUND_HALF_UP):f}"
    return text.rstrip("0").rstrip(".")


def answer_of(text: str) -> str:
    """Return what a worked solution states after its last ``Answer:``."""
    return text.rsplit("Answer:", 1)[-1].strip()
