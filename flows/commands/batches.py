"""``tfgrpo export``: convert groups of rollouts for a trainer.

Writes a new file, or one that it wrote before; never a record of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tfgrpo.flows.commands.options import TaskChoice
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_output_file
from tfgrpo.flows.run.damage import refuse_changed
from tfgrpo.stores.batch.lines import read_groups
from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.json_values import EMPTY
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.choosing import TARGETS, ExportOptions, ExportReport, ExportTarget
from tfgrpo.tasks.exports.exporting import export_groups, report_path
from tfgrpo.tasks.exports.run_reading import facts_of_run, groups_of_run

_PARQUET = ".parquet"
# Options that mean something for some targets only.
_TAKEN_BY: Final[dict[str, tuple[ExportTarget, ...]]] = {
    "min_gap": ("trl-dpo",),
    "pairs": ("trl-dpo",),
    "min_reward": ("trl-kto", "trl-sft"),
}


class _Source(NamedTuple):
    name: str
    groups: Callable[[Counter[str]], Iterator[RolloutGroup]]
    """Counts in its argument the groups that are skipped."""
    default_path: Callable[[str], Path]
    notes: tuple[str, ...] = ()
    limits: Mapping[str, Any] = EMPTY


def export(
    *,
    run: str,
    to: ExportTarget | None,
    file: str | None,
    prompt: Literal["as-sent", "bare"],
    degenerate: Literal["drop", "flag"] | None,
    phase: Literal["train", "eval", "all"],
    choice: TaskChoice,
    console: Console,
    **limits: float | None,
) -> int:
    """Write the export and its report; exit code 1 when there is nothing to write."""
    if to is None:
        raise SettingsError.one("--to", "nothing", ", ".join(TARGETS))
    own: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    for_others = [name for name in own if to not in _TAKEN_BY[name]]
    if for_others:
        takers = {f"--{name.replace('_', '-')}": f"{' or '.join(_TAKEN_BY[name])} only" for name in for_others}
        raise SettingsError([Problem(name, f"it with {to}", targets) for name, targets in takers.items()])
    source = _source(run, choice, console, bare=prompt == "bare")
    degenerate = degenerate or ("flag" if to == "jsonl" else "drop")
    wanted = ExportOptions(target=to, prompt=prompt, degenerate=degenerate, phase=phase, **own, **source.limits)
    ending = "groups" if to == "jsonl" else to
    path = Path(file) if file else source.default_path(f"{source.name}-{ending}.jsonl")
    if path.suffix == _PARQUET and to != "verl":
        raise SettingsError.one("--file", path.name, "a .jsonl file; Parquet only with --to verl")
    if path.resolve() == Path(run).resolve():
        raise SettingsError.one("--file", str(path), "a file other than the one that is read")
    accepted = "one with our report beside it; or remove that one first"
    check_output_file(path, lambda old: report_path(old).is_file(), accepted)
    report = ExportReport(source.name, wanted, notes=list(source.notes))
    export_groups(source.groups(report.left_out["groups"]), path, report)
    _print(report, path, console)
    return 0 if report.file else 1


def _source(name: str, choice: TaskChoice, console: Console, *, bare: bool) -> _Source:
    path = Path(name)
    if path.suffix in {".jsonl", _PARQUET} or path.is_file():
        if path.suffix == _PARQUET:
            raise SettingsError.one("RUN", name, "a .jsonl file of groups")
        return _Source(path.stem, lambda _: read_groups(path), path.with_name)
    run = choice.run(name, console)
    refuse_changed(run)
    facts = facts_of_run(run)
    notes = []
    if facts.status != "finished":
        notes.append(f"the run is {facts.status}: only its accepted batches are here")
    if facts.simulated:
        notes.append("SIMULATED: these answers are of the simulated model and fit for trying things out only")
    if facts.actor not in ("chat", "tools"):
        notes.append(f"{facts.actor} made its own prompts: `as-sent` is what it was given, not what it sent")
    return _Source(
        facts.run_id,
        lambda omitted: groups_of_run(run, facts, omitted, bare=bare),
        TaskPaths(run.root.parent.parent).export,
        tuple(notes),
        {"min_spread": facts.min_spread},
    )


def _print(report: ExportReport, path: Path, console: Console) -> None:
    answer = report.as_json()
    for note in report.notes:
        console.say(note, style="bold yellow" if note.startswith("SIMULATED") else "yellow")
    kinds = ("groups", "rollouts", "logprobs")
    if left := [(kind, str(count), reason) for kind in kinds for reason, count in answer["left_out"][kind].items()]:
        console.table(("left out", "count", "why"), left, people=True)
    if report.file is None:
        none = f"none of {pluralize(report.groups['read'], 'group')} can be exported as {report.options.target}"
        console.say(f"tfgrpo: {none}; the report is {report_path(path)}", style="bold red", wrap=False)
    if console.as_json:
        console.result({**answer, "report": str(report_path(path))})
    elif report.file:
        what = "line" if report.options.target == "jsonl" else "row"
        console.say(
            f"{pluralize(report.rows, what)} from {report.groups['written']} of {pluralize(report.groups['read'], 'group')}; "
            f"the report is {report_path(path)}",
            wrap=False,
        )
        console.text(report.file)
