"""``tfgrpo doctor``: check what a run checks before it spends anything, and nothing more."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tfgrpo.flows.commands.options import add_settings, prepared_run
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser

if TYPE_CHECKING:
    from tfgrpo.pipelines.plan.plan import Plan


def add(parser: Parser) -> None:
    """Add the arguments of the command."""
    add_settings(parser)


def execute(options: argparse.Namespace, console: Console) -> int:
    """Print what would run, or raise ``ConfigError`` with every problem."""
    # `--help` need not import what a run does.
    from tfgrpo.flows.console.figures import held_out  # noqa: PLC0415
    from tfgrpo.flows.orchestration.server.prefect_home import check_prefect_home  # noqa: PLC0415

    prepared = prepared_run(options)
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
        "warnings": [*prepared.warnings, *_library_warnings(plan)],
    }
    if console.as_json:
        console.result({"ok": True, **facts})
        return 0
    for name, value in facts.items():
        for line in value if isinstance(value, list) else [value]:
            console.text(f"{name:>9}  {line}")
    console.text("       ok  nothing was spent")
    return 0


def _library_warnings(plan: Plan) -> list[str]:
    """Return which lessons in force a run would not start with, and why."""
    from tfgrpo.flows.run.champion import champion_library, champion_problems, retirement  # noqa: PLC0415
    from tfgrpo.prompt_packs.stamps import approved_stamps  # noqa: PLC0415
    from tfgrpo.stores.experiences.store import ExperienceStore  # noqa: PLC0415

    approved = approved_stamps([plan.pack])
    store = ExperienceStore(plan.paths.experiences, approved=approved, task_id=plan.settings.task_id)
    champion = champion_library(store, plan.paths, simulated=plan.simulated)
    return [*champion_problems(store, plan.paths, simulated=plan.simulated), *retirement(champion, store)]
