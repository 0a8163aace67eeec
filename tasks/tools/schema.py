"""Make tools of typed Python functions, with a schema from the signature, and run them; journals nothing."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_json

from tfgrpo.rewarders.calling import described
from tfgrpo.rewarders.threads import contained
from tfgrpo.stores.errors import ActorError, ToolUnavailable
from tfgrpo.stores.text import clean_text, replace_surrogates, shorten_middle
from tfgrpo.tasks.models.base import ToolSpec

_MAX_TEXT = 16_000
_PRICE = "tfgrpo_cost_usd"
_VENDORS_TAKE = re.compile(r"[A-Za-z0-9_]{1,64}")
# Before each field of the arguments model, so that a parameter may be called ``json`` or ``_x``.
_PREFIX = "given_"
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call, as the model reads it."""

    text: str
    ok: bool
    cost_usd: float | None
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Tool:
    """A callable tool: its specification for the model, and its function."""

    spec: ToolSpec
    function: Callable[..., Any]
    arguments: type[BaseModel] | None
    """What its arguments have to be; None for a tool that says so itself."""
    cost_usd: float | None
    """Price of one call; None when unknown."""
    close: Callable[[], Awaitable[None]] | None = None
    """Ends what the tool has started; may be called more than once."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its MCP server describes it."""

    server: str
    name: str
    description: str
    parameters: dict[str, Any]


def priced(usd: float) -> Callable[[FunctionT], FunctionT]:
    """Decorator: one call of this tool costs ``usd`` dollars (0 for a tool that is known to be free)."""
    if not 0.0 <= usd < float("inf"):
        raise ValueError(f"a price is a number of dollars from 0, not {usd!r}")

    def mark(function: FunctionT) -> FunctionT:
        setattr(function, _PRICE, float(usd))
        return function

    return mark


def tool_from_function(function: Callable[..., Any]) -> Tool:
    """Return a tool made of a function. Raises ``ValueError`` for parameters without annotation, or not given by name."""
    name = getattr(function, "__name__", "")
    if not _VENDORS_TAKE.fullmatch(name):
        raise ValueError(f"{name!r}: a tool is a named function, of at most 64 letters a-z, digits and underscores")
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        arguments = create_model(f"{name}_arguments", __config__=config, **_fields(name, function))
        parameters = arguments.model_json_schema()
    except (PydanticUserError, NameError, TypeError) as error:
        raise ValueError(f"{name}: an annotation has no schema: {str(error).splitlines()[0]}") from error
    for titled in (parameters, *parameters.get("properties", {}).values()):
        titled.pop("title", None)
    description = clean_text((inspect.getdoc(function) or "").split("\n\n", 1)[0])
    return Tool(ToolSpec(name, description, parameters), function, arguments, getattr(function, _PRICE, None))


def _fields(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(f"{name}: parameter {parameter.name!r} cannot be given by name")
        if parameter.name not in hints:
            raise ValueError(f"{name}: parameter {parameter.name!r} has no annotation")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[_PREFIX + parameter.name] = (hints[parameter.name], Field(default, alias=parameter.name))
    return fields


async def run_tool(tool: Tool, arguments: str, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> ToolResult:
    """Run a tool on raw JSON arguments. Errors are text that the model reads; ``ToolUnavailable`` alone is raised."""
    try:
        values = _validated(tool, arguments)
    except ValueError as error:
        return ToolResult(_cut(f"error: bad arguments: {error}"), ok=False, cost_usd=0.0)
    # The latency is that of the function itself: waiting for a thread is not in it.
    if inspect.iscoroutinefunction(tool.function):
        result, seconds = tool.function(**values), 0.0
    else:
        result, seconds = await in_thread(lambda: _called(tool.function, values))
    if inspect.isawaitable(result):  # of a plain function too: an asynchronous one behind an ordinary decorator
        start = perf_counter()
        result = await _awaited(result)
        seconds += perf_counter() - start
    ok = not isinstance(result, _ErrorText)
    return ToolResult(_cut(result if ok else f"error: {result}"), ok, tool.cost_usd, seconds * 1000.0)


class _ErrorText(str):
    __slots__ = ()


def _called(function: Callable[..., Any], values: Mapping[str, Any]) -> tuple[str | Awaitable[object], float]:
    start = perf_counter()
    try:
        value = function(**values)
        result = value if inspect.isawaitable(value) else _as_text(value)
    except BaseException as error:  # noqa: BLE001 - a user's code; the model reads what it raises
        result = _ErrorText(described(error, whole=True))
    return result, perf_counter() - start


async def _awaited(pending: Awaitable[object]) -> str:
    try:
        return _as_text(await contained(pending))
    except ToolUnavailable:
        raise
    except ActorError as error:
        return _ErrorText(error)
    except Exception as error:  # noqa: BLE001 - as above
        return _ErrorText(described(error, whole=True))


def _validated(tool: Tool, arguments: str) -> dict[str, Any]:
    try:
        raw = json.loads(arguments or "{}")
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")
    if tool.arguments is None:
        return raw
    try:
        model = tool.arguments.model_validate(raw)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()[:5]]
        raise ValueError("; ".join(faults)) from None
    return {name.removeprefix(_PREFIX): getattr(model, name) for name in tool.arguments.model_fields}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value).decode()
    except PydanticSerializationError:
        return str(value)


def _cut(text: str) -> str:
    """Return a storable text; of an oversized one, head and tail."""
    return replace_surrogates(shorten_middle(text, _MAX_TEXT))
