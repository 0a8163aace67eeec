"""Requests of the flows and commands: what is asked of a learning run, as fields and as settings by dotted key.

Fields named like command-line options set the same settings; ``settings`` reaches every other one by its dotted key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from tfgrpo.pipelines.settings.fields import setting_fields
from tfgrpo.pipelines.settings.layers import Resolved, resolve_settings
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.stores.errors import Problem, SettingsError

Scalar: TypeAlias = str | int | float | bool
Control: TypeAlias = Literal["no-lessons", "neutral", "same"]
"""What the lessons in force are compared with: no lessons, neutral text of equal length in their place, or themselves."""


class FlowRequest(BaseModel):
    """Base of the requests: fields that set a setting each, and ``settings`` for all others."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=()
    )

    KEYS: ClassVar[Mapping[str, str]] = {}
    """Dotted key of the setting behind each field that sets one."""
    settings: dict[str, Scalar] = Field(default_factory=dict)
    """Any other setting by its dotted key, such as ``{"tfgrpo.min_spread": 0.1}``."""
    pipeline: str | None = None
    """Name of a shipped pipeline, or path of a pipeline file. None: the defaults."""
    model: str | None = None
    base_url: str | None = None
    out: str | None = None
    task_id: str | None = None
    actor: str | None = None
    pack: str | None = None
    packs_root: str | None = None
    world: Literal["arithmetic", "ledger-tools", "powl", "unlearnable"] | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    seed: int | None = None
    dry_run: bool | None = Field(default=None, strict=False)

    def options(self) -> dict[str, str]:
        """The settings asked for, as raw text by dotted key: the uppermost layer of the settings.

        Raises ``SettingsError`` where a field and ``settings`` give the same setting two values.
        """
        asked = {key: option_text(value) for key, value in self.settings.items()}
        values = {name: getattr(self, name) for name in self.KEYS}
        fields = {name: option_text(value) for name, value in values.items() if value is not None}
        if problems := [
            Problem(f"settings {self.KEYS[name]}", f"{asked[self.KEYS[name]]} beside {name} {text}", "one value")
            for name, text in fields.items()
            if asked.get(self.KEYS[name], text) != text
        ]:
            raise SettingsError(problems)
        return asked | {self.KEYS[name]: text for name, text in fields.items()}

    def resolved(self, env: Mapping[str, str]) -> Resolved:
        """The settings: as asked for, else of the environment, the pipeline file or the defaults. Raises ``ConfigError``."""
        path = None if self.pipeline is None else find_pipeline(self.pipeline)
        return resolve_settings(cli=self.options(), env=env, pipeline_path=path)

    def laid_over(self, below: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of this request over those of another, setting by setting: what this one leaves out stays.

        Where the other sets by its dotted key what this one sets by a field, the field counts.
        """
        given = self.model_dump(exclude_unset=True, exclude_none=True)
        taken = {self.KEYS[name] for name in given if name in self.KEYS}
        kept = {key: value for key, value in below.get("settings", {}).items() if key not in taken}
        return {**below, **given, "settings": kept | self.settings}


class Measuring(BaseModel):
    """Attempts that measure lessons, in place of learning."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollouts: int
    lessons: tuple[str, ...] = ()
    """Ids of the lessons to be measured; empty: those on trial and in force."""
    control: Control | None = None
    """Compares the lessons in force with this control, in place of measuring single lessons."""


class RunRequest(FlowRequest):
    """A learning run as asked for. Absent fields keep what environment, pipeline file and defaults say."""

    KEYS: ClassVar[Mapping[str, str]] = {
        leaf.flag.removeprefix("--").replace("-", "_"): leaf.key for leaf in setting_fields() if leaf.flag is not None
    }

    pipeline: str = "tfgrpo-learning"
    run_id: str | None = None
    """Name of the run; made from the time when absent."""
    resume: str | None = None
    """Run id to continue where it ended, or ``latest``."""
    replay: str | None = None
    """Run id to run again from its journal, without an endpoint, into a separate store, or ``latest``."""
    measures: Measuring | None = None
    """Measure with the settings of the task's newest run, and learn nothing."""
    test: bool = False
    """Learn nothing: compare the lessons in force with none on the sealed items."""
    dataset: str | None = None
    eval_dataset: str | None = None
    data_config: str | None = None
    reflection_model: str | None = None
    epochs: int | None = None
    group_size: int | None = None
    sample_size: int | None = None
    batch_size: int | None = None
    train_temp: float | None = None
    eval_temp: float | None = None
    concurrency: int | None = None
    allow_zero: bool | None = Field(default=None, strict=False)
    task_runner: Literal["threads", "dask", "ray"] | None = None
    flow_run_id: str | None = None
    """Prefect's id of the deployed flow run that asks; the run that it began before is continued."""

    @property
    def earlier(self) -> str | None:
        """Id of the run that is resumed or replayed; None for a new one."""
        return self.replay if self.resume is None else self.resume


def option_text(value: object) -> str:
    """A JSON value as it is given on a command line."""
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value)
