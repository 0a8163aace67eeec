"""Shapes that the worlds share: a recognised item, the turns of an attempt at it, and its worked solution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import chain, combinations
from typing import Any, NamedTuple, Protocol, TypeVar

from tfgrpo.tasks.models.simulated.worlds.data import Pitfall

T = TypeVar("T")
_CENT = Decimal("0.01")
_MIN_GAP = Decimal("0.05")
_MIN_GAP_SHARE = Decimal("0.0002")
"""Share of the right answer; together wider than any sensible tolerance of a grader."""


class Solver(Protocol):
    """What decides how an attempt goes."""

    def avoids(self, pitfall: str) -> bool:
        """Whether this attempt avoids the pitfall of that name."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """Return one of several wordings."""
        ...

    def lucky(self, share: float) -> bool:
        """True in this share of attempts, independent of the prompt."""
        ...


@dataclass(frozen=True, slots=True)
class ScriptedSolver:
    """Makes exactly the named mistakes; items are generated and checked with it."""

    hit: frozenset[str] = frozenset()
    lucky_always: bool = True

    def avoids(self, pitfall: str) -> bool:
        """True unless the pitfall is one of those named."""
        return pitfall not in self.hit

    def pick(self, options: Sequence[T]) -> T:
        """Return the first."""
        return options[0]

    def lucky(self, share: float) -> bool:  # noqa: ARG002
        """Always, or never."""
        return self.lucky_always


class ToolCall(NamedTuple):
    """A tool call that the actor asks for."""

    tool: str
    arguments: Mapping[str, Any]


class ToolResult(NamedTuple):
    """The text that a tool returned."""

    tool: str
    result: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What happened since the item was shown: the steps written and the tool results."""

    steps: tuple[str, ...] = ()
    results: tuple[ToolResult, ...] = ()
    tools: frozenset[str] = frozenset()
    """Names of the tools offered."""

    def results_of(self, tool: str) -> list[str]:
        """Return what one tool returned, in order."""
        return [done.result for done in self.results if done.tool == tool]


class Turn(NamedTuple):
    """One turn of the actor: text, and calls unless it is the last turn."""

    text: str
    calls: tuple[ToolCall, ...] = ()


class Puzzle(Protocol):
    """One item, recognised in the text of its prompt."""

    def attempt(self, solver: Solver, dialogue: Dialogue) -> Turn:
        """Return the next turn of an attempt."""
        ...


class Draft(NamedTuple):
    """A generated item before it has an id."""

    template: str
    prompt: str
    answer: str
    pitfalls: tuple[str, ...]


class Solution:
    """Numbered steps of a worked solution. A pitfall that was met shows in the next step."""

    def __init__(self, solver: Solver, pitfalls: Mapping[str, Pitfall], earlier: tuple[str, ...] = ()) -> None:
        self._solver = solver
        self._pitfalls = pitfalls
        self._steps = list(earlier)
        self._earlier = len(earlier)
        self._shown: list[str] = []

    def avoids(self, name: str) -> bool:
        """Whether the attempt avoids the pitfall."""
        pitfall, avoided = self._pitfalls[name], self._solver.avoids(name)
        self._shown.append(self._solver.pick(pitfall.shown_avoided if avoided else pitfall.shown_hit))
        return avoided

    def step(self, working: str) -> None:
        """Write one step, with the pitfalls met since the last one."""
        shown = "; ".join(self._shown)
        self._shown.clear()
        self._steps.append(f"Step {len(self._steps) + 1}: {shown + ': ' if shown else ''}{working}")

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


def differ(right: str, wrong: str) -> bool:
    """Whether two numbers differ by more than any sensible tolerance."""
    good, bad = Decimal(right), Decimal(wrong)
    return abs(good - bad) >= max(_MIN_GAP, _MIN_GAP_SHARE * abs(good))


def hit_sets(pitfalls: Sequence[str]) -> list[frozenset[str]]:
    """Return every combination of at least one of the pitfalls."""
    sizes = range(1, len(pitfalls) + 1)
    return [frozenset(hit) for hit in chain.from_iterable(combinations(pitfalls, size) for size in sizes)]


def every_mistake_shows(pitfalls: Sequence[str], answer: Callable[[frozenset[str]], str]) -> bool:
    """Whether each combination of pitfalls leads to an answer that differs from the right one."""
    right = answer(frozenset())
    return all(differ(right, answer(hit)) for hit in hit_sets(pitfalls))
