"""Request of the flow ``tfgrpo-select`` and of the command ``tfgrpo select``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pydantic import Field

from tfgrpo.flows.orchestration.request import FlowRequest, RunRequest

_OWN: Final = (
    "k",
    "min_success",
    "format",
    "json_schema",
    "none_valid",
    "stage",
    "memory",
    "max_validations",
    "timeout_s",
)


class SelectRequest(FlowRequest):
    """Request of one selection. Absent fields keep the values of environment, pipeline file and defaults."""

    KEYS: ClassVar[Mapping[str, str]] = {name: f"selection.{name}" for name in _OWN} | {
        name: RunRequest.KEYS[name] for name in FlowRequest.model_fields if name in RunRequest.KEYS
    }

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
    k: int | None = None
    min_success: int | None = None
    format: Literal["text", "json", "powl"] | None = None
    json_schema: str | None = None
    none_valid: Literal["raise", "best_effort"] | None = None
    stage: Literal["auto", "VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"] | None = None
    memory: Literal["off", "record", "exploit", "explore"] | None = None
    max_validations: int | None = None
    timeout_s: float | None = None
