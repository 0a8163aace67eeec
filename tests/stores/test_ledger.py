"""Caps hold, whatever runs at once; money is never invented and never forgotten, and prices are exact."""

from __future__ import annotations

import asyncio
import random
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.stores.errors import BudgetRefused
from tfgrpo.stores.ledger import Amount, Budget, Ledger, Price, Totals


@pytest.fixture(params=["alone", "shared"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "ledger.jsonl" if request.param == "shared" else None


ENDINGS = {
    "settled": ({"tokens": 100, "nano_usd": 5_000}, (60, 3_000), Totals(calls=1, tokens=60, nano_usd=3_000)),
    "lost": ({"tokens": 100, "nano_usd": 7}, None, Totals(calls=1, at_risk_tokens=100, at_risk_nano=7, lost_calls=1)),
    "of unknown price": ({"tokens": 10}, (5, None), Totals(calls=1, tokens=5, unknown_price_calls=1)),
    "of unknown price, lost": ({"tokens": 10}, None, Totals(calls=1, at_risk_tokens=10, unknown_price_calls=1, lost_calls=1)),
    "of a price that got unknown": (
        {"tokens": 10, "nano_usd": 50},
        (5, None),
        Totals(calls=1, tokens=5, at_risk_nano=50, unknown_price_calls=1),
    ),
    "more tokens than reserved": ({"tokens": 50, "nano_usd": 10}, (80, 5), Totals(1, 80, 5, overruns=1)),
    "more money than reserved": ({"tokens": 20, "nano_usd": 10}, (20, 11), Totals(1, 20, 11, overruns=1)),
    "of a price that got known": ({"tokens": 0}, (0, 99), Totals(calls=1, nano_usd=99)),
}


@pytest.mark.parametrize(("ask", "usage", "after"), ENDINGS.values(), ids=ENDINGS)
async def test_a_call_counts_as_what_it_used_or_may_have_used(
    where: Path | None, ask: dict[str, int], usage: tuple[int, int | None] | None, after: Totals
) -> None:
    ledger = Ledger(Budget(), shared=where)
    reservation = await ledger.reserve(**ask)
    in_flight = Amount(1, ask["tokens"], ask.get("nano_usd", 0), 0 if "nano_usd" in ask else 1)
    assert (ledger.totals(), ledger.in_flight()) == (Totals(), in_flight)
    if usage is None:
        reservation.lose()
    else:
        reservation.settle(*usage)
    assert (ledger.totals(), ledger.in_flight()) == (after, Amount())
    for again in (reservation.lose, lambda: reservation.settle(1, 1)):
        with pytest.raises(RuntimeError, match="has ended"):
            again()
    reservation.release()
    assert ledger.totals() == after
    ledger.close()


async def test_what_is_lost_counts_against_the_caps_and_what_is_released_does_not(where: Path | None) -> None:
    ledger = Ledger(Budget(max_tokens=150, max_usd=0.000001), shared=where)
    (await ledger.reserve(tokens=150, nano_usd=1_000)).release()
    (await ledger.reserve(tokens=100, nano_usd=600)).lose()
    with pytest.raises(BudgetRefused, match="max_tokens 150 is reached: 100 spent or at risk"):
        await ledger.reserve(tokens=51)
    with pytest.raises(BudgetRefused, match=r"max_usd 0.000001 is reached: 0.000001 spent or at risk"):
        await ledger.reserve(tokens=1, nano_usd=401)
    (await ledger.reserve(tokens=50, nano_usd=400)).release()
    ledger.close()


@pytest.mark.parametrize(
    ("budget", "ask", "message"),
    [
        (Budget(max_calls=1), {"calls": 2}, "max_calls 1 is reached: 0 spent or at risk, and the next call may need 2"),
        (Budget(max_tokens=9), {"tokens": 10}, "max_tokens 9"),
        (Budget(max_usd=0.01), {"nano_usd": 10_000_001}, "max_usd 0.010000"),
    ],
)
async def test_a_refusal_names_the_cap_and_the_figures(budget: Budget, ask: dict[str, int], message: str) -> None:
    with pytest.raises(BudgetRefused, match=message):
        await Ledger(budget).reserve(**ask)


async def test_a_call_waits_while_a_running_one_may_leave_room(where: Path | None) -> None:
    ledger = Ledger(Budget(max_tokens=100), shared=where)
    first = await ledger.reserve(tokens=80)
    second = asyncio.create_task(ledger.reserve(tokens=50))
    await asyncio.sleep(0.05)
    assert not second.done()
    first.settle(10, None)
    (await second).settle(50, None)
    assert ledger.totals().tokens == 60
    ledger.close()


async def test_a_waiting_call_is_refused_once_waiting_is_useless() -> None:
    ledger = Ledger(Budget(max_tokens=100))
    first = await ledger.reserve(tokens=80)
    second = asyncio.create_task(ledger.reserve(tokens=50))
    await asyncio.sleep(0.03)
    first.settle(80, None)
    with pytest.raises(BudgetRefused):
        await second


def test_a_cap_in_dollars_is_taken_at_its_decimal_value() -> None:
    assert Budget(max_usd=0.1).max_nano == 100_000_000
    assert Budget(max_usd=0.29).max_nano == 290_000_000


class Watch:
    """Sees every grant and every settlement, and notes the highest sum of what is spent, at risk and in flight."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.highest = Amount()

    def look(self) -> None:
        totals, flying = self._ledger._store.read()
        total = totals.committed + flying
        self.highest = Amount(*(max(a, b) for a, b in zip(_figures(self.highest), _figures(total), strict=True)))

    def within(self, budget: Budget) -> bool:
        caps = (budget.max_calls, budget.max_tokens, budget.max_nano)
        return all(cap is None or seen <= cap for cap, seen in zip(caps, _figures(self.highest), strict=True))


def _figures(amount: Amount) -> tuple[int, int, int]:
    return amount.calls, amount.tokens, amount.nano_usd


BUDGETS = st.builds(
    Budget,
    max_usd=st.none() | st.floats(1e-7, 1e-5),
    max_tokens=st.none() | st.integers(1, 5000),
    max_calls=st.none() | st.integers(1, 100),
)


@settings(max_examples=40, deadline=None)
@given(budget=BUDGETS, seed=st.integers(0, 10_000))
def test_no_cap_is_ever_exceeded_by_64_coroutines(budget: Budget, seed: int) -> None:
    rng = random.Random(seed)

    async def nap(_: float) -> None:
        await asyncio.sleep(0)

    ledger = Ledger(budget, sleep=nap)
    watch = Watch(ledger)

    async def one() -> None:
        tokens, nano = rng.randint(0, 400), rng.choice([None, rng.randint(0, 1000)])
        try:
            reservation = await ledger.reserve(tokens=tokens, nano_usd=nano)
        except BudgetRefused:
            return
        watch.look()
        for _ in range(rng.randint(0, 5)):
            await asyncio.sleep(0)
        match rng.randint(0, 3):
            case 0:
                reservation.lose()
            case 1:
                reservation.release()
            case _:
                reservation.settle(rng.randint(0, tokens), None if nano is None else rng.randint(0, nano))
        watch.look()

    async def everyone() -> None:
        await asyncio.gather(*(one() for _ in range(64)))

    asyncio.run(everyone())
    assert watch.within(budget)
    assert ledger.in_flight() == Amount()


def test_a_list_price_per_million_is_taken_at_its_decimal_value() -> None:
    assert Price.per_million(0.15, 0.6, 0.075) == Price(150, 600, 75)
    assert Price.per_million(0.0375, 0.1).input_nano == Fraction(75, 2)


def test_known_costs_by_hand() -> None:
    price = Price.per_million(2.5, 10.0, 1.25)
    assert price.cost(1000, 200) == 1000 * 2500 + 200 * 10_000
    assert price.cost(1000, 200, cached=400) == 600 * 2500 + 400 * 1250 + 200 * 10_000
    assert Price.per_million(0.0375, 0.0).cost(1, 0) == 38, "37.5 nano-dollars, rounded up"


def test_cached_tokens_cost_like_others_unless_priced_and_never_exceed_the_prompt() -> None:
    assert Price(3, 5).cost(10, 0, cached=4) == 30
    assert Price(3, 5, 1).cost(10, 0, cached=99) == 10


def test_no_cap_is_ever_exceeded_by_threads(where: Path | None) -> None:
    budget = Budget(max_tokens=2_000, max_calls=40)
    ledger = Ledger(budget, shared=where)
    watch = Watch(ledger)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(8):
            tokens = rng.randint(1, 100)
            try:
                reservation = ledger.try_reserve(tokens=tokens)
            except BudgetRefused:
                return
            if reservation is None:
                continue
            watch.look()
            reservation.settle(rng.randint(0, tokens), None)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watch.within(budget)
    assert ledger.totals().calls <= 40
    assert ledger.in_flight() == Amount()
    ledger.close()
