"""Define all settings of a run as one strict, frozen tree. File, environment and command line are derived from it.

A field declares its command-line option and environment variable (``flag``, ``env``), and the text below it is its
help. Single values are checked here; combinations are checked in ``tfgrpo.pipelines.settings.guardrails``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache, cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from tfgrpo.pipelines.settings.actor import ActorSettings
from tfgrpo.pipelines.settings.addresses import ENV_VALUE, VARIABLE, checked_variable, refuse_secrets
from tfgrpo.pipelines.settings.base import ListOf, NonEmptyText, Section, setting_field
from tfgrpo.pipelines.settings.learning import GateSettings, LearningSettings
from tfgrpo.pipelines.settings.model import ModelSettings, SimulatedSettings
from tfgrpo.pipelines.settings.selection import SelectionSettings

DATASET_GRADERS: Final = "dataset_graders"
"""Rewarder that grades an item by the graders of its dataset in the data mix."""
METADATA: Final = "metadata"
"""Column of a JSON object that joins the metadata of an item."""
_TEMPLATE_PIECE: Final = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]|[^{}]+")


@cache
def template_parts(text: str) -> tuple[tuple[str, str], ...]:
    """Return a template as pairs: literal text, and the column behind it, empty at the end. A plain name is one column.

    Raise ``ValueError`` for text with braces that is no template.
    """
    if "{" not in text and "}" not in text:
        return (("", text),)
    parts, literal = list[tuple[str, str]](), ""
    for piece in _TEMPLATE_PIECE.finditer(text):
        name = (piece["name"] or "").strip()
        if piece["name"] is None:
            if piece[0] in {"{", "}"}:
                raise ValueError("a template with {column}, and {{ or }} for a brace that is text")
            literal += piece[0][:1] if piece[0] in {"{{", "}}"} else piece[0]
        elif not name or "!" in name or ":" in name:
            raise ValueError("a template with names of columns in braces, without !conversion or :format")
        else:
            parts.append((literal, name))
            literal = ""
    if not parts:
        raise ValueError("the name of a column, or a template with at least one {column}")
    return (*parts, (literal, ""))


def is_template(text: str) -> bool:
    """Return whether the value of a field is a template and no name."""
    return "{" in text or "}" in text


def columns_of(text: str) -> tuple[str, ...]:
    """Return the columns that a field is read from, each once."""
    return tuple(dict.fromkeys(column for _, column in template_parts(text) if column))


def first_part(name: str, columns: Iterable[str]) -> str:
    """Return the column of a name: the one of this name, else the first part of the dotted name."""
    return name if name in columns else name.partition(".")[0]


def _check_template(text: str) -> str:
    template_parts(text)
    return text


_Column = Annotated[NonEmptyText, AfterValidator(_check_template)]


class FieldMap(Section):
    """Columns of the dataset. A dotted name that no column has is a path into an object or a list.

    What no field takes is metadata, which rewarders and agents may read; so is the JSON object ``metadata``.
    """

    id: _Column | None = "id"
    """Unique name of the item: a column, or a template such as ``{source}-{number}``. Required. None: the number of the row,
    from 0."""
    prompt: _Column = "prompt"
    """Prompt for the actor: a column, or a template such as ``{question} A) {A} B) {B}``. Required."""
    answer: _Column = "answer"
    """Reference answer: a column, or a template. Of a list every entry is accepted."""
    system_prompt: _Column = "system_prompt"
    """Text before the prompt of this item: a column, or a template."""
    domain: _Column = "domain"
    """Field of knowledge of the item: a column, or a template."""

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Columns that a row must have: those of id and prompt, and those of every template."""
        plain = [text for text in (self.id, self.prompt) if text is not None]
        return tuple(dict.fromkeys(name for text in (*plain, *self._templates) for name in columns_of(text)))

    @cached_property
    def withheld(self) -> tuple[str, ...]:
        """Columns that are no metadata: fields themselves, and what an answer is made of unless the prompt shows it."""
        plain = (text for text in self.model_dump().values() if text is not None and not is_template(text))
        shown = columns_of(self.prompt) if is_template(self.prompt) else ()
        return (*plain, METADATA, *(name for name in columns_of(self.answer) if name not in shown))

    @cached_property
    def _templates(self) -> dict[str, str]:
        """Names of settings by template."""
        return {text: name for name, text in self.model_dump().items() if text is not None and is_template(text)}

    def remedy(self, name: str) -> str:
        """Return what to do about a required column that is missing, for a message."""
        if name == self.id:
            return "another name by dataset.fields.id, or rows numbered by --set dataset.fields.id=none"
        if name == self.prompt:
            return "another name by dataset.fields.prompt"
        setting = next(field for text, field in self._templates.items() if name in columns_of(text))
        return f"as the template dataset.fields.{setting} has it"


class DatasetSettings(Section):
    """Datasets of the run."""

    path: NonEmptyText | None = setting_field(None, flag="--dataset", env="TFGRPO_DATASET")
    """Dataset to learn on: a JSONL, JSON, CSV, TSV or Parquet file, a folder, or hf:name. None: the items of the world."""
    eval_path: NonEmptyText | None = setting_field(None, flag="--eval-dataset", env="TFGRPO_EVAL_DATASET")
    """Dataset of held-out items. None: split off ``path`` by a stable hash of the id, or the world's own held-out items."""
    held_out: float = Field(default=0.3, gt=0.0, lt=1.0)
    """Share of ``path`` or ``mix`` that is held out when there is no ``eval_path``."""
    sealed: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the held-out items that no night sees: only ``tfgrpo test`` attempts them."""
    mix: NonEmptyText | None = setting_field(None, flag="--data-config", env="TFGRPO_DATA_CONFIG")
    """Staged data mix instead of ``path``: a file of the ``rl_data_config.yaml`` form, graders included."""
    fields: FieldMap = FieldMap()


def _check_range(value: tuple[float, float]) -> tuple[float, float]:
    if not (math.isfinite(value[0]) and math.isfinite(value[1]) and value[0] < value[1]):
        raise ValueError("two finite numbers, the lower one first")
    return value


class RewarderSettings(Section):
    """One rewarder of the pipeline."""

    name: NonEmptyText
    """Registered name, or ``module:attr`` or ``path/to/file.py:attr`` of your own."""
    weight: float = Field(default=1.0, ge=0.0)
    """Share in the total reward, relative to the other rewarders' weights. 0: recorded, not counted."""
    timeout_s: float | None = Field(default=None, gt=0.0)
    """Seconds for one group until a timeout. None: 30, or 600 for a rewarder that calls a model."""
    score_range: Annotated[tuple[float, float], Field(strict=False), AfterValidator(_check_range)] | None = None
    """Lowest and highest score; a point of gain is a hundredth of their distance. None: what the rewarder declares, else 0
    to 1."""
    isolate: bool = True
    """Run code of your own in a separate process, which is ended past its limit. False: in a thread."""
    options: Annotated[dict[str, JsonValue], AfterValidator(refuse_secrets)] = Field(default_factory=dict)
    """Options of the rewarder, which refuses unknown ones. Values may be nested."""


class BudgetSettings(Section):
    """Caps on the whole run, rollouts and learning together. None: no cap."""

    max_usd: float | None = setting_field(None, flag="--max-usd", env="TFGRPO_MAX_USD", gt=0.0)
    """Most US dollars; needs a price for every model in use."""
    max_tokens: int | None = setting_field(None, flag="--max-tokens", env="TFGRPO_MAX_TOKENS", gt=0)
    """Most tokens, prompts and completions together."""
    max_calls: int | None = setting_field(None, flag="--max-calls", env="TFGRPO_MAX_CALLS", gt=0)
    """Most model calls."""
    task_max_usd: float | None = Field(default=None, gt=0.0)
    """Most US dollars of all runs of the task together, concurrent ones included. Earlier runs are counted when the first
    run has this cap; runs without it are not counted after that."""


class TelemetrySettings(Section):
    """OpenTelemetry. Exporters exist only when an ``OTEL_EXPORTER_OTLP_*ENDPOINT`` is set."""

    content: bool = False
    """Record prompts and answers on spans (truncated). May contain personal data."""


def _checked_webhook(text: str) -> str:
    """Return ``env:NAME``. Raise ``ValueError`` for anything else: the address is a secret."""
    name = text.removeprefix(ENV_VALUE)
    if name == text or not VARIABLE.fullmatch(name):
        raise ValueError("env:NAME, the name of the variable that has the address, not the address itself")
    return f"{ENV_VALUE}{checked_variable(name)}"


class NotifySettings(Section):
    """Webhook that is notified of the end of a run, with the morning page as JSON, and as ``text`` as Slack has it."""

    url: Annotated[NonEmptyText, AfterValidator(_checked_webhook)] | None = None
    """``env:NAME``: the environment variable that has the address. None: no webhook."""
    on: ListOf[Literal["finished", "stopped", "failed", "in force", "taken back", "saturated"]] = (
        "failed", "in force", "taken back", "saturated",
    )  # fmt: skip
    """Ends to notify of. ``failed``: also refused; ``stopped``: by a cap or an interrupt; ``in force``: what is in force has
    changed; ``saturated``: nothing has changed for several nights; ``finished``: every other end, too."""


def env_text(value: object) -> object:
    """Return a YAML scalar as the text of a variable; anything else unchanged, for the schema to refuse."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


class StageSettings(Section):
    """One stage of a pipeline file. ``learn`` runs the loop; ``spec-guard`` checks the run it made."""

    name: Literal["learn", "spec-guard"]
    """Name of the stage."""
    env: dict[str, Annotated[str, BeforeValidator(env_text)]] = Field(default_factory=dict)
    """``TFGRPO_*`` variables of the stage. The real environment overrides them; they override the rest of the file."""


class Settings(Section):
    """All settings of one run."""

    pipeline: NonEmptyText = "tfgrpo-learning"
    """Name of the pipeline in the manifest. A pipeline file without this key has its file name."""
    task_id: NonEmptyText = setting_field("tfgrpo-learning", flag="--task-id", env="TFGRPO_TASK_ID")
    """Name of the task and of its directory under ``out``; runs of one task share a store."""
    out: NonEmptyText = setting_field("out", flag="--out", env="TFGRPO_OUT")
    """Directory of all output."""
    dry_run: bool = setting_field(False, flag="--dry-run")
    """Use the simulated model in process, without any network."""
    task_runner: Literal["threads", "dask", "ray"] = setting_field(
        "threads", flag="--task-runner", env="TFGRPO_TASK_RUNNER"
    )
    """Where groups run; ``dask`` and ``ray`` are extras."""
    pack: NonEmptyText = setting_field("arithmetic", flag="--pack", env="TFGRPO_PACK")
    """Id or domain of the prompt pack."""
    packs_root: NonEmptyText | None = setting_field(None, flag="--packs-root", env="TFGRPO_PACKS_ROOT")
    """Directory of your own packs, used instead of those that ship."""
    tfgrpo: LearningSettings = LearningSettings()
    gate: GateSettings = GateSettings()
    dataset: DatasetSettings = DatasetSettings()
    actor: ActorSettings = ActorSettings()
    rewarders: ListOf[RewarderSettings] = (RewarderSettings(name="gt"), RewarderSettings(name="relative", weight=0.0))
    """Rewarders in order; later ones see the scores of earlier ones. With ``dataset.mix`` the default is
    ``dataset_graders``, the graders that the mix names for the item's dataset, and ``relative``."""
    model: ModelSettings = ModelSettings()
    budget: BudgetSettings = BudgetSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    notify: NotifySettings = NotifySettings()
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
