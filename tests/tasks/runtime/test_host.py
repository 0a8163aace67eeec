from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import replace

import pytest

from tests.support.agents.steps import context, settings
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.stores.errors import PackError
from tfgrpo.tasks.runtime.host import RuntimeHost, call_blocking, close_runtime, endpoint_for, run_on_runtime, runtime_for
from tfgrpo.tasks.runtime.runtime import Runtime


def read_fixed_key(_):
    return "sk-test-123456"


@pytest.fixture
def run(tmp_path):
    made = context(tmp_path)
    yield made
    close_runtime(made)


def test_a_context_travels_to_other_processes_without_a_secret(tmp_path):
    made = context(tmp_path)
    assert pickle.loads(pickle.dumps(made)) == made
    assert made.models.simulated
    assert b"sk-test" not in pickle.dumps(made)


def test_the_key_is_read_in_the_process_that_uses_it(tmp_path):
    models = choose_models(settings(model={"name": "m", "base_url": "http://localhost:1/v1"}))
    made = replace(context(tmp_path), models=models, read_secret=read_fixed_key)
    assert not made.models.simulated
    assert endpoint_for(made).api_key.reveal() == "sk-test-123456"
    assert endpoint_for(context(tmp_path)).api_key is None


def test_a_process_opens_one_runtime_per_run(run, tmp_path):
    seen = [call_blocking(run, _identity) for _ in range(3)]
    assert len({identity for identity, _ in seen}) == 1
    assert {thread for _, thread in seen} == {"tfgrpo-runtime"}
    assert runtime_for(run) is runtime_for(context(tmp_path))
    assert asyncio.run(run_on_runtime(run, _identity)) == seen[0]


async def _identity(made: Runtime):
    return id(made), threading.current_thread().name


async def test_cancelling_the_caller_cancels_the_work(run):
    cancelled = threading.Event()
    started = threading.Event()

    async def wait(_):
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    task = asyncio.create_task(run_on_runtime(run, wait))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cancelled.wait, 10)


def test_closing_cancels_all_work_and_may_be_repeated(tmp_path):
    made, before = context(tmp_path), {*threading.enumerate()}  # another test may have a runtime of its own open
    started = threading.Event()

    async def wait(_):
        started.set()
        await asyncio.sleep(60)

    future = runtime_for(made).submit(wait)
    assert started.wait(10)
    close_runtime(made)
    close_runtime(made)
    assert future.cancelled()
    assert not any(thread.name == "tfgrpo-runtime" for thread in {*threading.enumerate()} - before)


def test_every_caller_gets_the_error_of_a_failed_opening(tmp_path):
    made = context(tmp_path, pack_id="no-such-pack")
    try:
        for _ in range(2):
            with pytest.raises(PackError):
                call_blocking(made, _identity)
    finally:
        close_runtime(made)


def test_halting_ends_all_work_and_leaves_the_runtime_open(tmp_path):
    began, ended = threading.Event(), []

    async def opened(_context):
        return object()

    async def endless(_runtime):
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def quick(_runtime):
        return "still open"

    host = RuntimeHost(context(tmp_path), opened)
    try:
        host.submit(endless)
        assert began.wait(10)
        host.halt()
        assert ended == [True]
        assert host.submit(quick).result(10) == "still open"
    finally:
        host.close()
