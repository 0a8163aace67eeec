"""Define all settings of a run as one strict, frozen tree. File, environment and command line are derived from it.

A field declares its command-line option and environment variable (``flag``, ``env``), and the text below it is its
help. Single values are checked here; combinations are checked in ``tfgrpo.pipelines.settings.guardrails``.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from tfgrpo.pipelines.settings.base import ListOf, Section, Text, option
from tfgrpo.pipelines.settings.data import DatasetSettings
from tfgrpo.pipelines.settings.learning import GateSettings, LearningSettings
from tfgrpo.pipelines.settings.model import ModelSettings, SimulatedSettings
from tfgrpo.pipelines.settings.rewarding import DATASET_GRADERS, RewarderSettings
from tfgrpo.pipelines.settings.selection import SelectionSettings


class ActorSettings(Section):
    """The actor, which attempts the items."""

    kind: Text = option("chat", flag="--actor", env="TFGRPO_ACTOR")
    """``chat``, ``tools``, or a Python callable: ``module:attr`` or ``path/to/file.py:attr``."""
    tools: ListOf[Text] = ()
    """``module:attr`` or ``path/to/file.py:attr`` of each typed Python function the ``tools`` actor may call."""
    max_turns: int = Field(default=8, ge=1, le=1_000)
    """Model turns of one rollout before it fails."""
    timeout_s: float = Field(default=600.0, gt=0.0)
    """Seconds one rollout may take in total."""


class BudgetSettings(Section):
    """Caps on the whole run, rollouts and learning together. None: no cap."""

    max_usd: float | None = option(None, flag="--max-usd", env="TFGRPO_MAX_USD", gt=0.0)
    """Most US dollars; needs a price for every model in use."""
    max_tokens: int | None = option(None, flag="--max-tokens", env="TFGRPO_MAX_TOKENS", gt=0)
    """Most tokens, prompts and completions together."""
    max_calls: int | None = option(None, flag="--max-calls", env="TFGRPO_MAX_CALLS", gt=0)
    """Most model calls."""
    task_max_usd: float | None = Field(default=None, gt=0.0)
    """Most US dollars of all runs of the task together, concurrent ones included. Earlier runs are counted when the first
    run has this cap; runs without it are not counted after that."""


class TelemetrySettings(Section):
    """OpenTelemetry. Exporters exist only when an ``OTEL_EXPORTER_OTLP_*ENDPOINT`` is set."""

    genai_metrics: Literal["off", "v1.41", "latest"] = "latest"
    """Version of the GenAI convention's metrics, emitted in addition to ours."""
    content: bool = False
    """Record prompts and answers on spans (truncated). May contain personal data."""
    shutdown_s: float = Field(default=2.0, gt=0.0, le=60.0)
    """Most seconds the process waits at its end for undelivered telemetry."""


class StageSettings(Section):
    """One stage of a pipeline file. ``learn`` runs the loop; ``spec-guard`` checks the run it made."""

    name: Literal["learn", "spec-guard"]
    """Name of the stage."""
    env: dict[str, str] = Field(default_factory=dict)
    """``TFGRPO_*`` variables of the stage. The real environment overrides them; they override the rest of the file."""

    @field_validator("env", mode="before")
    @classmethod
    def _scalars_as_text(cls, value: object) -> object:
        return {name: env_text(each) for name, each in value.items()} if isinstance(value, dict) else value


class Settings(Section):
    """All settings of one run."""

    pipeline: Text = "tfgrpo-learning"
    """Name of the pipeline in the manifest. A pipeline file without this key has its file name."""
    task_id: Text = option("tfgrpo-learning", flag="--task-id", env="TFGRPO_TASK_ID")
    """Name of the task and of its directory under ``out``; runs of one task share a store."""
    out: Text = option("out", flag="--out", env="TFGRPO_OUT")
    """Directory of all output."""
    dry_run: bool = option(False, flag="--dry-run")
    """Use the simulated model in process, without any network."""
    task_runner: Literal["threads", "dask", "ray"] = option("threads", flag="--task-runner", env="TFGRPO_TASK_RUNNER")
    """Where groups run; ``dask`` and ``ray`` are extras."""
    pack: Text = option("arithmetic", flag="--pack", env="TFGRPO_PACK")
    """Id or domain of the prompt pack."""
    packs_root: Text | None = option(None, flag="--packs-root", env="TFGRPO_PACKS_ROOT")
    """Directory of your own packs, used instead of those that ship."""
    tfgrpo: LearningSettings = LearningSettings()
    gate: GateSettings = GateSettings()
    dataset: DatasetSettings = DatasetSettings()
    actor: ActorSettings = ActorSettings()
    rewarders: ListOf[RewarderSettings] = (
        RewarderSettings(name="gt"),
        RewarderSettings(name="relative", weight=0.0),
    )
    """Rewarders in order; later ones see the scores of earlier ones. With ``dataset.mix`` the default is
    ``dataset_graders``, the graders that the mix names for the item's dataset, and ``relative``."""
    model: ModelSettings = ModelSettings()
    budget: BudgetSettings = BudgetSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    simulated: SimulatedSettings = SimulatedSettings()
    selection: SelectionSettings = SelectionSettings()
    stages: ListOf[StageSettings] = (StageSettings(name="learn"), StageSettings(name="spec-guard"))
    """Stages in order: ``learn``, and optionally ``spec-guard`` last."""

    @model_validator(mode="after")
    def _default_to_the_graders_of_the_mix(self) -> Self:
        if self.dataset.mix is not None and "rewarders" not in self.model_fields_set:
            graders = RewarderSettings(name=DATASET_GRADERS), RewarderSettings(name="relative", weight=0.0)
            self.__dict__["rewarders"] = graders  # a frozen model has no other way to set a default by another field
        return self


def env_text(value: object) -> object:
    """Return a YAML scalar as the text of a variable; anything else unchanged, for the schema to refuse."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
