from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from typing import Any

import pytest

from tests.support.agents import steps as kit
from tfgrpo.tasks.runtime.host import watch_loop
from tfgrpo.tasks.runtime.runtime import Runtime


class Served:
    """A loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def served() -> Any:
    made = Served()
    yield made
    made.close()


def watch(served: Served, blocked_s: float = 0.05) -> tuple[threading.Event, threading.Thread]:
    stopped = threading.Event()
    watched = (served.loop, served.thread.ident or 0, stopped, blocked_s)
    thread = threading.Thread(target=watch_loop, args=watched, daemon=True)
    thread.start()
    return stopped, thread


def until(said: Any) -> None:
    for _ in range(200):
        if said():
            return
        time.sleep(0.01)
    pytest.fail("it never happened")


def test_a_blockage_is_logged_once_with_its_location(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tfgrpo.runtime")
    released = threading.Event()
    stopped, watching = watch(served)
    served.loop.call_soon_threadsafe(released.wait, 10)
    until(lambda: caplog.records)
    time.sleep(0.2)
    released.set()
    stopped.set()
    watching.join(5)
    assert len(caplog.records) == 1
    assert "blocked for 0.05 s at " in caplog.text
    assert re.search(r"threading\.py:\d+ in wait", caplog.text)


def test_a_moving_loop_is_not_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    stopped, watching = watch(served, 0.02)
    time.sleep(0.2)
    stopped.set()
    watching.join(5)
    assert not caplog.records


def test_closing_the_loop_ends_its_watch() -> None:
    served = Served()
    _, watching = watch(served)
    served.close()
    watching.join(5)
    assert not watching.is_alive()


async def test_a_stop_iteration_of_a_blocking_function_is_a_failure_not_a_hang(tmp_path: Any) -> None:
    runtime: Runtime = kit.runtime(lambda request, key: "7", tmp_path)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(runtime.in_thread(lambda: next(iter(()))), 5)
