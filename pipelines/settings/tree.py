"""Which settings are there? One strict, frozen tree; file, environment and command line are derived from it.

Each leaf that has a command-line option or an environment variable says so in its own metadata (``flag``, ``env``),
and the text below it is its help, so that no table elsewhere can drift. Sections of one subject stand in the rooms
``pipelines.settings_*`` and are all named here. Refuses what is wrong with one value alone; what is wrong between
values is ``tfgrpo.pipelines.settings.guardrails``, and resolution of the four layers is ``tfgrpo.pipelines.settings.layers``.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from tfgrpo.pipelines.settings.base import Section, Text, option
from tfgrpo.pipelines.settings.data import DatasetSettings
from tfgrpo.pipelines.settings.learning import GateSettings, LearningSettings
from tfgrpo.pipelines.settings.model import ModelSettings, SimulatedSettings
from tfgrpo.pipelines.settings.rewarding import DATASET_GRADERS, RewarderSettings
from tfgrpo.pipelines.settings.selection import SelectionSettings


class ActorSettings(Section):
    """What attempts an item."""

    kind: Text = option("chat", flag="--actor", env="TFGRPO_ACTOR")
    """``chat``, ``tools``, or ``module:attr`` of any Python callable."""
    tools: tuple[Text, ...] = ()
    """``module:attr`` of each typed Python function the ``tools`` actor may call."""
    max_turns: int = Field(default=8, ge=1, le=1_000)
    """Model turns of one rollout before it fails."""
    timeout_s: float = Field(default=600.0, gt=0.0)
    """Seconds one rollout may take, all told."""


class BudgetSettings(Section):
    """Caps on the whole run, rollouts and learning together. None: no cap."""

    max_usd: float | None = option(None, flag="--max-usd", env="TFGRPO_MAX_USD", gt=0.0)
    """Most US dollars; needs a price for every model in use."""
    max_tokens: int | None = option(None, flag="--max-tokens", env="TFGRPO_MAX_TOKENS", gt=0)
    """Most tokens, prompts and completions together."""
    max_calls: int | None = option(None, flag="--max-calls", env="TFGRPO_MAX_CALLS", gt=0)
    """Most model calls."""
    task_max_usd: float | None = Field(default=None, gt=0.0)
    """Most US dollars that all runs of the task may spend together, those under way at the same time included. What the
    task's runs spent before is counted when the first run has this cap; runs without it are not counted after that."""


class TelemetrySettings(Section):
    """OpenTelemetry. Exporters exist only when an ``OTEL_EXPORTER_OTLP_*ENDPOINT`` is set."""

    genai_metrics: Literal["off", "v1.41", "latest"] = "latest"
    """Names of the convention's own metrics beside ours."""
    content: bool = False
    """Put prompts and answers on spans (truncated). May hold personal data."""
    shutdown_s: float = Field(default=2.0, gt=0.0, le=60.0)
    """Most seconds the process waits for undelivered telemetry at its end."""


class StageSettings(Section):
    """One stage of a pipeline file. ``learn`` runs the loop; ``spec-guard`` checks the run it made."""

    name: Literal["learn", "spec-guard"]
    """Which stage it is."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of the stage: ``TFGRPO_*`` values, below the real environment and above the rest of the file."""

    @field_validator("env", mode="before")
    @classmethod
    def _scalars_are_text_in_an_environment(cls, value: object) -> object:
        return {name: env_text(given) for name, given in value.items()} if isinstance(value, dict) else value


class Settings(Section):
    """Everything one run needs to know."""

    pipeline: Text = "tfgrpo-learning"
    """Name of the pipeline, for the manifest. A pipeline file without this key is called by its file name."""
    task_id: Text = option("tfgrpo-learning", flag="--task-id", env="TFGRPO_TASK_ID")
    """Names the directory under ``out``; runs of one task share a store."""
    out: Text = option("out", flag="--out", env="TFGRPO_OUT")
    """Directory that everything is written under."""
    dry_run: bool = option(False, flag="--dry-run")
    """Use the simulated model in process; nothing leaves the machine."""
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
    rewarders: tuple[RewarderSettings, ...] = (
        RewarderSettings(name="gt"),
        RewarderSettings(name="relative", weight=0.0),
    )
    """What scores the attempts, in order: the later ones see the scores of the earlier. With ``dataset.mix`` the first
    is ``dataset_graders``, the graders that the mix names for the item's dataset, unless others are listed."""
    model: ModelSettings = ModelSettings()
    budget: BudgetSettings = BudgetSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    simulated: SimulatedSettings = SimulatedSettings()
    selection: SelectionSettings = SelectionSettings()
    stages: tuple[StageSettings, ...] = (StageSettings(name="learn"), StageSettings(name="spec-guard"))
    """What a run does, in order: ``learn``, and ``spec-guard`` last."""

    @model_validator(mode="after")
    def _a_mix_brings_its_graders(self) -> Self:
        if self.dataset.mix is not None and "rewarders" not in self.model_fields_set:
            graders = RewarderSettings(name=DATASET_GRADERS), RewarderSettings(name="relative", weight=0.0)
            self.__dict__["rewarders"] = graders  # frozen from here on, and a default that depends on another field
        return self


def env_text(value: object) -> object:
    """A YAML scalar as an environment would hold it; anything else unchanged, for the schema to refuse."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
