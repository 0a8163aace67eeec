"""Open the runtime of a run once in each process, on a separate event loop, for callers on any thread or loop.

All groups of a process share that loop, and with it one connection pool; Prefect's own loops come and go. The table of
open hosts is module state, because a worker process has no other object that survives from one task to the next. Bad settings
were refused by the plan; files and modules that changed since raise the same errors here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import random
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tfgrpo.pipelines.plan.plan import close_scorers, scorers_of
from tfgrpo.pipelines.settings.tree import ModelRole, ModelSettings
from tfgrpo.prompt_packs.stamps import load_prompt_pack
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.threads import CANCEL_WAIT_S, RewarderThreads, cancel_all
from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.stores.runs import Journal
from tfgrpo.stores.telemetry.setup import configure
from tfgrpo.tasks.actors.registry import ToolActor, build_actor, listed_tools
from tfgrpo.tasks.models.chat import ChatClient, JournaledModel, RoleModels
from tfgrpo.tasks.models.endpoint import Endpoint, endpoint_of, scrubber
from tfgrpo.tasks.models.retry import Outages, RetryPolicy
from tfgrpo.tasks.models.transport import open_transport
from tfgrpo.tasks.runtime.runtime import Gateway, RunContext, Runtime

_T = TypeVar("_T")
_LOG: Final = logging.getLogger("tfgrpo.runtime")
BLOCKED_S: Final = 10.0
# Seconds for closing. A loop that a user's code blocks would otherwise keep the process alive for ever.
_CLOSING_S: Final = 30.0
# Never resolved: the application is called in process.
_SIMULATED_URL: Final = "http://simulated.invalid/v1"


async def open_runtime(context: RunContext, *, journaled: bool = True) -> Runtime:
    """Build the runtime on the running event loop. Without a journal the run cannot be resumed or replayed."""
    resources = AsyncExitStack()
    try:
        return await _opened(context, resources, journaled=journaled)
    except BaseException as error:
        try:
            await resources.aclose()
        except BaseException as second:  # noqa: BLE001 - a note on the error that is raised
            error.add_note(f"closing the opened resources failed too: {type(second).__name__}: {second}")
        raise


async def _opened(context: RunContext, resources: AsyncExitStack, *, journaled: bool) -> Runtime:
    settings = context.settings
    telemetry = configure(context.telemetry, os.environ)
    journal_path = context.replay_from or context.paths.journal
    journal = Journal(journal_path, repair=context.replay_from is None) if journaled else None
    if journal is not None:
        resources.callback(journal.close)
    caps, task_ledger = settings.budget, None
    if context.task_ledger_path is not None:
        task_ledger = Ledger(Budget(max_usd=caps.task_max_usd, scope="task_"), shared=context.task_ledger_path)
    budget = Budget(max_usd=caps.max_usd, max_tokens=caps.max_tokens, max_calls=caps.max_calls)
    ledger = Ledger(budget, shared=context.ledger_path, within=task_ledger)
    if journal is not None:
        ledger.follow(lambda: journal.added)
    resources.callback(ledger.close)
    threads = RewarderThreads(settings.tfgrpo.concurrency)
    resources.callback(threads.shutdown)
    outages = Outages()
    clients = {} if context.replay else await open_clients(context, ledger, ends=journaled, outages=outages)
    for client in clients.values():
        resources.push_async_callback(client.aclose)
    rewarders = scorers_of(settings)
    runner = ScoreRunner()
    resources.callback(runner.close)
    resources.push_async_callback(close_scorers, [each.scorer for each in rewarders])
    runner.warm(each.scorer for each in rewarders)
    listed = context.mcp_tools
    if listed is None:  # no plan listed them
        listed = await asyncio.to_thread(listed_tools, settings.actor)
    actor = build_actor(settings.actor, listed=listed)
    if isinstance(actor, ToolActor):
        resources.push_async_callback(actor.aclose)
    models = {
        role: JournaledModel(clients.get(role), journal, telemetry, wire=chosen, provider=context.models.provider(role))
        for role, chosen in context.models.roles.items()
    }
    return Runtime(
        context=context,
        model=RoleModels(models),
        actor=actor,
        rewarders=rewarders,
        scorers=runner,
        pack=load_prompt_pack(context.pack_id, context.packs_root, settings.tfgrpo.experience_max_words),
        journal=journal,
        ledger=ledger,
        slots=asyncio.Semaphore(settings.tfgrpo.concurrency),
        threads=threads,
        gateway=Gateway(clients.get("actor")),
        scrub=scrubber(*(client.endpoint for client in clients.values())),
        outages=outages,
        telemetry=telemetry,
        resources=resources,
    )


async def open_clients(
    context: RunContext, ledger: Ledger, *, ends: bool = False, outages: Outages | None = None
) -> dict[ModelRole, ChatClient]:
    """Return the client of each role. Those of one address share connections and limits; ``ends`` as ``ChatClient`` has it."""
    settings, concurrency = context.settings, context.settings.tfgrpo.concurrency
    app: Callable[..., Any] | None = None
    if context.models.in_process:
        from tfgrpo.tasks.models.simulated import simulated_app  # noqa: PLC0415 - 50 ms, for no real endpoint

        app = simulated_app(settings.simulated)
    clients: dict[ModelRole, ChatClient] = {}
    for role, chosen in context.models.roles.items():
        earlier = [(context.models.roles[each], client) for each, client in clients.items()]
        near = next((client for other, client in earlier if other.base_url == chosen.base_url), None)
        client = next((client for other, client in earlier if _wire(other) == _wire(chosen)), None)
        if client is None:
            # In a thread: fetching a Secret block runs a separate event loop.
            endpoint = await asyncio.to_thread(endpoint_for, context, role)
            retry = RetryPolicy(max_retries=chosen.max_retries, unavailable_s=chosen.wait_s)
            if near is not None:
                client = near.sharing(endpoint, retry)
            else:
                client = ChatClient(
                    endpoint,
                    open_transport(concurrency=concurrency, app=app),
                    concurrency=concurrency,
                    run=context.unique_name,
                    ends=ends,
                    outages=outages or Outages(),
                    ledger=ledger,
                    # A model without a price has an unknown cost; the simulated one has an invented price.
                    prices=context.models.price_list(role),
                    retry=retry,
                    # For jitter only: no result depends on it, and processes must not draw the same.
                    rng=random.Random(f"{settings.tfgrpo.seed}:{os.getpid()}"),
                )
        clients[role] = client
    return clients


def _wire(settings: ModelSettings) -> ModelSettings:
    return settings.model_copy(update={"name": None, "max_tokens": 1})


def endpoint_for(context: RunContext, role: ModelRole = "actor") -> Endpoint:
    """Return the endpoint of a role's calls, with its key, which is read in the process that uses it."""
    chosen = context.models.roles[role]
    if chosen.base_url is None:
        return endpoint_of(chosen, _SIMULATED_URL, None)
    return endpoint_of(chosen, chosen.base_url, context.read_secret(chosen))


def watch_loop(loop: asyncio.AbstractEventLoop, thread_id: int, stopped: threading.Event, blocked_s: float = BLOCKED_S) -> None:
    """Log each blockage of a loop once, with the line that blocks, until ``stopped`` is set or the loop closes."""
    # Nobody can interrupt what blocks, and no rollout of the process goes on meanwhile, time limits included.
    while not stopped.wait(blocked_s):
        moved = threading.Event()
        try:
            loop.call_soon_threadsafe(moved.set)
        except RuntimeError:  # the loop is closed
            return
        if moved.wait(blocked_s) or stopped.is_set():
            continue
        frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - the documented way to another thread's stack
        line = traceback.extract_stack(frame, limit=1)[0] if frame is not None else None
        where = f"{line.filename}:{line.lineno} in {line.name}" if line is not None else "an unknown line"
        advice = "An async agent or tool that blocks belongs in a plain function, which gets a thread of its own."
        text = "every rollout of this process waits: the event loop has been blocked for %g s at %s. %s"
        _LOG.warning(text, blocked_s, where, advice)
        while not moved.wait(blocked_s) and not stopped.is_set():
            pass


@dataclass(eq=False)
class RuntimeHost:
    """An event loop in a daemon thread, and the runtime that belongs to it."""

    context: RunContext
    opener: Callable[[RunContext], Awaitable[Runtime]] = open_runtime
    cancel_wait_s: float = CANCEL_WAIT_S
    """Seconds for cancelled work to end."""
    closing_s: float = _CLOSING_S

    def __post_init__(self) -> None:
        self._stopping = False
        self._opening: asyncio.Future[Runtime] | None = None
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._serve, name="tfgrpo-runtime", daemon=True)
        self._thread.start()
        self._closing = threading.Event()
        watched = (self._loop, self._thread.ident or 0, self._closing)
        threading.Thread(target=watch_loop, args=watched, name="tfgrpo-loop-watch", daemon=True).start()

    def submit(self, factory: Callable[[Runtime], Awaitable[_T]]) -> concurrent.futures.Future[_T]:
        """Run ``factory(runtime)`` on the loop. Every caller gets the error of a runtime that cannot be opened."""
        return asyncio.run_coroutine_threadsafe(self._run(factory), self._loop)

    def halt(self) -> None:
        """Cancel all work and wait until it has ended, for a limited time; the runtime stays open."""
        self._run_limited(self._cancel_all())

    def close(self) -> None:
        """Cancel all work, close the runtime, end the thread. A blocked loop is abandoned."""
        self._closing.set()
        try:
            ended = self._run_limited(self._cancel_all()) and self._run_limited(self._shut_down())
        finally:
            self._stopping = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(None if ended else 0.0)

    def _run_limited(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether the work ended in time. Its errors are raised, except a cancellation, which an agent may cause."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        done = concurrent.futures.wait([future], self.closing_s).done
        if done:
            with contextlib.suppress(concurrent.futures.CancelledError):
                future.result()
        else:
            _LOG.warning("the event loop did not answer within %g s; it is abandoned", self.closing_s)
        return bool(done)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._stopping:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised in a task that an agent created. asyncio stops the loop for it, and with it all rollouts.
                _LOG.warning("%s in a task of an agent; the run continues", type(error).__name__)
        for work in (cancel_all(asyncio.all_tasks(self._loop), self.cancel_wait_s), self._loop.shutdown_asyncgens()):
            with contextlib.suppress(asyncio.CancelledError):  # abandoned agents may cancel any task
                self._loop.run_until_complete(work)
        self._loop.close()

    async def _run(self, factory: Callable[[Runtime], Awaitable[_T]]) -> _T:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self.opener(self.context))
        return await factory(await asyncio.shield(self._opening))

    async def _cancel_all(self) -> None:
        mine = asyncio.current_task()
        running = [task for task in asyncio.all_tasks() if task not in (mine, self._opening)]
        if not await cancel_all(running, self.cancel_wait_s):
            _LOG.warning("some work ignored its cancellation for %g s; it is abandoned", self.cancel_wait_s)

    async def _shut_down(self) -> None:
        if self._opening is not None:
            (opened,) = await asyncio.gather(self._opening, return_exceptions=True)
            if isinstance(opened, Runtime):
                await opened.aclose()


_LOCK: Final = threading.Lock()
# Open hosts by process and run directory: a forked process must not use its parent's.
_HOSTS: Final[dict[tuple[int, str], RuntimeHost]] = {}


def runtime_for(context: RunContext) -> RuntimeHost:
    """Return the host of this process for a run, opened at the first call."""
    with _LOCK:
        key = os.getpid(), str(context.run_dir)
        if key not in _HOSTS:
            _HOSTS[key] = RuntimeHost(context)
        return _HOSTS[key]


def close_runtime(context: RunContext) -> None:
    """Close this process's host of a run, if there is one."""
    with _LOCK:
        host = _HOSTS.pop((os.getpid(), str(context.run_dir)), None)
    if host is not None:
        host.close()


def halt_runtime(context: RunContext) -> None:
    """Cancel the work of this process's host of a run: an interrupted run must not continue to spend money."""
    with _LOCK:
        host = _HOSTS.get((os.getpid(), str(context.run_dir)))
    if host is not None:
        host.halt()


async def run_on_runtime(context: RunContext, factory: Callable[[Runtime], Awaitable[_T]]) -> _T:
    """Await ``factory(runtime)`` from another event loop; cancelling this cancels that."""
    work = asyncio.wrap_future(runtime_for(context).submit(factory))
    try:
        return await work
    finally:
        work.cancel()


def call_blocking(context: RunContext, factory: Callable[[Runtime], Awaitable[_T]]) -> _T:
    """Wait for ``factory(runtime)`` in a thread without an event loop; an interrupt cancels it."""
    future = runtime_for(context).submit(factory)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
