"""Export groups: choose them, turn them into rows, write the file and a report of what was omitted and why.

Groups and rows stream through memory. No file is written when no group can be trained on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tfgrpo.stores.batch.arrow import write_rows
from tfgrpo.stores.batch.shapes import RolloutGroup, check_groups
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.atomic import replace_json, replacing
from tfgrpo.stores.files.lines import disk
from tfgrpo.tasks.exports.choosing import ExportReport, chosen_group
from tfgrpo.tasks.exports.rows import ROWS

_BUFFER: Final = 1 << 20
_NAMES: Final = (
    "run_id group_id item_id phase policy_version experience_version library_id pack_stamp prompt degenerate split"
)
encode_row: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Returns one row as a line of JSON. Raises ``ValueError`` for NaN and infinity."""


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
            extra = "a file that ends in .jsonl, or the extra: pip install 'tfgrpo[parquet]'"
            write_rows(path, (_typed(row, path) for row in stream), _verl_schema, extra)
        else:
            # A lone surrogate has no UTF-8; it becomes a question mark, as in the request to the endpoint.
            utf8: Any = {"encoding": "utf-8", "errors": "replace", "newline": "\n"}
            with replacing(path) as partial, partial.open("w", buffering=_BUFFER, **utf8) as file:
                file.writelines(f"{row if isinstance(row, str) else encode_row(row)}\n" for row in stream)
        report.file = str(path)
    elif path.is_file():
        aside = path.with_name(f"{path.name}.old")
        with disk(path, "cannot be put aside"):
            path.replace(aside)
        report.notes.append(f"the file of an earlier export was put aside as {aside.name}")
    replace_json(report_path(path), report.as_json())


def report_path(path: Path) -> Path:
    """Return the path of the report for an exported file."""
    return path.with_name(f"{path.name}.report.json")


def _rows(groups: Iterable[RolloutGroup], report: ExportReport) -> Iterator[Any]:
    """Yield rows as objects; for the canonical form, lines."""
    for group in groups:
        check_groups([group])
        report.groups["read"] += 1
        report.rollouts["read"] += len(group.rollouts)
        chosen = chosen_group(group, report)
        count = 0
        for row in ROWS[report.options.target](chosen, report) if chosen is not None else ():
            count += 1
            yield row
        if chosen is not None and count:
            report.add(chosen, count)


def _typed(row: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a row that fits the columns: turns differ in their fields, so recorded answers become text."""
    info = dict(row["extra_info"])
    if any(set(turn) != {"role", "content"} for turn in row["prompt"]):
        raise StoreError(
            f"{path}: the prompt of {info['group_id']!r} has turns with tools; write a .jsonl file instead"
        )
    info["recorded_completions"] = [encode_row(turns) for turns in info["recorded_completions"]]
    return {**row, "extra_info": info}


def _verl_schema(arrow: Any) -> Any:
    text, number = arrow.string(), arrow.float64()
    info = [
        ("index", arrow.int64()),
        *((name, text) for name in _NAMES.split()),
        ("epoch", arrow.int64()),
        ("simulated", arrow.bool_()),
        ("recorded_completions", arrow.list_(text)),
        ("recorded_rewards", arrow.list_(number)),
        ("recorded_logprobs", arrow.list_(arrow.list_(number))),
        ("recorded_token_ids", arrow.list_(arrow.list_(arrow.int64()))),
    ]
    message = arrow.struct([("role", text), ("content", text)])
    return arrow.schema(
        [
            ("data_source", text),
            ("prompt", arrow.list_(message)),
            ("ability", text),
            ("reward_model", arrow.struct([("style", text), ("ground_truth", text)])),
            ("extra_info", arrow.struct(info)),
        ]
    )
