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
    """Check what a run checks before it spends anything, and try an agent of the gateway. Raise ``ConfigError``."""
    console.answer(*diagnosis(pipeline, settings, console, ping=ping))


def diagnosis(
    pipeline: str, settings: Mapping[str, str], console: Console, *, ping: bool = False
) -> tuple[dict[str, Any], str]:
    """Return what ``doctor`` answers, as JSON and as text. Raise ``ConfigError``."""
    prepared = prepare(RunRequest(pipeline=pipeline, settings=dict(settings)), os.environ)
    check_prefect_home(os.environ)
    plan = prepared.plan
    trial = try_agent(plan)
    pinged: tuple[str, ...] = ()
    spent = "nothing was spent"
    if ping:
        ping_result = asyncio.run(ping_models(plan))
        pinged, spent = ping_result.answers, ping_result.spent
        if ping_result.problems:
            console.say(spent)
            raise EndpointError(ping_result.problems)
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
    listed = [*(("ping", each) for each in pinged), *(("warnings", each) for each in warnings)]
    text = "\n".join(f"{name:>9}  {value}" for name, value in (*facts.items(), *listed, ("ok", spent)))
    answer: dict[str, Any] = {"ok": True, **facts, "forecast": dataclasses.asdict(plan.forecast)}
    if trial is not None:
        answer["agent"] = dataclasses.asdict(trial)
    return {**answer, "ping": list(pinged), "spent": spent, "warnings": warnings}, text


def estimate(pipeline: str, settings: Mapping[str, str], console: Console) -> None:
    """Forecast the calls, tokens and money of a run; no request is sent to the endpoint."""
    request = RunRequest(pipeline=pipeline, settings=dict(settings))
    forecast = prepare(request, os.environ, preflight=False).plan.forecast
    text = str(forecast) if forecast.gain is None else f"{forecast}\n{forecast.gain}"
    console.answer(dataclasses.asdict(forecast), text)
