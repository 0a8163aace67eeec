"""Export groups: choose them, turn them into rows, write the file and a report of what was omitted and why.

Groups and rows stream through memory. No file is written when no group can be trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

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
    Omitted,
    Target,
    choose,
    of_phase,
    signal_of,
    unusable,
)
from tfgrpo.tasks.exports.rows import Row, dpo_rows, grpo_rows, kto_rows, openrlhf_rows, sft_rows, verl_rows
from tfgrpo.tasks.exports.writing import encode_row, write_lines, write_verl_parquet

SCHEMA_VERSION: Final = 1
_VERSIONS_KEPT: Final = 20
_ROWS_OF: Final[Mapping[Target, Callable[[Chosen, ExportOptions, Omitted], Iterator[Row]]]] = {
    "trl-grpo": grpo_rows,
    "trl-dpo": dpo_rows,
    "trl-kto": kto_rows,
    "trl-sft": sft_rows,
    "openrlhf": openrlhf_rows,
}


@dataclass(slots=True)
class ExportReport:
    """Result of an export. ``as_json`` is the report file."""

    source: str
    options: ExportOptions
    file: str | None = None
    """None when no row was written."""
    rows: int = 0
    groups_read: int = 0
    groups_written: int = 0
    rollouts_read: int = 0
    omitted: Omitted = field(default_factory=Omitted)
    models: Counter[str] = field(default_factory=Counter)
    """Groups written by policy version."""
    libraries: Counter[str] = field(default_factory=Counter)
    """Groups written by experience version, for the first twenty versions."""
    simulated: int = 0
    """Groups written that the SIMULATED model answered."""
    degenerate: int = 0
    """Groups written that are flagged."""
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values, with a schema version."""
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
                "groups": dict((+self.omitted.groups).most_common()),
                "rollouts": dict((+self.omitted.rollouts).most_common()),
                "logprobs": dict((+self.omitted.logprobs).most_common()),
            },
            "policy_versions": dict(self.models),
            "experience_versions": dict(self.libraries),
            "notes": self.notes,
        }

    def add(self, group: RolloutGroup, rows: int, *, degenerate: bool) -> None:
        """Count a written group."""
        self.rows += rows
        self.groups_written += 1
        self.degenerate += degenerate
        self.simulated += bool(group.metadata.get("simulated"))
        self.models[group.policy_version or "unknown"] += 1
        version = group.experience_version or "unknown"
        if version in self.libraries or len(self.libraries) < _VERSIONS_KEPT:
            self.libraries[version] += 1


def export_groups(groups: Iterable[RolloutGroup], path: Path, report: ExportReport) -> None:
    """Write the groups by ``report.options``, and the report as ``<file>.report.json``.

    Raise ``ShapeError`` for a group whose values are inconsistent or NaN, and what reading and writing raise; neither
    file is touched then. Without any row only the report is written, and an older file is renamed to ``<file>.old``, so
    that the report does not seem to describe it.
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


def _checked(groups: Iterable[RolloutGroup], report: ExportReport) -> Iterator[RolloutGroup]:
    for group in groups:
        check_groups([group])
        report.groups_read += 1
        report.rollouts_read += len(group.rollouts)
        if of_phase(group, report.options.phase):
            yield group
        else:
            report.omitted.groups[OTHER_PHASE[report.options.phase]] += 1


def _rows(groups: Iterable[RolloutGroup], report: ExportReport) -> Iterator[Any]:
    """Yield rows as objects; for the canonical form, lines."""
    options = report.options
    for group in groups:
        if options.target == "jsonl":
            yield from _canonical(group, report)
            continue
        chosen = choose(group, options, report.omitted)
        if chosen is None:
            continue
        if options.target == "verl":
            made = verl_rows(chosen, options, report.omitted, report.rows)
        else:
            made = _ROWS_OF[options.target](chosen, options, report.omitted)
        count = 0
        for row in made:
            count += 1
            yield row
        if count:
            report.add(group, count, degenerate=chosen.degenerate is not None)


def _canonical(group: RolloutGroup, report: ExportReport) -> Iterator[str]:
    """Yield the lines of a group with all its attempts; failed ones have a status and no reward."""
    options = report.options
    if options.prompt == "bare" and group.bare_state is None:
        report.omitted.groups[NO_BARE_PROMPT] += 1
        return
    signal = signal_of([rollout for rollout in group.rollouts if unusable(rollout) is None], options.min_spread)
    if signal != "mixed" and options.degenerate == "drop":
        report.omitted.groups[f"degenerate: {signal}"] += 1
        return
    metadata = {**group.metadata, "signal": signal, "prompt": options.prompt}
    state = group.state if options.prompt == "as-sent" else group.bare_state
    lines = lines_of_group(replace(group, state=state, metadata=metadata))
    yield from lines
    report.add(group, len(lines), degenerate=signal != "mixed")
