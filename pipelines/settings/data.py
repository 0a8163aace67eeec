"""Where do the items come from? Settings of the datasets and of what their columns are called.

Refuses what is wrong with one value alone; whether a file is there is found out by ``tfgrpo.pipelines.plan.plan``.
"""

from __future__ import annotations

from pydantic import Field

from tfgrpo.pipelines.settings.base import Section, Text, option


class FieldMap(Section):
    """What the columns of the dataset are called. A dotted name leads into an object, where no column has that name."""

    id: Text | None = "id"
    """Name of the item, unlike any other's. Required. None: the number of the row, from 0."""
    prompt: Text = "prompt"
    """What the actor is asked. Required."""
    answer: Text = "answer"
    """Reference answer."""
    system_prompt: Text = "system_prompt"
    """Text put before the prompt of this item."""
    metadata: Text = "metadata"
    """A JSON object that rewarders may read."""
    domain: Text = "domain"
    """Field of knowledge of the item."""

    def otherwise(self, name: str) -> str:
        """What else a user can do, for a message about a required field that is not there."""
        if name == self.id:
            return "another name by dataset.fields.id, or rows numbered by --set dataset.fields.id=none"
        return "another name by dataset.fields.prompt"


class DatasetSettings(Section):
    """Where the items come from."""

    path: Text | None = option(None, flag="--dataset", env="TFGRPO_DATASET")
    """Dataset to learn on: a JSONL, JSON, CSV, TSV or Parquet file, a folder, or hf:name. None: the items of the world."""
    eval_path: Text | None = option(None, flag="--eval-dataset", env="TFGRPO_EVAL_DATASET")
    """Held-out items of their own. None: split off ``path`` by a stable hash of the id, or those that the world brings."""
    held_out: float = Field(default=0.3, gt=0.0, lt=1.0)
    """Share of ``path`` or ``mix`` that is held out when there is no ``eval_path``."""
    mix: Text | None = option(None, flag="--data-config", env="TFGRPO_DATA_CONFIG")
    """Staged data mix instead of ``path``: a file of the ``rl_data_config.yaml`` form, graders included."""
    mix_stride: int = Field(default=1, ge=1, le=1_000_000)
    """Steps of the mix, as its ``until_step`` counts them, that one learning batch goes forward."""
    fields: FieldMap = FieldMap()
    """What the columns are called, where they are not called as here."""
