"""``tfgrpo estimate``: the calls, tokens and money a run may take, without sending anything."""

from __future__ import annotations

import argparse
import dataclasses
import os

from tfgrpo.flows.commands.options import add_settings, asked_settings
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.prepare import prepare


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_settings(parser)


def execute(options: argparse.Namespace, console: Console) -> int:
    """Print the forecast; the endpoint is not asked for anything."""
    request = RunRequest(pipeline=options.pipeline, settings=dict(asked_settings(options)))
    forecast = prepare(request, os.environ, preflight=False).plan.forecast
    if console.as_json:
        console.result(dataclasses.asdict(forecast))
    else:
        console.text(str(forecast))
    return 0
