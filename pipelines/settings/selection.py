"""How is the best of K chosen? Settings of one selection: how many candidates, how they are repaired, scored and remembered.

Refuses what is wrong with one value alone; what only goes wrong in combination is ``tfgrpo.flows.selection.plan``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from pydantic import Field, field_validator

from tfgrpo.pipelines.settings.base import Fraction, Section, Temperature, Text, checked_address

Stage: TypeAlias = Literal["VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"]
"""First answers that hold together, then answers that behave like the reference."""
FormatName: TypeAlias = Literal["text", "json", "powl"]
MemoryMode: TypeAlias = Literal["off", "record", "exploit", "explore"]
MAX_K: Final = 16
TEMPERATURE_CYCLE: Final = (0.5, 0.7, 0.9, 1.0, 0.6, 0.8, 0.95, 0.75)


class StageThresholds(Section):
    """When ``stage: auto`` moves on to behaviour, and when it falls back. All comparisons are strict."""

    min_reward: Fraction = 0.8
    """Reward of the chosen candidate that makes a round a high one, and that the mean has to exceed."""
    rounds: int = Field(default=10, ge=1, le=1_000_000)
    """High rounds in a row that it takes; also the rounds that falling back looks at."""
    min_parsed: Fraction = 0.95
    """Share of usable answers that has to be exceeded."""
    margin: Fraction = 0.1
    """How far reward or share must fall below their thresholds before the stage falls back."""


class MemorySettings(Section):
    """What earlier selections of a task showed of structures, and what becomes of it."""

    mode: MemoryMode = "off"
    """``record`` only remembers; ``exploit`` shows what did well and badly; ``explore`` what was tried, to stay away from."""
    hints: int = Field(default=3, ge=1, le=10)
    """Most structures shown of each kind."""
    max_patterns: int = Field(default=1000, ge=1, le=100_000)
    """Structures kept of one domain; those that were seen least and longest ago are dropped first."""
    half_life: float = Field(default=50.0, gt=0.0)
    """Rounds after which an observation counts half."""


class SelectionSettings(Section):
    """Best of K for one request, as ``tfgrpo select`` runs it."""

    k: int = Field(default=4, ge=1, le=MAX_K)
    """Candidates that are asked for, all at once."""
    min_success: int = Field(default=1, ge=1, le=MAX_K)
    """Valid candidates that it takes to choose one; the others may fail."""
    max_validations: int = Field(default=3, ge=1, le=10)
    """Repairs of one candidate after its first answer. An answer in format ``text`` needs one only when it is cut off."""
    repair: Literal["all", "syntax"] = "all"
    """What is repaired: every mistake, or only what cannot be read at all (not a LOOP of one child, nor findings)."""
    none_valid: Literal["raise", "best_effort"] = "raise"
    """When no candidate is valid, or none can be graded: fail, or hand out the best of what there is."""
    temperatures: tuple[Temperature, ...] = Field(default=TEMPERATURE_CYCLE, min_length=1)
    """Temperature of the first candidate, the second, and so on round and round. Repairs keep it."""
    timeout_s: float = Field(default=60.0, gt=0.0)
    """Seconds one attempt may take; a repair is an attempt of its own. Stands for ``actor.timeout_s`` here."""
    base_url: Text = "http://localhost:11434/v1"
    """Endpoint that is asked where ``model.base_url`` names none: Ollama on this machine."""
    model: Text = "qwen2.5-coder"
    """Model that is asked for where ``model.name`` and ``model.base_url`` name none."""
    format: FormatName = "text"
    """What an answer has to be: ``text``, ``json``, or ``powl``, a process model as text or JSON."""
    json_schema: Text | None = None
    """File with the JSON schema that an answer in format ``json`` has to follow."""
    stage: Literal["auto", "VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"] = "auto"
    """What is rewarded where no rewarder is named: validity by a judge, or behaviour by the reference. ``auto``: by history."""
    thresholds: StageThresholds = StageThresholds()
    memory: MemorySettings = MemorySettings()

    @field_validator("base_url")
    @classmethod
    def _address_without_credentials(cls, value: str) -> str:
        return checked_address(value, "http://localhost:11434/v1")

    @field_validator("model")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("the name of a model")
        return value
