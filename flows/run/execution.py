"""Execute a run: open the session, learn, and close the books, however the run ends. The caller says where groups run.

Opening: names, directories, the library that the run starts from and the manifest, in that order. A replay reads from the
task of its run and writes to its own. What must be unchanged in a resumed or replayed run (pack, items) is compared with its
manifest before any writing.

Every end is a ``RunSummary``: bad input is ``refused`` before anything is written; a budget cap, a first batch in which
nothing is right, or an interrupt is ``stopped`` and can be resumed; any other early end is ``failed``. Prefect's own
signals are part of the summary, for the flow to raise again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, chdir, closing, contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, islice
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Final, TypeAlias, TypeVar

from filelock import FileLock

from tfgrpo.flows.console.observer import Observer
from tfgrpo.flows.orchestration.interrupts import worker_lost
from tfgrpo.flows.orchestration.request import RunRequest, RunSummary, Status
from tfgrpo.flows.run.close import close_books, close_killed, list_unbegun, notify, report_unbegun, unclosed_books
from tfgrpo.flows.run.damage import record_files, refuse_damage
from tfgrpo.flows.run.index import is_unclosed, killed_nights, lock_run, new_run_id, refuse_pruned, runs_of, task_named
from tfgrpo.flows.run.lessons import conditions_of, memory_of, starting_library, store_of
from tfgrpo.flows.run.loop.books import Books, RunGroups, Session, State, recorded_failures, stopwatch
from tfgrpo.flows.run.loop.learn import learn, measure, measure_on_demand, open_sealed
from tfgrpo.flows.run.prepare import Prepared, check_endpoint_of, continued, counted_again, prepare, refuse_taken, run_context
from tfgrpo.pipelines.datasets.items import Item, item_texts
from tfgrpo.pipelines.plan.plan import Plan, spent_on_task
from tfgrpo.pipelines.settings.layers import describe
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.rewarders.composite import judge_loads
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import BudgetRefused, ConfigError, CorruptFile, NothingRight, SettingsError, TfgrpoError
from tfgrpo.stores.experiences.credit import count_credit, read_credit
from tfgrpo.stores.experiences.decisions import Library, kept_out, read_decisions
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.json_values import canonical_json, sha256_hex
from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.stores.runs import Journal, ManifestFile
from tfgrpo.stores.telemetry.setup import configure
from tfgrpo.stores.text import LONGEST_IDENTIFIER, pluralize
from tfgrpo.tasks.actors.registry import tools_of
from tfgrpo.tasks.decision import explanation_of
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.learning.ask import shared_labels
from tfgrpo.tasks.learning.credit import MEMORY_NIGHTS
from tfgrpo.tasks.models.wire import encode_tool
from tfgrpo.tasks.runtime.host import call_blocking, close_runtime, halt_runtime, runtime_for
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

Runner: TypeAlias = Callable[[Plan], AbstractContextManager[RunGroups]]
"""Provides the function that runs the groups of a batch, for the duration of a run."""
_F = TypeVar("_F")
# Groups submitted ahead, per concurrent rollout: enough that no slot waits for one.
_AHEAD: Final = 2
_POLL_S: Final = 0.2


def execute(
    requested: RunRequest | Prepared, env: Mapping[str, str], observer: Observer, runner: Runner, *, clock: Clock
) -> RunSummary:
    """Execute a request, or what ``prepare`` made of it, and return its summary."""
    request, happened = (requested.request if isinstance(requested, Prepared) else requested), list[str]()
    try:
        if isinstance(requested, Prepared):
            prepared = requested
        else:
            request = continued(request, env)
            if request.flow_run_id is not None and request.earlier is None:
                ended = _resume_killed(request, env, observer, runner, clock=clock, happened=happened)
                if ended is not None:
                    return ended
            prepared = replace(prepare(request, env, starts=True), happened=tuple(happened))
            request = prepared.request
        with ExitStack() as after_workers, runner(prepared.plan) as fan_out, ExitStack() as leaving:
            session = open_session(prepared, observer, fan_out, clock=clock)
            # Callbacks run in reverse: the lock is released last, also when another fails.
            after_workers.callback(session.lock.release)
            after_workers.callback(_close, session, "the record of its files", partial(record_files, session.paths))
            after_workers.callback(_clear_owners, session.context)
            leaving.callback(_close, session, "the runtime", partial(close_runtime, session.context))
            leaving.callback(_close, session, "an observer", observer.closed)
            return _learn_and_close(session)
    except (TfgrpoError, OSError) as error:
        # What a person types and sees refused leaves nothing behind; a night of a deployment is listed.
        is_seen = isinstance(error, ConfigError) and request.flow_run_id is None
        return report_unbegun(request, error, env, listed_at=None if is_seen else clock)


def _resume_killed(
    request: RunRequest, env: Mapping[str, str], observer: Observer, runner: Runner, *, clock: Clock, happened: list[str]
) -> RunSummary | None:
    """Resume the earlier nights that were killed, the oldest first, before the night of a deployment that is asked for.

    Each is resumed once, and again only if it got further, so that what kills it cannot take all nights after it. Returns
    the summary of one that was cancelled, for the night ends with it.
    """
    settings = request.resolved(env).settings
    task = task_named(settings.task_id, settings.out)
    for run in killed_nights(task, pipeline=settings.pipeline, simulated=choose_models(settings).simulated):
        run_id = run.root.name
        first = RunSummary("failed", request.run_id, f"ended while run {run_id} was resumed, before it began", {})
        list_unbegun(request, env, first, clock)
        # By its own settings: those asked for are of the night that comes after.
        again = request.model_copy(update={"run_id": None, "resume": run_id, "as_begun": True})
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
    settings = session.settings
    try:
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
        summary = close_books(session, end.status, session.runtime.scrub(end.message))
        return replace(summary, error=summary.error or end.error, signal=summary.signal or end.signal)
    except Exception as error:  # noqa: BLE001 - as above
        why = session.runtime.scrub(f"the run could not be closed: {_described(error)}")
        return unclosed_books(session, "failed", why)
    except BaseException as signal:  # noqa: BLE001 - as above
        return unclosed_books(session, "stopped", "interrupted before its books were closed").ended_by(signal)


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


def _ended(session: Session) -> RunSummary:
    def end(status: Status, message: str, by: BaseException) -> RunSummary:
        return RunSummary(status, session.run_id, message, {}).ended_by(by)

    try:
        return RunSummary("finished", session.run_id, _whole_run(session), {})
    except (BudgetRefused, NothingRight) as error:
        return end("stopped", str(error), error)
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
        return end("stopped", f"{why}; every answered call is in the journal", signal)


def _whole_run(session: Session) -> str:
    session.observer.run_started(session.plan, session.run_id, session.warnings)
    # Said by the event loop, whose own context does not know which flow run this is.
    context, observer = copy_context(), session.observer
    session.runtime.outages.say = lambda what: context.run(observer.waiting, what)
    if session.waits:
        _await_endpoints(session)
    if session.plan.opens_sealed:
        return open_sealed(session)
    if session.measures is not None:
        return measure_on_demand(session, session.measures)
    if not session.settings.tfgrpo.enabled:
        measure(session)
        return "measured with one actor per item; nothing was learned, because FEATURE_TFGRPO_GROUP is off"
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


# Items of which the manifest has the digest of each, 5 kB.
_NAMED: Final = 512
_DIGITS: Final = 10
# Longest wait for other runs of the task to begin: one that was stopped by Ctrl-Z would stop all nights after it.
_BEGINS_S: Final = 600.0
_PAID_BEFORE: Final = "nothing is sent: the run had finished, and its cost is that of before"
_NIGHT_FIELDS: Final = ("night", "items", "night_before", "items_changed", "resumed_with_bytes")


def open_session(prepared: Prepared, observer: Observer, fan_out: RunGroups, *, clock: Clock) -> Session:
    """Open a new, resumed or replayed run. Raises ``SettingsError`` before anything is written."""
    request, plan, earlier = prepared.request, prepared.plan, prepared.earlier or {}
    run_id = request.earlier or request.run_id or new_run_id(clock)
    if earlier:
        _refuse_other_world(earlier, _identity(plan))
    labels = shared_labels(answer for item in plan.learn_items for answer in item.accepted)
    context = replace(run_context(plan, run_id, plan.paths.run(run_id).root, plan.settings.task_id), labels=labels)
    telemetry = configure(context.telemetry, os.environ)  # refuses an invalid OTEL endpoint, before a directory is made
    journal = refuse_damage(context, prepared)
    in_force, outdated = starting_library(plan, earlier["in_force"]["experience_ids"] if earlier else None)
    task = plan.paths if request.replay is None else _replay_task(plan.paths, run_id)
    context = _context(context, prepared, task.run(run_id), clock)
    with ExitStack() as undo:  # until all is open: after that the caller closes it
        lock = lock_run(context.paths)
        undo.callback(lock.release)
        refuse_taken(request, task)  # again, under the lock: another process may have begun a run of this name
        refuse_pruned(context.paths, "--resume")
        # Two nights that begin at once would have one number, and one seed.
        with FileLock(task.root / ".lock", timeout=_BEGINS_S, mode=0o600):
            prepared = prepared if earlier else counted_again(prepared)
            plan, context = prepared.plan, replace(context, settings=prepared.plan.settings)
            _begin_task_ledger(context, task, simulated=plan.simulated)
            undo.callback(close_runtime, context)
            runtime = call_blocking(context, _itself)
            if request.resume is not None:
                runtime.ledger.start_at_least(journal.spent)
            fields, failures = _opening_fields(prepared, context, in_force, clock), recorded_failures(plan.paths.run(run_id))
            happened = (*prepared.happened, *outdated, *journal.warnings, *_lost_before(runtime.journal, fields))
            warnings = (*prepared.warnings, *happened, *telemetry.warnings)
            before = [] if context.replay else earlier.get("lasting_warnings", [])
            shown, lasting = ([*dict.fromkeys((*before, *texts))] for texts in (warnings, happened))
            books = Books(context.paths, run_id, task.credit, _state(plan, in_force, fields["began_with"]), plan.rewarders)
            fields |= {"warnings": shown, "lasting_warnings": lasting, "files": {}, "task_files": {}}
            books.manifest.update(**fields, **_identity(plan))
        finished = earlier.get("status") == "finished" and not is_unclosed(earlier)
        again = finished and request.resume is not None and not request.pay_again
        session = Session(
            plan=plan,
            run_id=run_id,
            task=task,
            runtime=runtime,
            store=store_of(plan, task, clock=clock),
            books=books,
            observer=observer,
            in_force=in_force,
            conditions=conditions_of(plan),
            measures=prepared.request.measures,
            fan_out=fan_out,
            clock=clock,
            lock=lock,
            timing=stopwatch(runtime.ledger),
            waits=prepared.waits,
            finished_before=finished,
            replay_of=None if request.replay is None else plan.paths,
            failures=failures,
            warnings=(*warnings, *[_PAID_BEFORE] * again),
        )
        undo.pop_all()
    return session


def _began_with(prepared: Prepared) -> dict[str, Any]:
    """Return what a resumed or replayed run needs of earlier nights to start as it did; it reads no later lines."""
    if prepared.earlier is not None:
        return dict(prepared.earlier["began_with"])
    paths = prepared.plan.paths
    # An entry without a number of lessons is a damaged manifest, or that of a run that ended no epoch.
    runs = [run for run in runs_of(paths) if run.begun]
    ended = (one for one in runs if one.simulated == prepared.plan.simulated and one.lessons is not None)
    last = next(ended, None)
    block = {} if last is None else ManifestFile(paths.run(last.run_id).manifest).read()["tfgrpo"]
    return {
        "credit_lines": count_credit(paths.credit),
        "kept_out": kept_out(read_decisions(paths.promotions), simulated=prepared.plan.simulated),
        "remembered": block.get("remembered", {}),
        "unfinished": [run.run_id for run in runs if run.state == "unfinished"],
    }


def _items_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return how many items are new and gone, of many how many there are; None for the same ones."""
    if before.get("digest") == now["digest"]:
        return None
    if not before.get("few") or not now["few"]:
        return f"{now['count']:,} items, {before['count']:,} before, not the same ones"
    old, new = {*before["few"]}, {*now["few"]}
    return f"{pluralize(len(new - old), 'item')} new, {len(old - new)} gone"


def _night_fields(prepared: Prepared) -> dict[str, Any]:
    request, plan, earlier = prepared.request, prepared.plan, prepared.earlier
    if earlier is not None:
        return {name: earlier[name] for name in _NIGHT_FIELDS if name in earlier}
    if request.measures is not None or plan.opens_sealed or not plan.learns:
        return {}
    # What distinguishes datasets: the number of items, a digest of all, and of few items the digest of each.
    every = chain(plan.learn_items, plan.data.split.held_out, plan.data.sealed)
    digests = sorted(sha256_hex(canonical_json(item_texts(item)))[:_DIGITS] for item in every)
    few = digests if len(digests) <= _NAMED else []
    items = {"count": len(digests), "digest": sha256_hex("".join(digests)), "few": few}
    fields: dict[str, Any] = dict.fromkeys(_NIGHT_FIELDS)
    fields |= {"night": (plan.settings.tfgrpo.night or 0) + 1, "items": items}
    nights = (run for run in runs_of(plan.paths) if run.night is not None and run.simulated == plan.simulated)
    if (last := next(nights, None)) is not None:
        before = ManifestFile(plan.paths.run(last.run_id).manifest).read().get("items")
        fields |= {"night_before": last.run_id, "items_changed": before and _items_changed(before, items)}
    return fields


def _state(plan: Plan, in_force: Library, began: Mapping[str, Any]) -> State:
    night = plan.settings.tfgrpo.night or 0
    memory = memory_of(
        store_of(plan),
        read_credit(plan.paths.credit, began["credit_lines"], nights=(MEMORY_NIGHTS + 1, plan.simulated)),
        (),
        simulated=plan.simulated,
        night=night,
        slots=plan.pack.manifest.experience_slots,
        conditions=conditions_of(plan),
        in_force_ids=[entry.experience_id for entry in in_force.entries],
    )
    return State.of(replace(memory, kept_out=began["kept_out"]), began["remembered"])


def _lost_before(journal: Journal | None, fields: Mapping[str, Any]) -> Iterator[str]:
    if journal is not None and journal.warning is not None:
        yield journal.warning
    for killed in fields["began_with"].get("unfinished", ()):
        command = f"`tfgrpo run --resume {killed}`"
        yield f"run {killed} was killed before its end: {command} goes on with it, and asks no answered call again"
    if changed := fields.get("items_changed"):
        yield f"the dataset is not that of {fields['night_before']}, the night before: {changed}"


async def _itself(runtime: Runtime) -> Runtime:
    return runtime


def _replay_task(source: TaskPaths, run_id: str) -> TaskPaths:
    number = 0
    while True:
        number += 1
        ending = f"-{number}"
        task = source.replay(run_id[: LONGEST_IDENTIFIER - len(ending)] + ending)
        with suppress(FileExistsError):
            task.root.mkdir(parents=True, mode=0o700)  # atomic, so that two replays never share one
            return task


def _identity(plan: Plan) -> dict[str, Any]:
    pack, mix = plan.pack.manifest, plan.data.mix
    stamp = {"stamp": pack.stamp, "stamped_at": str(pack.stamped_at)}
    return {
        "pack": {"id": pack.id, "domain": pack.domain, **stamp, "slots": pack.experience_slots},
        "dataset": {
            "learn": len(plan.learn_items),
            "held_out": len(plan.eval_items),
            "held_out_of": len(plan.data.split.held_out),
            **({"sealed": len(plan.data.sealed)} if plan.data.sealed else {}),
            "learn_digest": _digest_of(plan.learn_items),
            "held_out_digest": _digest_of(plan.eval_items),
            **({"mix_sha256": mix.config.digest} if mix is not None else {}),
        },
        "judges": [
            {"model": plan.models.judge(load.options.model), "instructions": sha256_hex(load.instructions)}
            for weighted in plan.rewarders
            for load in judge_loads(weighted.scorer, plan.group_size)
        ],
    }


def _digest_of(items: Iterable[Item]) -> str:
    """Return the SHA-256 of a JSON list of the items. With another, no run that began before can be resumed or replayed."""
    digest = hashlib.sha256(b"[")
    for number, item in enumerate(items):  # one by one: there may be more than fit into memory
        digest.update(f"{',' if number else ''}{canonical_json(item_texts(item))}".encode())
    digest.update(b"]")
    return digest.hexdigest()


def _refuse_other_world(earlier: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    for part, now in identity.items():
        if (before := earlier.get(part)) != now:
            accepted = f"unchanged since the run began: {canonical_json(before)}"
            raise SettingsError.one(f"the run's {part}", canonical_json(now), accepted)


def _begin_task_ledger(context: RunContext, task: TaskPaths, *, simulated: bool) -> None:
    """Start the task's ledger with no less than the spending of its earlier runs."""
    if context.task_ledger_path is None:
        return
    try:
        with closing(Ledger(Budget(), shared=context.task_ledger_path)) as ledger:
            ledger.start_from(spent_on_task(task, simulated=simulated))
    except CorruptFile as error:
        raise SettingsError.one("budget.task_max_usd", str(error), "ledgers and manifests that can be read") from error


def _context(context: RunContext, prepared: Prepared, run: RunPaths, clock: Clock) -> RunContext:
    """Return the context of the run in its directory, with its ledgers, or with the journal that it replays."""
    plan = prepared.plan
    began = clock().isoformat() if prepared.earlier is None else prepared.earlier["started_at"]
    context = replace(context, mcp_tools=prepared.mcp_tools, began=began)
    if prepared.request.replay is not None:
        return replace(context, run_dir=run.root, replay=True, replay_from=context.paths.journal)
    shared = None if plan.settings.budget.task_max_usd is None else plan.paths.ledger(simulated=plan.simulated)
    return replace(context, ledger_path=run.ledger, task_ledger_path=shared)


def _opening_fields(prepared: Prepared, context: RunContext, in_force: Library, clock: Clock) -> dict[str, Any]:
    request, plan, earlier = prepared.request, prepared.plan, prepared.earlier or {}
    resumed = {} if context.replay else earlier
    resolved = prepared.resolved
    if request.flow_run_id is not None:  # a deployment has no command line
        named = {key: "parameters of the flow run" for key, each in resolved.sources.items() if each.startswith("command")}
        resolved = replace(resolved, sources={**resolved.sources, **named})
    return {
        **({} if resumed else {"message": None}),
        **_night_fields(prepared),
        "schema_version": 1,
        **({"opens_sealed": True} if plan.opens_sealed else {}),
        "run_id": context.run_id,
        "task_id": plan.settings.task_id,
        "pipeline": plan.settings.pipeline,
        "flow_run_id": earlier.get("flow_run_id") if earlier else request.flow_run_id,
        "status": "running",
        "simulated": plan.simulated,
        "model": plan.models.name,
        "started_at": context.began,
        "resumed_at": clock().isoformat() if resumed else None,
        "traceback": None,
        "settings": plan.settings.model_dump(mode="json"),
        "sources": dict(resolved.sources),
        "settings_table": [{"key": key, "value": value, "source": source} for key, value, source in describe(resolved)],
        "seeds": {"run": plan.settings.tfgrpo.seed, "simulated": plan.settings.simulated.seed if plan.simulated else None},
        "prices": plan.models.price_rows,
        # Of before the first call: by now the plan would forecast a run by its own results.
        "forecast": earlier.get("forecast") or asdict(plan.forecast),
        "tools": [encode_tool(tool.spec) for tool in tools_of(plan.settings.actor, prepared.mcp_tools)],
        **({"mcp_tools": [asdict(tool) for tool in prepared.mcp_tools]} if prepared.mcp_tools else {}),
        "cohorts": resumed.get("cohorts", {}),
        "control": None,
        "measures": None if request.measures is None else request.measures.model_dump(),
        "began_with": _began_with(prepared),
        "in_force": {"library_id": in_force.library_id, "experience_ids": [entry.experience_id for entry in in_force.entries]},
    }
