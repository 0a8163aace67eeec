"""``tfgrpo config``: show every setting, its value, and where the value came from."""

from __future__ import annotations

import argparse
import os

from tfgrpo.flows.commands.options import add_settings, asked_settings
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser
from tfgrpo.pipelines.settings.layers import describe, resolve_settings
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline


def add(parser: Parser) -> None:
    """Add the arguments of the command."""
    add_settings(parser)


def execute(options: argparse.Namespace, console: Console) -> int:
    """Show the settings a run with these options would have."""
    resolved = resolve_settings(
        cli=asked_settings(options), env=os.environ, pipeline_path=find_pipeline(options.pipeline)
    )
    rows = describe(resolved)
    if console.as_json:
        console.result({key: {"value": value, "source": source} for key, value, source in rows})
    else:
        console.table(("setting", "value", "source"), rows)
    return 0
