"""``tfgrpo experiences measure``: measure lessons of a task, or compare those in force with a control, without learning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from threading import Event

from tfgrpo.flows.commands.lessons.experiences import open_experiences
from tfgrpo.flows.commands.options import TaskChoice, assigned
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.observer import Progress
from tfgrpo.flows.orchestration.request import Control, Measuring, RunRequest
from tfgrpo.flows.run.execution import execute as execute_run
from tfgrpo.flows.run.execution import groups_in_process
from tfgrpo.flows.run.lessons import effect_text
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.stores.clock import utc_now


def measure(
    *,
    names: Sequence[str],
    rollouts: int,
    control: Control | None,
    assignments: Sequence[str],
    choice: TaskChoice,
    console: Console,
) -> int:
    """Measure under the settings of the task's newest run, in a separate run directory, and print the effects."""
    experiences = open_experiences(choice, console)
    lessons = tuple(experiences.find(name).experience_id for name in names)
    task = {"out": str(experiences.paths.root.parent), "task_id": experiences.paths.root.name}
    if choice.packs_root is not None:
        task["packs_root"] = str(choice.packs_root)
    measuring = Measuring(rollouts=rollouts, lessons=lessons, control=control)
    request = RunRequest(settings={**assigned(assignments), **task}, measures=measuring)
    prepared = prepare(request, os.environ, starts=True)
    runner = partial(groups_in_process, stop=Event())
    summary = execute_run(prepared, os.environ, Progress(console.people), runner, clock=utc_now)
    figures = {} if control else experiences.figures(prepared.plan.simulated)
    shown = lessons or [name for name, each in figures.items() if each["state"] in {"in force", "on trial"}]
    records = experiences.by_id()
    measured = [{"id": name, "text": records[name].summary32, **figures[name]} for name in shown if name in figures]
    if console.as_json:
        console.result({**summary.as_json(), "measured": measured})
    elif measured and summary.status == "finished":
        rows = ((each["id"], each["state"], effect_text(each["effect"]), each["text"]) for each in measured)
        console.table(("id", "state", "effect", "lesson"), rows)
    console.say(f"{summary.status}: {summary.message}")
    return summary.exit_code
