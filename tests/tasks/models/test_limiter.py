from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tasks.models.chat import AdaptiveLimiter


async def test_no_more_calls_than_the_cap_are_in_flight_and_all_get_their_turn() -> None:
    limiter, most = AdaptiveLimiter(3), 0

    async def call() -> None:
        nonlocal most
        async with limiter.slot():
            most = max(most, limiter._in_flight)
            await asyncio.sleep(0)
            limiter.served()

    await asyncio.gather(*(call() for _ in range(50)))
    assert most == 3
    assert limiter._in_flight == 0
    assert limiter.limit == 3


async def test_slots_are_granted_in_the_order_of_requests() -> None:
    limiter, order = AdaptiveLimiter(1), []

    async def call(number: int) -> None:
        async with limiter.slot():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(call(number) for number in range(10)))
    assert order == list(range(10))


async def test_one_round_trip_halves_the_limit_once_and_served_calls_restore_it() -> None:
    limiter = AdaptiveLimiter(16)
    first = [limiter.slot() for _ in range(16)]
    rounds = [await slot.__aenter__() for slot in first]
    for slot, started in zip(first, rounds, strict=True):
        limiter.pushed_back(started)
        await slot.__aexit__(None, None, None)
    assert limiter.limit == 8
    async with limiter.slot() as later:
        limiter.pushed_back(later)
    assert limiter.limit == 4
    calls = 0
    while limiter.limit < 16:
        async with limiter.slot():
            limiter.served()
        calls += 1
    assert 4 + 5 + 6 + 7 <= calls <= 200  # additive: about `limit` calls for each step
    async with limiter.slot():
        limiter.served()
    assert limiter.limit == 16


async def test_the_limit_never_falls_below_one() -> None:
    limiter = AdaptiveLimiter(2)
    for _ in range(5):
        async with limiter.slot() as started:
            limiter.pushed_back(started)
    assert limiter.limit == 1


async def test_calls_in_flight_above_a_lowered_limit_block_others() -> None:
    limiter = AdaptiveLimiter(4)
    slots = [limiter.slot() for _ in range(4)]
    started = [await slot.__aenter__() for slot in slots]
    limiter.pushed_back(started[0])
    last = limiter.slot()
    waiting = asyncio.create_task(last.__aenter__())
    for slot in slots[:2]:
        await slot.__aexit__(None, None, None)
        await asyncio.sleep(0)
    assert not waiting.done()
    await slots[2].__aexit__(None, None, None)
    await waiting
    assert limiter._in_flight == 2


@pytest.mark.parametrize("when", ["waiting", "admitted"])
async def test_a_cancelled_waiter_passes_its_slot_on(when: str) -> None:
    limiter = AdaptiveLimiter(1)
    holder, *others = [limiter.slot() for _ in range(3)]
    await holder.__aenter__()
    first, second = [asyncio.create_task(slot.__aenter__()) for slot in others]
    await asyncio.sleep(0)
    if when == "waiting":
        first.cancel()
        await asyncio.sleep(0)
        await holder.__aexit__(None, None, None)
    else:
        await holder.__aexit__(None, None, None)  # the turn is first's, who has not run yet
        first.cancel()
    await second
    assert first.cancelled()
    assert limiter._in_flight == 1


@given(st.lists(st.sampled_from(["enter", "leave", "push", "serve", "cancel"]), max_size=60))
def test_the_count_is_always_right_and_within_the_cap(steps: list[str]) -> None:
    async def play() -> None:
        limiter, held, waiting = AdaptiveLimiter(3), [], []
        for step in steps:
            if step == "enter":
                slot = limiter.slot()
                waiting.append((slot, asyncio.create_task(slot.__aenter__())))
            elif step == "cancel" and waiting:
                waiting[0][1].cancel()
            elif held and step == "leave":
                await held.pop(0)[0].__aexit__(None, None, None)
            elif held and step == "push":
                limiter.pushed_back(held[0][1].result())
            elif held and step == "serve":
                limiter.served()
            for _ in range(3):
                await asyncio.sleep(0)
            held += [(slot, task) for slot, task in waiting if task.done() and not task.cancelled()]
            waiting = [(slot, task) for slot, task in waiting if not task.done()]
            assert limiter._in_flight == len(held) <= 3
            assert 1 <= limiter.limit <= 3
            assert not waiting or len(held) >= limiter.limit
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)

    asyncio.run(play())


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        AdaptiveLimiter(0)
