"""Request of the flow ``tfgrpo-select`` and of the command ``tfgrpo select``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from pydantic import Field

from tfgrpo.flows.orchestration.request import FlowRequest
from tfgrpo.pipelines.settings.layers import setting_fields

_SHARED: Final = (
    "model",
    "base_url",
    "out",
    "task_id",
    "actor",
    "pack",
    "packs_root",
    "world",
    "max_usd",
    "max_tokens",
    "max_calls",
    "seed",
    "dry_run",
)
"""Options of a run that a selection has, too."""


class SelectRequest(FlowRequest):
    """Request of one selection. Absent settings keep the values of environment, pipeline file and defaults."""

    KEYS: ClassVar[Mapping[str, str]] = {
        leaf.key.removeprefix("selection."): leaf.key
        for leaf in setting_fields()
        if leaf.flag and leaf.key.startswith("selection.")
    } | {name: FlowRequest.KEYS[name] for name in _SHARED}

    prompt: str | None = None
    """The prompt. Either this or ``item``; a dry run without either takes the first item of its world."""
    item: str | None = None
    """An item of a dataset instead, as ``FILE#id``."""
    answer: str | None = None
    """Reference to compare with, as text, whatever it starts with."""
    reference: str | None = None
    """The same, or ``@FILE`` with it: text, JSON, and in format ``powl`` a model or a footprint."""
    rewarders: list[str] = Field(default_factory=list)
    """NAME or NAME=WEIGHT. None: the rewarders of the pipeline file, or of the stage."""
