"""Geometry of the report's two kinds of chart; the template draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 720, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 16, 26, 40
ROW = 40
"""Height of a row of the interval chart: name and figures above, the interval below."""
_MARGIN = 6.0
_MANY = 40
"""Batches from which the marks are no longer drawn one by one."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a curve, in order."""

    value: float
    section: str
    """Caption of the stretch it belongs to; a new one starts at a divider."""
    label: str
    """Shown on hover."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point with its label; coordinates in SVG user units, y downwards."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A grid line and its caption; ``at`` is where it crosses the axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through marks, on a grid, in sections."""

    marks: tuple[Mark, ...]
    levels: tuple[Tick, ...]
    sections: tuple[Tick, ...]
    """Captions, in the middle of their stretch."""
    dividers: tuple[float, ...]
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def path(self) -> str:
        """The ``points`` attribute of an SVG polyline."""
        return " ".join(f"{mark.x:.1f},{mark.y:.1f}" for mark in self.marks)

    @property
    def radius(self) -> float:
        """Of a mark; small when there are many."""
        return 4.0 if len(self.marks) <= _MANY else 1.5

    @property
    def floor(self) -> int:
        """Lower edge of the plot, above the captions."""
        return HEIGHT - BOTTOM


@dataclass(frozen=True, slots=True)
class Interval:
    """One horizontal interval with its estimate, in percent of the chart's width; ``y`` in pixels."""

    name: str
    text: str
    low: float
    high: float
    at: float
    y: float


@dataclass(frozen=True, slots=True)
class Intervals:
    """Horizontal intervals on a common axis; ``zero`` is where the axis is 0.

    Places across are percentages, so that the chart is as wide as its page and its text stays readable on a phone.
    """

    rows: tuple[Interval, ...]
    zero: float
    ticks: tuple[Tick, ...]
    height: int

    @property
    def floor(self) -> int:
        """Lower edge of the plot, above the captions."""
        return self.height - 24


def curve(points: Sequence[Point]) -> Curve | None:
    """A reward curve; None without points. The axis always includes 0 and 1."""
    if not points:
        return None
    low, high = min([0.0, *(point.value for point in points)]), max([1.0, *(point.value for point in points)])
    step = (WIDTH - LEFT - RIGHT) / len(points)

    def height(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    def middle(place: float) -> float:
        return LEFT + (place + 0.5) * step

    marks = tuple(Mark(middle(place), height(point.value), point.label) for place, point in enumerate(points))
    levels = tuple(Tick(height(value), f"{value:.2f}") for value in _quarters(low, high))
    starts = [at for at, point in enumerate(points) if at == 0 or point.section != points[at - 1].section]
    sections = tuple(
        Tick(middle((start + end - 1) / 2), points[start].section) for start, end in pairwise([*starts, len(points)])
    )
    return Curve(marks, levels, sections, tuple(LEFT + start * step for start in starts[1:]))


def intervals(rows: Sequence[tuple[str, float, float, float]]) -> Intervals:
    """Intervals given as (name, low, estimate, high), the last of them a difference, whose figures bear a sign."""
    lowest = min([0.0, *(row[1] for row in rows)])
    highest = max([1.0 if lowest >= 0.0 else 0.0, *(row[3] for row in rows)])
    span = (highest - lowest) or 1.0

    def across(value: float) -> float:
        return _MARGIN + (100.0 - 2.0 * _MARGIN) * (value - lowest) / span

    placed = tuple(
        Interval(
            name=name,
            text=f"{at:+.3f}  ({low:+.3f} to {high:+.3f})" if signed else f"{at:.3f}  ({low:.3f} to {high:.3f})",
            low=across(low),
            high=across(high),
            at=across(at),
            y=26 + ROW * place,
        )
        for place, (name, low, at, high) in enumerate(rows)
        for signed in [place == len(rows) - 1]
    )
    ticks = tuple(Tick(across(value), f"{value:.2f}") for value in _quarters(lowest, lowest + span))
    return Intervals(placed, across(0.0), ticks, ROW * len(rows) + 28)


def _quarters(low: float, high: float) -> list[float]:
    return [low + (high - low) * part / 4 for part in range(5)]
