"""Execute a run: open the session, learn, and close the books, however the run ends. The caller says where groups run.

Every end is a ``RunSummary``: bad input is ``refused`` before anything is written; a budget cap, a first batch in which
nothing is right, or an interrupt is ``stopped`` and can be resumed; any other early end is ``failed``. Prefect's own
signals are part of the summary, for the flow to raise again.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, chdir, contextmanager, suppress
from contextvars import Context
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final, TypeAlias, TypeVar

from tfgrpo.flows.console.observer import Observer
from tfgrpo.flows.orchestration.interrupts import worker_lost
from tfgrpo.flows.orchestration.request import RunRequest, RunSummary, Status
from tfgrpo.flows.run.close import close_books, list_unbegun, notify, report_unbegun, unclosed_books
from tfgrpo.flows.run.damage import record_files
from tfgrpo.flows.run.index import close_killed, killed_nights
from tfgrpo.flows.run.loop.books import RunGroups, Session
from tfgrpo.flows.run.loop.learn import learn, measure, measure_on_demand, open_sealed
from tfgrpo.flows.run.open import open_session
from tfgrpo.flows.run.prepare import Prepared, check_endpoint_of, continued, prepare
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import BudgetRefused, ConfigError, NothingRight, TfgrpoError
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.tasks.decision import explanation_of
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.runtime.host import close_runtime, halt_runtime, runtime_for
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

Runner: TypeAlias = Callable[[Plan], AbstractContextManager[RunGroups]]
"""Provides the function that runs the groups of a batch, for the duration of a run."""
_F = TypeVar("_F")
_AHEAD: Final = 2
"""Groups submitted ahead, per concurrent rollout: enough that no slot waits for one."""
_POLL_S: Final = 0.2


def execute(
    asked: RunRequest | Prepared, env: Mapping[str, str], observer: Observer, runner: Runner, *, clock: Clock
) -> RunSummary:
    """Execute a request, or what ``prepare`` made of it, and return its summary."""
    request, happened = (asked.request if isinstance(asked, Prepared) else asked), list[str]()
    try:
        if not isinstance(asked, Prepared):
            request = continued(request, env)
            if request.flow_run_id is not None and request.earlier is None:
                ended = _resume_killed(request, env, observer, runner, clock=clock, happened=happened)
                if ended is not None:
                    return ended
        prepared = asked if isinstance(asked, Prepared) else prepare(request, env, starts=True)
        prepared = replace(prepared, happened=tuple(happened))
        request = prepared.request
        with ExitStack() as after_workers, runner(prepared.plan) as fan_out, ExitStack() as leaving:
            try:
                session = open_session(prepared, observer, fan_out, clock=clock)
            except ConfigError:
                raise
            except (TfgrpoError, OSError) as error:
                return report_unbegun(request, error, env, listed_at=clock)
            # Callbacks run in reverse: the lock is released last, also when another fails.
            after_workers.callback(session.lock.release)
            after_workers.callback(_close, session, "the record of its files", partial(record_files, session.paths))
            after_workers.callback(_clear_owners, session.context)
            leaving.callback(_close, session, "the runtime", partial(close_runtime, session.context))
            leaving.callback(_close, session, "an observer", observer.closed)
            return _learn_and_close(session)
    except ConfigError as error:
        # What a person types and sees refused leaves nothing behind; a night of a deployment is listed.
        return report_unbegun(request, error, env, listed_at=None if request.flow_run_id is None else clock)


def _resume_killed(
    request: RunRequest, env: Mapping[str, str], observer: Observer, runner: Runner, *, clock: Clock, happened: list[str]
) -> RunSummary | None:
    """Resume the earlier nights that were killed, the oldest first, before the night of a deployment that is asked for.

    Each is resumed once, and again only if it got further, so that what kills it cannot take all nights after it. Returns
    the summary of one that was cancelled, for the night ends with it.
    """
    settings = request.resolved(env).settings
    task = TaskPaths.of(settings.out, settings.task_id)
    for run in killed_nights(task, pipeline=settings.pipeline, simulated=choose_models(settings).simulated):
        run_id = run.root.name
        first = RunSummary("failed", request.run_id, f"ended while run {run_id} was resumed, before it began", {})
        list_unbegun(request, env, first, clock)
        again = request.model_copy(update={"run_id": None, "resume": run_id})
        with chdir("."):  # an agent that is a function may change it, and ``out`` of the night is relative
            ended = execute(again, env, observer, runner, clock=clock)
        if ended.signal is not None or ended.error == KeyboardInterrupt.__name__:
            notify(settings, first)  # the other run has told of its own end
            return ended
        observer.resumed(ended)
        how = "resumed first" if ended.status in {"finished", "stopped"} else "not resumed"
        happened.append(f"run {run_id} was killed before its end, and was {how}: {ended.message}")
        if ended.status not in {"finished", "stopped"}:
            close_killed(run, happened[-1])
    return None


@contextmanager
def groups_in_process(plan: Plan, *, stop: Event) -> Iterator[RunGroups]:
    """Run groups on the runtime of this process, without Prefect, until ``stop``."""

    def run_groups(context: RunContext, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
        host, running = runtime_for(context), set[Future[GroupResult]]()

        def submit(some: Iterable[Sequence[GroupSpec]], ended: Callable[[Future[GroupResult]], None]) -> None:
            for spec in chain.from_iterable(some):
                # An empty context, as under Prefect: a group's spans belong to the carrier, not to the caller's span.
                future = Context().run(host.submit, partial(run_group, spec, carrier=context.carrier))
                running.add(future)
                future.add_done_callback(running.discard)
                future.add_done_callback(ended)

        try:
            yield from as_submitted(plan, specs, submit, lambda future: (future.result(),), stop)
        finally:
            for future in tuple(running):
                future.cancel()

    yield run_groups


def as_submitted(
    plan: Plan,
    specs: Sequence[GroupSpec],
    submit: Callable[[list[Sequence[GroupSpec]], Callable[[_F], None]], None],
    results_of: Callable[[_F], Sequence[GroupResult]],
    stop: Event | None,
    *,
    per_task: int = 1,
) -> Generator[GroupResult, None, None]:
    """Submit a few groups ahead, and yield each result as it arrives. Raises ``KeyboardInterrupt`` after ``stop``.

    ``submit`` gets tasks of ``per_task`` groups each, and what to call with the future of each that has ended.
    """
    tasks = [specs[at : at + per_task] for at in range(0, len(specs), per_task)]
    waiting, ended, ahead = iter(tasks), SimpleQueue[_F](), _AHEAD * plan.settings.tfgrpo.concurrency
    if plan.settings.task_runner == "ray":
        # Each worker process has slots for all rollouts: only the number of groups bounds those of all together.
        ahead = plan.settings.tfgrpo.concurrency // max((spec.size for spec in specs), default=1)
    if stop is not None and stop.is_set():
        raise KeyboardInterrupt
    submit(list(islice(waiting, max(1, -(-ahead // per_task)))), ended.put)
    for _ in tasks:
        results = results_of(_next(ended, stop))
        if following := list(islice(waiting, 1)):
            submit(following, ended.put)
        yield from results


def _next(ended: SimpleQueue[_F], stop: Event | None) -> _F:
    while stop is None or not stop.is_set():
        with suppress(Empty):  # waits a little at a time: a signal that another thread gets wakes no waiting thread
            return ended.get(timeout=_POLL_S)
    raise KeyboardInterrupt


def _learn_and_close(session: Session) -> RunSummary:
    """Learn and close the books; errors of the run or the disk become the summary."""
    try:
        end = _traced(session)
        summary = close_books(session, end.status, session.runtime.scrub(end.message))
        return replace(summary, error=end.error, signal=end.signal)
    except (TfgrpoError, OSError) as error:
        why = session.runtime.scrub(f"the run could not be closed: {_described(error)}")
        return unclosed_books(session, "failed", why)
    except KeyboardInterrupt:
        unclosed = unclosed_books(session, "stopped", "interrupted before its books were closed")
        return replace(unclosed, error=KeyboardInterrupt.__name__)


def _clear_owners(context: RunContext) -> None:
    """Remove the files that ended worker processes left next to the ledgers, as opening a ledger does."""
    if context.settings.task_runner == "threads":
        return
    for path in (context.ledger_path, context.task_ledger_path):
        with suppress(TfgrpoError, OSError):
            if path is not None:
                Ledger(Budget(), shared=path).close()


def _close(session: Session, what: str, close: Callable[[], object]) -> None:
    try:
        close()
    except Exception as error:  # noqa: BLE001 - becomes a warning of the manifest
        with suppress(TfgrpoError, OSError):  # the disk may be the cause
            reason = session.runtime.scrub(_described(error))
            session.books.manifest.warn(f"{what} could not be closed: {reason}", lasting=True)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _traced(session: Session) -> RunSummary:
    settings = session.settings
    with session.telemetry.workflow_span(settings.pipeline, run_id=session.run_id, task_id=settings.task_id) as span:
        end = _ended(session)
        if end.error is not None:
            span.fail(end.error)
        totals, decision = session.runtime.ledger.totals(), session.books.decision
        unknown = bool(totals.unmeasured_attempts)
        span.set(
            run_status=end.status,
            run_decision=None if decision is None else decision.decision,
            run_calls=None if unknown else totals.calls,
            run_tokens=None if unknown else totals.tokens,
            run_cost_usd=None if unknown or totals.unknown_price_calls else totals.usd,
        )
        return end


def _ended(session: Session) -> RunSummary:
    """Return how a run ended, before its books are closed."""

    def end(status: Status, message: str, by: BaseException, signal: BaseException | None = None) -> RunSummary:
        return RunSummary(status, session.run_id, message, {}, type(by).__name__, signal)

    try:
        return RunSummary("finished", session.run_id, _whole_run(session), {})
    except (BudgetRefused, NothingRight) as error:
        return end("stopped", f"{'the budget is spent: ' if isinstance(error, BudgetRefused) else ''}{error}", error)
    except KeyboardInterrupt as error:
        halt_runtime(session.context)
        return end("stopped", "interrupted; every answered call is in the journal", error)
    except TfgrpoError as error:
        return end("failed", _described(error), error)
    except Exception as error:  # noqa: BLE001 - also for unexpected errors the books are closed
        session.books.manifest.update(traceback=session.runtime.scrub(traceback.format_exc()))
        return end("failed", _described(error), error)
    except BaseException as signal:  # noqa: BLE001 - Prefect cancels or terminates the run; raised again by the flow
        halt_runtime(session.context)
        why = "worker lost" if worker_lost.is_set() else "cancelled"
        return end("stopped", f"{why}; every answered call is in the journal", signal, signal)


def _whole_run(session: Session) -> str:
    if session.waits:
        _await_endpoints(session)
    if session.plan.opens_sealed:
        return open_sealed(session)
    if not session.settings.tfgrpo.enabled and session.measures is None:
        measure(session)
        return "measured with one actor per item; nothing was learned, because FEATURE_TFGRPO_GROUP is off"
    if session.measures is not None:
        return measure_on_demand(session, session.measures)
    return explanation_of(learn(session))


def _await_endpoints(session: Session) -> None:
    shown: set[str] = set()

    def waiting(what: str) -> None:
        if what not in shown:
            session.observer.waiting(what)
        shown.add(what)
        for _ in session.fan_out(session.context, ()):  # of no groups: raises the interrupt of a run that is to stop
            pass

    for warning in asyncio.run(check_endpoint_of(session.plan, waiting)):
        session.books.manifest.warn(warning)
    session.observer.waiting("the endpoint answers")
