"""The limiter: as many calls as the endpoint takes, in the order of requests, and no slot is ever lost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tasks.models.chat import AdaptiveLimiter


async def test_slots_are_granted_up_to_the_cap_in_the_order_of_requests():
    limiter, order, most = AdaptiveLimiter(3), [], 0

    async def call(number):
        nonlocal most
        async with limiter.slot():
            order.append(number)
            most = max(most, limiter._in_flight)
            await asyncio.sleep(0)
            limiter.served()

    await asyncio.gather(*(call(number) for number in range(50)))
    assert order == list(range(50))
    assert (most, limiter._in_flight, limiter.limit) == (3, 0, 3)
    with pytest.raises(ValueError, match="at least 1"):
        AdaptiveLimiter(0)


async def test_one_round_trip_halves_the_limit_once_and_served_calls_restore_it():
    limiter = AdaptiveLimiter(16)
    first = [limiter.slot() for _ in range(16)]
    rounds = [await slot.__aenter__() for slot in first]
    for slot, started in zip(first, rounds, strict=True):
        limiter.pushed_back(started)
        await slot.__aexit__(None, None, None)
    assert limiter.limit == 8
    for expected in (4, 2, 1, 1):
        async with limiter.slot() as later:
            limiter.pushed_back(later)
        assert limiter.limit == expected
    calls = 0
    while limiter.limit < 16:
        async with limiter.slot():
            limiter.served()
        calls += 1
    assert sum(range(1, 16)) <= calls <= 250  # additive: about `limit` calls for each step
    async with limiter.slot():
        limiter.served()
    assert limiter.limit == 16


@given(st.lists(st.sampled_from(["enter", "leave", "push", "serve", "cancel"]), max_size=60))
def test_the_count_is_always_right_and_within_the_cap_and_a_lowered_limit(steps):
    async def play():
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
            before = len(held)
            for _ in range(3):
                await asyncio.sleep(0)
            held += [(slot, task) for slot, task in waiting if task.done() and not task.cancelled()]
            waiting = [(slot, task) for slot, task in waiting if not task.done()]
            assert limiter._in_flight == len(held) <= 3
            assert 1 <= limiter.limit <= 3
            assert len(held) <= max(before, limiter.limit)
            assert not waiting or len(held) >= limiter.limit
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)

    asyncio.run(play())
