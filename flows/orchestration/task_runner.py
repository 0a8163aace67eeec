"""A task runner for groups: one event loop in a separate thread.

Prefect's thread runner starts an event loop and an API client for every asynchronous task; each client reads the whole
CA bundle, about 50 ms of CPU a task even for a local plain-HTTP API. Here one loop and one API client serve every task
of a flow run, which costs about 4 ms a task. The runner does not know of groups or models.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from prefect.client.schemas.objects import RunInput
from prefect.context import AsyncClientContext
from prefect.futures import PrefectConcurrentFuture, PrefectFuture, PrefectWrappedFuture
from prefect.task_engine import run_task_async
from prefect.task_runners import TaskRunner

if TYPE_CHECKING:
    from prefect.tasks import Task

_TASK_RUNS: Final = logging.getLogger("prefect.task_runs")
_BEGUN: contextvars.ContextVar[ExitStack | None] = contextvars.ContextVar("tfgrpo-begun", default=None)


def begun() -> None:
    """Called by a task when its work starts; see ``EventLoopTaskRunner``. No effect under other runners."""
    leave = _BEGUN.get()
    if leave is not None:
        leave.close()


class TaskRunFuture(PrefectWrappedFuture[Any, concurrent.futures.Future[Any]]):
    """The future of one task run.

    Prefect's own is in the callbacks of the future that it wraps: a cycle, so that what a task returned would stay in
    memory until the garbage collector looks at everything.
    """

    def add_done_callback(self, fn: Callable[[PrefectFuture[Any]], None]) -> None:
        """Call ``fn`` with this future when the task run has ended."""
        held = [self]
        self.wrapped_future.add_done_callback(lambda _: fn(held.pop()))

    wait = PrefectConcurrentFuture.wait
    result = PrefectConcurrentFuture.result


class EventLoopTaskRunner(TaskRunner[TaskRunFuture]):
    """Runs asynchronous tasks as coroutines of one event loop in one thread.

    Only asynchronous tasks are accepted (``TypeError`` otherwise): a blocking one would stop all the others.
    Task runs start one after another: what Prefect does to start one, some milliseconds of CPU, then happens while those
    before it wait for their models, and not for a whole batch before the first call leaves. A task that calls ``begun``
    lets the next one start; one that does not lets it start when it ends.

    ``at_once``: most task runs that have begun and not ended. Those that wait cost next to no memory.
    """

    def __init__(self, at_once: int = 64) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._at_once = at_once
        self._thread: threading.Thread | None = None
        self._ready: concurrent.futures.Future[_Served] | None = None

    def duplicate(self) -> Self:
        """A fresh runner; Prefect makes one for every flow run."""
        return type(self)(self._at_once)

    # Prefect declares three overloads for typed futures; this runner's futures carry states of any task.
    def submit(
        self,
        task: Task[..., Any],
        parameters: dict[str, Any],
        wait_for: Iterable[PrefectFuture[Any]] | None = None,
        dependencies: dict[str, set[RunInput]] | None = None,
    ) -> TaskRunFuture:
        """Start one task run on the loop and return its future at once."""
        if self._ready is None:
            raise RuntimeError("the task runner is not started")
        if not task.isasync:
            raise TypeError(f"task {task.name!r} is not asynchronous")
        served = self._ready.result()
        task_run_id = uuid4()
        run = partial(
            run_task_async,
            task=task,
            task_run_id=task_run_id,
            parameters=parameters,
            wait_for=wait_for,
            return_type="state",
            dependencies=dependencies,
        )
        future = served.context.copy().run(asyncio.run_coroutine_threadsafe, served.in_turn(run), served.loop)
        return TaskRunFuture(task_run_id, future)

    def cancel_all(self) -> None:
        """Cancel the task runs that have not ended and wait until they have; the runner stays usable."""
        served = self._serving()
        if served is not None:
            asyncio.run_coroutine_threadsafe(served.cancel(), served.loop).result()

    def __enter__(self) -> Self:
        """Start the thread, which takes the flow run that this is called in for that of its tasks. Returns at once."""
        super().__enter__()
        self._ready = concurrent.futures.Future()
        context = contextvars.copy_context()
        serve = partial(context.run, asyncio.run, _serve(self._ready, self._at_once))
        self._thread = threading.Thread(target=serve, name="tfgrpo-groups", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        served = self._serving()
        if served is not None:
            served.loop.call_soon_threadsafe(served.closing.set)
        if self._thread is not None:
            self._thread.join()
        self._thread, self._ready = None, None
        super().__exit__(exc_type, exc_value, traceback)

    def _serving(self) -> _Served | None:
        """The loop, once it runs; None where it was not started or could not be."""
        if self._ready is None or self._ready.exception() is not None:
            return None
        return self._ready.result()


class _Served:
    """A running loop, and the task runs on it. Belongs to the loop's thread."""

    def __init__(self, at_once: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        """Context with the flow run and the one API client; every task run starts in it."""
        self.closing = asyncio.Event()
        self._running: set[asyncio.Task[Any]] = set()
        self._door = asyncio.Semaphore(1)
        self._room = asyncio.Semaphore(at_once)

    async def in_turn(self, run: Callable[[], Coroutine[Any, Any, Any]]) -> object:
        """Do a task run when those before it have begun, and there is room for it."""
        if (task := asyncio.current_task()) is not None:  # None only outside of a loop
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        async with self._room:
            await self._door.acquire()
            with ExitStack() as leave:
                leave.callback(self._door.release)  # once: when the task says that it has begun, or else at its end
                _BEGUN.set(leave)
                return await run()

    async def cancel(self) -> None:
        running = tuple(self._running)
        level = _TASK_RUNS.level
        # Prefect logs each as a crash. Whoever cancels knows, and the run reports its own end.
        _TASK_RUNS.setLevel(logging.CRITICAL)
        try:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        finally:
            _TASK_RUNS.setLevel(level)


async def _serve(ready: concurrent.futures.Future[_Served], at_once: int) -> None:
    try:
        async with AsyncClientContext.get_or_create():
            served = _Served(at_once)
            ready.set_result(served)
            await served.closing.wait()
            await served.cancel()
    except BaseException as error:  # whatever it is: ``submit`` waits for it
        if ready.done():
            raise
        ready.set_exception(error)
