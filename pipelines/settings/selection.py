"""Settings of a best-of-K selection: candidates, repairs, scores and memory."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from tfgrpo.pipelines.settings.addresses import checked_address
from tfgrpo.pipelines.settings.base import ListOf, NonEmptyText, Section, Temperature, setting_field

SelectionStage: TypeAlias = Literal["VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"]
"""First valid answers, then answers that behave like the reference."""
FormatName: TypeAlias = Literal["text", "json", "powl"]
MemoryMode: TypeAlias = Literal["off", "record", "exploit", "explore"]
MAX_K: Final = 16
OLLAMA: Final = "http://localhost:11434/v1"
TEMPERATURE_CYCLE: Final = (0.5, 0.7, 0.9, 1.0, 0.6, 0.8, 0.95, 0.75)


def _check_model(value: str) -> str:
    if not value.strip():
        raise ValueError("the name of a model")
    return value


class SelectionSettings(Section):
    """Best of K for one request, as ``tfgrpo select`` runs it."""

    k: int = setting_field(4, flag="--k", ge=1, le=MAX_K)
    """Number of candidates, requested concurrently."""
    min_success: int = setting_field(1, flag="--min-success", ge=1, le=MAX_K)
    """Minimum number of valid candidates; the others may fail."""
    max_validations: int = setting_field(3, flag="--max-validations", ge=0, le=10)
    """Most repairs of one candidate; 0: none. An answer in format ``text`` is repaired only when it is cut off."""
    repair: Literal["all", "syntax"] = "all"
    """Mistakes to repair: all, or only answers that do not parse (not a LOOP of one child, nor findings)."""
    none_valid: Literal["raise", "best_effort"] = setting_field("raise", flag="--none-valid")
    """If no candidate is valid, or none can be graded: fail, or return the best available."""
    temperatures: ListOf[Temperature] = Field(default=TEMPERATURE_CYCLE, min_length=1)
    """Temperatures of the candidates, in a cycle. Repairs keep the temperature of their candidate."""
    timeout_s: float = setting_field(60.0, flag="--timeout-s", gt=0.0)
    """Seconds one attempt or repair may take. Replaces ``actor.timeout_s`` here."""
    base_url: Annotated[NonEmptyText, AfterValidator(checked_address)] = OLLAMA
    """Endpoint where ``model.base_url`` is None: Ollama on this machine."""
    model: Annotated[NonEmptyText, AfterValidator(_check_model)] = "qwen2.5-coder"
    """Model where ``model.name`` and ``model.base_url`` are None."""
    format: FormatName = setting_field("text", flag="--format")
    """Format of an answer: ``text``, ``json``, or ``powl``, a process model as text or JSON."""
    json_schema: NonEmptyText | None = setting_field(None, flag="--json-schema")
    """File with the JSON schema of answers in format ``json``."""
    stage: Literal["auto", "VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"] = setting_field("auto", flag="--stage")
    """Reward without a named rewarder: validity by a judge, or behaviour by the reference. ``auto``: by history."""
    memory: MemoryMode = setting_field("off", flag="--memory")
    """Memory of the process models in earlier selections of a task. ``record`` only remembers; ``exploit`` shows good and bad
    structures; ``explore`` shows tried ones to avoid."""
