"""Runs the work of groups in Dask worker processes; their Prefect task runs stay in the process of the flow.

A worker that ran Prefect's task engine would import Prefect, and open an API client for every group: four times the CPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tfgrpo.tasks.runtime.host import run_on_runtime
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.shapes import GroupResult

GroupWork: TypeAlias = Callable[[Runtime], Awaitable[GroupResult]]
RunWork: TypeAlias = Callable[[RunContext, GroupWork, Callable[[], object]], Awaitable[GroupResult]]
"""Runs a group's work on a runtime of its run; see ``run_on_runtime``."""


@contextmanager
def dask_workers(at_once: int) -> Iterator[RunWork]:
    """``run_on_runtime`` in one of the workers of a local cluster, at most ``at_once`` at a time in all of them."""
    # An extra: imported where it is asked for.
    from distributed.deploy.utils import nprocesses_nthreads  # noqa: PLC0415
    from prefect_dask.task_runners import DaskTaskRunner  # noqa: PLC0415

    workers = min(nprocesses_nthreads()[0], at_once)  # type: ignore[no-untyped-call]
    # The work is asynchronous: a "thread" is a place for a group, and no thread is started.
    cluster = {"n_workers": workers, "threads_per_worker": -(-at_once // workers), "dashboard_address": None}
    with DaskTaskRunner(cluster_kwargs=cluster) as runner:
        client = runner.client

        async def run_on_worker(context: RunContext, work: GroupWork, begun: Callable[[], object]) -> GroupResult:
            # Not pure: Dask would otherwise hash the arguments, and give one group the result of another like it.
            future = client.submit(run_on_runtime, context, work, pure=False)
            begun()
            gathering = client.gather(future, asynchronous=True)
            gathered = asyncio.run_coroutine_threadsafe(gathering, client.loop.asyncio_loop)
            result: GroupResult = await asyncio.wrap_future(gathered)
            return result

        yield run_on_worker
