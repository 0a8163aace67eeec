"""Where do group tasks run? On one event loop of a thread of their own, or on Dask or Ray.

Prefect's thread runner starts an event loop and an API client for every asynchronous task; each client reads the whole
CA bundle, about 50 ms of CPU a task even for a local plain-HTTP API. Here one loop and one API client serve every task
of a flow run, which costs about 4 ms a task. The runner knows nothing of groups or models.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import importlib
import threading
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias
from uuid import uuid4

from prefect.client.schemas.objects import RunInput
from prefect.context import AsyncClientContext
from prefect.futures import PrefectConcurrentFuture, PrefectFuture
from prefect.task_engine import run_task_async
from prefect.task_runners import TaskRunner

from stores.errors import SettingsError

if TYPE_CHECKING:
    from prefect.tasks import Task

_Job: TypeAlias = tuple[concurrent.futures.Future[Any], Coroutine[Any, Any, Any]]
RunnerName: TypeAlias = Literal["threads", "dask", "ray"]


class EventLoopTaskRunner(TaskRunner[PrefectConcurrentFuture[Any]]):
    """Runs asynchronous tasks as coroutines of one event loop in one thread.

    Only asynchronous tasks are accepted (``TypeError`` otherwise): a blocking one would stop all the others.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()

    def duplicate(self) -> Self:
        """A fresh runner; Prefect makes one for every flow run."""
        return type(self)()

    # Prefect declares three overloads for typed futures; this runner's futures carry states of any task.
    def submit(
        self,
        task: Task[..., Any],
        parameters: dict[str, Any],
        wait_for: Iterable[PrefectFuture[Any]] | None = None,
        dependencies: dict[str, set[RunInput]] | None = None,
    ) -> PrefectConcurrentFuture[Any]:
        """Start one task run on the loop and return its future at once."""
        if not self._started:
            raise RuntimeError("the task runner is not started")
        if not task.isasync:
            raise TypeError(f"task {task.name!r} is not asynchronous")
        loop = self._running_loop()
        task_run_id = uuid4()
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        run = run_task_async(
            task=task,
            task_run_id=task_run_id,
            parameters=parameters,
            wait_for=wait_for,
            return_type="state",
            dependencies=dependencies,
        )
        loop.call_soon_threadsafe(self._jobs.put_nowait, (future, run))
        return PrefectConcurrentFuture(task_run_id=task_run_id, wrapped_future=future)

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._jobs.put_nowait, None)
            self._thread.join()
            self._thread, self._loop = None, None
        super().__exit__(exc_type, exc_value, traceback)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Start the thread at the first submission: only then is the flow run in the context that tasks inherit."""
        if self._loop is None:
            ready = threading.Event()
            context = contextvars.copy_context()
            self._thread = threading.Thread(
                target=context.run, args=(asyncio.run, self._serve(ready)), name="tfgrpo-groups", daemon=True
            )
            self._thread.start()
            ready.wait()
        if self._loop is None:
            raise RuntimeError("the event loop of the task runner did not start")
        return self._loop

    async def _serve(self, ready: threading.Event) -> None:
        try:
            async with AsyncClientContext.get_or_create():
                self._loop = asyncio.get_running_loop()
                ready.set()
                await self._accept_until_closed()
        finally:
            ready.set()

    async def _accept_until_closed(self) -> None:
        running: set[asyncio.Task[Any]] = set()
        while (job := await self._jobs.get()) is not None:
            future, run = job
            running.add(task := asyncio.create_task(_settle(future, run)))
            task.add_done_callback(running.discard)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _settle(future: concurrent.futures.Future[Any], run: Coroutine[Any, Any, Any]) -> None:
    try:
        future.set_result(await run)
    except asyncio.CancelledError:
        future.cancel()
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future, as executors do
        future.set_exception(error)


_EXTRAS = {"dask": ("prefect_dask", "DaskTaskRunner"), "ray": ("prefect_ray", "RayTaskRunner")}


def task_runner_for(name: RunnerName) -> TaskRunner[Any]:
    """The runner a setting names. Raises ``SettingsError`` when its extra is not installed."""
    if name == "threads":
        return EventLoopTaskRunner()
    module_name, class_name = _EXTRAS[name]
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SettingsError.one(
            "--task-runner", name, f"threads, or {name} after `pip install 'tfgrpo[{name}]'` ({error})"
        ) from error
    runner: TaskRunner[Any] = getattr(module, class_name)()
    return runner
