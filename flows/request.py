"""What may be asked of a run? The one parameter of the flow, from which Prefect draws its form.

Fields named like command-line options set the same settings; ``settings`` reaches every other one by its dotted key.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pipelines.layers import leaf_options

Scalar = str | int | float | bool


class RunRequest(BaseModel):
    """A learning run as asked for. Absent fields keep what environment, pipeline file and defaults say."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    pipeline: str = "tfgrpo-learning"
    """Name of a shipped pipeline, or path of a pipeline file."""
    run_id: str | None = None
    """Name of the run; made from the time when absent."""
    resume: str | None = None
    """Run id to continue where it ended, or ``latest``."""
    replay: str | None = None
    """Run id to run again from its journal, without an endpoint, into a store of its own, or ``latest``."""
    dataset: str | None = None
    eval_dataset: str | None = None
    data_config: str | None = None
    model: str | None = None
    reflection_model: str | None = None
    base_url: str | None = None
    out: str | None = None
    task_id: str | None = None
    actor: str | None = None
    pack: str | None = None
    packs_root: str | None = None
    world: Literal["arithmetic", "ledger-tools", "powl", "unlearnable"] | None = None
    epochs: int | None = None
    group_size: int | None = None
    sample_size: int | None = None
    batch_size: int | None = None
    train_temp: float | None = None
    eval_temp: float | None = None
    concurrency: int | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    seed: int | None = None
    task_runner: Literal["threads", "dask", "ray"] | None = None
    dry_run: bool | None = None
    settings: dict[str, Scalar] = Field(default_factory=dict)
    """Any other setting by its dotted key, such as ``{"tfgrpo.min_spread": 0.1}``."""

    @property
    def earlier(self) -> str | None:
        """Id of the run that is resumed or replayed; None for a new one."""
        return self.replay if self.resume is None else self.resume

    def options(self) -> dict[str, str]:
        """The settings asked for, as raw text by dotted key: the uppermost layer of the settings."""
        asked = {str(key): option_text(value) for key, value in self.settings.items()}
        for leaf in leaf_options():
            if leaf.flag is None:
                continue
            value = getattr(self, leaf.flag.removeprefix("--").replace("-", "_"), None)
            if value is not None:
                asked[leaf.key] = option_text(value)
        return asked


def option_text(value: Scalar) -> str:
    """A value as it is given on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
