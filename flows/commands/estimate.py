"""``tfgrpo estimate``: forecast the calls, tokens and money of a run, without sending anything."""

from __future__ import annotations

import argparse
import dataclasses

from tfgrpo.flows.commands.options import add_settings, prepared_run
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser


def add(parser: Parser) -> None:
    """Add the arguments of the command."""
    add_settings(parser)


def execute(options: argparse.Namespace, console: Console) -> int:
    """Print the forecast; no request is sent to the endpoint."""
    forecast = prepared_run(options, preflight=False).plan.forecast
    if console.as_json:
        console.result(dataclasses.asdict(forecast))
    else:
        console.text(str(forecast))
    return 0
