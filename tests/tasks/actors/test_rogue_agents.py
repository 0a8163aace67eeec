"""What user code may do without harm to the run: leave, interrupt, cancel itself, swallow cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.agents import rogues
from tests.support.agents import steps as kit
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, RecordRejected, StoreError
from tfgrpo.tasks.actors.callable import CallableActor
from tfgrpo.tasks.models.endpoint import ApiKey, scrubber
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.runtime.host import RuntimeHost
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.shapes import Frame, Trajectory

SECRET = "sk-test-0123456789abcdef"


def context(tmp_path: Any) -> RunContext:
    return kit.runtime(lambda request, key: "7", tmp_path).context


async def outcome(function: Any, tmp_path: Any, **limits: Any) -> Any:
    runtime = kit.runtime(lambda request, key: "7", tmp_path, actor=CallableActor(function), limits=limits)
    return await asyncio.wait_for(run_rollout(kit.spec(), 0, runtime), 10)


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    rogues.RELEASED.clear()
    rogues.SWALLOWED.clear()
    yield
    rogues.RELEASED.set()


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (rogues.exits_the_process, "SystemExit: 3"),
        (rogues.exits_from_a_thread, "SystemExit: 3"),
        (rogues.interrupts, "KeyboardInterrupt"),
        (rogues.cancels_itself, "CancelledError"),
        (rogues.raises_what_cannot_be_shown, "NoText"),
        (rogues.leaves_when_shown, "LeavesWhenShown"),
        (rogues.closes_itself, "GeneratorExit"),
        (rogues.closes_itself_in_a_thread, "GeneratorExit"),
        (rogues.closes_itself_from_a_task, "GeneratorExit"),
        (rogues.fails_in_a_task_group, "ValueError: too long"),
    ],
)
async def test_an_agent_that_leaves_or_cancels_itself_fails_alone(tmp_path: Any, agent: Any, said: str) -> None:
    rollout = await outcome(agent, tmp_path)
    assert rollout.loss is not None
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", "ActorError")
    assert said in rollout.loss.reason
    assert len(rollout.loss.reason) < 20_000


@pytest.mark.parametrize(
    "error",
    [RecordRejected("NaN is no JSON"), StoreError("its disk"), ModelAuthRefused("401"), BudgetRefused("its own")],
)
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_store_or_an_endpoint_of_an_agents_own_ends_its_attempt_and_not_the_run(
    tmp_path: Any, error: Exception, blocking: bool
) -> None:
    async def later(prompt: str) -> str:
        raise error

    def at_once(prompt: str) -> str:
        raise error

    rollout = await outcome(at_once if blocking else later, tmp_path)
    assert rollout.fatal is None
    assert rollout.loss is not None
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", "ActorError")
    assert rollout.loss.reason == f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("collect", [tuple, list, iter])
async def test_a_key_in_the_frames_of_an_agent_is_recorded_nowhere(tmp_path: Any, collect: Any) -> None:
    def agent(prompt: str) -> Trajectory:
        return Trajectory("7", collect([Frame("model", SECRET, SECRET, 1, None, 1.0, SECRET)]))

    runtime = kit.runtime(lambda request, key: "7", tmp_path, actor=CallableActor(agent))
    rollout = await run_rollout(kit.spec(), 0, replace(runtime, scrub=scrubber(ApiKey(SECRET))))
    assert rollout.frames == (Frame("model", "***", "***", 1, None, 1.0, "***"),)
    assert SECRET not in (tmp_path / "journal.jsonl").read_text("utf-8")


@pytest.mark.parametrize(
    "returned",
    [
        Trajectory(None, ()),  # type: ignore[arg-type]
        Trajectory(7, ()),  # type: ignore[arg-type]
        Trajectory("7", (Frame("model", "m", None, 1, None, 1.0),)),  # type: ignore[arg-type]
        Trajectory("7", ({"text": "7"},)),  # type: ignore[arg-type]
    ],
    ids=["nothing", "number", "frame", "mapping"],
)
async def test_a_trajectory_that_cannot_be_recorded_is_a_failure_of_its_rollout(tmp_path: Any, returned: Any) -> None:
    def agent(prompt: str) -> Trajectory:
        return returned  # type: ignore[no-any-return]

    rollout = await outcome(agent, tmp_path)
    assert rollout.loss is not None
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", "ActorError")


async def test_messages_that_can_be_read_only_once_are_all_sent(tmp_path: Any) -> None:
    async def agent(prompt: str, chat: Any) -> str:
        text: str = await chat({"role": "user", "content": word} for word in ("a", "b"))
        return text

    def echo(request: Any, key: Any) -> str:
        return "".join(message.content for message in request.messages[1:])

    runtime = kit.runtime(echo, tmp_path, actor=CallableActor(agent))
    assert (await run_rollout(kit.spec(), 0, runtime)).output == "ab"


async def test_an_agent_that_swallows_its_cancellation_is_given_up_on_at_its_time_limit(tmp_path: Any) -> None:
    rollout = await outcome(rogues.swallows_cancellation, tmp_path, timeout_s=0.1)
    assert rollout.loss is not None
    assert rollout.loss.error_type == "ModelTimeout"
    assert rogues.SWALLOWED
    rogues.RELEASED.set()


async def test_an_answer_given_after_the_time_limit_is_no_answer(tmp_path: Any) -> None:
    rollout = await outcome(rogues.answers_when_cancelled, tmp_path, timeout_s=0.1)
    assert rollout.loss is not None
    assert rollout.loss.error_type == "ModelTimeout"


async def test_cancelling_a_rollout_ends_it_even_if_its_agent_does_not_care(tmp_path: Any) -> None:
    runtime = kit.runtime(lambda request, key: "7", tmp_path, actor=CallableActor(rogues.swallows_cancellation))
    task = asyncio.ensure_future(run_rollout(kit.spec(), 0, runtime))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert runtime.slots._value == 8
    rogues.RELEASED.set()


def opened(runtime: Any) -> Any:
    async def opener(_: RunContext) -> Any:
        return runtime

    return opener


def test_the_loop_of_a_run_outlives_a_task_that_leaves_the_process(tmp_path: Any) -> None:
    runtime = kit.runtime(lambda request, key: "7", tmp_path, actor=CallableActor(rogues.exits_from_a_task))
    host = RuntimeHost(runtime.context, opened(runtime))
    try:
        rollout = host.submit(lambda it: run_rollout(kit.spec(), 0, it)).result(timeout=10)
        assert rollout.output == "task done: True"
    finally:
        host.close()


def test_closing_a_run_does_not_wait_for_work_that_ignores_its_cancellation(tmp_path: Any) -> None:
    runtime = kit.runtime(lambda request, key: "7", tmp_path)
    host = RuntimeHost(runtime.context, opened(runtime), cancel_wait_s=0.1)
    host.submit(lambda it: rogues.swallows_cancellation(""))
    host.submit(lambda it: asyncio.sleep(0)).result(timeout=10)
    host.halt()
    host.close()
    assert rogues.SWALLOWED
    rogues.RELEASED.set()


@pytest.mark.parametrize("at_once", [True, False], ids=["before it began", "at work"])
def test_closing_a_run_whose_loop_is_blocked_leaves_the_loop_behind(tmp_path: Any, at_once: bool) -> None:
    blocked, released = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        released.wait(20)

    async def blocks() -> None:
        block()

    host = RuntimeHost(kit.runtime(lambda request, key: "7", tmp_path).context, closing_s=0.1)
    if at_once:
        host._loop.call_soon_threadsafe(block)
    host.submit(lambda it: blocks())
    assert blocked.wait(10)
    host.halt()
    host.close()
    released.set()
    host._thread.join(10)
    assert not host._thread.is_alive()
    assert host._loop.is_closed()


def test_an_agent_that_cancels_all_it_finds_does_not_keep_a_run_from_closing(tmp_path: Any) -> None:
    begun, closed = threading.Event(), threading.Event()
    runtime = kit.runtime(lambda request, key: "7", tmp_path)

    async def revenge() -> None:
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            for task in asyncio.all_tasks():
                task.cancel()

    async def opened(context: RunContext) -> Any:
        runtime.resources.callback(closed.set)
        return runtime

    host = RuntimeHost(runtime.context, opened)
    host.submit(lambda it: revenge())
    assert begun.wait(10)
    host.close()
    assert host._loop.is_closed()
    assert closed.is_set()
