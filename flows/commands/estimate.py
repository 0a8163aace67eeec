"""``tfgrpo estimate``: the forecast of a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.prepare import prepare


def estimate(pipeline: str, settings: Mapping[str, str], console: Console) -> None:
    """Forecast the calls, tokens and money of a run; no request is sent to the endpoint."""
    request = RunRequest(pipeline=pipeline, settings=dict(settings))
    forecast = prepare(request, os.environ, preflight=False).plan.forecast
    text = str(forecast) if forecast.gain is None else f"{forecast}\n{forecast.gain}"
    console.answer(dataclasses.asdict(forecast), text)
