"""The Python interface: learn, plan and select with Python callables, and read what was learned."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from concurrent.futures import wait
from contextlib import chdir
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Unpack

from pydantic import ValidationError

from tfgrpo.flows.arguments import (
    RUN_KEYWORDS,
    SELECT_KEYWORDS,
    Items,
    RunOptions,
    SelectOptions,
    lists_keywords,
    prepared_run,
    select_request,
)
from tfgrpo.flows.console.console import PeopleConsole
from tfgrpo.flows.console.environment import API_URL, check_prefect_home, quiet_prefect
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.console.progress import Progress, Screen
from tfgrpo.flows.orchestration.local_server import in_background, start_prefect
from tfgrpo.flows.orchestration.request import RunSummary
from tfgrpo.flows.result import Result
from tfgrpo.flows.run.execution import execute, groups_in_process
from tfgrpo.flows.run.index import known_tasks, run_named, task_named
from tfgrpo.flows.run.lessons import decision_in_force, lessons_of, pack_of_lessons
from tfgrpo.flows.run.prepare import Prepared
from tfgrpo.flows.selection import Selected
from tfgrpo.flows.selection import select as select_best
from tfgrpo.pipelines.plan.plan import Plan, pack_for
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.importing import handed_over
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile, Problem, RunAborted, SettingsError, python_names
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.runs import ManifestFile

__all__ = ["Selected", "alearn", "learn", "plan", "prompt", "select"]
_POLL_S: Final = 0.2

logging.getLogger("tfgrpo").addHandler(logging.NullHandler())  # silent unless the application configures logging


@lists_keywords(RUN_KEYWORDS)
def learn(items: Items | None = None, *, progress: bool = False, **options: Unpack[RunOptions]) -> Result:
    """Learn lessons on items, compare them with none, and return what was decided. Works in a notebook too.

    ``items`` are a path, dicts with ``id``, ``prompt`` and ``answer``, or a DataFrame. ``agent``, ``tools`` and ``rewarders``
    are callables or names. Other keywords are named like the options of ``tfgrpo run``; ``settings`` sets any other setting by
    dotted key. Environment variables count as on the command line. Without ``pipeline``, a run on items has the pack
    ``general`` and the task ``task_id``, else one named by the file or the items.
    The run needs no Prefect server; it is registered with one if PREFECT_API_URL names it, and with a temporary one for
    ``task_runner="dask"`` or ``"ray"``. ``progress=True`` shows the live view of the command on stderr.

    Raises ``ConfigError`` with every problem before anything is written or sent, and ``RunAborted`` for a run that failed;
    ``learn(resume=run_id, agent=agent)`` continues it. Ctrl-C ends the run resumably and is raised again. A callable that
    cannot be imported, such as a lambda, works with ``task_runner="threads"``, and resuming needs it again.

    Examples:
        >>> result = tfgrpo.learn("items.jsonl", agent=my_agent, model="my-model", base_url="http://localhost:8000/v1")
        >>> print(result.decision, [lesson.text for lesson in result.lessons])
    """
    stop = threading.Event()
    run = in_background(partial(_learn, items, options, progress=progress, stop=stop))
    try:
        with chdir("."):  # an agent may change it, and the next run, or ``prompt``, reads a relative ``out``
            while not run.done():
                wait((run,), _POLL_S)  # again and again: a signal that another thread gets wakes no waiting thread
            return run.result()
    except KeyboardInterrupt:
        stop.set()
        run.exception()  # a second Ctrl-C ends this wait
        raise


@lists_keywords(RUN_KEYWORDS)
async def alearn(items: Items | None = None, *, progress: bool = False, **options: Unpack[RunOptions]) -> Result:
    """Learn as ``learn`` does, without blocking the event loop. Cancelling it ends the run resumably.

    Examples:
        >>> result = await tfgrpo.alearn("items.jsonl", agent=my_agent, dry_run=True)
    """
    stop = threading.Event()
    run = asyncio.wrap_future(in_background(partial(_learn, items, options, progress=progress, stop=stop)))
    try:
        while not run.done():
            # Again and again: the stop button of a notebook takes effect when its loop wakes.
            await asyncio.wait([run], timeout=_POLL_S)
        return run.result()
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([run])
        raise


@lists_keywords(RUN_KEYWORDS)
def plan(items: Items | None = None, **options: Unpack[RunOptions]) -> Plan:
    """Return what ``learn`` would run, with a forecast of its calls, tokens and cost. Write and send nothing.

    Raises ``ConfigError`` with every problem.

    Examples:
        >>> print(tfgrpo.plan("items.jsonl", agent=my_agent, model="my-model", base_url="…").forecast)
    """
    with handed_over() as name_of, python_names():
        prepared = prepared_run(items, options, name_of, starts=False)
        return replace(prepared.plan, warnings=prepared.warnings)


@lists_keywords(SELECT_KEYWORDS)
def select(prompt: str | None = None, *, k: int = 8, **options: Unpack[SelectOptions]) -> Selected:
    """Ask for ``k`` answers to one request, grade them and return the best, with the others and the cost.

    ``agent`` and ``rewarders`` are callables or names. Other keywords are named like the options of ``tfgrpo select``.
    Raises ``ConfigError`` with every problem before anything is sent. ``.text`` of the result raises ``SelectionFailed``
    if no candidate could be chosen.

    Examples:
        >>> tfgrpo.select("What is 17 * 23?", k=8, answer="391", rewarders=["gt"], model="my-model", base_url="…").text
    """
    with handed_over() as name_of, python_names(), chdir("."):  # as in ``learn``
        work = partial(select_best, select_request(prompt, k, options, name_of))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return work()  # in this thread Ctrl-C cancels the calls under way
        return in_background(work).result()


@python_names()
def prompt(task_id: str, *, out: str | os.PathLike[str] | None = None) -> str:
    """Return the system prompt of a task: its prompt pack with the lessons in force.

    While none is in force it is the pack of the newest run, without lessons. Raises ``SettingsError`` for a task without
    runs, ``StoreError`` for files that cannot be read.

    Examples:
        >>> messages = [{"role": "system", "content": tfgrpo.prompt("my-task")}, {"role": "user", "content": "…"}]
    """
    task = task_named(task_id, out)
    newest = run_named(task, "latest")
    if newest is None:
        known = ", ".join(known_tasks(task.root.parent)) or "there is none"
        raise SettingsError.one("task_id", repr(task_id), f"a task with runs under {task.root.parent}: {known}")
    try:
        settings = Settings.model_validate_json(json.dumps(ManifestFile(newest.manifest).read().get("settings")))
    except ValidationError as error:
        raise CorruptFile(f"{newest.manifest}: has no settings that this version knows") from error
    decision = decision_in_force(task)
    simulated = decision is not None and decision.simulated
    pack = pack_for(settings, pack_of_lessons(task, simulated=simulated) or settings.pack)
    text, _ = lessons_of(task, pack, simulated=simulated)
    return text.system


def _learn(items: Items | None, options: RunOptions, *, progress: bool, stop: threading.Event) -> Result:
    with handed_over() as name_of, python_names():
        prepared = prepared_run(items, options, name_of, starts=True)
        console = PeopleConsole(stderr=True, highlight=False, force_jupyter=False)
        view = Observers(*([Progress(console)] if progress else []))
        if prepared.plan.chosen_rewards and not progress:  # what nobody asked for is said
            console.print(f"tfgrpo: rewards: {prepared.plan.chosen_rewards}", markup=False, soft_wrap=True)
        if prepared.plan.settings.task_runner != "threads" or os.environ.get(API_URL):
            return _result(_run_on_prefect(prepared, view, stop))
        runner = partial(groups_in_process, stop=stop)
        return _result(execute(prepared, os.environ, view, runner, clock=utc_now))


def _run_on_prefect(prepared: Prepared, view: Observers, stop: threading.Event) -> RunSummary:
    """Run on the Prefect server that the environment names, else on a temporary one. Raises ``SettingsError``."""
    quiet_prefect(os.environ)  # before Prefect is imported, which reads its settings once
    check_prefect_home(os.environ, make=True)
    screen = Screen(logging.getLogger("tfgrpo").info, view, lambda _: None)
    run_locally, server = start_prefect(os.environ)
    return run_locally(prepared, screen, server, stop=stop)


def _result(summary: RunSummary) -> Result:
    if summary.status == "refused":
        raise SettingsError([Problem(**problem) for problem in summary.details["problems"]])
    if summary.status == "failed":
        error = RunAborted(summary.message.removeprefix("RunAborted: "))
        if "run" in summary.details:
            error.add_note(f"its files are in {summary.details['run']}")
        raise error
    return Result.of_run(RunPaths(Path(summary.details["run"])))
