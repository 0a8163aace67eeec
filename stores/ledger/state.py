"""Prices, budget, totals, the usage of calls and the rule whether one more fits: frozen numbers and pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from operator import add, sub
from typing import Final, TypeAlias

from tfgrpo.stores.errors import BudgetRefused

NANO = 1_000_000_000
"""Nano-dollars in a dollar."""
Counters: TypeAlias = dict[str, int]


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one model per token, in nano-dollars; a fraction where the list price per million needs one."""

    input_nano: int | Fraction
    output_nano: int | Fraction
    cached_nano: int | Fraction | None = None
    """Price of prompt tokens from the endpoint's cache; None: as other prompt tokens."""
    dearer: tuple[tuple[int, Price], ...] = ()
    """Prices of all tokens of a call whose prompt is longer than this many, in ascending order."""

    @classmethod
    def per_million(cls, input_usd: float, output_usd: float, cached_usd: float | None = None) -> Price:
        """Return the price for list prices in USD per million tokens, at their decimal value: 0.1 is one tenth."""
        return cls(_nano(input_usd), _nano(output_usd), None if cached_usd is None else _nano(cached_usd))

    def cost(self, prompt: int, completion: int, cached: int = 0) -> int:
        """Return the nano-dollars of one call, rounded up. ``cached`` tokens are part of ``prompt``."""
        # The highest step first.
        for tokens, price in reversed(self.dearer):
            if prompt > tokens:
                return price.cost(prompt, completion, cached)
        hits = min(cached, prompt)
        cached_nano = self.input_nano if self.cached_nano is None else self.cached_nano
        return math.ceil((prompt - hits) * self.input_nano + hits * cached_nano + completion * self.output_nano)


def _nano(usd_per_million: float) -> Fraction:
    return Fraction(str(usd_per_million)) * (NANO // 1_000_000)


@dataclass(frozen=True, slots=True)
class Budget:
    """Caps on one run, or on a task. None: no cap."""

    max_usd: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    scope: str = ""
    """Prefix of the names of caps in messages."""

    @property
    def max_nano(self) -> int | None:
        """``max_usd`` in nano-dollars, rounded down."""
        return None if self.max_usd is None else int(Fraction(str(self.max_usd)) * NANO)


@dataclass(frozen=True, slots=True)
class Amount:
    """Calls, tokens and nano-dollars of one reservation, or of many."""

    calls: int = 0
    tokens: int = 0
    nano_usd: int = 0
    unpriced: int = 0
    """How many of the calls have no known price; ``nano_usd`` is the bound of the others."""

    def __post_init__(self) -> None:
        if min(self.calls, self.tokens, self.nano_usd, self.unpriced) < 0:
            raise ValueError(f"an amount cannot be negative: {self}")

    def figures(self) -> tuple[int, int, int, int]:
        """Return the figures in order; ``astuple`` copies deeply, a quarter of the cost of a step."""
        return self.calls, self.tokens, self.nano_usd, self.unpriced

    def __add__(self, other: Amount) -> Amount:
        return Amount(*map(add, self.figures(), other.figures()))

    def __sub__(self, other: Amount) -> Amount:
        return Amount(*map(sub, self.figures(), other.figures()))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of a ledger. Money covers calls of known price; ``unknown_price_calls`` counts the others."""

    calls: int = 0
    """Calls that were sent, with or without an answer."""
    tokens: int = 0
    """Tokens that endpoints reported."""
    nano_usd: int = 0
    """Their price."""
    at_risk_tokens: int = 0
    """Upper bound of the tokens of calls whose usage was not reported; they count against the cap."""
    at_risk_nano: int = 0
    unknown_price_calls: int = 0
    lost_calls: int = 0
    """Calls whose usage was not reported."""
    overruns: int = 0
    """Calls that used more than was reserved; the excess counts in full."""
    implausible_usage: int = 0
    """Calls with a reported usage far above what the request could use; settled at their upper bound."""
    unmeasured_attempts: int = 0
    """Attempts of agents that call models without the ledger; their usage is unknown and in no other figure."""
    journalled: int = 0
    """Answers in the run's journal, as of the last step of each process: a kill leaves the journal with more, never fewer."""

    @property
    def usd(self) -> float:
        """Known cost in dollars, without what is at risk."""
        return self.nano_usd / NANO

    @property
    def at_risk_usd(self) -> float:
        """Upper bound of the cost of lost calls, in dollars."""
        return self.at_risk_nano / NANO

    @property
    def committed(self) -> Amount:
        """What counts against the caps: settled and at risk."""
        return Amount(self.calls, self.tokens + self.at_risk_tokens, self.nano_usd + self.at_risk_nano)

    def settled(self, held: Amount, tokens: int, nano_usd: int | None, *, believed: bool = True) -> Totals:
        """Return the totals after a call with ``held`` reserved used this much; None: price unknown."""
        unknown = nano_usd is None
        over = tokens > held.tokens or (not held.unpriced and (nano_usd or 0) > held.nano_usd)
        call = Totals(
            calls=held.calls,
            tokens=tokens,
            nano_usd=nano_usd or 0,
            at_risk_nano=held.nano_usd if unknown else 0,
            unknown_price_calls=held.calls if unknown else 0,
            overruns=int(over),
            implausible_usage=0 if believed else held.calls,
        )
        return self.plus(call)

    def lost(self, held: Amount) -> Totals:
        """Return the totals after a call with ``held`` reserved was sent and reported no usage."""
        call = Totals(
            calls=held.calls,
            at_risk_tokens=held.tokens,
            at_risk_nano=held.nano_usd,
            unknown_price_calls=held.unpriced,
            lost_calls=held.calls,
        )
        return self.plus(call)

    def at_least(self, known: Totals) -> Totals:
        """Return the totals with no fewer calls, tokens and money than a journal has, and with its number of answers."""
        spent = {name: max(getattr(self, name), getattr(known, name)) for name in ("calls", "tokens", "nano_usd")}
        return replace(self, **spent, journalled=known.journalled)

    def to_json(self) -> Counters:
        """Return the figures by name."""
        return {name: getattr(self, name) for name in _FIGURES}

    @classmethod
    def from_json(cls, figures: Counters) -> Totals:
        """Return the totals of ``to_json``; absent names are 0. Raises ``ValueError`` for values that are not counts."""
        known = {name: figures.get(name, 0) for name in _FIGURES}
        if not all(type(value) is int and value >= 0 for value in known.values()):
            raise ValueError(f"ledger totals must be integers from 0: {known}")
        return cls(**known)

    def plus(self, more: Totals) -> Totals:
        """Return the sum of both."""
        return Totals(*(getattr(self, name) + getattr(more, name) for name in _FIGURES))


_FIGURES: Final = tuple(field.name for field in fields(Totals))


def fits(budget: Budget, totals: Totals, in_flight: Amount, ask: Amount) -> bool:
    """Return whether the sum of committed, in flight and ``ask`` is within every cap.

    Raises ``BudgetRefused`` when it would not be even if all calls in flight used zero, so that waiting is useless.
    """
    committed = totals.committed
    caps = (
        ("max_calls", budget.max_calls, committed.calls, in_flight.calls, ask.calls),
        ("max_tokens", budget.max_tokens, committed.tokens, in_flight.tokens, ask.tokens),
        ("max_usd", budget.max_nano, committed.nano_usd, in_flight.nano_usd, ask.nano_usd),
    )
    for name, cap, spent, _, more in caps:
        if cap is not None and spent + more > cap:
            show = (lambda nano: f"{nano / NANO:.6f}") if name == "max_usd" else str
            raise BudgetRefused(
                f"{budget.scope}{name} {show(cap)} is reached: {show(spent)} spent or at risk, and the next call may need "
                f"{show(more)}; under a higher cap it goes on"
            )
    return all(cap is None or spent + flying + more <= cap for _, cap, spent, flying, more in caps)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one or several model calls used. None: unknown in any part, which is never a zero."""

    calls: int | None = 0
    """Answered calls."""
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    cost_usd: float | None = 0.0

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens together."""
        return add_counts([self.prompt_tokens, self.completion_tokens])

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """Return the sum of several usages."""
        usages = list(parts)
        if len(usages) == 1:  # nearly every attempt
            return usages[0]
        return cls(
            add_counts(part.calls for part in usages),
            add_counts(part.prompt_tokens for part in usages),
            add_counts(part.completion_tokens for part in usages),
            add_costs(part.cost_usd for part in usages),
        )


UNKNOWN_USAGE: Final = Usage(None, None, None, None)
"""Usage of an agent that calls models directly."""


def add_costs(costs: Iterable[float | None]) -> float | None:
    """Return the sum in USD, or None if any part is unknown."""
    known = list(costs)
    return None if None in known else sum(filter(None, known), 0.0)


def add_counts(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if any part is unknown."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))
