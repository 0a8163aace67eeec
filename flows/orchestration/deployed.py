"""Complete the request of a deployed flow run from what Prefect knows of it, show the run on its page, return a Prefect state.

Prefect lays the parameters of a flow run over those of its deployment, whole parameter by whole parameter; here the
settings within are laid over each other one by one. Whoever asks for a run may override its parameters, tags and job
variables, and not the deployment itself: its own parameters, read from the server, are where the caps are that no run may
exceed. The run's id follows from the flow run's: when Prefect runs it again, it resumes.

The page is the artifact ``night``, kept up to date, with one bar of progress, a name and tags. Each write is one API call
that takes as long as the server likes, so they happen in a separate thread, per tenth of an epoch, per epoch and per run; a
newer one takes the place of one that waits. One that cannot be written is logged, and the run continues: the files under
``out`` are the record. The last ones are tried again for as long as ``wait`` has patience.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar
from uuid import UUID

import httpx
from jinja2 import Environment, PackageLoader, Template
from prefect import Flow
from prefect.artifacts import create_markdown_artifact, create_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.exceptions import ParameterTypeError, PrefectException
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from tfgrpo.flows.console.console import visible
from tfgrpo.flows.console.figures import decimal
from tfgrpo.flows.console.observer import EpochEnd, EpochStart, Observer
from tfgrpo.flows.orchestration.interrupts import outlive_worker
from tfgrpo.flows.orchestration.local_server import error_line, in_background
from tfgrpo.flows.orchestration.request import FlowRequest, RunSummary, resume_command
from tfgrpo.flows.run.lessons import effect_text
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.layers import fields_by_key, same_value, setting_fields
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import ConfigError, FlowFailed, PrefectUnavailable, Problem, SettingsError, TfgrpoError
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.runs import ManifestFile
from tfgrpo.stores.text import did_you_mean, pluralize
from tfgrpo.tasks.shapes import GroupResult

if TYPE_CHECKING:
    from tfgrpo.flows.selection import Selected

_Request = TypeVar("_Request", bound=FlowRequest)
_Value = TypeVar("_Value")
_F = TypeVar("_F", bound=Callable[..., Any])


class _NoDefault(dict[str, Any]):
    # pydantic sets the default after every hook. Prefect's form sends it back, and its server refuses that ``null``.
    def __setitem__(self, key: str, value: object) -> None:
        if key != "default":
            super().__setitem__(key, value)


class _EmptyField:
    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return _NoDefault(handler(schema))


Optional: TypeAlias = Annotated[_Value | SkipJsonSchema[None], _EmptyField()]
"""A parameter that Prefect's form shows as an empty field of its type, without a choice called ``None``."""


class Unknown:
    """Marks the value of a parameter that the flow does not have."""

    def __init__(self, value: object = None) -> None:
        """Keep nothing of it: it may be a misplaced secret."""


_CAP_VARIABLES: Final = tuple(field.env for field in setting_fields() if field.env and field.key.startswith("budget."))
_AGAIN_S: Final = 0.5
# Seconds for which a server that is down is asked for the deployment of a run.
_ANSWER_S: Final = 20.0
_UNKNOWN: Final = Annotated[Any, AfterValidator(Unknown)]


class _AnyName(str):
    __slots__ = ()

    # A mistyped parameter may be ``max-calls``, which ``inspect.Parameter`` would not take.
    def isidentifier(self) -> bool:
        return True


def _is_unreported(record: logging.LogRecord) -> bool:
    """Drop what Prefect's engine logs of an end that the flow has reported: a page of traceback below the reason."""
    return not (record.exc_info and isinstance(record.exc_info[1], FlowFailed | ParameterTypeError))


# Parameters of the flow run that a worker started this process for.
_of_run: Mapping[str, Any] = {}
# Set by a worker in the process of one flow run; the engine reads the flow's signature after it has imported this.
if os.environ.get("PREFECT__FLOW_RUN_ID"):
    outlive_worker()
    with suppress(PrefectException, httpx.HTTPError):  # a server that is gone is for the engine to report
        _of_run = flow_run.parameters
for _name in ("prefect.flow_runs", "prefect.engine"):
    logging.getLogger(_name).addFilter(_is_unreported)


def current_run() -> FlowRun | None:
    """The flow run that is under way."""
    context = FlowRunContext.get()
    return None if context is None else context.flow_run


def deployed_run() -> FlowRun | None:
    """The flow run that is under way, if a deployment made it."""
    run = current_run()
    return run if run is not None and run.deployment_id is not None else None


def _refuse_missed(run: FlowRun) -> None:
    """Raise ``SettingsError`` for a night of a schedule that has not begun, when a later one is due as well.

    Else all nights of days without a worker would run in a row, each up to its caps, and nights that take longer than their
    interval would queue for ever. A retry runs it all the same.
    """
    due = run.expected_start_time
    # By a person, also one that crashed before it began.
    retried = run.run_count > 1 or run.empirical_policy.retry_type == "reschedule"
    if due is None or not run.auto_scheduled or retried:
        return
    moments = {"after_": due + timedelta(seconds=1), "before_": datetime.now(UTC)}
    of_deployment = {"deployment_id": {"any_": [run.deployment_id]}, "expected_start_time": moments}
    with suppress(PrefectException, httpx.HTTPError), get_client(sync_client=True) as client:
        for later in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(of_deployment)):
            # A deployment may have a schedule for each of several tasks.
            if later.auto_scheduled and later.created_by == run.created_by:
                both = f"{due:%Y-%m-%d %H:%M UTC}, when that of {later.expected_start_time:%Y-%m-%d %H:%M UTC} is due as well"
                only = "the later one alone; Retry runs this one all the same"
                raise SettingsError.one("the schedule", f"the night of {both}", only)


def with_parameters(kind: type[FlowRequest], *names: str) -> Callable[[_F], _F]:
    """Give a flow's function a parameter for each of these settings, in its signature and in its docstring."""

    def derived(function: _F) -> _F:
        signature = inspect.signature(function, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        added, lines, keyword = [], [], inspect.Parameter.KEYWORD_ONLY
        for name in names:
            field = fields_by_key()[kind.KEYS[name]]
            text, default = field.help.replace("``", "`"), field.default
            type_: Any = Literal[field.choices] if field.choices else field.type
            empty_field: Any = Optional[type_]  # type: ignore[misc]
            added.append(inspect.Parameter(name, keyword, default=None, annotation=empty_field))
            empty = "" if "None: " in text else f" Empty: the pipeline's{'' if default is None else f', or {default}'}."
            lines.append(f"    {name}: {text.replace('None: ', 'Empty: ')}{empty}")
        # Prefect crashes a run with a parameter that its flow does not have, and says so in the log alone. Here the flow has
        # every parameter of the run that this process was started for, to refuse those by name.
        unknown = _of_run.keys() - {each.name for each in (*own, *added)}
        added += [inspect.Parameter(_AnyName(each), keyword, default=None, annotation=_UNKNOWN) for each in unknown]
        setattr(function, "__signature__", signature.replace(parameters=[*own[:1], *added, *own[1:]]))  # noqa: B010 - mypy knows no such attribute
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), *lines, ""])
        return function

    return derived


def asked_of(kind: type[_Request], parameters: Mapping[str, Any]) -> _Request:
    """The request that a flow's parameters make, over those of its deployment.

    Raises ``SettingsError`` for unknown parameters and for more than the deployment's caps, and ``PrefectUnavailable``
    where the deployment cannot be read, because its caps would not apply.
    """
    unknown = {name for name, value in parameters.items() if isinstance(value, Unknown)}
    problems, keys = list[Problem](), kind.KEYS
    for name in sorted(unknown):
        key = keys.get(name, name)
        accepted = f"settings {key}" if key in fields_by_key() else did_you_mean(name, parameters.keys() - unknown)
        problems.append(Problem(f"parameter {name}", "an unknown parameter", accepted))
    if problems:
        raise SettingsError(problems)
    run = deployed_run()
    if run is None:
        return _request(kind, parameters)
    deployment = _parameters_of_deployment(run)  # first: it waits for a server that is starting again
    _refuse_missed(run)
    # Prefect has mixed the deployment's own parameters with those that were asked for.
    own = deployment.get("settings") or {}
    beyond = {name: value for name, value in parameters.items() if not same_value(keys.get(name), value, deployment.get(name))}
    settings = (parameters.get("settings") or {}).items()
    beyond["settings"] = {key: value for key, value in settings if key not in own or not same_value(key, value, own[key])}
    return _within_caps(kind, beyond, _request(kind, deployment))


def _within_caps(kind: type[_Request], beyond: Mapping[str, Any], below: _Request) -> _Request:
    """Return the request under the caps of its deployment. Raise ``SettingsError`` for each that it exceeds, and for prices."""
    request = _request(kind, beyond)
    combined = request.laid_over(below)  # as Prefect lays parameters, but setting by setting
    # Job variables are from whoever asks for the run: they may lower what the deployment says, and not lift it.
    own = {name: text for name, text in os.environ.items() if name not in _CAP_VARIABLES}
    budgets = [dict(below.resolved(env).settings.budget) for env in (own, os.environ)]
    amounts = {name: [each[name] for each in budgets if each[name] is not None] for name in budgets[0]}
    caps = {name: min(each) for name, each in amounts.items() if each}
    settings, problems = combined.resolved(os.environ).settings, list[Problem]()
    options = {key: name for name, key in kind.KEYS.items()}
    for name, cap in caps.items():
        key, value = f"budget.{name}", getattr(settings.budget, name)
        if key in request.settings and (value is None or value > cap):
            source = f"parameter {options[key]}" if options.get(key) in beyond else f"settings {key}"
            accepted = f"at most {cap}: the deployment's cap is {cap}; raising it takes a deployment"
            problems.append(Problem(source, "none" if value is None else str(value), accepted))
    same_prices = settings.model.prices == below.resolved(os.environ).settings.model.prices
    if caps.keys() & {"max_usd", "task_max_usd"} and not same_prices:
        source = "settings model.prices" if "model.prices" in request.settings else "parameter pipeline"
        accepted = "those of the deployment, by which its cap on dollars is counted; other ones take a deployment"
        problems.append(Problem(source, "other prices", accepted))
    if problems:
        raise SettingsError(problems)
    return combined.model_copy(update={"caps": caps})


def _request(kind: type[_Request], parameters: Mapping[str, Any]) -> _Request:
    return kind.model_validate({name: value for name, value in parameters.items() if value is not None})


def _parameters_of_deployment(run: FlowRun) -> dict[str, Any]:
    why_silent(_ANSWER_S)  # it may be starting again
    try:
        with get_client(sync_client=True) as client:
            return dict(client.read_deployment(str(run.deployment_id)).parameters)
    except (PrefectException, httpx.HTTPError) as error:
        why = f"the deployment of this run could not be read, and its caps would not hold: {type(error).__name__}"
        raise PrefectUnavailable(why) from error


def in_parameters(error: ConfigError, flow: Flow[..., Any], kind: type[FlowRequest]) -> ConfigError:
    """Return the error with options of the command line named as the flow's parameters, or as keys of its ``settings``."""

    def named(name: str, assigned: str | None) -> str | None:
        parameter = name.replace("-", "_")
        if assigned is None and parameter in flow.parameters.properties:
            return f"parameter {parameter}"
        key = kind.KEYS.get(parameter) if assigned is None else assigned
        return None if key is None else f"settings {key}"

    return type(error)([each.renamed(named) for each in error.problems])


def prefect_state(ended: RunSummary | Selected) -> State[Any]:
    """``Completed`` with the result as data, ``StoppedEarly`` when a limit ended it; else ``Failed``, with a ``FlowFailed``."""
    message, data = ended.message, ended.as_json()
    if ended.status == "finished":
        return Completed(message=message, data=data)
    if ended.status == "stopped":
        return Completed(name="StoppedEarly", message=message, data=data)
    # Prefect raises the data of such a state, and logs a long complaint if it is no exception.
    return Failed(message=message, data=FlowFailed(message, data))


def why_silent(limit_s: float) -> BaseException | None:
    """Ask the named server until it answers; return why it does not, or refuses, after the limit. None when all is well."""
    deadline, first = time.monotonic() + limit_s, None
    while (why := _why_silent(max(_AGAIN_S, deadline - time.monotonic()))) is not None:
        first = why if first is None or not isinstance(why, TimeoutError) else first  # the last try has no time left
        if is_refusal(why) or time.monotonic() > deadline:
            return first
        time.sleep(_AGAIN_S)
    return None


def is_refusal(why: BaseException) -> bool:
    """Whether asking again cannot help: the address is none, or the server answers that it does not let us in."""
    if isinstance(why, httpx.HTTPStatusError):
        return why.response.status_code < 500 and why.response.status_code != 429
    return isinstance(why, httpx.UnsupportedProtocol | httpx.InvalidURL)


def _why_silent(limit_s: float) -> BaseException | None:
    def ask() -> Exception | None:
        with get_client(sync_client=True) as client:
            return client.api_healthcheck()

    answer = in_background(ask)
    try:
        return answer.exception(limit_s) or answer.result()
    except TimeoutError:
        return TimeoutError(f"no answer within {limit_s:.3g} s")


_T = TypeVar("_T")
_STEPS = 10
_COLUMNS: Final = ("epoch", "phase", "mean reward", "scored", "lost", "informative", "lessons")
_GO_ON: Final = (
    "Retry resumes a run of a deployment; no answered call is sent again. One that stopped at a cap, or where nothing was "
    "right, goes on by a flow run with this run as resume, and a higher cap or allow_zero"
)
_WARNINGS: Final = 20
_PAUSE_S: Final = 2.0
_log = logging.getLogger("tfgrpo.artifacts")


class PrefectArtifacts(Observer):
    """An observer that writes artifacts of the current flow run."""

    def __init__(self, patience_s: float = 10.0) -> None:
        """``patience_s``: how long the end of the flow waits for a slow server."""
        self._patience_s = patience_s
        # Their daemon threads do not keep the process from ending when a server hangs.
        self._threads = RewarderThreads(1, "tfgrpo-artifacts")
        self._last: Future[None] | None = None
        self._complaint = logging.WARNING
        self._turn = Lock()
        self._waiting: dict[str, Callable[[], None]] = {}
        """The newest of each key that is not written yet."""
        self._faults: dict[str, str] = {}
        """Why the last try failed, by key."""
        self._again = False
        """Whether the server may take at the next try what it did not take at the last."""
        self._written: dict[str, UUID] = {}
        self._start: EpochStart | None = None
        self._groups = 0
        self._run_id: str | None = None
        self._details: Mapping[str, Any] = {}
        self._name, self._tags = "", list[str]()

    def run_started(self, plan: Plan, run_id: str, warnings: Sequence[str]) -> None:
        """Name the flow run, and show which run it is and how to go on with it should it be killed."""
        self._run_id = run_id
        self._name = f"{plan.settings.task_id} night {(plan.settings.tfgrpo.night or 0) + 1}"
        self._label(plan.settings.task_id, *(["simulated"] if plan.simulated else []))
        self._details = {
            "task_id": plan.settings.task_id,
            "simulated": plan.simulated,
            "run": str(plan.paths.run(run_id).root),
            "resume with": f"--resume {run_id}",
            "warnings": list(warnings),
        }
        self._show("running", str(plan.forecast))

    def waiting(self, what: str) -> None:
        """Show what the run waits for."""
        self._show("running", what)

    def epoch_started(self, start: EpochStart) -> None:
        """Move the bar to the beginning of the epoch."""
        self._start, self._groups = start, 0
        self._move(start)

    def group_done(self, result: GroupResult, totals: Totals) -> None:  # noqa: ARG002 - the protocol's signature
        """Move the bar at every tenth of the epoch."""
        self._groups += 1
        if (start := self._start) is not None:
            before, now = (number * _STEPS // max(start.groups, 1) for number in (self._groups - 1, self._groups))
            if now > before:
                self._move(start)

    def epoch_ended(self, end: EpochEnd) -> None:
        """Show the rewards so far."""
        self._details = {**self._details, "epochs": [*self._details.get("epochs", ()), asdict(end)]}
        self._show("running", f"epoch {end.epoch} is done")

    def finish(self, summary: RunSummary) -> None:
        """Show how the run ended."""
        self._run_id, self._details = summary.run_id, summary.details
        self._show(summary.status, summary.message)
        if summary.run_id != flow_run.id:
            self.resumed(summary)
        if summary.status != "refused":  # also a night without a sweep, or one that stopped
            self._show_progress(100.0)
        if decision := summary.details.get("decision"):
            self._label(decision["decision"])

    def resumed(self, ended: RunSummary) -> None:
        """Show the end on the page of the flow run that the run began with, which is dead."""
        with suppress(ValueError, TypeError):  # begun by a command
            begun_by = UUID(ended.run_id)
            page = partial(night_page, ended.status, ended.message, ended.run_id, ended.details)
            self._write(f"night of {begun_by}", page, partial(_replace, begun_by, "night"))
            self._write(f"progress of {begun_by}", lambda: 100.0, partial(_replace, begun_by, "progress"))

    def _label(self, *tags: str) -> None:
        self._tags += tags
        self._write("name", lambda: self._name or None, partial(update_flow_run, self._tags))

    def _show(self, status: str, message: str) -> None:
        page = partial(night_page, status, message, self._run_id, self._details)
        about = "How the run went, and how to go on"
        self._write("night", page, partial(create_markdown_artifact, key="night", description=about))

    def _move(self, start: EpochStart) -> None:
        whole = start.epoch - 1 + self._groups / max(start.groups, 1)
        self._show_progress(min(100.0, 100.0 * whole / max(start.epochs, 1)))

    def _show_progress(self, done: float) -> None:
        create = partial(create_progress_artifact, key="progress", description="Groups of all epochs")
        self._write("progress", lambda: done, create)

    def wait(self) -> str | None:
        """Wait until everything is written, within a limit, and return what is not written and why.

        The run itself never waits.
        """
        until = time.monotonic() + self._patience_s
        with suppress(TimeoutError):
            while self._last is not None:
                self._last.result(max(0.0, until - time.monotonic()))
                if not self._again or time.monotonic() + _PAUSE_S > until:
                    break
                time.sleep(_PAUSE_S)
                self._submit()
        self._threads.shutdown()
        late = f"no reply within {self._patience_s:g} s"
        why = "; ".join(f"{key} ({self._faults.get(key, late)})" for key in [*self._waiting])
        return f"Prefect did not take the last of this run's page: {why}" if why else None

    def _write(self, key: str, content: Callable[[], _T], create: Callable[[_T], object]) -> None:
        with self._turn:  # of an outage the event loop tells, of all else the flow
            self._waiting[key] = partial(self._attempt, key, content, create)
            self._submit()

    def _submit(self) -> None:
        if self._last is not None:
            self._last.cancel()  # if it has not begun: the next one writes everything
        # In the context of the flow run, from which Prefect takes whose artifact it is.
        self._last = self._threads.submit(copy_context().run, self._write_waiting)

    def _write_waiting(self) -> None:
        self._again = False
        for key, write in [*self._waiting.items()]:
            try:
                write()
                with self._turn:
                    if self._waiting.get(key) is write:
                        del self._waiting[key]
            except Exception as error:  # noqa: BLE001 - whatever breaks between here and the server, the run goes on
                self._faults[key] = error_line(error)
                self._again |= isinstance(error, httpx.HTTPError)
                # A server that is gone takes none of them: the first says so.
                level, self._complaint = self._complaint, logging.DEBUG
                _log.log(level, "an artifact could not be written: %s", error_line(error))

    def _attempt(self, key: str, content: Callable[[], _T], create: Callable[[_T], object]) -> None:
        artifact, run = self._written.get(key), current_run()
        if artifact is None and run is not None and run.run_count > 1:  # a retry updates what an earlier try of it wrote
            artifact = _artifact_of(run.id, key)
        if artifact is not None:
            update_artifact(artifact, content())
        elif isinstance(created := create(content()), UUID):
            artifact = created
        if artifact is not None:
            self._written[key] = artifact


def update_flow_run(tags: Sequence[str], name: str | None) -> None:
    """Name the current flow run in place of Prefect's random name, and add tags to those that it began with."""
    # Not by ``flow_run_name``, for which Prefect knows the parameters alone: task and night follow from file and store.
    if (run := current_run()) is not None:
        with get_client(sync_client=True) as client:
            client.update_flow_run(run.id, name=name, tags=[*{*run.tags, *tags}])


def warn_run(summary: RunSummary, warning: str) -> None:
    """Add a warning to the manifest of a run that has ended, if there is one."""
    if "run" in summary.details:
        with suppress(TfgrpoError, OSError):
            ManifestFile(RunPaths(Path(summary.details["run"])).manifest).warn(warning, lasting=True)


def update_artifact(artifact: UUID, content: object) -> None:
    """Replace the text of a Markdown artifact, or the percentage of a bar of progress."""
    with get_client(sync_client=True) as client:
        client.update_artifact(artifact, ArtifactUpdate(data=content))


def _artifact_of(run: UUID, key: str) -> UUID | None:
    ours = ArtifactFilter(key=ArtifactFilterKey(any_=[key]), flow_run_id=ArtifactFilterFlowRunId(any_=[run]))
    with get_client(sync_client=True) as client:
        return next((artifact.id for artifact in client.read_artifacts(artifact_filter=ours, limit=1)), None)


def _replace(run: UUID, key: str, content: object) -> None:
    if (artifact := _artifact_of(run, key)) is not None:
        update_artifact(artifact, content)


_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#!~&]|:(?=//))")


def night_page(status: str, message: str, run_id: str | None, details: Mapping[str, Any]) -> str:
    """Return the page of a run as it is now, in Markdown. ``status`` is that of its summary, or ``running``.

    Lessons, warnings and messages may contain a model's words: they are shown as text, never as Markdown or HTML.
    """
    morning, command = details.get("morning"), resume_command(details)
    if morning:
        facts = [(line["label"], line["text"]) for line in morning["lines"] if line["label"] != "report"]
    else:  # before the end: what names the run
        warnings = (("warning", text) for text in details.get("warnings", ())[:_WARNINGS])
        named = (("run", run_id), ("task", details.get("task_id")), ("resume", command), *warnings)
        facts = [(label, text) for label, text in named if text]
    files = (("directory", details.get("run")), ("report", details.get("report")))
    facts += [(label, str(Path(path).absolute())) for label, path in files if path]
    if command:
        facts.append(("go on", _GO_ON))
    rewards = (details.get("decision") or {}).get("rewards") or {}
    sides = (("without lessons", rewards.get("none")), ("with lessons", rewards.get("library")))
    means = [(label, side["mean"]) for label, side in sides if side]
    return _template().render(
        status=status,
        message=message,
        details=details,
        morning=morning,
        facts=facts,
        columns=_COLUMNS,
        epochs=[[epoch[name.replace(" ", "_")] for name in _COLUMNS] for epoch in details.get("epochs", ())],
        before_after=means if len(means) == len(sides) else [],
        lessons=list(map(_lesson, details.get("lessons", ()))),
    )


def _lesson(lesson: Mapping[str, Any]) -> str:
    effect, groups = effect_text(lesson["effect"]), f"{lesson['groups_for']} for, {lesson['groups_against']} against"
    facts = f"{lesson['state']}; {effect}; groups: {groups}; {pluralize(lesson['tokens'], 'token')}"
    return f"{lesson['polarity']}: {lesson['text']} ({lesson['id']}; {facts})"


@cache
def _template() -> Template:
    # Markdown, not HTML: the filter ``text`` escapes it.
    environment = Environment(loader=PackageLoader("tfgrpo.flows"), trim_blocks=True, lstrip_blocks=True)  # noqa: S701
    environment.filters |= {
        "text": lambda value: _SPECIAL.sub(r"\\\1", visible(" ".join(str(value).split()))),
        "figure": lambda value: str(value) if isinstance(value, str | int) else decimal(value),
        "base64": lambda text: b64encode(text.strip().encode()).decode(),
    }
    return environment.get_template("night.md.j2")
