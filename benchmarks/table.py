"""The table of figures: name, median, bar, and whether it held."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOMS = ("learning", "parts", "runs")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. Every bar is an upper one; a figure without a bar is there to explain another."""

    name: str
    median: float
    unit: str
    bar: float | None = None
    note: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the median keeps to its bar; None without a bar."""
        return None if self.bar is None else self.median <= self.bar


def known() -> dict[str, str]:
    """Return the modules of the benchmarks by name, in the order of the names."""
    files = (file for room in _ROOMS for file in Path(__file__).with_name(room).glob("[!_]*.py"))
    return {file.stem: f"benchmarks.{file.parent.name}.{file.stem}" for file in sorted(files, key=lambda file: file.stem)}


def measured_rows(name: str) -> list[Row]:
    """Run the benchmark of this name, in this process."""
    rows: list[Row] = importlib.import_module(known()[name]).measure()
    return rows


_HEADINGS = ("name", "median", "bar", "held?", "")


def table(rows: Iterable[Row]) -> str:
    """The rows as aligned text, ready to print."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    return "\n".join(_line(line, widths) for line in cells)


def missed(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows whose bar did not hold."""
    return (row for row in rows if row.held is False)


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    held = {True: "yes", False: "NO", None: "–"}[row.held]
    bar = "–" if row.bar is None else f"<= {row.bar:g} {row.unit}".rstrip()
    return row.name, f"{row.median:,.3g} {row.unit}".rstrip(), bar, held, row.note


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, median, bar, held, note = cells
    line = f"{name:<{widths[0]}} | {median:>{widths[1]}} | {bar:<{widths[2]}} | {held:<{widths[3]}}"
    return f"{line} | {note}" if note else line
