"""Settings of the endpoint, its models and prices, and of the simulated model of the dry run.

Keys are named, never stored: a value that looks like a key is refused.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from tfgrpo.pipelines.settings.addresses import checked_address, looks_like_a_key
from tfgrpo.pipelines.settings.base import Fraction, Section, Text, option

_OPERATION_TOKENS: Final = 100
"""Tokens of one operation on the library with a lesson of full length, as JSON."""


class PriceSettings(Section):
    """Price of one model in USD per million tokens."""

    input: float = Field(ge=0.0)
    """USD per million tokens of prompt."""
    output: float = Field(ge=0.0)
    """USD per million tokens of completion."""
    cached_input: float | None = Field(default=None, ge=0.0)
    """USD per million cached tokens. None: the price of other input."""


def _check_key_env(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) or looks_like_a_key(value):
        raise ValueError("the name of an environment variable, not the key itself")
    return value


def _check_key_secret(value: str) -> str:
    if looks_like_a_key(value):
        raise ValueError("the name of a Prefect Secret block, not the key itself")
    return value


class ModelSettings(Section):
    """The endpoint and its models."""

    name: Text | None = option(None, flag="--model", env="TFGRPO_MODEL")
    """Name of the actors' model at the endpoint."""
    reflection_name: Text | None = option(None, flag="--reflection-model", env="TFGRPO_REFLECTION_MODEL")
    """Model of the reflecting and curating roles. None: the same model."""
    base_url: Annotated[Text, AfterValidator(checked_address)] | None = option(
        None, flag="--base-url", env="OPENAI_BASE_URL"
    )
    """OpenAI-compatible root, usually ending in ``/v1``. None, with ``name`` None too: simulated in process."""
    api_key_env: Annotated[Text, AfterValidator(_check_key_env)] = "OPENAI_API_KEY"
    """Name of the environment variable of the key; the key itself is never a setting."""
    api_key_secret: Annotated[Text, AfterValidator(_check_key_secret)] | None = None
    """Name of a Prefect Secret block with the key; overrides the environment."""
    max_tokens: int = Field(default=1024, ge=1, le=10_000_000)
    """Completion tokens one call of an actor or judge may use; also what is reserved for it."""
    learner_max_tokens: int = Field(default=8192, ge=1, le=10_000_000)
    """Completion tokens of one reflection, curation or shortening; also what is reserved for it."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name of that limit in requests; newer vendor models require the second."""
    timeout_s: float = Field(default=120.0, gt=0.0)
    """Seconds one call may take in total, streaming included."""
    max_retries: int = Field(default=5, ge=0, le=20)
    """Further attempts after the first for 408, 409, 429, 5xx, timeouts and broken connections. All waits of one call
    together are at most 180 s, whatever ``Retry-After`` asks for. An account without quota or credit stops the run."""
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """The ``response_format`` that the endpoint supports."""
    send_seed: bool = True
    """Send a different ``seed`` with every call."""
    send_temperature: bool = True
    """Send the temperature of the phase. Off for models that accept only their own, as reasoning models do."""
    send_reasoning: bool = True
    """Send back the extra fields of a tool call, such as its reasoning: DeepSeek, Kimi and Gemini require it. Off for
    endpoints that refuse it, as Groq does."""
    logprobs: bool = False
    """Ask for and journal log-probabilities of the rollouts' tokens."""
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    """USD per million tokens by model name. A model that is absent has an unknown price, never zero."""

    @property
    def curation_size(self) -> int:
        """Most proposals of one curation call, so that an operation on each fits into the reply."""
        return max(1, self.learner_max_tokens // _OPERATION_TOKENS)


class FaultSettings(Section):
    """Share of simulated calls that fail, by kind."""

    rate_limit: Fraction = 0.0
    """Status 429 with Retry-After."""
    server_error: Fraction = 0.0
    """Status 500."""
    hang: Fraction = 0.0
    """No answer."""
    reset: Fraction = 0.0
    """A broken connection."""
    bad_json: Fraction = 0.0
    """A body that is not JSON."""
    empty: Fraction = 0.0
    """A reply without text."""
    truncated: Fraction = 0.0
    """A reply cut off at the token limit."""


class SimulatedSettings(Section):
    """The simulated model of the dry run."""

    world: Literal["arithmetic", "ledger-tools", "powl", "unlearnable"] = option("arithmetic", flag="--world")
    """World of the simulated model; its items are used without ``--dataset``. A real model is run on them only when the
    world is named."""
    seed: int = Field(default=0, ge=0)
    """Seed of the simulated model, separate from the seed of the run."""
    latency_s: float = Field(default=0.0, ge=0.0)
    """Seconds one simulated call takes."""
    effect: float | None = Field(default=None, ge=0.0, le=50.0)
    """Points of 100 that right lessons about everything gain together at temperature 0.3, if the world leaves so many. None:
    as the world is, above 40; none anyway in ``unlearnable``."""
    attention: Fraction = 0.0
    """Share of the right answers that each lesson in the prompt spoils."""
    label_noise: Fraction = 0.0
    """Share of final answers that turn out the wrong way round, whatever the work shown before: rewards with noise."""
    drift: int | None = Field(default=None, ge=0, le=1_000_000)
    """Nights (``tfgrpo.night``) after which a third of the rules turn round: what helped harms. None: never."""
    misjudged: Fraction = 0.0
    """Share of reflections that take the better attempts for the worse and so name the wrong direction."""
    faults: FaultSettings = FaultSettings()
