"""What comes before a run: ``tfgrpo config``, ``estimate`` and ``doctor`` show what it would do, without spending anything.

``tfgrpo deploy`` sets a Prefect server up for nightly runs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfgrpo.flows.commands.options import prepared_command
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.orchestration.environment import check_prefect_home, prefect_settings
from tfgrpo.pipelines.settings.layers import describe, resolve_settings
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.stores.errors import EndpointError

if TYPE_CHECKING:
    from tfgrpo.pipelines.plan.plan import Plan

_TIMEOUT_S = 60.0
"""Time for a server to answer; one that starts for the first time needs a dozen seconds."""


def config(pipeline: str, settings: Mapping[str, str], console: Console) -> None:
    """Show every setting, its value, and where the value came from."""
    resolved = resolve_settings(cli=settings, env=os.environ, pipeline_path=find_pipeline(pipeline))
    rows = describe(resolved)
    if console.as_json:
        console.result({key: {"value": value, "source": source} for key, value, source in rows})
    else:
        console.table(("setting", "value", "source"), rows)


def estimate(pipeline: str, settings: Mapping[str, str], console: Console) -> None:
    """Forecast the calls, tokens and money of a run; no request is sent to the endpoint."""
    forecast = prepared_command(pipeline, settings, preflight=False).plan.forecast
    text = str(forecast) if forecast.gain is None else f"{forecast}\n{forecast.gain}"
    console.answer(dataclasses.asdict(forecast), text)


def doctor(pipeline: str, settings: Mapping[str, str], console: Console, *, ping: bool) -> None:
    """Check what a run checks before it spends anything, and try an agent that uses the gateway on the simulated model.

    Raise ``ConfigError`` with every problem.
    """
    console.answer(*diagnosis(pipeline, settings, console, ping=ping))


def diagnosis(
    pipeline: str, settings: Mapping[str, str], console: Console, *, ping: bool = False
) -> tuple[dict[str, Any], str]:
    """Return what ``doctor`` answers, as JSON and as text. Raise ``ConfigError`` with every problem."""
    # `config` does without what a run consists of, which takes half of a second to import.
    from tfgrpo.flows.console.figures import price_line  # noqa: PLC0415
    from tfgrpo.flows.console.progress import held_out  # noqa: PLC0415
    from tfgrpo.flows.run.lessons import starting_library  # noqa: PLC0415
    from tfgrpo.flows.run.trial import try_agent  # noqa: PLC0415

    prepared = prepared_command(pipeline, settings)
    check_prefect_home(os.environ)
    plan = prepared.plan
    trial = try_agent(plan)
    pinged, spent = _pinged(plan, console) if ping else ((), "nothing was spent")
    facts = {
        "endpoint": plan.models.base_url or "SIMULATED, in process",
        "model": ", ".join(plan.models.in_use),
        "prices": "; ".join(map(price_line, plan.models.price_rows)),
        "pack": f"{plan.pack.manifest.id} ({plan.pack.manifest.stamp[:12]})",
        "items": f"{len(plan.learn_items):,} to learn on; {held_out(plan)}",
        "rewards": ", ".join(f"{each.scorer.rewarder_id} × {each.weight:g}" for each in plan.rewarders),
        "out": str(plan.paths.root),
        **({} if trial is None else {"agent": str(trial)}),
        **({"references": "; ".join(plan.references)} if plan.references else {}),
        "forecast": str(plan.forecast),
        **({} if plan.forecast.gain is None else {"gain": str(plan.forecast.gain)}),
    }
    warnings = [*prepared.warnings, *starting_library(plan)[1], *(() if trial is None else trial.warnings)]
    told = (("ping", each) for each in pinged)
    lines = [*facts.items(), *told, *(("warnings", warning) for warning in warnings), ("ok", spent)]
    agent = {} if trial is None else {"agent": dataclasses.asdict(trial)}
    answer = {
        "ok": True,
        **facts,
        "forecast": dataclasses.asdict(plan.forecast),
        **agent,
        "ping": list(pinged),
        "spent": spent,
        "warnings": warnings,
    }
    return answer, "\n".join(f"{name:>9}  {value}" for name, value in lines)


def _pinged(plan: Plan, console: Console) -> tuple[tuple[str, ...], str]:
    """Ask each model for one token. Return what answered, and the most that it cost. Raise ``EndpointError``."""
    from tfgrpo.flows.run.trial import ping_models  # noqa: PLC0415 - as above

    found = asyncio.run(ping_models(plan))
    if found.problems:
        console.say(f"{found.cost} was spent")
        raise EndpointError(found.problems)
    return found.answers or ("the SIMULATED model is in process: nothing was asked",), f"{found.cost} was spent"


def deploy(console: Console, notify: str | None) -> None:
    """Set the server up, and print each finding as it is made."""
    with prefect_settings():  # of which Prefect refuses some when it is imported
        from tfgrpo.flows.orchestration.deploying import deploy as set_up  # noqa: PLC0415

    findings = []
    for finding in set_up(os.environ, _TIMEOUT_S, notify):
        findings.append({"check": finding.name, "found": finding.text})
        console.say(f"{finding.name:>12}  {finding.text}", wrap=False)
    if console.as_json:
        console.result({"ok": True, "findings": findings})
