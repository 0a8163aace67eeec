"""``tfgrpo doctor``: everything a run checks before it spends anything, and nothing more."""

from __future__ import annotations

import argparse
import os

from tfgrpo.flows.commands.options import add_settings, asked_settings
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import held_out
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.orchestration.server.prefect_home import check_prefect_home
from tfgrpo.flows.run.champion import champion_library, champion_problems, retirement
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.experiences.store import ExperienceStore


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_settings(parser)


def execute(options: argparse.Namespace, console: Console) -> int:
    """Say what would run, or every problem at once."""
    prepared = prepare(RunRequest(pipeline=options.pipeline, settings=dict(asked_settings(options))), os.environ)
    check_prefect_home(os.environ)
    plan = prepared.plan
    facts = {
        "endpoint": plan.models.base_url or "SIMULATED, in process",
        "model": ", ".join(plan.models.in_use),
        "pack": f"{plan.pack.manifest.id} ({plan.pack.manifest.stamp[:12]})",
        "items": f"{len(plan.learn_items):,} to learn on; {held_out(plan)}",
        "rewards": ", ".join(f"{each.rewarder.rewarder_id} × {each.weight:g}" for each in plan.rewarders),
        "out": str(plan.paths.root),
        "forecast": str(plan.forecast),
        "warnings": [*prepared.warnings, *_retired(plan)],
    }
    if console.as_json:
        console.result({"ok": True, **facts})
        return 0
    for name, value in facts.items():
        for line in value if isinstance(value, list) else [value]:
            console.text(f"{name:>9}  {line}")
    console.text("       ok  nothing was spent")
    return 0


def _retired(plan: Plan) -> list[str]:
    """What a run would start without."""
    approved = approved_stamps([plan.pack])
    store = ExperienceStore(plan.paths.experiences, approved=approved, task_id=plan.settings.task_id)
    champion = champion_library(store, plan.paths, simulated=plan.simulated)
    return [*champion_problems(store, plan.paths, simulated=plan.simulated), *retirement(champion, store)]
