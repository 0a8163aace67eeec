"""``tfgrpo experiences measure``: measure lessons of a task, or compare its champion with a control, without learning."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from functools import partial
from threading import Event

from tfgrpo.flows.commands.lessons.experiences import open_experiences
from tfgrpo.flows.commands.options import asked_settings, packs_root_of
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.progress import Progress
from tfgrpo.flows.orchestration.request import Measuring, RunRequest
from tfgrpo.flows.run.champion import promoted_elsewhere
from tfgrpo.flows.run.effects import effect_text, measured_json, task_effects
from tfgrpo.flows.run.execution import execute as execute_run
from tfgrpo.flows.run.execution import groups_in_process
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import SettingsError


def execute(options: argparse.Namespace, console: Console) -> int:
    """Measure under the settings of the task's newest run, in a run directory of its own, and print the effects."""
    experiences = open_experiences(options, console)
    named = tuple(experiences.find(name).experience_id for name in options.names)
    asked = Measuring(rollouts=options.rollouts, lessons=named, control=options.control)
    request = RunRequest(
        settings=dict(asked_settings(options)),
        measures=asked,
        packs_root=options.packs_root,
        out=str(experiences.paths.root.parent),
        task_id=experiences.paths.root.name,
    )
    prepared = prepare(request, os.environ)
    if options.control == "other-domains":
        others = promoted_elsewhere(experiences.paths, packs_root_of(options), simulated=prepared.plan.simulated)
        if not others:
            given = f"other-domains, and no other task under {request.out} has lessons of another domain in force"
            raise SettingsError.one("--control", given, "another control, or such a task beside this one")
        asked = asked.model_copy(update={"others": tuple(others)})  # on record, so that it is resumed with the same
        prepared = replace(prepared, request=prepared.request.model_copy(update={"measures": asked}))
    runner = partial(groups_in_process, stop=Event())
    summary = execute_run(prepared, os.environ, Progress(console.people), runner, clock=utc_now)
    measured = experiences.entries(named).values() if named else experiences.champion.entries
    shown = () if options.control else measured
    effects = task_effects(experiences.paths, simulated=prepared.plan.simulated)
    if console.as_json:
        fields = [
            {"id": one.experience_id, "text": one.summary32, **measured_json(one, effects.get(one.experience_id))}
            for one in shown
        ]
        console.result({**summary.as_json(), "measured": fields})
    elif shown and summary.status == "finished":
        rows = ((one.experience_id, effect_text(effects.get(one.experience_id)), one.summary32) for one in shown)
        console.table(("id", "effect", "lesson"), rows)
    console.say(f"{summary.status}: {summary.message}")
    return summary.exit_code
