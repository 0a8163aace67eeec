"""What scores the attempts? Settings of one rewarder; which names there are is known to ``tfgrpo.rewarders.registry``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import Field, JsonValue, field_validator

from tfgrpo.pipelines.settings.base import SECRET_NAME, Section, Text, is_address
from tfgrpo.stores.frozen_json import to_builtins

DATASET_GRADERS: Final = "dataset_graders"
"""Rewarder that grades an item as the data mix says of its dataset; built in ``tfgrpo.pipelines.plan.rewarders``."""


class RewarderSettings(Section):
    """One rewarder of the pipeline, by its registered name."""

    name: Text
    """Registered name, or ``module:attr`` of your own."""
    weight: float = Field(default=1.0, ge=0.0)
    """Share in the total reward, relative to the other rewarders' weights. 0: recorded, not counted."""
    timeout_s: float | None = Field(default=None, gt=0.0)
    """Seconds for one group before the rewarder counts as hanging. None: 30, or 600 for one that asks a model."""
    score_range: tuple[float, float] | None = None
    """Lowest and highest score it can give, in which the gate's interval is computed. None: what the rewarder declares, and
    0 to 1 for one that declares nothing."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Passed to the rewarder, which refuses unknown ones. Values may be nested."""

    @field_validator("options", mode="before")
    @classmethod
    def _lists_again(cls, value: object) -> object:
        """The layers freeze lists; rewarders get them as the file has them."""
        return to_builtins(value)

    @field_validator("score_range")
    @classmethod
    def _a_range(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not (math.isfinite(value[0]) and math.isfinite(value[1]) and value[0] < value[1]):
            raise ValueError("two finite numbers, the lower one first")
        return value

    @field_validator("options")
    @classmethod
    def _no_secret_among_the_options(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if any(SECRET_NAME.search(name) for name in _names(value)):
            raise ValueError("options without secrets: name the environment variable that holds one, not the secret")
        if any(
            text.strip().lower().startswith(("http://", "https://")) and not is_address(text) for text in _texts(value)
        ):
            raise ValueError("options whose addresses hold no user name, password or key")
        return value


def _names(value: JsonValue) -> Iterator[str]:
    """Every name in a nested value."""
    if isinstance(value, Mapping):
        yield from value
    for each in _inner(value):
        yield from _names(each)


def _texts(value: JsonValue) -> Iterator[str]:
    """Every text in a nested value."""
    if isinstance(value, str):
        yield value
    for each in _inner(value):
        yield from _texts(each)


def _inner(value: JsonValue) -> Iterable[JsonValue]:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
