"""Where do the marks of a chart go? Plain geometry for the report's two kinds of chart; the template draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 240, 44, 30, 14, 16


@dataclass(frozen=True, slots=True)
class Mark:
    """A point with its label; coordinates in SVG user units, y downwards."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A grid line and its caption."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through marks, on a grid."""

    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]

    @property
    def path(self) -> str:
        """The ``points`` attribute of an SVG polyline."""
        return " ".join(f"{mark.x:.1f},{mark.y:.1f}" for mark in self.marks)


@dataclass(frozen=True, slots=True)
class Interval:
    """One horizontal interval with its estimate."""

    name: str
    text: str
    low: float
    high: float
    at: float
    y: float


@dataclass(frozen=True, slots=True)
class Intervals:
    """Horizontal intervals on a common axis; ``zero`` is where the axis is 0, None when it is off the picture."""

    rows: tuple[Interval, ...]
    zero: float | None
    height: int
    ticks: tuple[tuple[float, str], ...]


def curve(values: Sequence[tuple[str, float]]) -> Curve:
    """A reward curve: values in order, each with the label shown on hover."""
    numbers = [value for _, value in values]
    low, high = min([0.0, *numbers]), max([1.0, *numbers])
    step = (WIDTH - LEFT - RIGHT) / max(len(values) - 1, 1)

    def height(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    marks = tuple(Mark(LEFT + place * step, height(value), label) for place, (label, value) in enumerate(values))
    ticks = tuple(
        Tick(height(low + (high - low) * quarter / 4), f"{low + (high - low) * quarter / 4:.2f}")
        for quarter in range(5)
    )
    return Curve(marks, ticks)


def intervals(rows: Sequence[tuple[str, float, float, float]]) -> Intervals:
    """Intervals given as (name, low, estimate, high)."""
    lowest = min([0.0, *(row[1] for row in rows)])
    highest = max([1.0 if lowest >= 0 else 0.0, *(row[3] for row in rows)])
    span = (highest - lowest) or 1.0
    inner = WIDTH - 150 - RIGHT

    def across(value: float) -> float:
        return 150 + inner * (value - lowest) / span

    placed = tuple(
        Interval(
            name,
            f"{at:+.3f} [{low:+.3f}, {high:+.3f}]" if low < 0 or at < low else f"{at:.3f} [{low:.3f}, {high:.3f}]",
            across(low),
            across(high),
            across(at),
            30 + 36 * place,
        )
        for place, (name, low, at, high) in enumerate(rows)
    )
    ticks = tuple((across(lowest + span * part / 4), f"{lowest + span * part / 4:.2f}") for part in range(5))
    return Intervals(placed, across(0.0), 36 * len(rows) + 44, ticks)
