"""Settings of the endpoints, their models and prices, and of the simulated model of the dry run.

Keys are named, never stored: a value that looks like a key is refused.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Field, JsonValue, PlainSerializer

from tfgrpo.pipelines.settings.addresses import (
    checked_address,
    checked_headers,
    checked_variable,
    looks_like_a_key,
    refuse_secrets,
)
from tfgrpo.pipelines.settings.base import NonEmptyText, Section, setting_field

LEARNER_TOKENS: Final = 8_192
"""Completion tokens of one reflection, curation or shortening, without ``model.reflection.max_tokens``: reasoning models
think long before lessons."""
_OPERATION_TOKENS: Final = 100
"""Tokens of one operation on the library with a lesson of full length, as JSON."""


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


_OUR_HEADERS: Final = ("accept", "authorization", "connection", "content-length", "content-type", "host")
_checked_headers = partial(checked_headers, ours=_OUR_HEADERS, instead="; the key is named by api_key")
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
    headers: Annotated[dict[str, str], AfterValidator(_checked_headers)] = Field(default_factory=dict)
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
    """Return what is set for a role; the rest is that of ``model``."""
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
        """Return the settings of a role: its own, and those of this section for the rest.

        Learning calls may be longer. A judge without its own name is the model of reflection where both
        ask the same endpoint.
        """
        own = self.own(role)
        if role == "reflection":
            own.setdefault("max_tokens", LEARNER_TOKENS)
        if role == "judge" and own.get("base_url", self.base_url) == self.of("reflection").base_url:
            own.setdefault("name", self.of("reflection").name)
        return self.model_copy(update=own)

    @property
    def curation_size(self) -> int:
        """Most proposals of one curation call, so that an operation on each fits into the reply."""
        return max(1, self.of("reflection").max_tokens // _OPERATION_TOKENS)


ShippedWorld: TypeAlias = Literal["arithmetic", "ledger-tools", "powl", "unlearnable"]


class SimulatedSettings(Section):
    """The simulated model of the dry run."""

    world: ShippedWorld = setting_field("arithmetic", flag="--world")
    """World of the simulated model; its items are used without ``--dataset``. A real model is run on them only when the
    world is named."""
    seed: int = Field(default=0, ge=0)
    """Seed of the simulated model, separate from the seed of the run."""
    latency_s: float = Field(default=0.0, ge=0.0)
    """Seconds one simulated call takes."""
