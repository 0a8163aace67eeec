"""Define the base class of all settings classes, and how a field declares its option and variable."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from annotated_types import Interval
from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Interval(ge=0.0, le=1.0)]
Temperature = Annotated[float, Interval(ge=0.0, le=2.0)]
NonEmptyText = Annotated[str, Field(min_length=1)]
_T = TypeVar("_T")
ListOf = Annotated[tuple[_T, ...], Field(strict=False)]
"""A list in YAML and JSON, which strict settings would refuse for a tuple."""


class Section(BaseModel):
    """Frozen, strict settings without unknown keys, NaN or infinity. The text below an attribute is its help."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def setting_field(default: Any, *, flag: str | None = None, env: str | None = None, **kwargs: Any) -> Any:
    """Return a settings field with a command-line option and an environment variable."""
    return Field(default=default, json_schema_extra={"flag": flag, "env": env}, **kwargs)
