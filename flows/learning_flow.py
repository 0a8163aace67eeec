"""The Prefect flow ``tfgrpo-learning``, its mapped group task, and a run of the flow in this process.

The run itself is ``flows.run.execution``. Of a run in this process it happens in the caller's thread and Prefect's flow run
in another, so that no end of a run waits for a reply of Prefect's: summary and exit code come from the run, and Prefect is
informed afterwards, within a limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from functools import partial
from importlib import import_module
from threading import Event, Semaphore
from typing import Any, Final, TypeAlias

import numpy.ma  # noqa: F401 - numpy's percentiles import it at first use: between two epochs, while the model waits
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext, refresh_global_settings_context
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.settings import get_current_settings
from prefect.states import Completed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import ValidationError
from rich.console import Console as RichConsole

from tfgrpo.flows.console.console import LogFile, PeopleConsole
from tfgrpo.flows.console.environment import API_URL
from tfgrpo.flows.console.observer import Observer, Observers, Progress, Screen
from tfgrpo.flows.orchestration import deployed
from tfgrpo.flows.orchestration.deployed import Optional, PrefectArtifacts, Unknown
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
from tfgrpo.tasks.runtime.host import run_on_runtime, runtime_for
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

GroupWork: TypeAlias = Callable[[Runtime], Awaitable[GroupResult]]
RunWork: TypeAlias = Callable[[RunContext, GroupWork], Any]
"""Starts a group's work on a runtime of its run, and returns its future: of this process, or of Dask."""
# Task runs of a night. Each adds 20 kB or more to Prefect's database and takes CPU, so that a group is none of its own.
_MOST_TASK_RUNS: Final = 50
# Seconds that the end of a deployed run waits for a server that is down, to show the end on its page: as Prefect's client
# does for the state, which gives up after about a minute, and that twice, since it may be in the middle of one write already.
_PATIENCE_S = 150.0


def start_here(context: RunContext, work: GroupWork) -> Future[GroupResult]:
    """Start a group's work on the runtime of this process."""
    return runtime_for(context).submit(work)


class GroupsJob:
    """Some groups and their run, as an argument of the mapped task; with the results of an earlier try of the task."""

    # No dataclass: Prefect searches the fields of dataclasses for futures, 3 ms of CPU per task run.

    __slots__ = ("context", "name", "results", "specs", "start")

    def __init__(self, specs: Sequence[GroupSpec], context: RunContext, start: RunWork) -> None:
        more = f" and {len(specs) - 1} more" if len(specs) > 1 else ""
        self.name = f"{specs[0].item.id}{more}, epoch {specs[0].key.epoch}"
        self.specs = specs
        self.context = context
        self.start = start
        self.results: dict[str, GroupResult] = {}


class GroupsReturn:
    """The results of some groups, as returned by the mapped task."""

    # No dataclass: Prefect would keep a reference to each of its fields.

    __slots__ = ("results",)

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
def groups_task(job: GroupsJob) -> GroupsReturn | State[Any]:
    """Run some groups at once, each of them G rollouts, rewards, reflection. A retry repeats those without a result."""
    # Not asynchronous: for each such task run Prefect starts an event loop and an API client, 40 ms of CPU in place of 5.
    left = [spec for spec in job.specs if spec.group_id not in job.results]
    started = [job.start(job.context, partial(run_group, spec, carrier=job.context.carrier)) for spec in left]
    errors: list[Exception] = []
    for spec, future in zip(left, started, strict=True):
        try:
            job.results[spec.group_id] = future.result()
        except (CancelledError, asyncio.CancelledError):  # of this process, of Dask
            # Prefect logs any state but a completed one as an error, and a run that is cancelled has none.
            return Completed(name="Skipped", message="the run ended before these groups")
        except Exception as error:  # noqa: BLE001 - raised below, once the other groups of the task are back
            errors.append(error)
    if errors:
        raise errors[0]
    return GroupsReturn([job.results.pop(spec.group_id) for spec in job.specs])


@contextmanager
def dask_workers(at_once: int) -> Iterator[RunWork]:
    """Start work in one of the workers of a local cluster, at most ``at_once`` at a time in all of them.

    The groups' Prefect task runs stay in this process: a worker that ran Prefect's task engine would import Prefect, and
    open an API client for every group: four times the CPU.
    """
    from distributed.deploy.utils import nprocesses_nthreads  # noqa: PLC0415 - an extra: 0.3 s
    from prefect_dask.task_runners import DaskTaskRunner  # noqa: PLC0415 - as above

    workers = min(nprocesses_nthreads()[0], at_once)
    # The work is asynchronous: a "thread" is a place for a group, and no thread is started. Without an address Dask's page
    # takes port 8787 of every interface, which one run on a machine can have.
    cluster = {"n_workers": workers, "threads_per_worker": -(-at_once // workers), "dashboard_address": "127.0.0.1:0"}
    room = Semaphore(at_once)
    with DaskTaskRunner(cluster_kwargs=cluster) as runner:
        client = runner.client

        def start_on_worker(context: RunContext, work: GroupWork) -> Any:
            room.acquire()
            # Not pure: Dask would otherwise hash the arguments, and give one group the result of another like it.
            future = client.submit(run_on_runtime, context, work, pure=False)
            future.add_done_callback(lambda _: room.release())
            return future

        yield start_on_worker


@contextmanager
def mapped_groups(plan: Plan, *, stop: Event | None = None) -> Iterator[RunGroups]:
    """Run groups as mapped tasks, until ``stop`` if it is given."""
    name, concurrency = plan.settings.task_runner, plan.settings.tfgrpo.concurrency
    # Ray spreads task runs over its workers, so that each is one group.
    per_task = 1 if name == "ray" else plan.groups_at_once(_MOST_TASK_RUNS)
    workers: AbstractContextManager[RunWork] = nullcontext(start_here)
    if name == "dask":
        # Each worker has slots for all rollouts, so only the number of groups bounds the total.
        workers = dask_workers(max(1, concurrency // max(plan.group_size, plan.sweep_size)))
    # As many groups as rollouts at once: even if each waits for one straggler, all slots are in use. That an extra is
    # installed was checked before the run began.
    threads = ThreadPoolTaskRunner[Any](-(-concurrency // per_task))
    task_runner = import_module("prefect_ray").RayTaskRunner() if name == "ray" else threads
    started, over = set[Any](), Event()
    with workers as start, task_runner as runner:

        def start_cancellable(context: RunContext, work: GroupWork) -> Any:
            future = Future[GroupResult]() if over.is_set() else start(context, work)
            started.add(future)
            future.add_done_callback(started.discard)
            if over.is_set():  # a task run that waited for a thread, or a group for its place in Dask
                future.cancel()
            return future

        start_group = start if name == "ray" else start_cancellable  # which has it in other processes

        def run_groups(context: RunContext, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
            # ``as_completed`` would keep every future, with Prefect's record of its task run, to the end.
            def submit(some: Iterable[Sequence[GroupSpec]], ended: Callable[[PrefectFuture[Any]], None]) -> None:
                for future in runner.map(groups_task, {"job": [GroupsJob(each, context, start_group) for each in some]}):
                    future.add_done_callback(ended)

            try:
                yield from as_submitted(plan, specs, submit, _results_of, stop, per_task=per_task)
            except BaseException:  # the run ends early
                over.set()
                for future in tuple(started):
                    future.cancel()
                if runner is threads:
                    threads.cancel_all()
                raise

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
    # Prefect's future is in the callbacks of the one that it wraps: a cycle, which is to hold nothing until it is collected.
    results, returned.results = returned.results, ()
    return results


def _run_here(request: RunRequest, artifacts: Observer) -> RunSummary:
    is_deployed = deployed.deployed_run() is not None
    # Deployed runs log to Prefect, because few people read the stderr of a worker's child process.
    console = (
        RichConsole(file=LogFile(get_run_logger()), highlight=False, color_system=None)
        if is_deployed
        else PeopleConsole(stderr=True, highlight=False, soft_wrap=True)
    )
    observers = Observers(Progress(console), artifacts)
    # Prefect cancels the runs of its workers by a termination, and has to see it; all others stop as at Ctrl-C.
    with nullcontext() if is_deployed else termination_interrupts():
        summary = execute(request, os.environ, observers, mapped_groups, clock=utc_now)
    if summary.status != "refused":
        return summary
    error = SettingsError([Problem(**problem) for problem in summary.details["problems"]])
    return RunSummary.refused(summary.run_id, deployed.in_parameters(error, tfgrpo_learning, RunRequest))


@flow(name="tfgrpo-learning", persist_result=False, log_prints=False, validate_parameters=True)
@deployed.with_parameters(
    RunRequest, *("task_id", "dataset", "model", "base_url", "epochs", "group_size", "sample_size", "max_usd", "max_calls")
)
def tfgrpo_learning(  # noqa: D417 - the options are described where they are declared
    *,
    pipeline: Optional[str] = None,
    settings: dict[str, Scalar] = {},  # noqa: B006 - never changed; Prefect's form shows it
    resume: Optional[str] = None,
    pay_again: bool = False,
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
    """
    artifacts = PrefectArtifacts() if deployed.deployed_run() is None else PrefectArtifacts(_PATIENCE_S)
    summary = RunSummary("failed", None, "unexpected error", {})
    fields = {"pipeline": pipeline, "settings": settings, "resume": resume, "pay_again": pay_again, **options}
    try:
        summary = RUN_BODY.get()(fields, artifacts)
        artifacts.finish(summary)
        if summary.signal is not None:
            raise summary.signal
        return deployed.prefect_state(summary)
    finally:
        why = artifacts.wait()
        if why is not None:
            logging.getLogger("tfgrpo.artifacts").warning("%s", why)
            deployed.warn_run(summary, why)


def _run_with(fields: Mapping[str, Any], artifacts: Observer) -> RunSummary:
    run = deployed.deployed_run()
    try:
        request = deployed.asked_of(RunRequest, fields)
    except PrefectUnavailable as error:
        return _unbegun(error, fields, run)
    except ConfigError as error:
        return _unbegun(deployed.in_parameters(error, tfgrpo_learning, RunRequest), fields, run)
    if run is not None:
        # The flow run's id stays the same when Prefect runs it again: then the run of this name is resumed.
        name = str(run.id)
        request = request.model_copy(update={"flow_run_id": name, "run_id": name if request.resume is None else None})
    return _run_here(request, artifacts)


RUN_BODY: ContextVar[Callable[[Mapping[str, Any], Observer], RunSummary]] = ContextVar("tfgrpo-run-body", default=_run_with)
"""Executes the run of a flow run by its parameters; a local run replaces it, to execute in another thread."""


def _unbegun(error: TfgrpoError, fields: Mapping[str, Any], run: FlowRun | None) -> RunSummary:
    """Return the summary of a flow run that cannot begin, listed and reported where its parameters name a task."""
    usable = {name: value for name, value in fields.items() if value is not None and not isinstance(value, Unknown)}
    # A parameter of the deployment beside the same setting of the run would be refused in place of what is wrong.
    named = {key for name, key in RunRequest.KEYS.items() if name in usable}
    usable["settings"] = {key: value for key, value in (usable.get("settings") or {}).items() if key not in named}
    try:
        request = RunRequest.model_validate(usable)
    except ValidationError:
        return RunSummary.refused(None, error) if isinstance(error, ConfigError) else RunSummary("failed", None, str(error), {})
    if run is not None:
        request = request.model_copy(update={"flow_run_id": str(run.id), "run_id": str(run.id)})
    return report_unbegun(request, error, os.environ, listed_at=utc_now)


# Seconds that a named server gets to answer at all.
_ANSWER_S: Final = 20.0
# Seconds to register the flow run; a server on a busy machine with SQLite needs many.
_BEGIN_S: Final = 60.0
# Seconds to take the end of the run and what is left of its artifacts.
_END_S: Final = 15.0
# Longest wait without a line on the screen.
_UNSEEN_S: Final = 3.0
# Loggers that complain of a lost server once for every event; Prefect's environment has no level for them.
_REPETITIVE: Final = ("prefect.events.clients", "EventsWorker")


def run_locally(
    prepared: Prepared, screen: Screen, server: LocalServer | None = None, *, stop: Event | None = None
) -> RunSummary:
    """Run here until ``stop``, on the server that Prefect's settings name, or else on the one that is starting.

    Raises ``SettingsError`` when the server that is named refuses, or none may be started, and ``PrefectUnavailable`` when
    one does not answer, start or register the run.
    """
    for name in _REPETITIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    settings = get_current_settings()
    try:
        if settings.api.url is not None:
            address = without_login(settings.api.url)
            screen.say(f"connecting to Prefect at {address}, at most {_ANSWER_S:g} s …")
            why = deployed.why_silent(_ANSWER_S)
            if why is not None and deployed.is_refusal(why):
                raise SettingsError.one(API_URL, address, f"the API of a Prefect server that answers ({error_line(why)})")
            if why is not None:
                raise PrefectUnavailable(f"Prefect's server at {address}, of {API_URL}, does not answer: {error_line(why)}")
        elif not wanted(settings):
            raise SettingsError.one(API_URL, "nothing", "the API of a Prefect server; its settings allow no temporary one")
        elif server is not None:
            server.serve(os.environ, float(settings.server.ephemeral.startup_timeout_seconds))
            refresh_global_settings_context()
        flow_run = _FlowRun(prepared.request)
        context, artifacts = flow_run.begin()
    except PrefectUnavailable as error:
        if prepared.request.earlier is None:
            # Of the plan: a test without a task is of the one used last, which the request does not name.
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
        late = flow_run.end(screen.say)
        if late is not None:
            warning = f"Prefect was not informed of the end of the run: {late}"
            screen.say(f"warning: {warning}; the record of the run is complete")
            deployed.warn_run(summary, warning)
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
        def body(_parameters: Mapping[str, Any], artifacts: Observer) -> RunSummary:
            if not self._begun.done():  # Prefect may call the flow again
                self._begun.set_result((copy_context(), artifacts))
            return self._summary.result()

        RUN_BODY.set(body)
        request = self._request
        shown = {key: str(value) for key, value in request.settings.items()}
        return tfgrpo_learning(pipeline=request.pipeline, settings=shown, resume=request.resume, return_state=True)
