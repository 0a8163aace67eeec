"""What does Prefect run? The flow ``tfgrpo-learning`` and the mapped group task; what happens in it is in ``execution``."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from pydantic.json_schema import SkipJsonSchema
from rich.console import Console as RichConsole

from tfgrpo.flows.console.console import LogFile, PeopleConsole
from tfgrpo.flows.console.observer import Observer, Observers
from tfgrpo.flows.console.progress import Progress
from tfgrpo.flows.orchestration.artifacts import PrefectArtifacts
from tfgrpo.flows.orchestration.dask_workers import RunWork, dask_workers
from tfgrpo.flows.orchestration.deployed import Optional, asked_of, deployed_run, named_after
from tfgrpo.flows.orchestration.interrupts import termination_interrupts
from tfgrpo.flows.orchestration.request import RunRequest, Scalar
from tfgrpo.flows.orchestration.states import state_of
from tfgrpo.flows.orchestration.task_runner import EventLoopTaskRunner, begun, task_runner_for
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.exit_status import RunSummary
from tfgrpo.flows.run.loop.session import RunGroups
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import PrefectUnavailable, RunAborted, TfgrpoError
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.runtime.context import RunContext
from tfgrpo.tasks.runtime.host import run_on_runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

_AHEAD = 2
"""Groups handed to the task runner before any is back, per place for a rollout: enough that no place waits for one."""


class Parcel:
    """One group and the run it belongs to, as an argument of the mapped task.

    No dataclass on purpose: Prefect searches the fields of dataclasses for futures, 3 ms of CPU a group.
    """

    __slots__ = ("context", "run", "spec")

    def __init__(self, spec: GroupSpec, context: RunContext, run: RunWork) -> None:
        self.spec = spec
        self.context = context
        self.run = run


class Sealed:
    """What came of one group, on its way back from the mapped task.

    No dataclass either: Prefect would remember its fields one by one.
    """

    __slots__ = ("__weakref__", "result")

    def __init__(self, result: GroupResult) -> None:
        self.result = result


def _may_help(_task: object, _run: object, state: State[Any]) -> bool:
    """Whether a group that broke is tried again: not when our own code refused something."""
    return not isinstance(state.data, TfgrpoError)


@task(
    name="group",
    task_run_name="group-epoch-{parcel.spec.key.epoch}",
    cache_policy=NO_CACHE,
    persist_result=False,
    log_prints=False,
    # Whatever a model, tool or rewarder does is a typed outcome inside the result; what is left are faults of the
    # infrastructure, and the journal makes trying again free.
    retries=2,
    retry_delay_seconds=1,
    retry_condition_fn=_may_help,
)
async def group_task(parcel: Parcel) -> Sealed:
    """One group: G rollouts, rewards, reflection."""
    context = parcel.context
    work = partial(run_group, parcel.spec, carrier=context.carrier)
    return Sealed(await parcel.run(context, work, begun))


@contextmanager
def mapped_groups(plan: Plan) -> Iterator[RunGroups]:
    """A way to fan the groups of a batch out, open for a whole run; they are yielded as they come back."""
    # As many groups as places for rollouts: should each have one straggler left, all places are still taken.
    name, at_once = plan.settings.task_runner, plan.settings.tfgrpo.concurrency
    workers: AbstractContextManager[RunWork] = nullcontext(run_on_runtime)
    if name == "dask":
        # Each worker has a place for every rollout; what bounds the rollouts of all of them is the number of groups.
        at_once = max(1, at_once // plan.group_size)
        workers = dask_workers(at_once)
    task_runner = task_runner_for(name, at_once)
    with workers as run, task_runner as runner:

        def run_groups(context: RunContext, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
            parcels = (Parcel(spec, context, run) for spec in specs)
            # Not ``as_completed``, which holds every future, and with it what Prefect knows of the task run, to the end.
            back: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()

            def hand_out(count: int) -> None:
                if some := list(islice(parcels, count)):
                    # mypy cannot choose the R of Prefect's "R | CoroutineType[Any, Any, R]".
                    for future in runner.map(group_task, {"parcel": some}):  # type: ignore[misc]
                        future.add_done_callback(back.put)

            hand_out(_AHEAD * plan.settings.tfgrpo.concurrency)
            try:
                for _ in specs:
                    result = _result_of(back.get())
                    hand_out(1)
                    yield result
            finally:
                # Nothing is left to cancel, unless the run ends here.
                if isinstance(runner, EventLoopTaskRunner):
                    runner.cancel_all()

        yield run_groups


def _result_of(future: PrefectFuture[Any]) -> GroupResult:
    """Raises ``RunAborted`` for a group that could not be run at all, which is no matter of models or rewards."""
    try:
        sealed = _sealed(future)
    except TfgrpoError:
        raise
    except Exception as error:
        raise RunAborted(f"a group could not be run: {type(error).__name__}: {error}") from error
    flow_run = FlowRunContext.get()
    if flow_run is not None:
        # Prefect keeps the state of every task run in case its result goes into another task; ours never does.
        flow_run.run_results.pop(id(sealed), None)
    return sealed.result


def _sealed(future: PrefectFuture[Any]) -> Sealed:
    future.wait()
    # Where the state holds what the task returned, ``future.result()`` would still ask an event loop in another thread.
    kept = getattr(future.state.data, "result", None)
    return kept if isinstance(kept, Sealed) else future.result()


def _run_here(request: RunRequest, artifacts: Observer) -> RunSummary:
    deployed = deployed_run() is not None
    # Prefect keeps the log of a flow run; what a worker's child says on stderr is read by few.
    console = (
        RichConsole(file=LogFile(get_run_logger()), highlight=False, color_system=None)
        if deployed
        else PeopleConsole(stderr=True, highlight=False, soft_wrap=True)
    )
    observers = Observers(Progress(console), artifacts)
    with _terminations():
        return execute(request, os.environ, observers, mapped_groups, clock=utc_now)


RUN_BODY: ContextVar[Callable[[RunRequest, Observer], RunSummary]] = ContextVar("tfgrpo-run-body", default=_run_here)
"""Does the run of a flow run and returns its summary; a local run happens in another thread than its flow run."""


@flow(name="tfgrpo-learning", persist_result=False, log_prints=False, validate_parameters=True)
def tfgrpo_learning(  # noqa: PLR0913 - Prefect's form has a field for each
    *,
    pipeline: Optional[str] = None,
    task_id: Optional[str] = None,
    dataset: Optional[str] = None,
    model: Optional[str] = None,
    base_url: Optional[str] = None,
    epochs: Optional[int] = None,
    group_size: Optional[int] = None,
    sample_size: Optional[int] = None,
    max_usd: Optional[float] = None,
    max_calls: Optional[int] = None,
    settings: dict[str, Scalar] = {},  # noqa: B006 - never changed; Prefect's form shows it
    resume: Optional[str] = None,
    request: SkipJsonSchema[RunRequest | None] = None,
) -> State[dict[str, object]]:
    """Learn: epochs of groups, lessons, the held-out sweep and the gate.

    Ends ``Completed`` (named ``StoppedEarly`` at a budget cap or an interrupt) or ``Failed`` with one clear message.

    Args:
        pipeline: Name of a shipped pipeline, or path of a pipeline file, from `TFGRPO_HOME` on. Empty: `tfgrpo-learning`.
        task_id: Names the directory under `out`; runs of one task share their lessons. Empty: the pipeline's.
        dataset: Items to learn on: a JSONL, CSV or Parquet file, a folder of them, or `hf:name`. Empty: the pipeline's.
        model: Model of the actors, as the endpoint calls it. Empty: the pipeline's.
        base_url: OpenAI-compatible root, usually ending in `/v1`. Empty: `OPENAI_BASE_URL` of the worker, or the pipeline's.
        epochs: All but the last learn, the last one measures. Empty: the pipeline's, or 3.
        group_size: Attempts per item. Empty: the pipeline's, or 2.
        sample_size: Items per epoch; also the most items of the sweep. Empty: the pipeline's, or 100.
        max_usd: Most US dollars; needs a price for every model in use. Empty: the deployment's, or the pipeline's.
        max_calls: Most model calls. Empty: the deployment's, or the pipeline's.
        settings: Any other setting by its dotted key, such as `{"tfgrpo.min_spread": 0.1}`; those of the deployment
            hold beside it. `tfgrpo config` lists all.
        resume: Run to go on with where it ended. A retry of a flow run goes on without it.
        request: All of it as one value: from a command, or a deployment made before there were parameters.
    """
    given = {name: value for name, value in locals().items() if name != "request"}
    run = deployed_run()
    try:
        asked = asked_of(RunRequest, request, given)
    except PrefectUnavailable as error:
        return state_of(RunSummary("failed", None, str(error), {}))
    if run is not None:
        asked = named_after(run, asked)
    artifacts = PrefectArtifacts()
    try:
        summary = _run_body()(asked, artifacts)
        artifacts.finish(summary)
        if summary.signal is not None:
            raise summary.signal
        return state_of(summary)
    finally:
        artifacts.wait()


def _run_body() -> Callable[[RunRequest, Observer], RunSummary]:
    # Ray's workers get the flow pickled with its globals, and no ContextVar can be pickled.
    return RUN_BODY.get()


def _terminations() -> AbstractContextManager[None]:
    """Prefect cancels the runs of its workers by a termination, and has to see it; all others stop as at Ctrl-C."""
    return termination_interrupts() if deployed_run() is None else nullcontext()
