"""Export groups: choose them, turn them into rows, write the file and a report of what was omitted and why.

Groups and rows stream through memory. No file is written when no group can be trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tfgrpo.stores.batch.checks import check_groups
from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.atomic import replace_json
from tfgrpo.tasks.exports.choosing import ExportReport, choose
from tfgrpo.tasks.exports.rows import ROWS
from tfgrpo.tasks.exports.writing import encode_row, write_lines, write_verl_parquet


def export_groups(groups: Iterable[RolloutGroup], path: Path, report: ExportReport) -> None:
    """Write the groups by ``report.options``, and the report as ``<file>.report.json``.

    Raise ``ShapeError`` for a group whose values are inconsistent or NaN, and what reading and writing raise; neither
    file is touched then. Without any row only the report is written, and an older file is renamed to ``<file>.old``, so
    that the report does not seem to describe it.
    """
    rows = _rows(groups, report)
    first = next(rows, None)
    if first is not None:
        stream = chain([first], rows)
        if path.suffix == ".parquet":
            write_verl_parquet(path, stream)
        else:
            write_lines(path, (row if isinstance(row, str) else encode_row(row) for row in stream))
        report.file = str(path)
    elif path.is_file():
        aside = path.with_name(f"{path.name}.old")
        try:
            path.replace(aside)
        except OSError as error:
            raise StoreError(f"{path}: cannot be put aside: {error.strerror}") from error
        report.notes.append(f"the file of an earlier export was put aside as {aside.name}")
    replace_json(report_path(path), report.as_json())


def report_path(path: Path) -> Path:
    """Return the path of the report for an exported file."""
    return path.with_name(f"{path.name}.report.json")


def _rows(groups: Iterable[RolloutGroup], report: ExportReport) -> Iterator[Any]:
    """Yield rows as objects; for the canonical form, lines."""
    for group in groups:
        check_groups([group])
        report.groups_read += 1
        report.rollouts_read += len(group.rollouts)
        chosen = choose(group, report)
        count = 0
        for row in ROWS[report.options.target](chosen, report) if chosen is not None else ():
            count += 1
            yield row
        if chosen is not None and count:
            report.add(chosen, count)
