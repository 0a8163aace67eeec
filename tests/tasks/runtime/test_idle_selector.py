"""Waiting for an idle event loop: until a busy one is idle, never for one that is."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tfgrpo.tasks.runtime.host import IdleSelector


class Loop:
    """A loop in a thread of its own, which is kept busy until told otherwise."""

    def __init__(self):
        self.selector = IdleSelector()
        self.loop = asyncio.SelectorEventLoop(self.selector)
        self.busy = False
        self.turns = 0
        self.turned = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def keep_busy(self):
        self.busy = True
        self.loop.call_soon_threadsafe(self._again)
        self.see_turns()

    def see_turns(self, count=1):
        """Wait until it has turned so often from now on."""
        self.turned.clear()
        self.turns = -count
        assert self.turned.wait(30.0)

    def _again(self):
        self.turns += 1
        if self.turns >= 0:
            self.turned.set()
        if self.busy:
            self.loop.call_soon(self._again)

    def close(self):
        self.busy = False
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def other():
    made = Loop()
    yield made
    made.close()


async def test_an_idle_loop_is_not_waited_for(other):
    await asyncio.wait_for(other.selector.wait_idle(max_wait_s=60.0), 30.0)


async def test_a_busy_loop_is_waited_for_until_it_is_idle(other):
    other.keep_busy()
    waiting = [asyncio.create_task(other.selector.wait_idle(max_wait_s=60.0)) for _ in range(3)]
    await asyncio.to_thread(other.see_turns, 1_000)
    assert not any(task.done() for task in waiting)
    other.busy = False
    await asyncio.wait_for(asyncio.gather(*waiting), 30.0)


async def test_a_loop_that_is_never_idle_is_waited_for_up_to_the_limit(other):
    other.keep_busy()
    await asyncio.wait_for(other.selector.wait_idle(max_wait_s=0.01), 30.0)
    assert other.busy


async def test_every_waiter_is_woken_however_short_the_idle_times(other):
    async def poke():
        for _ in range(500):
            other.loop.call_soon_threadsafe(int)
            await asyncio.sleep(0)

    async def ask():
        for _ in range(500):
            await other.selector.wait_idle(max_wait_s=60.0)

    await asyncio.wait_for(asyncio.gather(poke(), ask(), ask()), 50.0)


def test_a_waiter_whose_loop_is_closed_is_ignored(other):
    other.keep_busy()

    async def gives_up():
        await other.selector.wait_idle(max_wait_s=0.01)

    asyncio.run(gives_up())  # its loop is closed when the other comes to rest
    other.busy = False
    asyncio.run(asyncio.wait_for(other.selector.wait_idle(max_wait_s=60.0), 30.0))
    assert other.thread.is_alive()


def test_timers_and_sockets_work_as_with_the_default_selector():
    async def both():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            said = await asyncio.wait_for(reader.read(), 30.0)
            writer.close()
        await asyncio.sleep(0.01)
        return said

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(IdleSelector())) as runner:
        assert runner.run(both()) == b""
