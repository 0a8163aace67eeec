"""Which settings are there? One strict, frozen tree; file, environment and command line are derived from it.

Each leaf that has a command-line option or an environment variable says so in its own metadata (``flag``, ``env``),
and the text below it is its help, so that no table elsewhere can drift. Refuses what is wrong with one value alone;
what is wrong between values is ``pipelines.guardrails``, and resolution of the four layers is ``pipelines.layers``.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from stores.words import MAX_CHARS, MAX_WORDS

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Temperature = Annotated[float, Field(ge=0.0, le=2.0)]
Text = Annotated[str, Field(min_length=1)]
OptionValue: TypeAlias = str | int | float | bool

_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:api[_-]?key|key|secret|password|passwd|token|credentials?|sig|signature)$", re.IGNORECASE
)


class Section(BaseModel):
    """Frozen, strict, unknown keys refused, no NaN or infinity. The text below an attribute is its help."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def option(default: Any, *, flag: str | None = None, env: str | None = None, **kwargs: Any) -> Any:
    """A settings leaf with its command-line option and its environment variable."""
    extra: dict[str, JsonValue] = {key: value for key, value in (("flag", flag), ("env", env)) if value is not None}
    return Field(default=default, json_schema_extra=extra or None, **kwargs)


class TemperatureSettings(Section):
    """Sampling temperatures of the two phases."""

    train: Temperature = option(0.7, flag="--train-temp", env="TFGRPO_TRAIN_TEMP")
    """Epochs 1 to E-1, which learn."""
    eval: Temperature = option(0.3, flag="--eval-temp", env="TFGRPO_EVAL_TEMP")
    """Epoch E, the evaluation sweep."""


class RetrievalSettings(Section):
    """Which lessons of the library an actor is shown; the most valuable ones, as far as the pack has slots."""

    min_reward: float | None = None
    """Least reward of a lesson's best attempt for it to be shown. None: any."""
    max_per_group: int | None = Field(default=None, ge=1)
    """Most of the lessons shown that come from one source group. None: any number."""


class ScheduleSettings(Section):
    """Bounds on the actors of a group that the operator allows; both follow ``group_size`` when absent."""

    min_instances: int | None = Field(default=None, ge=1)
    """Fewest actors a group may have. None: ``group_size``."""
    max_instances: int | None = Field(default=None, ge=1)
    """Most actors a group may have. None: ``group_size``."""


class LearningSettings(Section):
    """The loop itself. Keys of the specification keep their names."""

    enabled: bool = option(False, env="FEATURE_TFGRPO_GROUP")
    """Feature flag. Off: one actor per item, measured, nothing learned."""
    group_size: int = option(2, flag="--group-size", env="TFGRPO_GROUP_SIZE", ge=2)
    """G, attempts per item."""
    epochs: int = option(3, flag="--epochs", env="TFGRPO_EPOCHS", ge=2)
    """E. Epochs 1 to E-1 learn, epoch E measures."""
    sample_size: int = option(100, flag="--sample-size", env="TFGRPO_SAMPLE_SIZE", ge=1)
    """Items per epoch; also the most items of the evaluation sweep."""
    batch_size: int = option(50, flag="--batch-size", env="TFGRPO_BATCH_SIZE", ge=1)
    """Items between two curations of the library."""
    with_replacement: bool = False
    """Draw the items of an epoch with replacement: an item may then come several times while others wait."""
    temperature: TemperatureSettings = TemperatureSettings()
    """Sampling temperatures of the two phases."""
    experience_max_words: int = option(MAX_WORDS, env="TFGRPO_EXPERIENCE_MAX_WORDS", ge=4, le=MAX_WORDS)
    """Longest lesson, in words; a pack may only lower it."""
    experience_max_chars: int = Field(default=MAX_CHARS, ge=40, le=MAX_CHARS)
    """Longest lesson, in characters."""
    min_spread: float = Field(default=1e-6, ge=0.0)
    """Population standard deviation of a group's rewards from which the group is informative."""
    reflection: Literal["extremes", "all"] = "extremes"
    """Show the reflecting model the best and the worst attempt, or every attempt (as published)."""
    show_ground_truth: bool = True
    """Show the reference answer to the reflecting model (never to an actor)."""
    lessons_per_group: int = Field(default=2, ge=1, le=8)
    """Most lessons one group may propose."""
    capacity_factor: float = Field(default=1.5, ge=1.0, le=10.0)
    """Library capacity as a multiple of the pack's experience slots."""
    edit_budget: int = Field(default=12, ge=1)
    """Operations one curation may apply in epoch 1; shrinks in proportion to the epochs left."""
    min_reward: float = 0.0
    """Reward the best attempt of a group must exceed for a lesson that says *do*."""
    min_rank: Fraction = 0.5
    """Relative rank the best attempt must reach for a lesson to be written."""
    max_repairs: int = Field(default=2, ge=0, le=10)
    """Repair calls for one structured answer before the deterministic rule takes over."""
    seed: int = option(0, flag="--seed", env="TFGRPO_SEED", ge=0)
    """Every random choice of a run follows from it."""
    concurrency: int = option(32, flag="--concurrency", env="TFGRPO_CONCURRENCY", ge=1)
    """Actors in flight at once: the capacity that a group has to fit into."""
    max_lost_share: Fraction = 0.5
    """Share of a batch's rollouts that may be lost before the run stops as broken."""
    schedule: ScheduleSettings = ScheduleSettings()
    """Bounds on the actors of a group."""
    retrieval: RetrievalSettings = RetrievalSettings()
    """Which lessons of the library an actor is shown."""

    @property
    def actors_per_item(self) -> int:
        """The group size, or one when the feature flag is off (requirement 58)."""
        return self.group_size if self.enabled else 1

    @property
    def instance_bounds(self) -> tuple[int, int]:
        """Fewest and most actors of a group; both follow the group size when absent (requirement 48)."""
        low, high = self.schedule.min_instances, self.schedule.max_instances
        return self.group_size if low is None else low, self.group_size if high is None else high


class GateSettings(Section):
    """When the candidate library is promoted."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)
    """Coverage of the anytime-valid interval of the paired difference."""
    max_lost_share: Fraction = 0.2
    """Share of pairs that may be lost before the gate abstains."""
    max_regressions: Fraction = 0.1
    """Share of items that may flip from always right to always wrong."""


class FieldMap(Section):
    """What the columns of the dataset are called."""

    id: Text = "id"
    """Name of the item, unlike any other's. Required."""
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


class DatasetSettings(Section):
    """Where the items come from."""

    path: Text | None = option(None, flag="--dataset", env="TFGRPO_DATASET")
    """Dataset to learn on, JSONL or CSV. None: the items that ship with the simulated world."""
    eval_path: Text | None = option(None, flag="--eval-dataset", env="TFGRPO_EVAL_DATASET")
    """Held-out items of their own. None: split off ``path`` by a stable hash of the id."""
    held_out: float = Field(default=0.3, gt=0.0, lt=1.0)
    """Share of ``path`` that is held out when there is no ``eval_path``."""
    fields: FieldMap = FieldMap()
    """What the columns are called, where they are not called as here."""


class ActorSettings(Section):
    """What attempts an item."""

    kind: Text = option("chat", flag="--actor", env="TFGRPO_ACTOR")
    """``chat``, ``tools``, or ``module:attr`` of any Python callable."""
    tools: tuple[Text, ...] = ()
    """``module:attr`` of each typed Python function the ``tools`` actor may call."""
    max_turns: int = Field(default=8, ge=1)
    """Model turns of one rollout before it fails."""
    timeout_s: float = Field(default=600.0, gt=0.0)
    """Seconds one rollout may take, all told."""


class RewarderSettings(Section):
    """One rewarder of the pipeline, by its registered name."""

    name: Text
    """Registered name, or ``module:attr`` of your own."""
    weight: float = Field(default=1.0, ge=0.0)
    """Share in the total reward, relative to the other rewarders' weights. 0: recorded, not counted."""
    timeout_s: float = Field(default=30.0, gt=0.0)
    """Seconds for one group before the rewarder counts as hanging."""
    options: dict[str, OptionValue] = Field(default_factory=dict)
    """Passed to the rewarder, which refuses unknown ones."""

    @field_validator("options")
    @classmethod
    def _no_secret_among_the_options(
        cls, value: dict[str, str | int | float | bool]
    ) -> dict[str, str | int | float | bool]:
        if any(_SECRET_NAME.search(name) for name in value):
            raise ValueError("options without secrets: name the environment variable that holds one, not the secret")
        return value


class PriceSettings(Section):
    """Price of one model in USD per million tokens."""

    input: float = Field(ge=0.0)
    """A million tokens of prompt."""
    output: float = Field(ge=0.0)
    """A million tokens of completion."""
    cached_input: float | None = Field(default=None, ge=0.0)
    """None: cached tokens cost what other input costs."""


class ModelSettings(Section):
    """The seam to the endpoint."""

    name: Text | None = option(None, flag="--model", env="TFGRPO_MODEL")
    """Model of the actors, as the endpoint calls it."""
    reflection_name: Text | None = option(None, flag="--reflection-model", env="TFGRPO_REFLECTION_MODEL")
    """Model of the reflecting and curating roles. None: the same model."""
    base_url: Text | None = option(None, flag="--base-url", env="OPENAI_BASE_URL")
    """OpenAI-compatible root, usually ending in ``/v1``. None while ``name`` is None too: simulated, in process."""
    api_key_env: Text = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; the key itself is never a setting."""
    api_key_secret: Text | None = None
    """Name of a Prefect Secret block that holds the key; wins over the environment."""
    max_tokens: int = Field(default=1024, ge=1)
    """Completion tokens one call may use; also what is reserved for it."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name of that limit on the wire; newer vendor models want the second."""
    timeout_s: float = Field(default=120.0, gt=0.0)
    """Seconds one call may take in total, however slowly it trickles."""
    max_retries: int = Field(default=5, ge=0, le=20)
    """Further attempts after the first for 408, 409, 429, 5xx, timeouts and broken connections."""
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """What ``response_format`` the endpoint understands."""
    send_seed: bool = True
    """Send a ``seed`` of its own with every call."""
    send_temperature: bool = True
    """Send the temperature of the phase. Off for models that refuse any but their own, as reasoning models do."""
    logprobs: bool = False
    """Ask for and journal log-probabilities of the rollouts' tokens."""
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    """USD per million tokens by model name. A model that is absent has an unknown price, never zero."""

    @field_validator("base_url")
    @classmethod
    def _address_without_credentials(cls, value: str | None) -> str | None:
        if value is not None and not _is_address(value):
            raise ValueError("an address like https://host/v1, without user name, password or key in it")
        return value

    @field_validator("api_key_env")
    @classmethod
    def _name_of_a_variable(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) or _looks_like_a_key(value):
            raise ValueError("the name of an environment variable, not the key itself")
        return value

    @field_validator("api_key_secret")
    @classmethod
    def _name_of_a_block(cls, value: str | None) -> str | None:
        if value is not None and _looks_like_a_key(value):
            raise ValueError("the name of a Prefect Secret block, not the key itself")
        return value


class BudgetSettings(Section):
    """Caps on the whole run, rollouts and learning together. None: no cap."""

    max_usd: float | None = option(None, flag="--max-usd", env="TFGRPO_MAX_USD", gt=0.0)
    """Most US dollars; needs a price for every model in use."""
    max_tokens: int | None = option(None, flag="--max-tokens", env="TFGRPO_MAX_TOKENS", gt=0)
    """Most tokens, prompts and completions together."""
    max_calls: int | None = option(None, flag="--max-calls", env="TFGRPO_MAX_CALLS", gt=0)
    """Most model calls."""


class TelemetrySettings(Section):
    """OpenTelemetry. Exporters exist only when an ``OTEL_EXPORTER_OTLP_*ENDPOINT`` is set."""

    genai_metrics: Literal["off", "v1.41", "latest"] = "latest"
    """Names of the convention's own metrics beside ours."""
    content: bool = False
    """Put prompts and answers on spans (truncated). May hold personal data."""
    shutdown_s: float = Field(default=2.0, gt=0.0, le=60.0)
    """Most seconds the process waits for undelivered telemetry at its end."""


class FaultSettings(Section):
    """Share of simulated calls that break, by kind."""

    rate_limit: Fraction = 0.0
    """Status 429 with Retry-After."""
    server_error: Fraction = 0.0
    """Status 500."""
    hang: Fraction = 0.0
    """No answer at all."""
    reset: Fraction = 0.0
    """The connection breaks."""
    bad_json: Fraction = 0.0
    """A body that is no JSON."""
    empty: Fraction = 0.0
    """A reply without text."""
    truncated: Fraction = 0.0
    """A reply cut off at the token limit."""


class SimulatedSettings(Section):
    """The simulated model of the dry run."""

    world: Literal["arithmetic", "ledger-tools", "unlearnable"] = option("arithmetic", flag="--world")
    """Which small world the simulated model lives in, and whose items are used without ``--dataset``."""
    seed: int = Field(default=0, ge=0)
    """Seed of the simulated model, apart from the seed of the run."""
    latency_s: float = Field(default=0.0, ge=0.0)
    """Seconds one simulated call takes."""
    faults: FaultSettings = FaultSettings()
    """Share of simulated calls that break."""


class StageSettings(Section):
    """One stage of a pipeline file. ``learn`` runs the loop; ``spec-guard`` checks the run it made."""

    name: Literal["learn", "spec-guard"]
    """Which stage it is."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of the stage: ``TFGRPO_*`` values, below the real environment and above the rest of the file."""

    @field_validator("env", mode="before")
    @classmethod
    def _scalars_are_text_in_an_environment(cls, value: object) -> object:
        return {name: env_text(given) for name, given in value.items()} if isinstance(value, dict) else value


class Settings(Section):
    """Everything one run needs to know."""

    pipeline: Text = "tfgrpo-learning"
    """Name of the pipeline, for the manifest. A pipeline file without this key is called by its file name."""
    task_id: Text = option("tfgrpo-learning", flag="--task-id", env="TFGRPO_TASK_ID")
    """Names the directory under ``out``; runs of one task share a store."""
    out: Text = option("out", flag="--out", env="TFGRPO_OUT")
    """Directory that everything is written under."""
    dry_run: bool = option(False, flag="--dry-run")
    """Use the simulated model in process; nothing leaves the machine."""
    task_runner: Literal["threads", "dask", "ray"] = option("threads", flag="--task-runner", env="TFGRPO_TASK_RUNNER")
    """Where groups run; ``dask`` and ``ray`` are extras."""
    pack: Text = option("arithmetic", flag="--pack", env="TFGRPO_PACK")
    """Id or domain of the prompt pack."""
    packs_root: Text | None = option(None, flag="--packs-root", env="TFGRPO_PACKS_ROOT")
    """Directory of your own packs; None: those that ship."""
    tfgrpo: LearningSettings = LearningSettings()
    gate: GateSettings = GateSettings()
    dataset: DatasetSettings = DatasetSettings()
    actor: ActorSettings = ActorSettings()
    rewarders: tuple[RewarderSettings, ...] = (
        RewarderSettings(name="gt"),
        RewarderSettings(name="relative", weight=0.0),
    )
    """What scores the attempts, in order: the later ones see the scores of the earlier."""
    model: ModelSettings = ModelSettings()
    budget: BudgetSettings = BudgetSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    simulated: SimulatedSettings = SimulatedSettings()
    stages: tuple[StageSettings, ...] = (StageSettings(name="learn"), StageSettings(name="spec-guard"))
    """What a run does, in order: ``learn``, and ``spec-guard`` last."""


def env_text(value: object) -> object:
    """A YAML scalar as an environment would hold it; anything else unchanged, for the schema to refuse."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _looks_like_a_key(text: str) -> bool:
    """Settings go into manifests and tables, and a key that stands where its name should would go with them."""
    # Here, because most commands read no setting that names a key, and the patterns cost a tenth of a second.
    from prompt_packs.attacks import attack_in  # noqa: PLC0415

    found = attack_in(text)
    return found is not None and found.rule == "secret"


def _is_address(text: str) -> bool:
    try:
        url = urlsplit(text.strip())
        host, port_is_fine = url.hostname, url.port is None or url.port > 0
    except ValueError:
        return False
    if url.scheme not in {"http", "https"} or not host or not port_is_fine or url.username or url.password:
        return False
    return not any(_SECRET_NAME.search(name) for name, _ in parse_qsl(url.query, keep_blank_values=True))
