"""Settings of the datasets, and of the names of their columns. Files are looked for by ``plan.plan``."""

from __future__ import annotations

from pydantic import Field

from tfgrpo.pipelines.settings.base import Section, Text, option


class FieldMap(Section):
    """Column names of the dataset. A dotted name that no column has is a path into an object."""

    id: Text | None = "id"
    """Unique name of the item. Required. None: the number of the row, from 0."""
    prompt: Text = "prompt"
    """Prompt for the actor. Required."""
    answer: Text = "answer"
    """Reference answer."""
    system_prompt: Text = "system_prompt"
    """Text before the prompt of this item."""
    metadata: Text = "metadata"
    """A JSON object that rewarders may read."""
    domain: Text = "domain"
    """Field of knowledge of the item."""

    @property
    def names(self) -> tuple[str, ...]:
        """Column names of all fields, without an id that is numbered."""
        return tuple(name for name in self.model_dump().values() if name is not None)

    @property
    def required(self) -> list[str]:
        """Column names of the required fields."""
        return [name for name in (self.id, self.prompt) if name is not None]

    def remedy(self, name: str) -> str:
        """Return what to do about a required field that is missing, for a message."""
        if name == self.id:
            return "another name by dataset.fields.id, or rows numbered by --set dataset.fields.id=none"
        return "another name by dataset.fields.prompt"


class DatasetSettings(Section):
    """Datasets of the run."""

    path: Text | None = option(None, flag="--dataset", env="TFGRPO_DATASET")
    """Dataset to learn on: a JSONL, JSON, CSV, TSV or Parquet file, a folder, or hf:name. None: the items of the world."""
    eval_path: Text | None = option(None, flag="--eval-dataset", env="TFGRPO_EVAL_DATASET")
    """Dataset of held-out items. None: split off ``path`` by a stable hash of the id, or the world's own held-out items."""
    held_out: float = Field(default=0.3, gt=0.0, lt=1.0)
    """Share of ``path`` or ``mix`` that is held out when there is no ``eval_path``."""
    mix: Text | None = option(None, flag="--data-config", env="TFGRPO_DATA_CONFIG")
    """Staged data mix instead of ``path``: a file of the ``rl_data_config.yaml`` form, graders included."""
    mix_stride: int = Field(default=1, ge=1, le=1_000_000)
    """Steps of the mix, as in its ``until_step``, that one learning batch advances."""
    fields: FieldMap = FieldMap()
