"""Define all settings of a run as one strict, frozen tree. File, environment and command line are derived from it.

A field declares its command-line option and environment variable (``flag``, ``env``), and the text below it is its
help. Single values are checked here; combinations are checked in ``tfgrpo.pipelines.settings.guardrails``. Keys of endpoints
are named, never stored: a value that looks like a key is refused.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar, get_args

from annotated_types import Interval
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer, model_validator

from tfgrpo.pipelines.settings.addresses import (
    ENV_VALUE,
    SECRET_NAME,
    VARIABLE,
    checked_address,
    checked_headers,
    checked_variable,
    looks_like_a_key,
    refuse_secrets,
)
from tfgrpo.stores.json_values import derive_seed
from tfgrpo.stores.text import MAX_WORDS

Fraction = Annotated[float, Interval(ge=0.0, le=1.0)]
Temperature = Annotated[float, Interval(ge=0.0, le=2.0)]
NonEmptyText = Annotated[str, Field(min_length=1)]
_T = TypeVar("_T")
ListOf = Annotated[tuple[_T, ...], Field(strict=False)]
"""A list in YAML and JSON, which strict settings would refuse for a tuple."""


class Section(BaseModel):
    """Frozen, strict settings without unknown keys, NaN or infinity. The text below an attribute is its help."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def setting_field(default: Any, *, flag: str | None = None, env: str | None = None, **kwargs: Any) -> Any:
    """Return a settings field with a command-line option and an environment variable."""
    return Field(default=default, json_schema_extra={"flag": flag, "env": env}, **kwargs)


def _one_text(value: object) -> object:
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return value


def _check_command(value: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError:
        words = []
    if not words:
        raise ValueError("a command, as a list or as one text with its quotes closed")
    if any(map(looks_like_a_key, words)):
        raise ValueError("a command without secrets: name the variable that holds one in actor.env")
    return value


class GatewaySettings(Section):
    """The gateway to the endpoint for agents that call it themselves. It adds the lessons to their requests."""

    enabled: bool = True
    """Whether a command or HTTP agent uses it. Off for one that cannot: what it uses is unknown, no cap holds for it, and
    lessons reach it as ``system`` only."""
    models: dict[str, NonEmptyText] = Field(default_factory=dict)
    """Models at the endpoint by the names that agents ask for. Such a name may hold ``*``; the first that matches counts.
    Other names pass unchanged."""
    lessons_in: Literal["system", "user"] = "system"
    """Where lessons go: after the agent's own ``system`` text, or after the first ``user`` message, for endpoints whose
    model takes no system message."""
    sampling: bool = False
    """Write the run's temperature and seed into the requests. Off: the agent's own."""


def _check_variable(value: str) -> str:
    name, sets, text = value.partition("=")
    if not VARIABLE.fullmatch(name):
        raise ValueError("NAME of a variable to pass through, or NAME=VALUE to set one")
    # Such as {api_key}: filled in later, and no secret itself.
    template = re.fullmatch(r"\{[a-z_]+\}", text)
    if sets and not template and (SECRET_NAME.search(name) or looks_like_a_key(text)):
        raise ValueError("NAME alone for a secret: it is passed through from the environment")
    return value


_OUR_HEADERS: Final = ("accept", "connection", "content-length", "content-type", "host")
_checked_headers = partial(checked_headers, ours=_OUR_HEADERS)


class ActorSettings(Section):
    """The actor, which attempts the items."""

    kind: NonEmptyText = setting_field("chat", flag="--actor", env="TFGRPO_ACTOR")
    """``chat``, ``tools``, ``command``, ``http``, or a Python callable: ``module:attr`` or ``path/to/file.py:attr``."""
    tools: ListOf[NonEmptyText] = ()
    """``module:attr`` or ``path/to/file.py:attr`` of each typed Python function the ``tools`` actor may call, or
    ``python``, which runs the model's own code in a separate process."""
    python_container: Annotated[NonEmptyText, BeforeValidator(_one_text), AfterValidator(_check_command)] | None = None
    """Command that runs the tool ``python`` on its standard input in a container, such as ``docker run --rm -i --init
    --network none --memory 1g --pids-limit 64 python:3.12-slim python -``. None: a separate process, with a warning."""
    mcp: NonEmptyText | None = None
    """File with MCP servers whose tools the ``tools`` actor may call, too, in the ``mcpServers`` form that editors have."""
    command: Annotated[NonEmptyText, BeforeValidator(_one_text), AfterValidator(_check_command)] | None = None
    """Program of the ``command`` actor with its arguments: a list, or one text with a shell's quotes. No shell runs it.
    ``{prompt}``, ``{system}``, ``{item}``, ``{base_url}``, ``{root_url}``, ``{api_key}`` and ``{here}`` are filled in."""
    stdin: Literal["item", "prompt", "nothing"] | None = None
    """What a command finds on its standard input: the ``item`` as JSON, the ``prompt`` as text, or ``nothing``. None:
    ``nothing`` if ``{prompt}`` or ``{item}`` is in ``actor.command``, else ``item``: agents add it to their prompt."""
    url: Annotated[NonEmptyText, AfterValidator(checked_address)] | None = None
    """Address of the ``http`` actor, which takes items by POST."""
    headers: Annotated[dict[str, str], AfterValidator(_checked_headers)] = Field(default_factory=dict)
    """Further headers of requests to it, as in ``model.headers``: a secret is ``env:NAME``, such as for ``Authorization``."""
    answer: NonEmptyText | None = None
    """Where the answer is. Of a command: ``stdout`` (the default), ``last_line``, ``file:NAME``, ``json:/POINTER`` or
    ``diff``; of an HTTP agent: ``json:/POINTER`` (the default is ``json:/answer``) or ``text``."""
    workdir: NonEmptyText | None = None
    """Folder of which each attempt of a command gets a copy to work in. None: an empty one."""
    env: ListOf[Annotated[NonEmptyText, AfterValidator(_check_variable)]] = ()
    """Variables of a command: ``NAME`` passes one through, ``NAME=VALUE`` sets one. Secrets are passed by name only."""
    memory_mb: int | None = Field(default=8_192, ge=1)
    """Megabytes of data in memory that each process of a command may use, as far as the system holds it. None: no limit."""
    gateway: GatewaySettings = GatewaySettings()
    max_turns: int = Field(default=8, ge=1, le=1_000)
    """Model turns of one rollout before it fails."""
    timeout_s: float = Field(default=600.0, gt=0.0)
    """Seconds one rollout may take in total."""


MIN_GROUP_SIZE: Final = 2
MIN_MEASURING_SIZE: Final = 4
"""Fewest attempts of a group that measures lessons: two on each side, so that each has a variance."""
MAX_GROUP_SIZE: Final = 1_000
MAX_EPOCHS: Final = 1_000
MAX_SAMPLE: Final = 1_000_000
MAX_CONCURRENCY: Final = 10_000
MAX_PROPOSALS: Final = 80
"""Most proposals of one batch that are curated; the best supported ones."""
MOST_KNOWN: Final = 120
"""Most lessons that are known at once."""
MOST_REMEMBERED: Final = 50
"""Most texts that were turned down before and are shown to the curator."""
MAX_GROUPS: Final = 5_000_000
"""Most groups of all learning epochs together: a plan draws and counts each of them."""


class TemperatureSettings(Section):
    """Sampling temperatures of the two phases."""

    train: Temperature = setting_field(0.7, flag="--train-temp", env="TFGRPO_TRAIN_TEMP")
    """Epochs 1 to E-1, which learn."""
    eval: Temperature = setting_field(0.3, flag="--eval-temp", env="TFGRPO_EVAL_TEMP")
    """Epoch E, the evaluation sweep."""


class LearningSettings(Section):
    """The learning loop."""

    REFLECTION_CHARS: ClassVar[int] = 64_000
    """Most characters of the attempts in one reflection: 16,000 tokens, of which models still read all. What does not fit is
    condensed, by one call for each of the two attempts that are contrasted."""
    LESSONS_PER_GROUP: ClassVar[int] = 2
    """Most lessons one group may propose: one for each of its contrasts."""
    MAX_REPAIRS: ClassVar[int] = 2
    """Most repair calls for one structured answer, of which few take more than one; then a deterministic rule decides."""
    enabled: bool = setting_field(False, env="FEATURE_TFGRPO_GROUP")
    """Feature flag. Off: one actor per item, which is measured without learning."""
    group_size: int = setting_field(2, flag="--group-size", env="TFGRPO_GROUP_SIZE", ge=MIN_GROUP_SIZE, le=MAX_GROUP_SIZE)
    """G, attempts per item."""
    epochs: int = setting_field(3, flag="--epochs", env="TFGRPO_EPOCHS", ge=2, le=MAX_EPOCHS)
    """E. Epochs 1 to E-1 learn, epoch E measures."""
    sample_size: int = setting_field(100, flag="--sample-size", env="TFGRPO_SAMPLE_SIZE", ge=1, le=MAX_SAMPLE)
    """Items per epoch; also the most items of the evaluation sweep."""
    batch_size: int = setting_field(50, flag="--batch-size", env="TFGRPO_BATCH_SIZE", ge=1, le=MAX_SAMPLE)
    """Items between two curations of the lessons."""
    temperature: TemperatureSettings = TemperatureSettings()
    experience_max_words: int = setting_field(MAX_WORDS, env="TFGRPO_EXPERIENCE_MAX_WORDS", ge=4, le=MAX_WORDS)
    """Longest lesson, in words; a pack may only lower it. In characters: 280."""
    min_spread: float = Field(default=1e-6, ge=0.0)
    """Minimum population standard deviation of the rewards of an informative group."""
    seed: int = setting_field(0, flag="--seed", env="TFGRPO_SEED", ge=0)
    """Seed of every random choice of a run, together with the night."""
    night: int | None = Field(default=None, ge=0, le=1_000_000)
    """Nights of the task before this one. None: as many as have begun with this kind of model. Learning continues where they
    ended."""
    concurrency: int = setting_field(32, flag="--concurrency", env="TFGRPO_CONCURRENCY", ge=1, le=MAX_CONCURRENCY)
    """Most concurrent actors; a group must fit into it."""
    max_lost_share: Fraction = 0.5
    """Share of a batch's rollouts that may fail, or stay ungraded because a rewarder failed, before the run stops. Also the
    share of an epoch's reflections and curations without a usable answer, once there are three of those."""
    allow_zero: bool = setting_field(False, flag="--allow-zero")
    """Go on when no attempt of the first batch has a reward above the lowest. Off: the run stops there, and shows three of
    them with their references."""

    def lessons_of(self, contrasts: int) -> int:
        """Return how many lessons each of so many contrasts of a group may propose."""
        return max(1, self.LESSONS_PER_GROUP // contrasts)

    @property
    def night_seed(self) -> int:
        """Seed of every phase of this night: another one every night, so that evidence does not repeat itself."""
        return derive_seed(self.seed, "night", self.night) if self.night else self.seed

    @property
    def measuring_size(self) -> int:
        """Attempts of a group that measures lessons on demand."""
        return max(self.group_size, MIN_MEASURING_SIZE)

    @property
    def actors_per_item(self) -> int:
        """The group size, or one when the feature flag is off (requirement 58)."""
        return self.group_size if self.enabled else 1


class GateSettings(Section):
    """The comparison on held-out items at the end of a night."""

    group_size: int = Field(default=5, ge=1, le=MAX_GROUP_SIZE)
    """Attempts of each side at a held-out item: with the lessons that would be in force, and without."""


LEARNER_TOKENS: Final = 8_192
"""Completion tokens of one reflection, curation or shortening, without ``model.reflection.max_tokens``: reasoning models
think long before lessons."""
# Tokens of one operation on the library with a lesson of full length, as JSON.
_OPERATION_TOKENS: Final = 100


ModelRole: TypeAlias = Literal["actor", "reflection", "judge"]
MODEL_ROLES: Final[tuple[ModelRole, ...]] = get_args(ModelRole)


class PriceSettings(Section):
    """Price of one model in USD per million tokens."""

    input: float = Field(ge=0.0)
    """USD per million tokens of prompt."""
    output: float = Field(ge=0.0)
    """USD per million tokens of completion."""
    cached_input: float | None = Field(default=None, ge=0.0)
    """USD per million cached tokens. None: the price of other input."""


_checked_endpoint_headers = partial(
    checked_headers, ours=("authorization", *_OUR_HEADERS), instead="; the key is named by api_key"
)
_OUR_FIELDS: Final = (
    "model", "messages", "temperature", "max_tokens", "max_completion_tokens", "seed", "tools", "response_format",
    "logprobs", "stream", "n",
)  # fmt: skip


def _check_body(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if taken := [name for name in value if name in _OUR_FIELDS]:
        raise ValueError(f"fields without {' and '.join(taken)}, which every request sets itself, by other settings")
    return refuse_secrets(value)


def _check_key(value: str) -> str:
    source, _, name = value.partition(":")
    if source not in ("env", "secret") or not name or looks_like_a_key(name):
        raise ValueError("env:NAME of a variable, or secret:NAME of a Prefect Secret block, not the key itself")
    if source == "env":
        checked_variable(name)
    return value


class EndpointSettings(Section):
    """An endpoint, the model asked there, and how it wants its requests. Each role may have its own."""

    name: NonEmptyText | None = setting_field(None, flag="--model", env="TFGRPO_MODEL")
    """Name of the model at the endpoint."""
    base_url: Annotated[NonEmptyText, AfterValidator(checked_address)] | None = setting_field(
        None, flag="--base-url", env="OPENAI_BASE_URL"
    )
    """OpenAI-compatible root, usually ending in ``/v1``. None, with ``name`` None too: simulated in process."""
    api_key: Annotated[NonEmptyText, AfterValidator(_check_key)] = "env:OPENAI_API_KEY"
    """Where the key is: ``env:NAME``, an environment variable, or ``secret:NAME``, a Prefect Secret block. The key itself is
    never a setting."""
    headers: Annotated[dict[str, str], AfterValidator(_checked_endpoint_headers)] = Field(default_factory=dict)
    """Further headers of every request. A secret value is ``env:NAME``, the name of an environment variable."""
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_check_body)] = Field(default_factory=dict)
    """Further fields of every request, such as ``reasoning_effort``, ``top_p`` or ``chat_template_kwargs``."""
    max_tokens: int = Field(default=1024, ge=1, le=10_000_000)
    """Completion tokens one call may use; also what is reserved for it. Reflection, curation and shortening may use 8,192,
    or ``model.reflection.max_tokens``."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name of that limit in requests; newer vendor models require the second."""
    timeout_s: float = Field(default=120.0, gt=0.0)
    """Seconds one call may take in total, streaming included."""
    max_retries: int = Field(default=5, ge=0, le=20)
    """Further attempts after the first for 408, 409, 429, 5xx, timeouts and broken connections. All waits of one call
    together are at most 180 s, whatever ``Retry-After`` asks for. An account without quota or credit stops the run."""
    wait_s: float = Field(default=20.0, ge=0.0, le=86_400.0)
    """Seconds for which an endpoint that cannot be reached, or answers 502, 503, 504 or 529, is asked again: at the start of
    a run, also after 429, and for each call besides ``max_retries``. Runs of a deployment wait for 600 s unless it is set."""
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """The ``response_format`` that the endpoint supports."""
    send_seed: bool = True
    """Send a different ``seed`` with every call."""
    send_temperature: bool = True
    """Send the temperature of the phase. Off for models that accept only their own, as reasoning models do."""


def _own(role: EndpointSettings) -> dict[str, Any]:
    return role.model_dump(mode="json", exclude_unset=True)


class ReflectionModel(EndpointSettings):
    """The endpoint settings of reflection, curation and shortening."""

    name: NonEmptyText | None = setting_field(None, flag="--reflection-model", env="TFGRPO_REFLECTION_MODEL")
    """Name of the model of reflection, curation and shortening."""


class ModelSettings(EndpointSettings):
    """The endpoint and its models; ``actor``, ``reflection`` and ``judge`` may have others: any field of an endpoint."""

    logprobs: bool = False
    """Ask for and journal log-probabilities of the rollouts' tokens."""
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    """USD per million tokens by model name. A model that is absent has an unknown price, never zero."""
    actor: Annotated[EndpointSettings, PlainSerializer(_own)] = EndpointSettings()
    reflection: Annotated[ReflectionModel, PlainSerializer(_own)] = ReflectionModel()
    judge: Annotated[EndpointSettings, PlainSerializer(_own)] = EndpointSettings()

    def own(self, role: ModelRole) -> dict[str, Any]:
        """Return what a role itself sets."""
        section: EndpointSettings = getattr(self, role)
        return {name: getattr(section, name) for name in sorted(section.model_fields_set)}

    def of(self, role: ModelRole) -> ModelSettings:
        """Return the settings of a role: its own, and those of this section for the rest."""
        own = self.own(role)
        if role == "reflection":
            own.setdefault("max_tokens", LEARNER_TOKENS)
        # A judge without its own name is the model of reflection where both ask the same endpoint.
        if role == "judge" and own.get("base_url", self.base_url) == self.of("reflection").base_url:
            own.setdefault("name", self.of("reflection").name)
        return self.model_copy(update=own)

    @property
    def curation_size(self) -> int:
        """Most proposals of one curation call, so that an operation on each fits into the reply."""
        return max(1, self.of("reflection").max_tokens // _OPERATION_TOKENS)


ShippedWorld: TypeAlias = Literal["arithmetic", "unlearnable"]


def _check_world(value: str) -> str:
    if value not in get_args(ShippedWorld) and ":" not in value:
        raise ValueError("arithmetic, unlearnable, or module:attr or path/to/file.py:attr of a world of your own")
    return value


class SimulatedSettings(Section):
    """The simulated model of the dry run."""

    world: Annotated[str, AfterValidator(_check_world)] = setting_field("arithmetic", flag="--world")
    """World of the simulated model: ``arithmetic`` or ``unlearnable``, whose items are used without ``--dataset``, or
    ``module:attr`` or ``path/to/file.py:attr``. A real model is run on a world's items only when that is named."""
    seed: int = Field(default=0, ge=0)
    """Seed of the simulated model, separate from the seed of the run."""
    latency_s: float = Field(default=0.0, ge=0.0)
    """Seconds one simulated call takes."""


SelectionStage: TypeAlias = Literal["VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"]
"""First valid answers, then answers that behave like the reference."""
FormatName: TypeAlias = Literal["text", "json", "powl"]
MemoryMode: TypeAlias = Literal["off", "record", "exploit", "explore"]
MAX_K: Final = 16
OLLAMA: Final = "http://localhost:11434/v1"
TEMPERATURE_CYCLE: Final = (0.5, 0.7, 0.9, 1.0, 0.6, 0.8, 0.95, 0.75)


class SelectionSettings(Section):
    """Best of K for one request, as ``tfgrpo select`` runs it."""

    k: int = setting_field(4, flag="--k", ge=1, le=MAX_K)
    """Number of candidates, requested concurrently."""
    min_success: int = setting_field(1, flag="--min-success", ge=1, le=MAX_K)
    """Minimum number of valid candidates; the others may fail."""
    max_validations: int = setting_field(3, flag="--max-validations", ge=0, le=10)
    """Most repairs of one candidate; 0: none. An answer in format ``text`` is repaired only when it is cut off."""
    repair: Literal["all", "syntax"] = "all"
    """Mistakes to repair: all, or only answers that do not parse (not a LOOP of one child, nor findings)."""
    none_valid: Literal["raise", "best_effort"] = setting_field("raise", flag="--none-valid")
    """If no candidate is valid, or none can be graded: fail, or return the best available."""
    temperatures: ListOf[Temperature] = Field(default=TEMPERATURE_CYCLE, min_length=1)
    """Temperatures of the candidates, in a cycle. Repairs keep the temperature of their candidate."""
    timeout_s: float = setting_field(60.0, flag="--timeout-s", gt=0.0)
    """Seconds one attempt or repair may take. Replaces ``actor.timeout_s`` here."""
    base_url: Annotated[NonEmptyText, AfterValidator(checked_address)] = OLLAMA
    """Endpoint where ``model.base_url`` is None: Ollama on this machine."""
    model: Annotated[NonEmptyText, Field(pattern=r"\S")] = "qwen2.5-coder"
    """Model where ``model.name`` and ``model.base_url`` are None."""
    format: FormatName = setting_field("text", flag="--format")
    """Format of an answer: ``text``, ``json``, or ``powl``, a process model as text or JSON."""
    json_schema: NonEmptyText | None = setting_field(None, flag="--json-schema")
    """File with the JSON schema of answers in format ``json``."""
    stage: Literal["auto", "VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"] = setting_field("auto", flag="--stage")
    """Reward without a named rewarder: validity by a judge, or behaviour by the reference. ``auto``: by history."""
    memory: MemoryMode = setting_field("off", flag="--memory")
    """Memory of the process models in earlier selections of a task. ``record`` only remembers; ``exploit`` shows good and bad
    structures; ``explore`` shows tried ones to avoid."""


DATASET_GRADERS: Final = "dataset_graders"
"""Rewarder that grades an item by the graders of its dataset in the data mix."""
METADATA: Final = "metadata"
"""Column of a JSON object that joins the metadata of an item."""
_TEMPLATE_PIECE: Final = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]|[^{}]+")


@cache
def template_parts(text: str) -> tuple[tuple[str, str], ...]:
    """Return a template as pairs: literal text, and the column behind it, empty at the end. Raise ``ValueError``."""
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
    """Return the columns that a field is read from, each once; ``{a|b}`` of a template has two."""
    names = [name for _, name in template_parts(text) if name] if is_template(text) else []
    return tuple(dict.fromkeys(column for name in names for column in (mixed_columns(name) or [name]))) or (text,)


def mixed_columns(name: str) -> list[str]:
    """Return the columns of a name ``a|b`` in a template, shown as options in an order of chance; none of another name."""
    return [column.strip() for column in name.split("|")] if "|" in name else []


def first_part(name: str, columns: Iterable[str]) -> str:
    """Return the column of a name: the one of this name, else the first part of the dotted name."""
    return name if name in columns else name.partition(".")[0]


_Column = Annotated[NonEmptyText, AfterValidator(lambda text: template_parts(text) and text)]


class FieldMap(Section):
    """Columns of the dataset. A dotted name that no column has is a path into an object or a list.

    What no field takes is metadata, which rewarders and agents may read; so is the JSON object ``metadata``.
    """

    id: _Column | None = "id"
    """Unique name of the item: a column, or a template such as ``{source}-{number}``. Required. None: the number of the row,
    from 0."""
    prompt: _Column = "prompt"
    """Prompt for the actor: a column, or a template such as ``{question} A) {A} B) {B}``. Required. ``{right|wrong_1|wrong_2}``
    shows columns as options A, B …, in an order that does not tell which is the right one."""
    answer: _Column = "answer"
    """Reference answer: a column, or a template. Of a list every entry is accepted."""
    system_prompt: _Column = "system_prompt"
    """Text before the prompt of this item: a column, or a template."""
    domain: _Column = "domain"
    """Field of knowledge of the item: a column, or a template."""

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Columns that a row must have: those of id and prompt, and those of every template."""
        names = [text for text in (self.id, self.prompt) if text is not None]
        return tuple(dict.fromkeys(name for text in (*names, *self._templates) for name in columns_of(text)))

    @cached_property
    def withheld(self) -> tuple[str, ...]:
        """Columns that are no metadata: those of fields, of an answer unless the prompt shows it, and of mixed options."""
        names = (text for text in self.model_dump().values() if text is not None and not is_template(text))
        shown = columns_of(self.prompt) if is_template(self.prompt) else ()
        mixed = (column for text in self._templates for _, name in template_parts(text) for column in mixed_columns(name))
        return (*names, *(name for name in columns_of(self.answer) if name not in shown), *mixed)

    @cached_property
    def _templates(self) -> dict[str, str]:
        return {text: name for name, text in self.model_dump().items() if text is not None and is_template(text)}

    def remedy(self, name: str) -> str:
        """Return what to do about a required column that is missing, for a message."""
        if name == self.id:
            numbered = "rows numbered by --set dataset.fields.id=none"
            return f"another name by dataset.fields.id, what `init` finds, or {numbered}"
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
    """Most US dollars of all runs of the task together, earlier and concurrent ones included."""


class TelemetrySettings(Section):
    """OpenTelemetry. Exporters exist only when an ``OTEL_EXPORTER_OTLP_*ENDPOINT`` is set."""

    content: bool = False
    """Record prompts and answers on spans (truncated). May contain personal data."""


def _checked_webhook(text: str) -> str:
    # The address is a secret.
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
    task_runner: Literal["threads", "dask", "ray"] = setting_field("threads", flag="--task-runner", env="TFGRPO_TASK_RUNNER")
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
            # A frozen model has no other way to set a default by another field.
            self.__dict__["rewarders"] = graders
        return self
