"""Run a learning run from Python: its groups in this process or on Prefect, in a thread, stopped when asked to."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final, TypeVar

from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.console.progress import Screen
from tfgrpo.flows.orchestration.quiet import quiet_prefect
from tfgrpo.flows.orchestration.server.local_server import start_server
from tfgrpo.flows.orchestration.server.prefect_home import check_prefect_home, prefect_settings
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.exit_status import RunSummary
from tfgrpo.flows.run.loop.session import RunGroups
from tfgrpo.flows.run.prepare import Prepared
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.stores.clock import utc_now
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.runtime.host import runtime_for
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

T = TypeVar("T")
_AHEAD: Final = 2
"""Groups submitted before any is back, per actor slot: enough that no slot waits for one."""
_POLL_S: Final = 0.2


@contextmanager
def groups_in_process(plan: Plan, *, stop: Event) -> Iterator[RunGroups]:
    """Yield a function that runs groups on the runtime of this process, and raises ``KeyboardInterrupt`` after ``stop``."""

    def run_groups(context: RunContext, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
        host, waiting = runtime_for(context), iter(specs)
        ended: SimpleQueue[Future[GroupResult]] = SimpleQueue()
        running: set[Future[GroupResult]] = set()

        def submit(count: int) -> None:
            for spec in islice(waiting, count):
                # An empty context, as under Prefect: a group's spans belong to the carrier, not to the caller's span.
                future = Context().run(host.submit, partial(run_group, spec, carrier=context.carrier))
                running.add(future)
                future.add_done_callback(ended.put)

        submit(_AHEAD * plan.settings.tfgrpo.concurrency)
        try:
            for _ in specs:
                future = _next(ended, stop)
                running.discard(future)
                submit(1)
                yield future.result()
        finally:
            for future in running:
                future.cancel()

    yield run_groups


def _next(ended: SimpleQueue[Future[GroupResult]], stop: Event) -> Future[GroupResult]:
    while not stop.is_set():
        with suppress(Empty):
            return ended.get(timeout=_POLL_S)
    raise KeyboardInterrupt


@contextmanager
def stoppable(
    plan: Plan, *, runner: Callable[[Plan], AbstractContextManager[RunGroups]], stop: Event
) -> Iterator[RunGroups]:
    """Yield the groups of another runner, raising ``KeyboardInterrupt`` at the first group that returns after ``stop``."""
    with runner(plan) as run_inner:

        def run_groups(context: RunContext, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
            with closing(run_inner(context, specs)) as arriving:
                for result in arriving:
                    if stop.is_set():
                        raise KeyboardInterrupt
                    yield result

        yield run_groups


def run_in_process(prepared: Prepared, view: Observers, stop: Event) -> RunSummary:
    """Run without Prefect."""
    runner = partial(groups_in_process, stop=stop)
    return execute(prepared.request, os.environ, view, runner, clock=utc_now, prepared=prepared)


def run_on_prefect(prepared: Prepared, view: Observers, stop: Event) -> RunSummary:
    """Run on the Prefect server that the environment names, else on a temporary one. Raises ``SettingsError``."""
    quiet_prefect(os.environ)  # before Prefect is imported, which reads its settings once
    check_prefect_home(os.environ, make=True)
    server = start_server(os.environ)
    with prefect_settings():
        from tfgrpo.flows.learning_flow import mapped_groups  # noqa: PLC0415
        from tfgrpo.flows.orchestration.local_run import run_locally  # noqa: PLC0415

    screen = Screen(logging.getLogger("tfgrpo").info, view, lambda _: None)
    return run_locally(prepared, screen, server, partial(stoppable, runner=mapped_groups, stop=stop))


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Start work in a daemon thread: a notebook's thread has an event loop that runs."""
    future: Future[T] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=copy_context().run, args=(do,), name="tfgrpo-api", daemon=True).start()
    return future
