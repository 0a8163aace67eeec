"""Complete the request of a deployed flow run from what Prefect knows of it, and return its result as a Prefect state.

Prefect lays the parameters of a flow run over those of its deployment, whole parameter by whole parameter; here the settings
within are laid over each other one by one, so that a cap of the deployment applies to every run. The run's id
follows from the flow run's: when Prefect runs it again, it resumes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import httpx
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException
from prefect.states import Completed, Failed
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from tfgrpo.flows.orchestration.request import FlowRequest, parameters_of
from tfgrpo.flows.run.exit_status import RunSummary
from tfgrpo.pipelines.settings.fields import fields_by_key
from tfgrpo.stores.errors import ConfigError, FlowFailed, PrefectUnavailable

if TYPE_CHECKING:
    from tfgrpo.flows.selection.select import Selected

_Request = TypeVar("_Request", bound=FlowRequest)
_Value = TypeVar("_Value")
F = TypeVar("F", bound=Callable[..., Any])


class _NoDefault(dict[str, Any]):
    """A JSON schema that never gets a default.

    Prefect's form sends every default back, and its server refuses the ``null`` of a field left empty.
    """

    def __setitem__(self, key: str, value: object) -> None:
        if key != "default":
            super().__setitem__(key, value)


class _LeftOut:
    """Marks a parameter that Prefect's form shows as an empty field of its type, without a choice called ``None``."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return _NoDefault(handler(schema))


_LEFT_OUT: Final = _LeftOut()
Optional: TypeAlias = Annotated[_Value | SkipJsonSchema[None], _LEFT_OUT]
"""An optional flow parameter."""


def deployed_run() -> FlowRun | None:
    """The flow run that is under way, if a deployment made it."""
    context = FlowRunContext.get()
    run = context.flow_run if context is not None else None
    return run if run is not None and run.deployment_id is not None else None


def with_parameters(kind: type[FlowRequest], *names: str) -> Callable[[F], F]:
    """Give a flow's function a parameter for each of these settings, in its signature and in its docstring."""

    def derived(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        added, lines = [], []
        for name, type_, text in parameters_of(kind, names):
            empty_field: Any = Optional[type_]  # type: ignore[misc,valid-type]
            keyword = inspect.Parameter.KEYWORD_ONLY
            added.append(inspect.Parameter(name, keyword, default=None, annotation=empty_field))
            default = fields_by_key()[kind.KEYS[name]].default
            empty = "" if "None: " in text else f" Empty: the pipeline's{'' if default is None else f', or {default}'}."
            lines.append(f"        {name}: {text.replace('None: ', 'Empty: ')}{empty}")
        setattr(function, "__signature__", signature.replace(parameters=[*own[:1], *added, *own[1:]]))  # noqa: B010 - mypy knows no such attribute
        function.__doc__ = "\n".join([(function.__doc__ or "").rstrip(), *lines, ""])
        return function

    return derived


def asked_of(kind: type[_Request], parameters: Mapping[str, Any]) -> _Request:
    """The request that a flow's parameters make, over those of its deployment.

    Raises ``PrefectUnavailable`` where the deployment cannot be read, because its caps would not apply.
    """
    request, run = _request(kind, parameters), deployed_run()
    return request if run is None else request.laid_over(_request(kind, _parameters_of_deployment(run)))


def _request(kind: type[_Request], parameters: Mapping[str, Any]) -> _Request:
    return kind.model_validate({name: value for name, value in parameters.items() if value is not None})


def _parameters_of_deployment(run: FlowRun) -> dict[str, Any]:
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


def state_of(ended: RunSummary | Selected) -> State[Any]:
    """``Completed`` with the result as data, ``StoppedEarly`` when a limit ended it; else ``Failed``, with a ``FlowFailed``."""
    message, data = ended.message, ended.as_json()
    if ended.status == "finished":
        return Completed(message=message, data=data)
    if ended.status == "stopped":
        return Completed(name="StoppedEarly", message=message, data=data)
    # Prefect raises the data of such a state, and logs a long complaint if it is no exception.
    return Failed(message=message, data=FlowFailed(message, data))
