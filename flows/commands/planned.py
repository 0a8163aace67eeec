"""``tfgrpo config``, ``estimate`` and ``doctor``: show what a run with these options would do, without spending anything."""

from __future__ import annotations

import argparse
import dataclasses
import os

from tfgrpo.flows.commands.options import asked_settings, prepared_run
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import held_out
from tfgrpo.flows.orchestration.environment import check_prefect_home
from tfgrpo.flows.run.champion import starting_library
from tfgrpo.pipelines.settings.layers import describe, resolve_settings
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline


def config(options: argparse.Namespace, console: Console) -> None:
    """Show every setting, its value, and where the value came from."""
    resolved = resolve_settings(
        cli=asked_settings(options), env=os.environ, pipeline_path=find_pipeline(options.pipeline)
    )
    rows = describe(resolved)
    if console.as_json:
        console.result({key: {"value": value, "source": source} for key, value, source in rows})
    else:
        console.table(("setting", "value", "source"), rows)


def estimate(options: argparse.Namespace, console: Console) -> None:
    """Forecast the calls, tokens and money of a run; no request is sent to the endpoint."""
    forecast = prepared_run(options, preflight=False).plan.forecast
    console.answer(dataclasses.asdict(forecast), str(forecast))


def doctor(options: argparse.Namespace, console: Console) -> None:
    """Check what a run checks before it spends anything. Raise ``ConfigError`` with every problem."""
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
    }
    warnings = [*prepared.warnings, *starting_library(plan)[1]]
    lines = [*facts.items(), *(("warnings", warning) for warning in warnings), ("ok", "nothing was spent")]
    console.answer(
        {"ok": True, **facts, "warnings": warnings}, "\n".join(f"{name:>9}  {value}" for name, value in lines)
    )
