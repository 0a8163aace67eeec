"""Settings of one rewarder. Registered names are in ``tfgrpo.rewarders.registry``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, JsonValue, field_validator

from tfgrpo.pipelines.settings.addresses import SECRET_NAME, is_address
from tfgrpo.pipelines.settings.base import Section, Text

DATASET_GRADERS: Final = "dataset_graders"
"""Rewarder that grades an item by the graders of its dataset in the data mix."""


class RewarderSettings(Section):
    """One rewarder of the pipeline."""

    name: Text
    """Registered name, or ``module:attr`` or ``path/to/file.py:attr`` of your own."""
    weight: float = Field(default=1.0, ge=0.0)
    """Share in the total reward, relative to the other rewarders' weights. 0: recorded, not counted."""
    timeout_s: float | None = Field(default=None, gt=0.0)
    """Seconds for one group until a timeout. None: 30, or 600 for a rewarder that calls a model."""
    score_range: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """Lowest and highest score, for the gate's interval. None: the range that the rewarder declares, else 0 to 1."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the rewarder, which refuses unknown ones. Values may be nested."""

    @field_validator("score_range")
    @classmethod
    def _check_range(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not (math.isfinite(value[0]) and math.isfinite(value[1]) and value[0] < value[1]):
            raise ValueError("two finite numbers, the lower one first")
        return value

    @field_validator("options")
    @classmethod
    def _refuse_secrets(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        names, texts = set[str](), set[str]()
        _collect(value, names, texts)
        if any(SECRET_NAME.search(name) for name in names):
            raise ValueError("options without secrets: name the environment variable that holds one, not the secret")
        addresses = (text for text in texts if text.strip().lower().startswith(("http://", "https://")))
        if not all(map(is_address, addresses)):
            raise ValueError("options whose addresses have no user name, password or key")
        return value


def _collect(value: JsonValue, names: set[str], texts: set[str]) -> None:
    """Add every key and every text of a nested value."""
    if isinstance(value, str):
        texts.add(value)
    elif isinstance(value, Mapping):
        names.update(value)
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        _collect(each, names, texts)
