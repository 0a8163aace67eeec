"""Complete the request of a deployed flow run from what Prefect knows of it, and return its result as a Prefect state.

Prefect lays the parameters of a flow run over those of its deployment, whole parameter by whole parameter; here the settings
within are laid over each other one by one. Whoever asks for a run may override its parameters, tags and job variables, and
not the deployment itself: its own parameters, read from the server, are where the caps are that no run may exceed. The run's
id follows from the flow run's: when Prefect runs it again, it resumes.
"""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

import httpx
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.exceptions import ParameterTypeError, PrefectException
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from tfgrpo.flows.orchestration.interrupts import outlive_worker
from tfgrpo.flows.orchestration.local_server import in_background
from tfgrpo.flows.orchestration.request import FlowRequest, RunSummary
from tfgrpo.pipelines.settings.layers import fields_by_key, same_value
from tfgrpo.stores.errors import ConfigError, FlowFailed, PrefectUnavailable, Problem, SettingsError
from tfgrpo.stores.text import did_you_mean

if TYPE_CHECKING:
    from tfgrpo.flows.selection import Selected

_Request = TypeVar("_Request", bound=FlowRequest)
_Value = TypeVar("_Value")
_F = TypeVar("_F", bound=Callable[..., Any])


class _NoDefault(dict[str, Any]):
    """Prefect's form sends every default back, and its server refuses the ``null`` of a field left empty."""

    def __setitem__(self, key: str, value: object) -> None:
        if key != "default":
            super().__setitem__(key, value)


class _LeftOut:
    """Marks a parameter that Prefect's form shows as an empty field of its type, without a choice called ``None``."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return _NoDefault(handler(schema))


_LEFT_OUT: Final = _LeftOut()
Optional: TypeAlias = Annotated[_Value | SkipJsonSchema[None], _LEFT_OUT]


class Unknown:
    """Marks the value of a parameter that the flow does not have."""

    def __init__(self, value: object = None) -> None:
        """Keep nothing of it: it may be a misplaced secret."""


_AGAIN_S: Final = 0.5
_ANSWER_S: Final = 20.0
"""Seconds for which a server that is down is asked for the deployment of a run."""
_UNKNOWN: Final = Annotated[Any, AfterValidator(Unknown)]


class _AnyName(str):
    """Name of a parameter that may be no identifier, such as ``max-calls``."""

    __slots__ = ()

    def isidentifier(self) -> bool:
        """Pass the check of ``inspect.Parameter``."""
        return True


class _NoTraceback(logging.Filter):
    """Drops what Prefect's engine logs of an end that the flow has reported: a page of traceback below the reason."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, FlowFailed | ParameterTypeError)


_of_run: Mapping[str, Any] = {}
"""Parameters of the flow run that a worker started this process for."""
if os.environ.get("PREFECT__FLOW_RUN_ID"):
    outlive_worker()
    with suppress(PrefectException, httpx.HTTPError):  # a server that is gone is for the engine to report
        _of_run = flow_run.parameters
for _name in ("prefect.flow_runs", "prefect.engine"):
    logging.getLogger(_name).addFilter(_NoTraceback())


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
    later = {"after_": due + timedelta(seconds=1), "before_": datetime.now(UTC)}
    asked = {"deployment_id": {"any_": [run.deployment_id]}, "expected_start_time": later}
    with suppress(PrefectException, httpx.HTTPError), get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(asked))
        # A deployment may have a schedule for each of several tasks.
        alike = (each for each in found if each.auto_scheduled and each.created_by == run.created_by)
        for each in (each.expected_start_time for each in alike):
            given = f"the night of {due:%Y-%m-%d %H:%M UTC}, when that of {each:%Y-%m-%d %H:%M UTC} is due as well"
            raise SettingsError.one("the schedule", given, "the later one alone; Retry runs this one all the same")


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
    names = {name for name, value in parameters.items() if isinstance(value, Unknown)}
    if names:
        raise SettingsError([_unknown(kind, name, parameters.keys() - names) for name in sorted(names)])
    run = deployed_run()
    if run is None:
        return _request(kind, parameters)
    deployment = _parameters_of_deployment(run)  # first: it waits for a server that is starting again
    _refuse_missed(run)
    return _within_caps(kind, _asked_beyond(kind, parameters, deployment), _request(kind, deployment))


def _unknown(kind: type[FlowRequest], name: str, known: Collection[str]) -> Problem:
    key = kind.KEYS.get(name, name)
    accepted = f"settings {key}" if key in fields_by_key() and name not in known else did_you_mean(name, known)
    return Problem(f"parameter {name}", "an unknown parameter", accepted)


def _asked_beyond(kind: type[FlowRequest], parameters: Mapping[str, Any], deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters without the deployment's own, which Prefect has mixed with those that were asked for."""
    own = deployment.get("settings") or {}
    settings = (parameters.get("settings") or {}).items()
    return {
        **{
            name: value
            for name, value in parameters.items()
            if not same_value(kind.KEYS.get(name), value, deployment.get(name))
        },
        "settings": {key: value for key, value in settings if key not in own or not same_value(key, value, own[key])},
    }


def _within_caps(kind: type[_Request], beyond: Mapping[str, Any], below: _Request) -> _Request:
    """A cap that is not named is at most the deployment's. Raise ``SettingsError`` for each that is exceeded."""
    request = _request(kind, beyond)
    asked = request.laid_over(below)
    caps, wanted = (each.resolved(os.environ).settings.budget for each in (below, asked))
    lowered, problems = {}, []
    options = {key: name for name, key in kind.KEYS.items()}
    for name, cap in caps:
        key, value = f"budget.{name}", getattr(wanted, name)
        if cap is None or (value is not None and value <= cap):
            continue
        if key not in request.settings:  # of another pipeline file
            lowered[key] = cap
            continue
        source = f"parameter {options[key]}" if options.get(key) in beyond else f"settings {key}"
        accepted = f"at most {cap}: the deployment's cap is {cap}; raising it takes a deployment"
        problems.append(Problem(source, "none" if value is None else str(value), accepted))
    if problems:
        raise SettingsError(problems)
    return asked.model_copy(update={"settings": asked.settings | lowered})


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

    return type(error)([each.spelled(named) for each in error.problems])


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
    answer = in_background(_healthcheck)
    try:
        return answer.exception(limit_s) or answer.result()
    except TimeoutError:
        return TimeoutError(f"no answer within {limit_s:.3g} s")


def _healthcheck() -> Exception | None:
    with get_client(sync_client=True) as client:
        return client.api_healthcheck()
