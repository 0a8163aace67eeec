"""Which models will a run call, where, and at what price? The one place that decides whether a run is simulated.

It opens no connection and holds no key. An unknown price stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tfgrpo.pipelines.loopback import is_loopback
from tfgrpo.pipelines.plan.judges import judge_models
from tfgrpo.pipelines.settings.model import ModelSettings, PriceSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.ledger.prices import Price, PriceBook

SIMULATED_MODEL = "simulated"
SIMULATED_PRICE = PriceSettings(input=0.15, output=0.6, cached_input=0.075)
"""Invented, so that a dry run exercises money as a real run does. Every figure made with it is marked as simulated."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models of a run. ``name`` and ``reflection_name`` are as the endpoint is asked for them."""

    simulated: bool
    name: str
    reflection_name: str
    base_url: str | None
    """None when simulated in process."""
    prices: Mapping[str, PriceSettings]
    judges: tuple[str, ...] = ()
    """Models that judges name; none when simulated."""

    @property
    def in_use(self) -> tuple[str, ...]:
        """Each model once, the actors' first."""
        return tuple(dict.fromkeys((self.name, self.reflection_name, *self.judges)))

    def judge(self, named: str | None) -> str:
        """The model that answers a judge, which may name one."""
        return named if named is not None and not self.simulated else self.reflection_name

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models in use whose price is unknown."""
        return tuple(model for model in self.in_use if model not in self.prices)

    @property
    def price_book(self) -> PriceBook:
        """Prices for the ledger."""
        return PriceBook(
            {
                model: Price.per_million(price.input, price.output, price.cached_input)
                for model, price in self.prices.items()
            }
        )


def choose_models(settings: Settings) -> ModelChoice:
    """Simulated when asked for, or when neither a model nor an endpoint is named."""
    model = settings.model
    if settings.dry_run or (model.base_url is None and model.name is None):
        return ModelChoice(True, SIMULATED_MODEL, SIMULATED_MODEL, None, {SIMULATED_MODEL: SIMULATED_PRICE})
    name = model.name or ""
    judges = judge_models(settings.rewarders)
    return ModelChoice(False, name, model.reflection_name or name, model.base_url, model.prices, judges)


def dry_run_warnings(settings: Settings) -> Iterator[str]:
    """What a simulated run leaves aside."""
    if choose_models(settings).simulated and (settings.model.name is not None or settings.model.base_url is not None):
        yield "dry run: the model and endpoint of the settings are not called, the SIMULATED model is"


def endpoint_problems(settings: Settings, where: Mapping[str, str]) -> list[Problem]:
    """A model without an endpoint, or an endpoint without a model: neither is guessed.

    ``where`` says how messages call each key.
    """
    if choose_models(settings).simulated:
        return []
    if settings.model.base_url is None:
        given = f"{settings.model.name!r} and no endpoint to ask for it"
        return [
            Problem(where["model.name"], given, "a model together with --base-url or OPENAI_BASE_URL, or --dry-run")
        ]
    if settings.model.name is None:
        given = "an endpoint and no model"
        return [Problem(where["model.base_url"], given, "an endpoint together with --model, or --dry-run")]
    return []


def is_local(base_url: str) -> bool:
    """Whether the endpoint is on this machine, where keys are rarely needed."""
    return is_loopback(urlsplit(base_url.strip()).hostname or "")


def key_is_missing(model: ModelSettings, env: Mapping[str, str]) -> bool:
    """Whether an endpoint elsewhere would be asked without a key."""
    if model.base_url is None or is_local(model.base_url) or model.api_key_secret is not None:
        return False
    return not env.get(model.api_key_env, "").strip()
