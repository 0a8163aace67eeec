"""Sections of a mix file as pydantic models, whose types say what they accept.

Numbers are read as the form has always read them: text that Python's ``int`` or ``float`` takes is a number too, and a
fraction of a step is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails

from tfgrpo.pipelines.mix.reading import Data, Reading
from tfgrpo.pipelines.problems import did_you_mean, shown
from tfgrpo.rewarders.graders.remote import Address, RemoteGrader, Retries, TokenVariable
from tfgrpo.rewarders.options import Whole, accepts, refusal

Info: TypeAlias = ValidationInfo[Reading]
_ACCEPTED: Final = {"model_type": "a mapping", "dict_type": "a mapping", "tuple_type": "a list"}


class Form(BaseModel):
    """Base of the sections. A missing key is read as None; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, value: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        needed = dict.fromkeys(name for name, each in cls.model_fields.items() if each.is_required())
        try:
            return build({**needed, **value} if isinstance(value, dict) else value)
        except ValidationError as error:
            lines = [_line(each, cls.model_fields) for each in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(cls.__name__, lines) from None


def _line(error: ErrorDetails, keys: Mapping[str, object]) -> InitErrorDetails:
    """Return an error of a form with what is accepted; one of a form within it has that already."""
    refused = refusal(_ACCEPTED.get(error["type"], error["msg"]), error.get("ctx", {}).get("given"))
    if error["type"] == "extra_forbidden":
        refused = refusal(did_you_mean(str(error["loc"][-1]), keys), "an unknown key")
    elif error["type"] == "invalid_key" or error["loc"][-1:] == ("[key]",):
        refused = refusal("text, in quotes where it looks like a number", f"{shown(error['input'])} as a key")
    return InitErrorDetails(
        type=refused, loc=tuple(part for part in error["loc"] if part != "[key]"), input=error["input"]
    )


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise refusal("text that is not empty")


def _cut(value: object) -> object:
    return math.trunc(value) if isinstance(value, float) and math.isfinite(value) else value


def _name_of_stage(value: object) -> str:
    if value is None or isinstance(value, dict | list):
        raise refusal("the name of the stage")
    return str(value)


def _grader(value: object, info: Info) -> str:
    if not isinstance(value, str):
        raise refusal("the name of a grader")
    return info.context.use(value)


Key = Annotated[str, Field(min_length=1)]
Text = Annotated[str, BeforeValidator(_text)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False), accepts("a finite number of at least 0")]
Grader = Annotated[str, BeforeValidator(_grader)]
NoneIsEmpty = BeforeValidator(lambda value: () if value is None else value)


class _Paths(Form):
    data_root: Text


class _External(Form):
    """A grading service."""

    type: Annotated[Literal["remote_http"], accepts("remote_http")]
    url: Annotated[Address, BeforeValidator(_text)]
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False), accepts("a finite number above 0")] = 60.0
    retries: Retries | None = None
    token_env: TokenVariable | None = None


class _Dataset(Form):
    """A dataset; its path is read last, when its graders are known."""

    graders: Annotated[tuple[Grader, ...], NoneIsEmpty] = ()
    grader_weights: Annotated[tuple[Weight, ...], NoneIsEmpty] = ()
    multiplicative_graders: Annotated[tuple[Grader, ...], BeforeValidator(lambda value: value or ())] = ()
    path: Data | None
    """Its records, once read."""

    @field_validator("grader_weights")
    @classmethod
    def _finite_sum(cls, weights: tuple[float, ...]) -> tuple[float, ...]:
        if not math.isfinite(sum(weights)):
            raise refusal("smaller weights", "weights that sum to infinity")
        return weights

    @field_validator("path", mode="plain")
    @classmethod
    def _indexed(cls, path: object, info: Info) -> Data | None:
        graders = (*info.data.get("graders", ()), *info.data.get("multiplicative_graders", ()))
        return info.context.index(_text(path), graders)


class MixEntry(Form):
    """One dataset of a stage."""

    id: Text
    weight: Weight
    """As written: relative to the other weights of the stage."""

    @field_validator("id")
    @classmethod
    def _known(cls, name: str, info: Info) -> str:
        ids = info.context.dataset_ids
        if name not in ids:
            raise refusal(did_you_mean(name, ids) if ids else "a dataset")
        return name


class MixStage(Form):
    """The datasets that are drawn from until a step."""

    name: Annotated[str, BeforeValidator(_name_of_stage)]
    until_step: Annotated[int, BeforeValidator(_cut), accepts("a whole number")]
    """First step after the stage."""
    datasets: Annotated[tuple[MixEntry, ...], NoneIsEmpty]

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of each dataset in the draws, in sum 1. A dataset named twice has the sum of its weights."""
        whole = math.fsum(entry.weight for entry in self.datasets)
        shares: dict[str, float] = {}
        for entry in self.datasets:
            shares[entry.id] = shares.get(entry.id, 0.0) + entry.weight / whole
        return shares

    @field_validator("until_step")
    @classmethod
    def _above_last(cls, step: int, info: Info) -> int:
        before, info.context.last_step = info.context.last_step, step
        if before is not None and step <= before:
            raise refusal("a step above that of the stage before", f"{step} after {before}")
        return step

    @field_validator("datasets")
    @classmethod
    def _some_weight(cls, entries: tuple[MixEntry, ...]) -> tuple[MixEntry, ...]:
        whole = sum(entry.weight for entry in entries)
        if not 0.0 < whole < math.inf:
            raise refusal("weights that sum to a finite number above 0", f"weights that sum to {whole:g}")
        return entries


class MixForm(Form):
    """A whole file. Graders come first, because datasets name them, as stages name datasets."""

    seed: Annotated[Annotated[Whole, Field(ge=0)] | None, accepts("a whole number of at least 0, or no seed")] = None
    external_graders: dict[Key, _External] | None = None
    python_graders: dict[Key, Any] | None = None
    paths: _Paths
    datasets: dict[Key, _Dataset]
    stages: Annotated[tuple[MixStage, ...], NoneIsEmpty]

    @field_validator("external_graders")
    @classmethod
    def _remote(cls, graders: dict[str, _External] | None, info: Info) -> None:
        for name, each in (graders or {}).items():
            grader = RemoteGrader(**each.model_dump(exclude={"type"}, exclude_none=True))
            info.context.add(name, grader, grader.timeout_s)

    @field_validator("python_graders")
    @classmethod
    def _python(cls, graders: dict[str, Any] | None, info: Info) -> None:
        for name, each in (graders or {}).items():
            info.context.load(name, each)

    @field_validator("stages")
    @classmethod
    def _at_least_one(cls, stages: tuple[MixStage, ...]) -> tuple[MixStage, ...]:
        if not stages:
            raise refusal("at least one stage", "no stage")
        return stages
