"""What user code may do without harm to the run: leave, interrupt, cancel itself, swallow cancellation."""

import asyncio
import gc
import threading
from dataclasses import replace

import pytest

from tests.support.agents import agents, rogues
from tests.support.agents import steps as kit
from tests.support.waiting import eventually
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, RecordRejected, StoreError
from tfgrpo.tasks.actors.own import CallableActor
from tfgrpo.tasks.models.endpoint import ApiKey, scrubber
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.runtime.host import RuntimeHost
from tfgrpo.tasks.shapes import Frame, Trajectory

SECRET = "sk-test-0123456789abcdef"


def runtime_of(tmp_path, function=None, **limits):
    return kit.runtime(lambda *_: "7", tmp_path, actor=function and CallableActor(function), limits=limits)


async def outcome(function, tmp_path, **limits):
    return await asyncio.wait_for(run_rollout(kit.spec(), 0, runtime_of(tmp_path, function, **limits)), 10)


@pytest.fixture(autouse=True)
def released():
    rogues.RELEASED.clear()
    rogues.SWALLOWED.clear()
    yield
    rogues.RELEASED.set()


OF_ITS_OWN = (RecordRejected("NaN is no JSON"), StoreError("its disk"), ModelAuthRefused("401"), BudgetRefused("its own"))


def fails_with(error, *, blocking):
    async def later(prompt):
        raise error

    def at_once(prompt):
        raise error

    return at_once if blocking else later


@pytest.mark.parametrize(("agent", "said"), [
    (rogues.exits_the_process, "SystemExit: 3"), (rogues.exits_from_a_thread, "SystemExit: 3"),
    (rogues.interrupts, "KeyboardInterrupt"), (rogues.cancels_itself, "CancelledError"),
    (rogues.raises_what_cannot_be_shown, "NoText"), (rogues.leaves_when_shown, "LeavesWhenShown"),
    (rogues.closes_itself, "GeneratorExit"), (rogues.closes_itself_in_a_thread, "GeneratorExit"),
    (rogues.closes_itself_from_a_task, "GeneratorExit"), (rogues.fails_in_a_task_group, "ValueError: too long"),
    (agents.raises, ""), (agents.uses_a_strange_role, "role"), (agents.returns_a_number, "a str or a Trajectory"),
    (lambda prompt: Trajectory(None, ()), "no str"), (lambda prompt: Trajectory(7, ()), "no str"),
    (lambda prompt: Trajectory("7", (Frame("model", "m", None, 1, None, 1.0),)), "no str"),
    (lambda prompt: Trajectory("7", ({"text": "7"},)), ""), (lambda prompt: "7" * (17 << 20), "more than 16 MB"),
    # A store or an endpoint of the agent's own.
    *((fails_with(error, blocking=blocking), f"{type(error).__name__}: {error}")
      for error in OF_ITS_OWN for blocking in (False, True)),
])  # fmt: skip
async def test_whatever_an_agent_does_it_fails_alone(tmp_path, agent, said):
    rollout = await outcome(agent, tmp_path)
    assert rollout.fatal is None
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", "ActorError")
    assert rollout.loss.call_key is not None
    assert said in rollout.loss.reason
    assert len(rollout.loss.reason) < 20_000


@pytest.mark.parametrize("collect", [tuple, list, iter])
async def test_a_key_in_the_frames_of_an_agent_is_recorded_nowhere(tmp_path, collect):
    def agent(prompt: str) -> Trajectory:
        return Trajectory("7", collect([Frame("model", SECRET, SECRET, 1, None, 1.0, SECRET)]))

    rollout = await run_rollout(kit.spec(), 0, replace(runtime_of(tmp_path, agent), scrub=scrubber(ApiKey(SECRET))))
    assert rollout.frames == (Frame("model", "***", "***", 1, None, 1.0, "***"),)
    assert SECRET not in (tmp_path / "journal.jsonl").read_text("utf-8")


async def test_an_actor_that_breaks_its_promise_fails_alone(tmp_path):
    class TimesOut:
        async def attempt(self, attempt):
            raise TimeoutError("its own limit")

    rollout = await kit.attempt(TimesOut(), lambda *_: "7", tmp_path)
    assert rollout.loss.error_type == "ActorError"
    assert "its own limit" in rollout.loss.reason


@pytest.mark.parametrize("agent", [rogues.swallows_cancellation, rogues.answers_when_cancelled])
async def test_an_agent_is_given_up_on_at_its_time_limit_and_an_answer_after_it_is_none(tmp_path, agent):
    rollout = await outcome(agent, tmp_path, timeout_s=0.1)
    assert rollout.loss.error_type == "ModelTimeout"
    assert rogues.SWALLOWED or agent is rogues.answers_when_cancelled
    rogues.RELEASED.set()  # before the loop of the test waits for what it started


async def test_cancelling_a_rollout_ends_it_even_if_its_agent_does_not_care(tmp_path):
    runtime = runtime_of(tmp_path, rogues.swallows_cancellation)
    rogues.BEGUN.clear()
    task = asyncio.ensure_future(run_rollout(kit.spec(), 0, runtime))
    await eventually(rogues.BEGUN.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert runtime.slots._value == 8
    rogues.RELEASED.set()


def opened(runtime):
    async def opener(_):
        return runtime

    return opener


def test_the_loop_of_a_run_outlives_a_task_that_leaves_the_process(tmp_path):
    runtime = runtime_of(tmp_path, rogues.exits_from_a_task)
    host = RuntimeHost(runtime.context, opened(runtime))
    try:
        rollout = host.submit(lambda it: run_rollout(kit.spec(), 0, it)).result(timeout=10)
        assert rollout.output == "task done: True"
    finally:
        host.close()


def test_closing_a_run_does_not_wait_for_work_that_ignores_its_cancellation(tmp_path):
    runtime = runtime_of(tmp_path)
    host = RuntimeHost(runtime.context, opened(runtime), cancel_wait_s=0.1)
    host.submit(lambda it: rogues.swallows_cancellation(""))
    host.submit(lambda it: asyncio.sleep(0)).result(timeout=10)
    host.halt()
    host.close()
    assert rogues.SWALLOWED
    rogues.RELEASED.set()


async def test_an_attempt_that_is_refused_while_its_run_ends_is_not_reported_as_forgotten(tmp_path):
    """A budget stops a sweep: what is abandoned may have been refused in the same turn of the loop."""

    async def refused(prompt):
        work.cancel()
        raise BudgetRefused("max_calls 1 is reached")

    forgotten: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, told: forgotten.append(told["message"]))
    work = asyncio.ensure_future(run_rollout(kit.spec(), 0, runtime_of(tmp_path, refused)))
    with pytest.raises(asyncio.CancelledError):
        await work
    gc.collect()
    await asyncio.sleep(0)
    assert forgotten == []


@pytest.mark.parametrize("at_once", [True, False], ids=["before it began", "at work"])
def test_closing_a_run_whose_loop_is_blocked_leaves_the_loop_behind(tmp_path, at_once):
    blocked, released = threading.Event(), threading.Event()

    def block():
        blocked.set()
        released.wait(20)

    async def blocks():
        block()

    host = RuntimeHost(runtime_of(tmp_path).context, closing_s=0.1)
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


def test_an_agent_that_cancels_all_it_finds_does_not_keep_a_run_from_closing(tmp_path):
    begun, closed = threading.Event(), threading.Event()
    runtime = runtime_of(tmp_path)

    async def revenge():
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            for task in asyncio.all_tasks():
                task.cancel()

    runtime.resources.callback(closed.set)
    host = RuntimeHost(runtime.context, opened(runtime))
    host.submit(lambda it: revenge())
    assert begun.wait(10)
    host.close()
    assert host._loop.is_closed()
    assert closed.is_set()
