"""A runtime is assembled, shared and watched, and all that was opened for a run is closed again."""

import asyncio
import logging
import pickle
import re
import threading
import time
from dataclasses import dataclass, replace

import pytest

from tests.support.agents import agents
from tests.support.agents import steps as kit
from tests.support.agents.steps import context, lessons, reply, runtime, settings, spec, weighted
from tests.support.records.watched import Watched
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import ModelServerFault, PackError, StoreError
from tfgrpo.stores.ledger import Ledger
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.runs import Journal
from tfgrpo.tasks.actors.registry import ToolActor
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.models.base import ToolCall
from tfgrpo.tasks.runtime import host
from tfgrpo.tasks.runtime.host import (
    RuntimeHost,
    call_blocking,
    close_runtime,
    endpoint_for,
    open_runtime,
    run_on_runtime,
    runtime_for,
    watch_loop,
)
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.tools.schema import tool_from_function


def read_fixed_key(_):
    return "sk-test-123456"


@pytest.fixture
def run(tmp_path):
    made = context(tmp_path)
    yield made
    close_runtime(made)


def test_a_context_travels_to_the_process_that_uses_the_key_without_it(tmp_path):
    models = choose_models(settings(model={"name": "m", "base_url": "http://localhost:1/v1"}))
    made = replace(context(tmp_path), models=models, read_secret=read_fixed_key)
    assert not made.models.simulated
    assert pickle.loads(pickle.dumps(made)) == made
    assert b"sk-test" not in pickle.dumps(made)
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


@pytest.fixture
def shut(monkeypatch):
    """What was closed, in order; each part is really closed, and says no afterwards."""
    order = []

    def watch(part, name):
        close = getattr(part, name)

        def breaking(self):
            close(self)
            order.append(part)
            raise StoreError(f"the disk refuses {part.__name__}")

        monkeypatch.setattr(part, name, breaking)

    watch(RewarderThreads, "shutdown")
    watch(Ledger, "close")
    watch(Journal, "close")
    return order


async def test_a_resource_that_fails_to_close_leaves_no_other_open(tmp_path, shut):
    runtime = await open_runtime(context(tmp_path))
    with pytest.raises(StoreError, match="refuses Journal"):
        await runtime.aclose()
    assert shut == [RewarderThreads, Ledger, Journal]


async def test_a_failed_opening_closes_the_rest_and_is_the_error_raised(tmp_path, shut):
    with pytest.raises(PackError) as caught:
        await open_runtime(context(tmp_path, pack_id="no-such-pack"))
    assert shut == [RewarderThreads, Ledger, Journal]
    assert caught.value.__notes__ == ["closing the opened resources failed too: StoreError: the disk refuses Journal"]


async def test_a_ledger_that_cannot_be_opened_leaves_no_journal_open(tmp_path, shut, monkeypatch):
    def refuse(*_, **__):
        raise StoreError("no ledger")

    monkeypatch.setattr(host, "Ledger", refuse)
    with pytest.raises(StoreError, match="no ledger"):
        await open_runtime(context(tmp_path))
    assert shut == [Journal]


def script(_, key):
    if key.role != "rollout":
        return lessons()
    if key.rollout == 2:
        return ModelServerFault("503")
    if key.turn == 0:
        call = ToolCall("c", "add", '{"left": 1}' if key.rollout else "{oops")
        return reply(None, finish="tool_calls", calls=(call,))
    return f"Answer: {7 + key.rollout}"


def observed(script, tmp_path, **more):
    """A runtime whose spans and metrics stay in memory, and these."""
    watched = Watched()
    return watched, replace(runtime(script, tmp_path, **more), telemetry=watched.telemetry)


@dataclass
class Slow:
    rewarder_id: str = "slow"

    def score(self, context):
        time.sleep(0.2)
        return [RewardScore("slow", 0.5, "half") for _ in context.outputs]


async def test_a_group_is_reported_as_metrics_and_spans_of_attempts_with_their_outcome_and_tools(tmp_path):
    rewarders = (weighted("gt"), weighted(Slow()))
    actor = ToolActor([tool_from_function(agents.add)], max_turns=3)
    watched, made = observed(script, tmp_path, actor=actor, rewarders=rewarders)
    assert (await run_group(spec(3), made)).signal == "mixed"
    told = {span.attributes["tfgrpo.rollout.index"]: span for span in watched.spans("invoke_agent chat")}
    assert [told[index].attributes["tfgrpo.outcome"] for index in range(3)] == ["scored", "scored", "failed"]
    assert (told[0].attributes["tfgrpo.reward"], told[0].attributes["tfgrpo.relative_rank"]) == (0.75, 1.0)
    assert told[2].attributes["error.type"] == "ModelServerFault"
    assert told[2].events == ()
    labels = [event.attributes.get("gen_ai.evaluation.score.label") for event in told[0].events]
    assert labels == ["pass", None]
    for span in told.values():
        assert (span.end_time - span.start_time) / 1e6 == pytest.approx(span.attributes["latency_ms"], abs=100)
    finished = {span.context.span_id: span for span in watched.spans()}
    parents = [(span.name, finished[span.parent.span_id].name if span.parent else None) for span in finished.values()]
    assert ("tfgrpo.group", None) in parents
    assert ("invoke_agent chat", "tfgrpo.group") in parents
    assert parents.count(("execute_tool add", "invoke_agent chat")) == 2
    assert sum(point.count for point in watched.points("tfgrpo.reward")) == 4
    for name, value in (("tool.calls", 2), ("rollouts", 3), ("groups", 1)):
        assert sum(point.value for point in watched.points(f"tfgrpo.{name}")) == value


async def test_cancelling_a_group_during_grading_ends_the_spans_of_its_attempts(tmp_path):
    grading = threading.Event()

    class Begun(Slow):
        def score(self, context):
            grading.set()
            return super().score(context)

    watched, made = observed(lambda *_: "Answer: 7", tmp_path, rewarders=(weighted(Begun()),))
    work = asyncio.ensure_future(run_group(spec(2), made))
    assert await asyncio.to_thread(grading.wait, 30)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    attempts = watched.spans("invoke_agent chat")
    assert len(attempts) == 2
    assert all("tfgrpo.outcome" not in span.attributes for span in attempts)
