"""``tfgrpo doctor`` and ``estimate``: check what a run checks, try what it would run, and forecast it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_prefect_home
from tfgrpo.flows.console.figures import price_line
from tfgrpo.flows.console.observer import held_out
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.lessons import starting_library
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.flows.run.trial import ping_models, try_agent, try_scorers
from tfgrpo.stores.errors import EndpointError
from tfgrpo.stores.files.layout import display_path


def doctor(pipeline: str, settings: Mapping[str, str], console: Console, *, ping: bool) -> None:
    """Check what a run checks before it spends anything, and try an agent that uses the gateway on the simulated model.

    Raise ``ConfigError`` with every problem.
    """
    console.answer(*diagnosis(pipeline, settings, console, ping=ping))


def diagnosis(
    pipeline: str, settings: Mapping[str, str], console: Console, *, ping: bool = False
) -> tuple[dict[str, Any], str]:
    """Return what ``doctor`` answers, as JSON and as text. Raise ``ConfigError`` with every problem."""
    prepared = prepare(RunRequest(pipeline=pipeline, settings=dict(settings)), os.environ)
    check_prefect_home(os.environ)
    plan = prepared.plan
    trial = try_agent(plan)
    pinged: tuple[str, ...] = ()
    spent = "nothing was spent"
    if ping:
        found = asyncio.run(ping_models(plan))
        pinged, spent = found.answers, found.spent
        if found.problems:
            console.say(spent)
            raise EndpointError(found.problems)
        pinged = pinged or ("the SIMULATED model is in process: nothing was asked",)
    facts = {
        "endpoint": plan.models.base_url or "SIMULATED, in process",
        "model": ", ".join(plan.models.in_use),
        "prices": "; ".join(map(price_line, plan.models.price_rows)),
        "pack": f"{plan.pack.manifest.id} ({plan.pack.manifest.stamp[:12]})",
        "items": f"{len(plan.learn_items):,} to learn on; {held_out(plan)}",
        "rewards": ", ".join(f"{each.scorer.rewarder_id} × {each.weight:g}" for each in plan.rewarders),
        "out": display_path(plan.paths.root),
        **({} if trial is None else {"agent": str(trial)}),
        **({"references": "; ".join(plan.references)} if plan.references else {}),
        "forecast": str(plan.forecast),
        **({} if plan.forecast.gain is None else {"gain": str(plan.forecast.gain)}),
    }
    warnings = [*prepared.warnings, *starting_library(plan)[1], *try_scorers(plan), *(() if trial is None else trial.warnings)]
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


def estimate(pipeline: str, settings: Mapping[str, str], console: Console) -> None:
    """Forecast the calls, tokens and money of a run; no request is sent to the endpoint."""
    request = RunRequest(pipeline=pipeline, settings=dict(settings))
    forecast = prepare(request, os.environ, preflight=False).plan.forecast
    text = str(forecast) if forecast.gain is None else f"{forecast}\n{forecast.gain}"
    console.answer(dataclasses.asdict(forecast), text)
