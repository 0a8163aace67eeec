from __future__ import annotations

import asyncio
import logging
import re
import threading
import time

import pytest

from tests.support.agents import steps as kit
from tfgrpo.tasks.runtime.host import watch_loop
from tfgrpo.tasks.runtime.runtime import Runtime


def test_a_blockage_is_logged_once_with_its_location_and_closing_the_loop_ends_its_watch(caplog):
    caplog.set_level(logging.WARNING, "tfgrpo.runtime")
    loop = asyncio.new_event_loop()
    serving = threading.Thread(target=loop.run_forever, daemon=True)
    serving.start()
    watched = (loop, serving.ident or 0, threading.Event(), 0.05)
    watching = threading.Thread(target=watch_loop, args=watched, daemon=True)
    watching.start()
    time.sleep(0.3)
    assert not caplog.records, "it moves"
    released = threading.Event()
    loop.call_soon_threadsafe(released.wait, 10)
    for _ in range(500):
        time.sleep(0.01)
        if caplog.records:
            break
    time.sleep(0.2)
    released.set()
    loop.call_soon_threadsafe(loop.stop)
    serving.join()
    loop.close()
    watching.join(5)
    assert not watching.is_alive()
    assert len(caplog.records) == 1
    assert re.search(r"blocked for 0.05 s at \S*threading\.py:\d+ in wait", caplog.text)


async def test_a_stop_iteration_of_a_blocking_function_is_a_failure_not_a_hang(tmp_path):
    runtime: Runtime = kit.runtime(lambda request, key: "7", tmp_path)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(runtime.in_thread(lambda: next(iter(()))), 5)
