"""Choose the models that a run calls, with endpoint and prices, and decide whether the run is simulated.

Opens no connection and reads no key. An unknown price stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tfgrpo.pipelines.settings.addresses import is_loopback
from tfgrpo.pipelines.settings.model import ModelSettings, PriceSettings
from tfgrpo.pipelines.settings.tree import RewarderSettings, Settings
from tfgrpo.stores.ledger.state import Price

SIMULATED_MODEL = "simulated"
SIMULATED_PRICE = PriceSettings(input=0.15, output=0.6, cached_input=0.075)
"""Invented, so that a dry run accounts for money as a real run does. Figures computed with it are marked as simulated."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models of a run, by their names at the endpoint."""

    simulated: bool
    name: str
    reflection_name: str
    base_url: str | None
    """None when simulated in process."""
    prices: Mapping[str, PriceSettings]
    judges: tuple[str, ...] = ()
    """Models that judges name; empty when simulated."""

    @property
    def answers_simulated(self) -> bool:
        """Whether the simulated model answers, in process or served by ``tfgrpo serve-simulated``."""
        return self.simulated or SIMULATED_MODEL in self.in_use

    @property
    def in_use(self) -> tuple[str, ...]:
        """Each model once, the actors' first."""
        return tuple(dict.fromkeys((self.name, self.reflection_name, *self.judges)))

    def judge(self, named: str | None) -> str:
        """Return the model of a judge that names this one or none."""
        return named if named is not None and not self.simulated else self.reflection_name

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models in use whose price is unknown."""
        return tuple(model for model in self.in_use if model not in self.prices)

    @property
    def price_book(self) -> dict[str, Price]:
        """Prices for the ledger."""
        prices = self.prices.items()
        return {name: Price.per_million(price.input, price.output, price.cached_input) for name, price in prices}


def choose_models(settings: Settings) -> ModelChoice:
    """Return the models; simulated in a dry run, or when neither a model nor an endpoint is named."""
    model = settings.model
    if settings.dry_run or (model.base_url is None and model.name is None):
        return ModelChoice(True, SIMULATED_MODEL, SIMULATED_MODEL, None, {SIMULATED_MODEL: SIMULATED_PRICE})
    name = model.name or ""
    judges = judge_models(settings.rewarders)
    return ModelChoice(False, name, model.reflection_name or name, model.base_url, model.prices, judges)


def judge_models(rewarders: Iterable[RewarderSettings]) -> tuple[str, ...]:
    """Return each model that a judge names, once, in order. Malformed options are ignored: building refuses them."""
    return tuple(dict.fromkeys(name for entry in rewarders for name in _named_models(entry.name, entry.options)))


def _named_models(rewarder: object, options: object) -> Iterator[str]:
    if not isinstance(options, Mapping):
        return
    if rewarder == "relative":
        rewarder, options = "judge", options.get("judge") or {}
    if rewarder == "judge" and isinstance(options, Mapping):
        model = options.get("model")
        if isinstance(model, str):
            yield model
    elif rewarder == "composite":
        lists = (options.get(kind) for kind in ("gates", "parts"))
        for member in (each for members in lists if isinstance(members, list) for each in members):
            if isinstance(member, Mapping) and member.get("weight") != 0:
                yield from _named_models(member.get("name"), member.get("options", {}))


def dry_run_warnings(settings: Settings) -> Iterator[str]:
    """Yield a warning if a simulated run ignores the model or endpoint of the settings."""
    if choose_models(settings).simulated and (settings.model.name is not None or settings.model.base_url is not None):
        yield "dry run: the model and endpoint of the settings are not called, the SIMULATED model is"


def is_local(base_url: str) -> bool:
    """Return whether the endpoint is on this machine, where keys are rarely needed."""
    return is_loopback(urlsplit(base_url.strip()).hostname or "")


def key_is_missing(model: ModelSettings, env: Mapping[str, str]) -> bool:
    """Return whether a remote endpoint would be called without a key."""
    if model.base_url is None or is_local(model.base_url) or model.api_key_secret is not None:
        return False
    return not env.get(model.api_key_env, "").strip()
