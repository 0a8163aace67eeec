"""Choose the models that a run calls, with endpoint and prices, and decide whether the run is simulated.

A price is that of the pipeline's own table, else the list price of the package genai-prices, if it is installed: read as it was
installed, without any network, and imported only for a remote model that the table lacks. A model is looked up at the vendor
whose address is called: the same name elsewhere, or behind a proxy, has no known price. No connection is opened, no key read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tfgrpo.pipelines.settings.addresses import ENV_VALUE, is_loopback
from tfgrpo.pipelines.settings.tree import MODEL_ROLES, ModelRole, ModelSettings, PriceSettings, Settings
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.ledger import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

PRICES_PACKAGE: Final = "genai-prices"
# Prices that are not for tokens: a model with one of them costs more than its tokens.
_PER_OTHER: Final = ("requests_kcount", "input_mchars", "input_audio_hours", "audio_hours")


@dataclass(frozen=True, slots=True)
class ListPrice:
    """A price and its source."""

    price: Price
    source: str
    """``model.prices``, or the package with its version, vendor and model."""


@dataclass(frozen=True, slots=True)
class PriceList(Mapping[str, Price]):
    """Prices of models at one endpoint by name; iterates over the pipeline's own."""

    own: Mapping[str, PriceSettings]
    remote: str | None
    """Address whose vendor has list prices; None without one."""
    source: str = "model.prices"

    def find(self, name: str) -> ListPrice | None:
        """Return the price of a model and its source; None where it is unknown."""
        own = self.own.get(name)
        if own is not None:
            return ListPrice(Price.per_million(own.input, own.output, own.cached_input), self.source)
        return None if self.remote is None else _listed(name, self.remote)

    def __getitem__(self, name: str) -> Price:
        listed = self.find(name)
        if listed is None:
            raise KeyError(name)
        return listed.price

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)


@cache
def _listed(name: str, base_url: str) -> ListPrice | None:
    try:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - an extra: 0.1 s
    except ImportError:
        return None
    with suppress(LookupError):
        # The vendor by the address.
        provider, model = get_snapshot().find_provider_model(name, None, None, base_url)
        price = _price_of(model)
        if price is not None:
            return ListPrice(price, f"{PRICES_PACKAGE} {version(PRICES_PACKAGE)}, {provider.id}/{model.id}")
    return None


def _price_of(model: ModelInfo) -> Price | None:
    # Today's, and the dearest where it depends on the hour.
    each_hour = model.prices if isinstance(model.prices, list) else []
    hours = [each for each in each_hour if type(each.constraint).__name__ == "TimeOfDateConstraint"]
    priced = [each.prices for each in hours] or [model.get_prices(utc_now())]
    prices = [price for each in priced if (price := _by_tokens(each)) is not None]
    return max(prices, key=lambda price: (price.output_nano, price.input_nano), default=None)


def _by_tokens(prices: ModelPrice) -> Price | None:
    if any(getattr(prices, name, None) for name in _PER_OTHER):
        return None
    kinds: tuple[Any, ...] = (prices.input_mtok, prices.output_mtok, prices.cache_read_mtok)
    if kinds[0] is None or kinds[1] is None:
        return None
    starts = sorted({tier.start for kind in kinds for tier in getattr(kind, "tiers", ())})
    prices_above = []
    for tokens in (0, *starts):
        amounts = []
        # Each is a number, or tiers upon a base.
        for kind in kinds:
            reached = [tier.price for tier in getattr(kind, "tiers", ()) if tier.start <= tokens]
            amount = reached[-1] if reached else getattr(kind, "base", kind)
            amounts.append(None if amount is None else float(amount))
        prices_above.append(Price.per_million(amounts[0] or 0.0, amounts[1] or 0.0, amounts[2]))
    base, *dearer = prices_above
    return replace(base, dearer=tuple(zip(starts, dearer, strict=True)))


SIMULATED_MODEL = "simulated"
SIMULATED_PRICE = PriceSettings(input=0.15, output=0.6, cached_input=0.075)
"""Invented, so that a dry run accounts for money as a real run does. Figures computed with it are marked as simulated."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models of a run, by the roles that call them."""

    in_process: bool
    """Whether the simulated model answers in process; no role has an address then."""
    roles: Mapping[ModelRole, ModelSettings]
    """Settings of each role, with a name, which is empty if there is none."""
    prices: Mapping[str, PriceSettings]
    judges: tuple[str, ...] = ()
    """Models that judges name; empty when simulated."""

    @property
    def name(self) -> str:
        """The actors' model."""
        return self.roles["actor"].name or ""

    @property
    def reflection_name(self) -> str:
        """The model of reflection, curation and shortening."""
        return self.roles["reflection"].name or ""

    @property
    def base_url(self) -> str | None:
        """The actors' endpoint; None when simulated in process."""
        return self.roles["actor"].base_url

    @property
    def endpoints(self) -> Mapping[ModelRole, tuple[str, ...]]:
        """Models in use at each distinct endpoint, by the first role that calls it."""
        used = {"actor": (self.name,), "reflection": (self.reflection_name,), "judge": self.judges}
        by_role: dict[ModelRole, tuple[str, ...]] = {}
        address = attrgetter("base_url", "api_key", "headers")
        for role in MODEL_ROLES:
            if names := used[role]:
                first = next((each for each in by_role if address(self.roles[each]) == address(self.roles[role])), role)
                by_role[first] = tuple(dict.fromkeys((*by_role.get(first, ()), *names)))
        return by_role

    def provider(self, role: ModelRole) -> str:
        """Return the endpoint of a role as spans and metrics call it: by the protocol, or ``simulated``."""
        return SIMULATED_MODEL if self.roles[role].name == SIMULATED_MODEL else "openai"

    @property
    def simulated(self) -> bool:
        """Whether the simulated model answers, in process or served by ``tfgrpo serve-simulated``."""
        return self.in_process or SIMULATED_MODEL in self.in_use

    @property
    def in_use(self) -> tuple[str, ...]:
        """Each model once, the actors' first."""
        return tuple(dict.fromkeys((self.name, self.reflection_name, *self.judges)))

    def judge(self, named: str | None) -> str:
        """Return the model of a judge that names this one or none."""
        return named if named is not None and not self.in_process else self.roles["judge"].name or ""

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models in use whose price is unknown."""
        return tuple(dict.fromkeys(model for _, model, listed in self.priced if listed is None))

    @property
    def priced(self) -> Iterator[tuple[ModelRole, str, ListPrice | None]]:
        """Each model in use with the first role that calls its endpoint, and its price; None where that is unknown."""
        called = ((role, name) for role, names in self.endpoints.items() for name in names)
        return ((role, name, self.price_list(role).find(name)) for role, name in called)

    @property
    def price_rows(self) -> list[dict[str, object]]:
        """The price of each model in use in USD per million tokens, with its source, as JSON; null where it is unknown."""
        rows = []
        for role, name, listed in self.priced:
            price = None if listed is None else listed.price
            amounts = (None,) * 3 if price is None else (price.input_nano, price.output_nano, price.cached_nano)
            usd = (None if each is None else float(each) / 1000 for each in amounts)
            row: dict[str, object] = {"model": name, "endpoint": self.roles[role].base_url}
            row |= zip(("input", "output", "cached_input"), usd, strict=True)
            rows.append({**row, "source": None if listed is None else listed.source})
        return rows

    def price_list(self, role: ModelRole) -> PriceList:
        """Return the prices at the endpoint of a role."""
        url = self.roles[role].base_url
        if self.in_process:
            return PriceList(self.prices, None, "invention, for the simulated model")
        return PriceList(self.prices, None if url is None or is_local(url) else url)


def choose_models(settings: Settings) -> ModelChoice:
    """Return the models; simulated in a dry run, or when neither a model nor an endpoint is named."""
    model = settings.model
    roles = {role: model.of(role) for role in MODEL_ROLES}
    if settings.dry_run or (roles["actor"].name is None and all(each.base_url is None for each in roles.values())):
        nowhere: dict[str, object] = {"name": SIMULATED_MODEL, "base_url": None, "headers": {}}
        simulated = {role: each.model_copy(update=nowhere) for role, each in roles.items()}
        return ModelChoice(True, simulated, {SIMULATED_MODEL: SIMULATED_PRICE})
    named = (name for entry in settings.rewarders for name in _judge_models(entry.name, entry.options))
    judges = tuple(dict.fromkeys(roles["judge"].name or "" if name is None else name for name in named))
    return ModelChoice(False, roles, model.prices, judges)


def _judge_models(rewarder: object, options: object) -> Iterator[str | None]:
    """Yield the models of judges, None for one that names none. Malformed options are ignored: building refuses them."""
    if not isinstance(options, Mapping):
        return
    if rewarder == "relative":
        yield from _judge_models("judge", options.get("judge"))
    elif rewarder == "similarity" and isinstance(options.get("model"), str):
        yield options["model"]
    elif rewarder == "judge":
        models = options.get("models")
        for model in models if isinstance(models, list | tuple) and models else [options.get("model")]:
            yield model if isinstance(model, str) else None
    elif rewarder == "composite":
        lists = (options.get(kind) for kind in ("gates", "parts"))
        for member in (each for members in lists if isinstance(members, list) for each in members):
            if isinstance(member, Mapping) and member.get("weight") != 0:
                yield from _judge_models(member.get("name"), member.get("options", {}))


def dry_run_warnings(settings: Settings) -> Iterator[str]:
    """Yield a warning if a simulated run ignores a model or endpoint of the settings."""
    named = (settings.model.of(role) for role in MODEL_ROLES)
    if choose_models(settings).in_process and any(each.name is not None or each.base_url is not None for each in named):
        yield "dry run: the model and endpoint of the settings are not called, the SIMULATED model is"


def is_local(base_url: str) -> bool:
    """Return whether the endpoint is on this machine, where keys are rarely needed."""
    return is_loopback(urlsplit(base_url.strip()).hostname or "")


def key_warnings(models: ModelChoice, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each remote endpoint that would be called without a key."""
    for model in (models.roles[role] for role in models.endpoints):
        variable = model.api_key.removeprefix(ENV_VALUE)
        is_named = variable == model.api_key or env.get(variable, "").strip()
        if model.base_url is None or is_local(model.base_url) or is_named:
            continue
        if not any(each.startswith(ENV_VALUE) for each in model.headers.values()):
            yield f"{variable} is not set: the endpoint is asked without a key"
