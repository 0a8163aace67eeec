"""An event loop in a thread of its own ends when asked, from wherever it is asked."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from tfgrpo.rewarders.graders.running import LoopThread


async def answer() -> int:
    return 42


def test_a_loop_that_has_ended_takes_no_more_work_and_ends_again():
    loop = LoopThread("mine")
    assert loop.start(answer).result(5) == 42
    loop.close()
    assert loop.done()
    with pytest.raises(RuntimeError, match="closed"):
        loop.start(answer)
    loop.close()


def test_work_that_is_left_is_cancelled():
    cancelled = threading.Event()

    async def waits() -> None:
        try:
            await asyncio.sleep(20)
        finally:
            cancelled.set()

    loop = LoopThread("mine")
    future = loop.start(waits)
    time.sleep(0.05)
    loop.close()
    assert cancelled.is_set()
    assert future.cancelled()


def test_a_loop_may_be_closed_from_its_own_thread():
    loop = LoopThread("mine")

    async def close() -> None:
        loop.close()

    loop.start(close)
    until = time.monotonic() + 5
    while not loop.done():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("in_a_thread", [False, True])
def test_a_loop_ends_whatever_its_work_does(in_a_thread):
    released = threading.Event()

    async def refuses() -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await (asyncio.to_thread(released.wait, 30) if in_a_thread else asyncio.sleep(0.05))

    loop = LoopThread("mine")
    loop.start(refuses)
    time.sleep(0.05)
    loop.close()
    ended = loop.done()
    released.set()
    assert ended
