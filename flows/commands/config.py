"""``tfgrpo config``: the settings as they resolve, without importing what a run consists of."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tfgrpo.flows.console.console import Console
from tfgrpo.pipelines.settings.layers import describe, resolve_settings
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline


def config(pipeline: str, settings: Mapping[str, str], console: Console) -> None:
    """Show every setting, its value, and where the value came from."""
    resolved = resolve_settings(cli=settings, env=os.environ, pipeline_path=find_pipeline(pipeline))
    rows = describe(resolved)
    if console.as_json:
        console.result({key: {"value": value, "source": source} for key, value, source in rows})
    else:
        console.table(("setting", "value", "source"), rows)
