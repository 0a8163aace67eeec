"""Export groups: choose, turn into rows, write, and say what was left out and why.

Streams: neither the groups nor the rows are ever all in memory. Nothing is written when there is nothing to train on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from tfgrpo.stores.batch.checks import check_groups
from tfgrpo.stores.batch.lines import lines_of_group
from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.atomic import replace_json
from tfgrpo.tasks.exports.choosing import (
    NO_BARE_PROMPT,
    OTHER_PHASE,
    Chosen,
    ExportOptions,
    Left,
    Target,
    choose,
    of_phase,
    signal_of,
    unusable,
)
from tfgrpo.tasks.exports.prompt_sets import openrlhf_rows, verl_rows
from tfgrpo.tasks.exports.trl import dpo_rows, grpo_rows, kto_rows, sft_rows
from tfgrpo.tasks.exports.writing import encode_row, write_lines, write_verl_parquet

SCHEMA_VERSION: Final = 1
_VERSIONS_KEPT: Final = 20
Row: TypeAlias = dict[str, Any]
_Maker: TypeAlias = Callable[[Chosen, ExportOptions, Left], Iterator[Row]]
_TRL: Final[dict[Target, _Maker]] = {
    "trl-grpo": grpo_rows,
    "trl-dpo": dpo_rows,
    "trl-kto": kto_rows,
    "trl-sft": sft_rows,
    "openrlhf": openrlhf_rows,
}


@dataclass(slots=True)
class ExportReport:
    """What an export came to. ``as_json`` is what is written beside the file."""

    source: str
    options: ExportOptions
    file: str | None = None
    """None when nothing was left to write."""
    rows: int = 0
    groups_read: int = 0
    groups_written: int = 0
    rollouts_read: int = 0
    left: Left = field(default_factory=Left)
    models: Counter[str] = field(default_factory=Counter)
    """Groups written by policy version."""
    libraries: Counter[str] = field(default_factory=Counter)
    """Groups written by experience version, the first twenty versions."""
    simulated: int = 0
    """Groups written that the SIMULATED model answered."""
    degenerate: int = 0
    """Groups written that are flagged."""
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain values, with a schema version."""
        options = self.options
        return {
            "schema_version": SCHEMA_VERSION,
            "source": self.source,
            "target": options.target,
            "file": self.file,
            "options": {name: getattr(options, name) for name in ("prompt", "degenerate", "phase", "min_gap", "pairs")}
            | {"min_reward": options.min_reward, "min_spread": options.min_spread},
            "simulated": self.simulated > 0,
            "rows": self.rows,
            "groups": {"read": self.groups_read, "written": self.groups_written, "flagged": self.degenerate},
            "rollouts": {"read": self.rollouts_read},
            "left_out": {
                "groups": dict((+self.left.groups).most_common()),
                "rollouts": dict((+self.left.rollouts).most_common()),
                "logprobs": dict((+self.left.logprobs).most_common()),
            },
            "policy_versions": dict(self.models),
            "experience_versions": dict(self.libraries),
            "notes": self.notes,
        }

    def written(self, group: RolloutGroup, rows: int, *, degenerate: bool) -> None:
        """Count a group that left."""
        self.rows += rows
        self.groups_written += 1
        self.degenerate += degenerate
        self.simulated += bool(group.metadata.get("simulated"))
        self.models[group.policy_version or "unknown"] += 1
        version = group.experience_version or "unknown"
        if version in self.libraries or len(self.libraries) < _VERSIONS_KEPT:
            self.libraries[version] += 1


def export_groups(groups: Iterable[RolloutGroup], path: Path, report: ExportReport) -> None:
    """Write the groups as ``report.options`` says, and the report beside the file as ``<file>.report.json``.

    Raises ``ShapeError`` for a group whose values do not fit together (NaN too), and what reading and writing raise;
    neither file is touched then. When nothing is left to write, only the report is, and an older file is put aside as
    ``<file>.old``: it must not pass for what this report is about.
    """
    rows = _rows(_checked(groups, report), report)
    first = next(rows, None)
    if first is not None:
        stream = chain([first], rows)
        if path.suffix == ".parquet":
            write_verl_parquet(path, stream)
        else:
            write_lines(path, (row if isinstance(row, str) else encode_row(row) for row in stream))
        report.file = str(path)
    else:
        _put_aside(path, report)
    replace_json(report_path(path), report.as_json())


def report_path(path: Path) -> Path:
    """Where the report of an export stands."""
    return path.with_name(f"{path.name}.report.json")


def _put_aside(path: Path, report: ExportReport) -> None:
    """Rename an older file, and say so. Raises ``StoreError`` when the disk refuses."""
    if not path.is_file():
        return
    aside = path.with_name(f"{path.name}.old")
    try:
        path.replace(aside)
    except OSError as error:
        raise StoreError(f"{path}: cannot be put aside: {error.strerror}") from error
    report.notes.append(f"the file of an earlier export was put aside as {aside.name}")


def _checked(groups: Iterable[RolloutGroup], report: ExportReport) -> Iterator[RolloutGroup]:
    for group in groups:
        check_groups([group])
        report.groups_read += 1
        report.rollouts_read += len(group.rollouts)
        if of_phase(group, report.options.phase):
            yield group
        else:
            report.left.groups[OTHER_PHASE[report.options.phase]] += 1


def _rows(groups: Iterable[RolloutGroup], report: ExportReport) -> Iterator[Any]:
    """Rows as objects; for the canonical form, lines."""
    options = report.options
    for group in groups:
        if options.target == "jsonl":
            yield from _canonical(group, report)
            continue
        chosen = choose(group, options, report.left)
        if chosen is None:
            continue
        count = 0
        for row in _made(chosen, report):
            count += 1
            yield row
        if count:
            report.written(group, count, degenerate=chosen.degenerate is not None)


def _made(chosen: Chosen, report: ExportReport) -> Iterator[Row]:
    options = report.options
    if options.target == "verl":
        return verl_rows(chosen, options, report.left, report.rows)
    return _TRL[options.target](chosen, options, report.left)


def _canonical(group: RolloutGroup, report: ExportReport) -> Iterator[str]:
    """Everything that is known of a group, failed attempts too: they carry their status and no reward."""
    options = report.options
    if options.prompt == "bare" and group.bare_state is None:
        report.left.groups[NO_BARE_PROMPT] += 1
        return
    signal = signal_of([rollout for rollout in group.rollouts if unusable(rollout) is None], options.min_spread)
    if signal != "mixed" and options.degenerate == "drop":
        report.left.groups[f"degenerate: {signal}"] += 1
        return
    known = {**group.metadata, "signal": signal, "prompt": options.prompt}
    state = group.state if options.prompt == "as-sent" else group.bare_state
    lines = lines_of_group(replace(group, state=state, metadata=known))
    yield from lines
    report.written(group, len(lines), degenerate=signal != "mixed")
