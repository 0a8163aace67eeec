"""The Python interface: learn, plan and select with Python callables, and read what was learned.

A result is read from the files of the run, the same for a new run and an old one. Arguments, callables and items among
them, become the checked request of a run or selection.
"""

from __future__ import annotations

import asyncio
import atexit
import html
import importlib
import inspect
import json
import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, get_type_hints

import numpy as np
from pydantic import ValidationError

from tfgrpo.flows.console.console import PeopleConsole, visible
from tfgrpo.flows.console.environment import API_URL, check_prefect_home, quiet_prefect
from tfgrpo.flows.console.observer import Observers, Progress, Screen
from tfgrpo.flows.orchestration.local_server import in_background, start_prefect
from tfgrpo.flows.orchestration.request import FlowRequest, RunRequest, SelectRequest
from tfgrpo.flows.report.night import Night
from tfgrpo.flows.run.execution import execute, groups_in_process
from tfgrpo.flows.run.index import find_run, known_runs, known_tasks, refuse_pruned, run_named, task_named, without_pipeline
from tfgrpo.flows.run.lessons import decided_library, decision_in_force, lessons_of, pack_of_lessons
from tfgrpo.flows.run.prepare import Prepared, prepare
from tfgrpo.flows.selection import Selected
from tfgrpo.flows.selection import select as select_best
from tfgrpo.pipelines.plan.plan import Plan, pack_for
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.importing import handed_over, is_handed_over
from tfgrpo.rewarders.statistics.summary import Interval
from tfgrpo.stores import errors
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import ConfigError, DatasetError, Problem, SettingsError
from tfgrpo.stores.experiences.decisions import in_force
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.stores.runs import ManifestFile, expected_shape
from tfgrpo.stores.text import did_you_mean, pluralize
from tfgrpo.tasks.decision import CONFIDENCE

__all__ = [
    "Lesson", "Result", "Selected", "Usage",
    "alearn", "learn", "load_run", "plan", "prompt", "select",
]  # fmt: skip
logging.getLogger("tfgrpo").addHandler(logging.NullHandler())  # silent unless the application configures logging
_POLL_S: Final = 0.2
_F = TypeVar("_F", bound=Callable[..., Any])
NameOf: TypeAlias = Callable[[object], str]
# Fields of a request that are no keywords.
_ELSEWHERE: Final = {
    "actor": "agent",
    "dataset": "items, the first argument",
    "measures": "the command tfgrpo experiences measure",
    "test": "the command tfgrpo test",
}
_ITEM: Final = "a dict of JSON values, with None for what is missing"


class DataFrameLike(Protocol):
    """A DataFrame of pandas, polars or Dask, also a lazy one. Tables of Arrow are read as well."""

    @property
    def columns(self) -> Any:
        """Return the names of the columns."""


Agent: TypeAlias = Callable[..., Any] | str
"""A callable that declares any of ``prompt, system, item, temperature, seed, chat, base_url, api_key``, or a name of one."""
Rewarder: TypeAlias = Callable[..., Any] | object
"""A function ``(output, answer)`` or ``(context)``, a rewarder, a grader, a name, or a mapping as in a pipeline file."""
Items: TypeAlias = str | os.PathLike[str] | Iterable[Mapping[str, Any]] | DataFrameLike
Setting: TypeAlias = str | int | float | bool | Sequence[Any] | Mapping[str, Any] | None


class _SharedOptions(TypedDict, total=False):
    settings: Mapping[str, Setting] | None
    """Any other setting by dotted key."""
    agent: Agent | None
    pipeline: str
    model: str
    base_url: str
    out: str | os.PathLike[str]
    task_id: str
    pack: str
    packs_root: str
    world: str
    max_usd: float
    max_tokens: int
    max_calls: int
    seed: int
    dry_run: bool


class RunOptions(_SharedOptions, total=False):
    """Keywords of ``learn`` and ``plan``: callables, and what ``tfgrpo run`` has as options, to which a test holds them."""

    tools: Sequence[Callable[..., Any] | str]
    rewarders: Sequence[Rewarder] | None
    run_id: str
    resume: str
    pay_again: bool
    replay: str
    eval_dataset: str
    data_config: str
    reflection_model: str
    epochs: int
    group_size: int
    sample_size: int
    batch_size: int
    train_temp: float
    eval_temp: float
    concurrency: int
    allow_zero: bool
    task_runner: Literal["threads", "dask", "ray"]


class SelectOptions(_SharedOptions, total=False):
    """Keywords of ``select``, likewise."""

    rewarders: Sequence[Rewarder]
    item: str
    answer: str
    reference: str
    min_success: int
    format: Literal["text", "json", "powl"]
    json_schema: str
    none_valid: Literal["raise", "best_effort"]
    stage: Literal["auto", "VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"]
    memory: Literal["off", "record", "exploit", "explore"]
    max_validations: int
    timeout_s: float


RUN_KEYWORDS: Final[Mapping[str, Any]] = get_type_hints(RunOptions)
SELECT_KEYWORDS: Final[Mapping[str, Any]] = get_type_hints(SelectOptions)


def lists_keywords(keywords: Mapping[str, Any]) -> Callable[[_F], _F]:
    """Give a function these keywords in its signature, for ``help`` and notebooks, which do not read ``Unpack``."""

    def listed(function: _F) -> _F:
        own = inspect.signature(function)
        parameters = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        for name, type_ in keywords.items():
            # The default ``...``: a keyword that is not given.
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=type_))
        setattr(function, "__signature__", own.replace(parameters=parameters))  # noqa: B010 - mypy knows no such attribute
        return function

    return listed


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
            # Again and again: a signal that another thread gets wakes no waiting thread.
            while not run.done():
                wait((run,), _POLL_S)
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
    with handed_over() as name_of, errors.python_names():
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
    with handed_over() as name_of, errors.python_names(), chdir("."):  # as in ``learn``
        work = partial(select_best, select_request(prompt, k, options, name_of))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return work()  # in this thread Ctrl-C cancels the calls under way
        return in_background(work).result()


@errors.python_names()
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
        tasks = ", ".join(known_tasks(task.root.parent)) or "there is none"
        raise SettingsError.one("task_id", repr(task_id), f"a task with runs under {task.root.parent}: {tasks}")
    with expected_shape(newest.manifest):
        # As JSON: in Python's form a list is no tuple.
        settings = Settings.model_validate_json(json.dumps(ManifestFile(newest.manifest).read()["settings"]))
    decision = decision_in_force(task)
    simulated = decision is not None and decision.simulated
    pack = pack_for(settings, pack_of_lessons(task, simulated=simulated) or settings.pack)
    text, _ = lessons_of(task, pack, simulated=simulated)
    return text.system


def _learn(items: Items | None, options: RunOptions, *, progress: bool, stop: threading.Event) -> Result:
    with handed_over() as name_of, errors.python_names():
        prepared = prepared_run(items, options, name_of, starts=True)
        console = PeopleConsole(stderr=True, highlight=False, force_jupyter=False)
        view = Observers(*([Progress(console)] if progress else []))
        if prepared.plan.chosen_rewards and not progress:  # what nobody asked for is said
            console.print(f"tfgrpo: rewards: {prepared.plan.chosen_rewards}", markup=False, soft_wrap=True)
        if prepared.plan.settings.task_runner != "threads" or os.environ.get(API_URL):
            # Before Prefect is imported, which reads its settings once. Its server is that of the environment, or temporary.
            quiet_prefect(os.environ)
            check_prefect_home(os.environ, make=True)
            run_locally, server = start_prefect(os.environ)
            screen = Screen(logging.getLogger("tfgrpo").info, view, lambda _: None)
            summary = run_locally(prepared, screen, server, stop=stop)
        else:
            summary = execute(prepared, os.environ, view, partial(groups_in_process, stop=stop), clock=utc_now)
    if summary.status == "refused":
        raise SettingsError([Problem(**problem) for problem in summary.details["problems"]])
    if summary.status == "failed":
        error = errors.RunAborted(summary.message.removeprefix("RunAborted: "))
        if "run" in summary.details:
            error.add_note(f"its files are in {summary.details['run']}")
        raise error
    return Result.of_run(RunPaths(Path(summary.details["run"])))


# A notebook shows the first and last columns of a wide frame.
_FIRST_COLUMNS: Final = ("item_id", "epoch", "arm", "index", "outcome", "reward", "reason", "output")


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson that is in force after a run.

    Examples:
        >>> [lesson.text for lesson in result.lessons if lesson.polarity == "do"]
    """

    id: str
    polarity: str
    """``do`` or ``avoid``."""
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Model calls, tokens and US dollars of a run. None is unknown: an agent that calls models itself is not measured.

    Examples:
        >>> if result.usage.cost_usd is None:
        ...     print(result.usage)
    """

    calls: int | None
    tokens: int | None
    cost_usd: float | None
    description: str
    """The known part in words, and what lost calls may add."""

    def __str__(self) -> str:
        return self.description

    @classmethod
    def of_ledger(cls, ledger: Mapping[str, Any]) -> Usage:
        """Return the usage in the ``ledger`` block of a manifest."""
        if not ledger or ledger.get("unmeasured_attempts"):
            return cls(None, None, None, str(ledger.get("spent", "unknown")))
        # Calls without a reported usage may have used, and cost, anything up to what was reserved for them.
        is_partial = bool(ledger["lost_calls"] or ledger["implausible_usage"])
        return cls(
            calls=ledger["calls"],
            tokens=None if is_partial else ledger["tokens"],
            cost_usd=None if is_partial or ledger["unknown_price_calls"] else ledger["nano_usd"] / 1e9,
            description=ledger["spent"],
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A learning run: what was decided and why, the lessons in force, and its files.

    Examples:
        >>> result = tfgrpo.load_run("latest", task_id="my-task")
        >>> result.decision, result.likely, [lesson.text for lesson in result.lessons]
    """

    run_id: str
    task_id: str
    status: str
    """``finished``, or ``stopped`` at a budget cap or after a first batch with nothing right; an old run may also be
    ``failed`` or ``running``."""
    message: str
    """The reason for the decision, or for the end of a run that was stopped."""
    decision: str | None
    """``in force``, ``not yet`` or ``taken back``; None when the run ended before the decision."""
    gain: Interval | None
    """What the lessons gain over none, in points (hundredths of the reward's range), by all attempts so far; None without
    a lesson that is likely to help."""
    held_out: Interval | None
    """The same on held-out items alone; None before any was compared."""
    likely: float | None
    """Probability that the gain is above zero; None without a gain."""
    lessons: tuple[Lesson, ...]
    """What is in force after the run."""
    usage: Usage
    report: Path | None
    """Page for people; None when it was not written."""
    folder: Path
    """Files of the run: journal, rollouts, manifest."""
    simulated: bool
    """The rewards are those of the SIMULATED model."""
    warnings: tuple[str, ...]

    @classmethod
    def of_run(cls, run: RunPaths) -> Result:
        """Return the result of a run from its files. Raises ``CorruptFile`` for a manifest that cannot be read."""
        run = RunPaths(run.root.resolve())
        task = TaskPaths(run.root.parent.parent)
        night = Night.of(task, run)
        with expected_shape(run.root):
            manifest, decision = night.manifest, night.decision
            library = decided_library(ExperienceStore(task.original().experiences, approved={}), in_force(night.decisions))
            total, held_out = decision.get("total"), decision.get("held_out")
            return cls(
                run_id=night.run_id,
                task_id=manifest["task_id"],
                status=manifest["status"],
                message=manifest.get("message") or "",
                decision=decision.get("decision"),
                gain=total and _interval(total, decision["attempts"]),
                held_out=held_out and _interval(held_out, decision["pairs"]),
                likely=total and total["likely"],
                lessons=tuple(Lesson(each.experience_id, each.polarity, each.summary32) for each in library.entries),
                usage=Usage.of_ledger(night.block("ledger")),
                report=run.report if run.report.is_file() else None,
                folder=run.root,
                simulated=manifest["simulated"],
                warnings=tuple(manifest.get("warnings", ())),
            )

    def rows(self) -> list[dict[str, Any]]:
        """Return the rollouts as dicts: item, arm, ``outcome`` by name, ``reward`` (None unless scored), output and usage."""
        rows: list[dict[str, Any]] = []
        for row in read_objects(RunPaths(self.folder).rollouts):
            ended = row["outcome"]
            cells = {**row, "outcome": ended["name"], "reward": ended.get("reward"), "reason": ended.get("reason")}
            rows.append({name: cells.get(name) for name in _FIRST_COLUMNS} | cells)
        return rows

    def frame(self) -> Any:
        """Return the rollouts as a pandas DataFrame, a row each. Raises ``ImportError`` without pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("frame() needs pandas: pip install 'tfgrpo[pandas]'; rows() works without it") from error
        return pandas.DataFrame(self.rows())

    def __str__(self) -> str:
        """Return the morning page of the run, as of now; without its files, how it ended and why there is no page."""
        run = RunPaths(self.folder)
        try:
            if not run.manifest.is_file():
                raise errors.CorruptFile(f"{run.manifest}: there is no such file")
            lines: Sequence[tuple[str, str]] = Night.of(TaskPaths(run.root.parent.parent), run).lines
        except (errors.StoreError, OSError) as error:
            simulated = "SIMULATED " if self.simulated else ""
            ended = f"{simulated}{self.run_id} of {self.task_id}, {self.status}: {self.message}"
            lines = (("run", ended), ("look at", str(error)))
        return "\n".join(f"{label:>9}  {visible(text)}" for label, text in lines)

    def _repr_html_(self) -> str:
        lessons = "".join(f"\n{lesson.polarity}: {lesson.text}" for lesson in self.lessons)
        page = html.escape(visible(f"{self}\n{pluralize(len(self.lessons), 'lesson')} in force{lessons}"))
        link = f'<p><a href="{html.escape(self.report.resolve().as_uri())}">report</a></p>' if self.report else ""
        return f"<pre>{page}</pre>{link}"


def _interval(gain: Mapping[str, float], compared: int) -> Interval:
    return Interval(gain["mean"], gain["low"], gain["high"], compared, CONFIDENCE)


@errors.python_names()
def load_run(run: str | os.PathLike[str], *, task_id: str | None = None, out: str | os.PathLike[str] | None = None) -> Result:
    """Return the result of an earlier run by its folder, its id or ``latest``.

    An id is looked up in ``task_id``, by default in every task under ``out``. Raises ``SettingsError`` when there is no such
    run, ``CorruptFile`` when its files cannot be read.

    Examples:
        >>> tfgrpo.load_run("latest", task_id="my-task").frame().groupby("arm").reward.mean()
    """
    if not isinstance(run, str | os.PathLike):
        raise SettingsError.one("run", repr(run), "the folder of a run, its id or latest")
    task = task_named(task_id, out)
    paths = find_run(task, os.fspath(run), everywhere=task_id is None)
    if paths is None:
        accepted = f"the folder of a run, or a run of task {task.root.name}: {known_runs(task)}"
        raise SettingsError.one("run", repr(os.fspath(run)), accepted)
    return Result.of_run(refuse_pruned(paths))


def prepared_run(items: Items | None, options: Mapping[str, Any], name_of: NameOf, *, starts: bool) -> Prepared:
    """Return the checked run of items and options. Raise ``ConfigError`` with the problems of both.

    ``starts``: check the endpoint too, and store items that are not a file with the task, so that it can be resumed.
    """
    if items is None or isinstance(items, str | os.PathLike):
        return _checked(_run_request(items, options, name_of), preflight=starts)
    checks = errors.ProblemCollector()
    lines = checks.run(_json_lines, items)
    digest = sha256_hex("".join(lines))
    requests = checks.run(_run_request, None, options, name_of, task=f"items-{digest[:8]}")
    if requests and not lines:
        checks.run(_checked, requests[0], preflight=False)
    checks.raise_problems()
    request, name = requests[0], f"{digest[:16]}.jsonl"
    if starts:
        settings = request.resolved(os.environ).settings
        path = task_named(settings.task_id, settings.out).dataset(name)
    else:
        path = Path(tempfile.mkdtemp(prefix="tfgrpo-items-")) / name
        # Not before: a large dataset is read again when the plan is used.
        atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    with _stored(path, lines[0]):
        return _checked(request.laid_over(RunRequest(settings={"dataset.path": str(path)})), preflight=starts)


def _run_request(
    dataset: str | os.PathLike[str] | None, options: Mapping[str, Any], name_of: NameOf, *, task: str = ""
) -> RunRequest:
    """Raise ``ConfigError`` with every problem. ``task``: the name of the task for items that are no file."""
    fields, problems = _well_formed(RUN_KEYWORDS, options)
    data = task or dataset or fields.get("data_config") or os.environ.get("TFGRPO_DATASET")
    names_pipeline = any(fields.get(name) is not None for name in ("pipeline", "resume", "replay"))
    if isinstance(data, str | os.PathLike) and not names_pipeline:
        fields = {**without_pipeline(os.fspath(data), {**(fields.get("settings") or {}), **fields}), **fields}
    agent, tools, rewarders = (fields.pop(name, None) for name in ("agent", "tools", "rewarders"))
    settings = dict(fields.get("settings") or {})
    if agent is not None or tools:
        fields["actor"] = "tools" if agent is None else _name(agent, name_of)
    if tools:
        settings["actor.tools"] = [_name(tool, name_of) for tool in tools]
    if rewarders is not None:
        entries = [dict(each) if isinstance(each, Mapping) else {"name": each} for each in rewarders]
        settings["rewarders"] = [{**entry, "name": _name(entry.get("name", ""), name_of)} for entry in entries]
    return _request_of(RunRequest, {**fields, "settings": settings, "dataset": dataset}, problems)


def select_request(prompt: str | None, k: int, options: Mapping[str, Any], name_of: NameOf) -> SelectRequest:
    """Return the request of a selection. Raise ``ConfigError`` with every problem of the arguments."""
    fields, problems = _well_formed(SELECT_KEYWORDS, options)
    agent, rewarders = fields.pop("agent", None), fields.get("rewarders") or ()
    if any(isinstance(rewarder, Mapping) for rewarder in rewarders):
        problems.append(Problem("rewarders", "a mapping", "callables and names; a weight as in 'gt=2'"))
        rewarders = ()
    fields["actor"] = None if agent is None else _name(agent, name_of)
    fields["rewarders"] = [_name(rewarder, name_of) for rewarder in rewarders]
    return _request_of(SelectRequest, {**fields, "prompt": prompt, "k": k}, problems)


def _well_formed(keywords: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    elsewhere = _ELSEWHERE if keywords is RUN_KEYWORDS else {}
    problems = [
        Problem(name, "an unknown option", elsewhere.get(name) or did_you_mean(name, keywords, listed_by="help(tfgrpo.learn)"))
        for name in sorted({*options} - {*keywords})
    ]
    for name, kind in (("tools", Sequence), ("rewarders", Sequence), ("settings", Mapping)):
        value = options.get(name)
        # One name in place of a list is a sequence, too: the letters of "gt" are no rewarders.
        if value is not None and (isinstance(value, str | bytes) or not isinstance(value, kind)):
            accepted = "a list" if kind is Sequence else "a mapping of settings by dotted key"
            problems.append(Problem(name, f"a value of type {type(value).__name__}", accepted))
    wrong = {each.source for each in problems}
    return {name: value for name, value in options.items() if name not in wrong}, problems


def _name(value: object, name_of: NameOf) -> str:
    return value if isinstance(value, str) else name_of(value)


RequestT = TypeVar("RequestT", bound=FlowRequest)


def _request_of(kind: type[RequestT], options: Mapping[str, Any], problems: Sequence[Problem]) -> RequestT:
    """Return the request. Raise ``ConfigError`` with these problems, its own, and those of the settings that can be read."""
    settings = {key: _unboxed(value) for key, value in (options.get("settings") or {}).items()}
    fields = {name: _unboxed(value) for name, value in {**options, "settings": settings}.items() if value is not None}
    try:
        request = kind(**fields)
    except ValidationError as error:
        refused = {str(each["loc"][0]): each["input"] for each in error.errors(include_url=False)}
        problems = [*problems, *(Problem(name, errors.shown_value(value), "text") for name, value in refused.items())]
        request = kind(**{name: value for name, value in fields.items() if name not in refused})
    if problems:
        checks = errors.ProblemCollector()
        checks.refuse(problems)
        checks.run(request.resolved, os.environ)
        checks.raise_problems()
    return request


def _checked(request: RunRequest, *, preflight: bool) -> Prepared:
    prepared = prepare(request, os.environ, preflight=preflight, starts=preflight)
    settings = prepared.plan.settings
    names = (settings.actor.kind, *settings.actor.tools, *(each.name for each in settings.rewarders))
    local = [name for name in names if is_handed_over(name)]
    if local and settings.task_runner != "threads":
        accepted = f"'threads', or functions of a module that workers can import in place of {', '.join(local)}"
        raise SettingsError.one("task_runner", repr(settings.task_runner), accepted)
    return prepared


@contextmanager
def _stored(path: Path, text: str) -> Iterator[None]:
    """Write items for the block; when that raises ``ConfigError``, leave nothing behind and name the items, not the file."""
    made = [each for each in (path, *path.parents) if not each.exists()]
    replace_text(path, text)
    try:
        yield
    except ConfigError as error:
        for each in made:
            # Into a directory of ours another run may have put files.
            with suppress(OSError):
                each.unlink() if each == path else each.rmdir()
        raise type(error)([_of_items(each, path.name) for each in error.problems]) from None


def _of_items(problem: Problem, name: str) -> Problem:
    """Return the problem with ``items[0]`` for line 1 of the stored file; of another source as it is."""
    _, mark, line = problem.source.partition(name)
    if not mark:
        return problem
    value = re.sub(r" of line (\d+) again$", lambda match: f" of items[{int(match[1]) - 1}] again", problem.given)
    lines = re.fullmatch(r":(?: lines?)? ?(\d+(?:, \d+)*)(| and [\d,]+ more)", line)
    if lines is None:
        return replace(problem, source=f"items{line}", given=value)
    names = ", ".join(f"items[{int(number) - 1}]" for number in lines[1].split(", "))
    return replace(problem, source=f"{names}{lines[2]}", given=value)


def _json_lines(items: Iterable[Mapping[str, Any]] | DataFrameLike) -> str:
    """Return items as JSON lines. Raise ``DatasetError`` with every item that is no JSON object."""
    items = _called(items, "compute", "collect")  # a frame of Dask, a lazy one of polars
    if hasattr(items, "to_json") and hasattr(items, "columns"):  # a dataset of Hugging Face has the first, for files
        # With the ten digits of the default 1e-11 becomes 0.0.
        exact = {"date_format": "iso", "force_ascii": False, "double_precision": 15}
        try:
            return items.to_json(orient="records", lines=True, **exact) or ""
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DatasetError.one("items", f"a frame that is no JSON: {error}", "columns of texts and numbers") from error
    rows: object = _called(items, "to_dicts", "to_pylist")  # polars, Arrow
    if isinstance(rows, Mapping | bytes) or not isinstance(rows, Iterable):
        kind = type(items).__name__
        raise DatasetError.one("items", f"a value of type {kind}", "a path, a list of dicts, or a DataFrame")
    lines, problems = [], errors.CappedProblems()
    for number, item in enumerate(rows):
        try:
            if not isinstance(item, Mapping):
                raise TypeError(f"a value of type {type(item).__name__}")
            line = json.dumps(dict(item), ensure_ascii=False, allow_nan=False, default=_plain)
            lines.append(line.encode().decode())  # refuses half a surrogate pair, as a ValueError
        except (TypeError, ValueError, RecursionError) as error:
            problems.add(Problem(f"items[{number}]", str(error), _ITEM))
    problems.raise_problems(DatasetError, "items")
    return "".join(f"{line}\n" for line in lines)


def _called(value: Any, *names: str) -> Any:
    methods = (getattr(value, name, None) for name in names)
    return next((method() for method in methods if callable(method)), value)


def _unboxed(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a value of type {type(value).__name__}")
