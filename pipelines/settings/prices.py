"""Look up prices: the pipeline's own table first, then the list prices of the package genai-prices, if it is installed.

The package is read as it was installed, without any network, and imported only for a remote model that the table lacks. A
model is looked up at the vendor whose address is called: the same name elsewhere, or behind a proxy, has no known price.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from tfgrpo.pipelines.settings.model import PriceSettings
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.ledger.state import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

PRICES_PACKAGE: Final = "genai-prices"
_PER_OTHER: Final = ("requests_kcount", "input_mchars", "input_audio_hours", "audio_hours")
"""Prices that are not for tokens: a model with one of them costs more than its tokens."""


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
    """Of the pipeline's own."""

    def find(self, name: str) -> ListPrice | None:
        """Return the price of a model and its source; None where it is unknown."""
        own = self.own.get(name)
        if own is not None:
            return ListPrice(Price.per_million(own.input, own.output, own.cached_input), self.source)
        return None if self.remote is None else _listed(name, self.remote)

    def __getitem__(self, name: str) -> Price:
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found.price

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)


@cache
def _listed(name: str, base_url: str) -> ListPrice | None:
    try:
        # Imported here: it takes 0.3 s, and is an extra.
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415
    except ImportError:
        return None
    with suppress(LookupError):
        provider, model = get_snapshot().find_provider_model(name, None, None, base_url)  # the vendor by the address
        price = _price_of(model)
        if price is not None:
            return ListPrice(price, f"{PRICES_PACKAGE} {version(PRICES_PACKAGE)}, {provider.id}/{model.id}")
    return None


def _price_of(model: ModelInfo) -> Price | None:
    """Return today's price, the dearest where it depends on the hour; None for one that is not by tokens alone."""
    each_hour = model.prices if isinstance(model.prices, list) else []
    hours = [each for each in each_hour if type(each.constraint).__name__ == "TimeOfDateConstraint"]
    priced = [each.prices for each in hours] or [model.get_prices(utc_now())]
    found = [price for each in priced if (price := _by_tokens(each)) is not None]
    return max(found, key=lambda price: (price.output_nano, price.input_nano), default=None)


def _by_tokens(prices: ModelPrice) -> Price | None:
    if any(getattr(prices, name, None) for name in _PER_OTHER):
        return None
    kinds = (prices.input_mtok, prices.output_mtok, prices.cache_read_mtok)
    if kinds[0] is None or kinds[1] is None:
        return None
    starts = sorted({tier.start for kind in kinds for tier in getattr(kind, "tiers", ())})
    base, *dearer = (_price_above(above, kinds) for above in (0, *starts))
    return Price(base.input_nano, base.output_nano, base.cached_nano, tuple(zip(starts, dearer, strict=True)))


def _price_above(tokens: int, kinds: tuple[Any, ...]) -> Price:
    """Return the price of a call with more prompt tokens than these."""
    amounts = []
    for kind in kinds:  # a number, or tiers upon a base
        reached = [tier.price for tier in getattr(kind, "tiers", ()) if tier.start <= tokens]
        amount = reached[-1] if reached else getattr(kind, "base", kind)
        amounts.append(None if amount is None else float(amount))
    return Price.per_million(amounts[0] or 0.0, amounts[1] or 0.0, amounts[2])
