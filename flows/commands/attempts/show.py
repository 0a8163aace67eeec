"""``tfgrpo show`` lists the items of a run, the worse first, or prints one with everything that each attempt at it did."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any, Final

from tfgrpo.flows.commands.options import TaskChoice
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import decimal, labelled
from tfgrpo.flows.report import attempts
from tfgrpo.flows.report.attempts import ItemTally, ItemView
from tfgrpo.flows.report.night import task_options
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.runs import ManifestFile
from tfgrpo.stores.text import pluralize, shorten_middle

_ROWS: Final = 50
# Characters of a text on the terminal; `--json` has it whole.
_CHARS: Final = 4_000
_NAMED: Final = 10


def show(run: str, item: str | None, choice: TaskChoice, console: Console, *, every: bool) -> None:
    """Print the table of the items, or one item; with ``--json`` one object."""
    paths = choice.run(run, console)
    task = TaskPaths(paths.root.parent.parent)
    manifest = ManifestFile(paths.manifest).read()
    about = {
        "run_id": manifest.get("run_id", paths.root.name),
        "task_id": manifest.get("task_id", task.root.name),
        "status": manifest.get("status", "unknown"),
        "simulated": manifest.get("simulated"),
    }
    tallies = attempts.overview(paths)
    if item is None:
        _show_items(about, task, paths, tallies, console, every=every)
        return
    (view,) = attempts.item_views(task, paths, [_item_named(item, tallies)], tallies)
    if console.as_json:
        console.result({**about, "item": view.as_json()})
    else:
        _show_item(about, view, console)


def _item_named(name: str, ids: Collection[str]) -> str:
    if name in ids:
        return name
    matches = sorted(each for each in ids if each.startswith(name))
    if len(matches) == 1:
        return matches[0]
    listed = matches or sorted(ids)
    named = ", ".join(map(repr, listed[:_NAMED])) or "none"
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    why = f"with which {len(matches)} ids begin" if matches else "which the run did not attempt"
    accepted = f"the id of an attempted item, or its unique beginning: {named}{more}"
    raise SettingsError.one("ITEM", f"{name!r:.80}, {why}", accepted)


def _show_items(
    about: Mapping[str, Any], task: TaskPaths, run: RunPaths, tallies: Mapping[str, ItemTally], console: Console, *, every: bool
) -> None:
    ids = attempts.worst_items(tallies)
    command = f"tfgrpo show {shlex.quote(run.root.name)} ITEM {task_options(task)}"
    if console.as_json:
        console.result({**about, "items": [{"item_id": each, **tallies[each].as_json()} for each in ids], "next": command})
        return
    if not ids:
        console.say(f"no attempt of run {run.root.name} was recorded yet")
        return
    arms = labelled({arm for tally in tallies.values() for arm in tally.sums})
    shown = ids if every else ids[:_ROWS]
    rows = []
    for name in shown:
        tally = tallies[name]
        rewards = (decimal(tally.rewards.get(arm)) for arm, _ in arms)
        rows.append((name, str(tally.outcomes.total()), *rewards, attempts.outcomes(tally).partition(": ")[2]))
    console.table(("item", "attempts", *(label for _, label in arms), "ended"), rows)
    if more := len(ids) - len(shown):
        console.say(f"and {pluralize(more, 'more item')}; --all lists them")
    console.say(f"the attempts at one: {command}", wrap=False)


def _show_item(about: Mapping[str, Any], view: ItemView, console: Console) -> None:
    simulated = ", SIMULATED model" if about["simulated"] else ""
    console.line(f"item {view.item_id} of run {about['run_id']} ({about['task_id']}{simulated})")
    console.line(f"{attempts.outcomes(view.tally)}{'; mean reward ' if view.tally.sums else ''}{attempts.rewards(view.tally)}")
    not_recorded = "not known: the run has not recorded it"
    console.text("\nquestion")
    if view.system_prompt:
        _quote(console, view.system_prompt)
    _quote(console, view.question, none=not_recorded)
    console.text("\nreference")
    _quote(console, view.reference, none=not_recorded if view.reference is None else "none: the item has no reference answer")
    for number, attempt in enumerate(view.attempts, start=1):
        console.line(f"\nattempt {number} of {len(view.attempts)}: {attempts.reward(attempt)} ({attempts.where(attempt)})")
        if attempt.reason:
            console.line(f"  {': '.join(filter(None, (attempt.error_type, attempt.reason)))}")
        for each in attempt.scores:
            console.line(f"  {attempts.score(each)}")
        if attempt.lessons is None:
            console.text("  lessons: not known, its prompt was not recorded")
        else:
            console.text(f"  lessons in its prompt: {len(attempt.lessons) or 'none'}")
            for lesson in attempt.lessons:
                console.line(f"    {lesson.experience_id}  {lesson.text or '(its words are not in the recorded prompt)'}")
        if attempt.steps is None:
            console.text("  steps: not known, there is no journal")
        for position, frame in enumerate(attempt.other_steps, start=1):
            console.line(f"  step {position}, {attempts.step(frame)}")
            _quote(console, frame.text, none="no text was recorded")
        console.text("  output")
        _quote(console, attempt.output, none="none")


def _quote(console: Console, text: str | None, *, none: str = "") -> None:
    if text:
        console.quote(shorten_middle(text, _CHARS))
    else:
        console.text(f"    ({none})")
