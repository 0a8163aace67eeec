"""The Prefect flow ``tfgrpo-learning``, its mapped group task, the runner of such tasks, and a run of the flow in this process.

The run itself is ``flows.run.execution``. Of a run in this process it happens in the caller's thread and Prefect's flow run
in another, so that no end of a run waits for a reply of Prefect's: summary and exit code come from the run, and Prefect is
informed afterwards, within a limit. Prefect's thread runner starts an event loop and an API client for every asynchronous
task; each client reads the whole CA bundle, about 50 ms of CPU a task even for a local plain-HTTP API. Here one loop, in a
separate thread, and one API client serve every task of a flow run, which costs about 4 ms a task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from functools import partial
from importlib import import_module
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from uuid import uuid4

import numpy.ma  # noqa: F401 - numpy's percentiles import it at first use: between two epochs, while the model waits
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun, RunInput, State
from prefect.context import AsyncClientContext, FlowRunContext, refresh_global_settings_context
from prefect.futures import PrefectConcurrentFuture, PrefectFuture, PrefectWrappedFuture
from prefect.logging import get_run_logger
from prefect.settings import Settings, get_current_settings
from prefect.task_engine import run_task_async
from prefect.task_runners import TaskRunner
from pydantic import ValidationError
from pydantic.json_schema import SkipJsonSchema
from rich.console import Console as RichConsole

from tfgrpo.flows.console.console import LogFile, PeopleConsole
from tfgrpo.flows.console.environment import API_URL
from tfgrpo.flows.console.observer import Observer, Observers, Progress, Screen
from tfgrpo.flows.orchestration.deployed import (
    Optional,
    PrefectArtifacts,
    Unknown,
    asked_of,
    deployed_run,
    in_parameters,
    is_refusal,
    prefect_state,
    warn_run,
    why_silent,
    with_parameters,
)
from tfgrpo.flows.orchestration.interrupts import termination_interrupts
from tfgrpo.flows.orchestration.local_server import LocalServer, error_line, in_background, wanted, without_login
from tfgrpo.flows.orchestration.request import RunRequest, RunSummary, Scalar, Status
from tfgrpo.flows.run.close import report_unbegun
from tfgrpo.flows.run.execution import as_submitted, execute
from tfgrpo.flows.run.index import new_run_id, record_unbegun
from tfgrpo.flows.run.loop.books import RunGroups
from tfgrpo.flows.run.prepare import Prepared
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import ConfigError, PrefectUnavailable, Problem, RunAborted, SettingsError, TfgrpoError
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.runtime.host import run_on_runtime
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

if TYPE_CHECKING:
    from prefect.tasks import Task

_TASK_RUNS: Final = logging.getLogger("prefect.task_runs")
_BEGUN: contextvars.ContextVar[ExitStack | None] = contextvars.ContextVar("tfgrpo-begun", default=None)
GroupWork: TypeAlias = Callable[[Runtime], Awaitable[GroupResult]]
RunWork: TypeAlias = Callable[[RunContext, GroupWork], Awaitable[GroupResult]]
"""Runs a group's work on a runtime of its run; see ``run_on_runtime``."""
_MOST_TASK_RUNS: Final = 50
"""Task runs of a night. Each adds 20 kB or more to Prefect's database and takes CPU, so that a group is none of its own."""
_PATIENCE_S = 150.0
"""Seconds that the end of a deployed run waits for a server that is down, to show the end on its page: as Prefect's client does
for the state, which gives up after about a minute, and that twice, since it may be in the middle of one write already."""


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


class GroupsJob:
    """Some groups and their run, as an argument of the mapped task; with the results of an earlier try of the task."""

    # No dataclass: Prefect searches the fields of dataclasses for futures, 3 ms of CPU per task run.

    __slots__ = ("context", "name", "results", "run", "specs")

    def __init__(self, specs: Sequence[GroupSpec], context: RunContext, run: RunWork) -> None:
        more = f" and {len(specs) - 1} more" if len(specs) > 1 else ""
        self.name = f"{specs[0].item.id}{more}, epoch {specs[0].key.epoch}"
        self.specs = specs
        self.context = context
        self.run = run
        self.results: dict[str, GroupResult] = {}


class GroupsReturn:
    """The results of some groups, as returned by the mapped task."""

    # No dataclass: Prefect would keep a reference to each of its fields.

    __slots__ = ("__weakref__", "results")

    def __init__(self, results: Sequence[GroupResult]) -> None:
        self.results = results


@task(
    name="groups",
    task_run_name="{job.name}",
    cache_policy=NO_CACHE,
    persist_result=False,
    log_prints=False,
    # Failures of models, tools and rewarders are outcomes in the result, so only infrastructure faults arrive here, and
    # the journal makes a retry free. Our own code refuses for good.
    retries=2,
    retry_delay_seconds=1,
    retry_condition_fn=lambda _task, _run, state: not isinstance(state.data, TfgrpoError),
)
async def groups_task(job: GroupsJob) -> GroupsReturn:
    """Run some groups at once, each of them G rollouts, rewards, reflection. A retry repeats those without a result."""
    context = job.context

    async def run_one(spec: GroupSpec) -> None:
        work = partial(run_group, spec, carrier=context.carrier)
        begun()  # the work is submitted before anything else can run
        job.results[spec.group_id] = await job.run(context, work)

    left = [spec for spec in job.specs if spec.group_id not in job.results]
    for error in await asyncio.gather(*map(run_one, left), return_exceptions=True):
        if error is not None:
            raise error
    return GroupsReturn([job.results.pop(spec.group_id) for spec in job.specs])


@contextmanager
def dask_workers(at_once: int) -> Iterator[RunWork]:
    """``run_on_runtime`` in one of the workers of a local cluster, at most ``at_once`` at a time in all of them.

    The groups' Prefect task runs stay in this process: a worker that ran Prefect's task engine would import Prefect, and
    open an API client for every group: four times the CPU.
    """
    from distributed.deploy.utils import nprocesses_nthreads  # noqa: PLC0415 - an extra: 0.3 s
    from prefect_dask.task_runners import DaskTaskRunner  # noqa: PLC0415 - as above

    workers = min(nprocesses_nthreads()[0], at_once)
    # The work is asynchronous: a "thread" is a place for a group, and no thread is started. Without an address Dask's page
    # takes port 8787 of every interface, which one run on a machine can have.
    cluster = {"n_workers": workers, "threads_per_worker": -(-at_once // workers), "dashboard_address": "127.0.0.1:0"}
    room = asyncio.Semaphore(at_once)
    with DaskTaskRunner(cluster_kwargs=cluster) as runner:
        client = runner.client

        async def run_on_worker(context: RunContext, work: GroupWork) -> GroupResult:
            async with room:
                # Not pure: Dask would otherwise hash the arguments, and give one group the result of another like it.
                future = client.submit(run_on_runtime, context, work, pure=False)
                gathering = client.gather(future, asynchronous=True)
                gathered = asyncio.run_coroutine_threadsafe(gathering, client.loop.asyncio_loop)
                result: GroupResult = await asyncio.wrap_future(gathered)
                return result

        yield run_on_worker


@contextmanager
def mapped_groups(plan: Plan, *, stop: Event | None = None) -> Iterator[RunGroups]:
    """Run groups as mapped tasks, until ``stop`` if it is given."""
    name, concurrency = plan.settings.task_runner, plan.settings.tfgrpo.concurrency
    # Ray spreads task runs over its workers, so that each is one group.
    per_task = 1 if name == "ray" else plan.groups_at_once(_MOST_TASK_RUNS)
    workers: AbstractContextManager[RunWork] = nullcontext(run_on_runtime)
    if name == "dask":
        # Each worker has slots for all rollouts, so only the number of groups bounds the total.
        workers = dask_workers(max(1, concurrency // max(plan.group_size, plan.sweep_size)))
    # As many groups as rollouts at once: even if each waits for one straggler, all slots are in use. That an extra is
    # installed was checked before the run began.
    threads = EventLoopTaskRunner(-(-concurrency // per_task))
    task_runner = import_module("prefect_ray").RayTaskRunner() if name == "ray" else threads
    with workers as run, task_runner as runner:

        def run_groups(context: RunContext, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
            # ``as_completed`` would keep every future, with Prefect's record of its task run, to the end.
            def submit(some: Iterable[Sequence[GroupSpec]], ended: Callable[[PrefectFuture[Any]], None]) -> None:
                # mypy cannot choose the R of Prefect's "R | CoroutineType[Any, Any, R]".
                for future in runner.map(groups_task, {"job": [GroupsJob(each, context, run) for each in some]}):  # type: ignore[misc]
                    future.add_done_callback(ended)

            try:
                yield from as_submitted(plan, specs, submit, _results_of, stop, per_task=per_task)
            finally:
                # Only a run that ends early has anything left to cancel.
                if isinstance(runner, EventLoopTaskRunner):
                    runner.cancel_all()

        yield run_groups


def _results_of(future: PrefectFuture[Any]) -> Sequence[GroupResult]:
    """Raise ``RunAborted`` if the infrastructure could not run one."""
    try:
        future.wait()
        # ``future.result()`` asks an event loop in another thread even if the state has the value already.
        kept = getattr(future.state.data, "result", None)
        returned = kept if isinstance(kept, GroupsReturn) else future.result()
    except TfgrpoError:
        raise
    except Exception as error:  # of Prefect, Dask or Ray; what goes wrong in a group is in its result
        raise RunAborted(f"a group could not be run: {type(error).__name__}: {error}") from error
    flow_run = FlowRunContext.get()
    if flow_run is not None:
        # Prefect keeps every state, and its assets, in case the result becomes an argument of another task; ours never do.
        flow_run.run_results.pop(id(returned), None)
        flow_run.task_run_assets.pop(future.task_run_id, None)
    results: Sequence[GroupResult] = returned.results
    return results


def _run_here(request: RunRequest, artifacts: Observer) -> RunSummary:
    deployed = deployed_run() is not None
    # Deployed runs log to Prefect, because few people read the stderr of a worker's child process.
    console = (
        RichConsole(file=LogFile(get_run_logger()), highlight=False, color_system=None)
        if deployed
        else PeopleConsole(stderr=True, highlight=False, soft_wrap=True)
    )
    observers = Observers(Progress(console), artifacts)
    # Prefect cancels the runs of its workers by a termination, and has to see it; all others stop as at Ctrl-C.
    with nullcontext() if deployed else termination_interrupts():
        summary = execute(request, os.environ, observers, mapped_groups, clock=utc_now)
    if summary.status != "refused":
        return summary
    error = SettingsError([Problem(**problem) for problem in summary.details["problems"]])
    return RunSummary.refused(summary.run_id, in_parameters(error, tfgrpo_learning, RunRequest))


RUN_BODY: ContextVar[Callable[[RunRequest, Observer], RunSummary]] = ContextVar("tfgrpo-run-body", default=_run_here)
"""Executes the run of a flow run; a local run replaces it, to execute in another thread."""


@flow(name="tfgrpo-learning", persist_result=False, log_prints=False, validate_parameters=True)
@with_parameters(
    RunRequest, *("task_id", "dataset", "model", "base_url", "epochs", "group_size", "sample_size", "max_usd", "max_calls")
)
def tfgrpo_learning(  # noqa: D417 - the options are described where they are declared
    *,
    pipeline: Optional[str] = None,
    settings: dict[str, Scalar] = {},  # noqa: B006 - never changed; Prefect's form shows it
    resume: Optional[str] = None,
    pay_again: bool = False,
    request: SkipJsonSchema[RunRequest | None] = None,
    **options: Any,
) -> State[dict[str, object]]:
    """Learn: epochs of groups, lessons, the held-out sweep and the decision.

    Ends ``Completed`` (named ``StoppedEarly`` at a budget cap or an interrupt) or ``Failed`` with one clear message.

    Args:
        pipeline: Name of a shipped pipeline, or path of a pipeline file, from `TFGRPO_HOME` on. Empty: `tfgrpo-learning`.
        settings: Any other setting by its dotted key, such as `{"tfgrpo.min_spread": 0.1}`; those of the deployment
            hold as well. `tfgrpo config` lists all.
        resume: Run to go on with where it ended. A retry of a flow run continues without it.
        pay_again: With `resume`: also pay again for the answered calls that a damaged journal has lost.
        request: All of it as one value, from a command.
    """
    run = deployed_run()
    artifacts = PrefectArtifacts() if run is None else PrefectArtifacts(_PATIENCE_S)
    summary = RunSummary("failed", None, "unexpected error", {})
    fields = {"pipeline": pipeline, "settings": settings, "resume": resume, "pay_again": pay_again, **options}
    if request is not None and run is not None:
        fields["request"] = Unknown()  # it would evade the caps
    try:
        summary = _run_with(fields, request, artifacts)
        artifacts.finish(summary)
        if summary.signal is not None:
            raise summary.signal
        return prefect_state(summary)
    finally:
        why = artifacts.wait()
        if why is not None:
            logging.getLogger("tfgrpo.artifacts").warning("%s", why)
            warn_run(summary, why)


def _run_with(fields: Mapping[str, Any], request: RunRequest | None, artifacts: Observer) -> RunSummary:
    run = deployed_run()
    try:
        asked = asked_of(RunRequest, fields) if request is None or run is not None else request
    except PrefectUnavailable as error:
        return _unbegun(error, fields, run)
    except ConfigError as error:
        return _unbegun(in_parameters(error, tfgrpo_learning, RunRequest), fields, run)
    if run is not None:
        # The flow run's id stays the same when Prefect runs it again: then the run of this name is resumed.
        named = {"run_id": asked.run_id or str(run.id)} if asked.earlier is None else {}
        asked = asked.model_copy(update={"flow_run_id": str(run.id), **named})
    return RUN_BODY.get()(asked, artifacts)


def _unbegun(error: TfgrpoError, fields: Mapping[str, Any], run: FlowRun | None) -> RunSummary:
    """Return the summary of a flow run that cannot begin, listed and reported where its parameters name a task."""
    known = {name: value for name, value in fields.items() if value is not None and not isinstance(value, Unknown)}
    # A parameter of the deployment beside the same setting of the run would be refused in place of what is wrong.
    named = {key for name, key in RunRequest.KEYS.items() if name in known}
    known["settings"] = {key: value for key, value in (known.get("settings") or {}).items() if key not in named}
    try:
        request = RunRequest.model_validate(known)
    except ValidationError:
        return RunSummary.refused(None, error) if isinstance(error, ConfigError) else RunSummary("failed", None, str(error), {})
    if run is not None:
        request = request.model_copy(update={"flow_run_id": str(run.id), "run_id": request.run_id or str(run.id)})
    return report_unbegun(request, error, os.environ, listed_at=utc_now)


_ANSWER_S: Final = 20.0
"""Seconds that a named server gets to answer at all."""
_BEGIN_S: Final = 60.0
"""Seconds to register the flow run; a server on a busy machine with SQLite needs many."""
_END_S: Final = 15.0
"""Seconds to take the end of the run and what is left of its artifacts."""
_UNSEEN_S: Final = 3.0
"""Longest wait without a line on the screen."""
_REPETITIVE: Final = ("prefect.events.clients", "EventsWorker")
"""Loggers that complain of a lost server once for every event; Prefect's environment has no level for them."""


def run_locally(
    prepared: Prepared, screen: Screen, server: LocalServer | None = None, *, stop: Event | None = None
) -> RunSummary:
    """Run here until ``stop``, on the server that Prefect's settings name, or else on the one that is starting.

    Raises ``SettingsError`` when the server that is named refuses, or none may be started, and ``PrefectUnavailable`` when
    one does not answer, start or register the run.
    """
    for name in _REPETITIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        _find_server(get_current_settings(), server, screen.say)
        flow_run = _FlowRun(prepared.request)
        context, artifacts = flow_run.begin()
    except PrefectUnavailable as error:
        if prepared.request.earlier is None:
            run = prepared.plan.paths.run(prepared.request.run_id or new_run_id(utc_now))
            about = {"pipeline": prepared.plan.settings.pipeline, "simulated": prepared.plan.simulated}
            record_unbegun(run, "failed", str(error), clock=utc_now, **about)
        raise
    observers = Observers(screen.progress, artifacts)
    runner = partial(mapped_groups, stop=stop)
    summary = flow_run.summary_of(partial(context.run, execute, prepared, os.environ, observers, runner, clock=utc_now))
    try:
        screen.ended(summary)
    finally:
        why = flow_run.end(screen.say)
        if why is not None:
            warning = f"Prefect was not informed of the end of the run: {why}"
            screen.say(f"warning: {warning}; the record of the run is complete")
            warn_run(summary, warning)
    return summary


class _FlowRun:
    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._begun: Future[tuple[Context, Observer]] = Future()
        self._summary: Future[RunSummary] = Future()
        self._ended = in_background(self._serve)

    def begin(self) -> tuple[Context, Observer]:
        """Wait until Prefect has registered the flow run. Raise ``PrefectUnavailable`` if it does not."""
        either: tuple[Future[Any], Future[Any]] = (self._begun, self._ended)
        wait(either, _BEGIN_S, return_when=FIRST_COMPLETED)
        if self._begun.done():
            return self._begun.result()
        if not self._ended.done():
            raise PrefectUnavailable(f"Prefect did not register the run within {_BEGIN_S:g} s")
        error = self._ended.exception()
        why = f"it ended in state {self._ended.result()!r}" if error is None else error_line(error)
        raise PrefectUnavailable(f"Prefect did not register the run: {why}")

    def summary_of(self, run: Callable[[], RunSummary]) -> RunSummary:
        try:
            summary = run()
        except BaseException as error:  # also an interrupt: Prefect's thread waits for a summary
            status: Status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            self._summary.set_result(RunSummary(status, None, f"ended by {type(error).__name__}", {}))
            raise
        self._summary.set_result(summary)
        return summary

    def end(self, say: Callable[[str], object]) -> str | None:
        """Wait, within a limit, until Prefect has taken the end of the run; otherwise say why it has not."""
        try:
            if not wait((self._ended,), _UNSEEN_S).done:
                say(f"waiting for Prefect to take the end of the run, at most {_END_S:g} s …")
                wait((self._ended,), _END_S)
        except KeyboardInterrupt:
            return "interrupted"
        if not self._ended.done():
            return f"no reply within {_END_S:g} s"
        error = self._ended.exception()
        return None if error is None else error_line(error)

    def _serve(self) -> object:
        RUN_BODY.set(self._body)
        return tfgrpo_learning(request=self._request, return_state=True)

    def _body(self, _request: RunRequest, artifacts: Observer) -> RunSummary:
        if not self._begun.done():  # Prefect may call the flow again
            self._begun.set_result((copy_context(), artifacts))
        return self._summary.result()


def _find_server(settings: Settings, server: LocalServer | None, say: Callable[[str], object]) -> None:
    if settings.api.url is not None:
        address = without_login(settings.api.url)
        say(f"connecting to Prefect at {address}, at most {_ANSWER_S:g} s …")
        why = why_silent(_ANSWER_S)
        if why is not None and is_refusal(why):
            raise SettingsError.one(API_URL, address, f"the API of a Prefect server that answers ({error_line(why)})")
        if why is not None:
            raise PrefectUnavailable(f"Prefect's server at {address}, of {API_URL}, does not answer: {error_line(why)}")
    elif not wanted(settings):
        raise SettingsError.one(API_URL, "nothing", "the API of a Prefect server; its settings allow no temporary one")
    elif server is not None:
        server.serve(os.environ, float(settings.server.ephemeral.startup_timeout_seconds))
        refresh_global_settings_context()
