"""Build the actor that the settings ask for: ``chat``, with one model call per attempt, ``tools``, or a user's own agent."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.rewarders.importing import is_name, load_callable
from tfgrpo.rewarders.threads import gathered
from tfgrpo.stores.errors import ActorError, Problem, ProblemCollector, SettingsError
from tfgrpo.stores.text import shorten_middle
from tfgrpo.tasks.models.base import CUT_OFF, Message, ToolCall
from tfgrpo.tasks.runtime.runtime import Actor, AttemptContext
from tfgrpo.tasks.shapes import Trajectory
from tfgrpo.tasks.tools.mcp_servers import list_tools, mcp_tools
from tfgrpo.tasks.tools.schema import ListedTool, Tool, tool_from_function

if TYPE_CHECKING:
    from tfgrpo.tasks.actors.own import OwnAgent

_SHOWN_CHARS = 80


class ChatActor:
    """Asks once. A cut-off answer keeps its finish reason, so that it does not pass for a wrong one."""

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Make one model call with the group's system text and the item."""
        reply = await attempt.chat(attempt.opening())
        return Trajectory(reply.message.content or "", attempt.frames, reply.finish_reason)


class ToolActor:
    """Calls of a fixed set of tools, turn by turn, until an answer has none. Errors of tools are messages to the model."""

    def __init__(self, tools: Sequence[Tool], *, max_turns: int) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._specs = tuple(tool.spec for tool in tools)
        self._max_turns = max_turns

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Converse until there is an answer. Raise ``ActorError`` when the turns run out."""

        async def result_of(call: ToolCall) -> Message:
            if (tool := self._tools.get(call.name)) is None:
                return Message("tool", no_such_tool(call.name, self._tools), tool_call_id=call.id)
            result = await attempt.call_tool(tool, call.arguments)
            return Message("tool", result.text, tool_call_id=call.id)

        messages = list(attempt.opening())
        for _ in range(self._max_turns):
            reply = await attempt.chat(messages, self._specs)
            calls = reply.message.tool_calls
            if not calls or reply.finish_reason in CUT_OFF:
                return Trajectory(reply.message.content or "", attempt.frames, reply.finish_reason)
            messages += (reply.message, *await gathered(map(result_of, calls)))
        raise ActorError(f"no answer after {self._max_turns} turns")

    async def aclose(self) -> None:
        """End what the tools have started."""
        for tool in self._tools.values():
            if tool.close is not None:
                await tool.close()


def no_such_tool(name: str, names: Iterable[str]) -> str:
    """Return the message to a model that calls an unknown tool."""
    return f"error: no tool named {shorten_middle(name, _SHOWN_CHARS)!r}; there are: {', '.join(names)}"


PYTHON = "python"
_ACCEPTED_TOOLS = "python, or module:attr or path/to/file.py:attr of a Python function whose parameters are all annotated"
_ACCEPTED = "chat, tools, command, http, or module:attr or path/to/file.py:attr of a function or callable instance"
# Settings that other kinds of actor do not heed.
_HEEDED = {
    "tools": ("tools", "python_container", "mcp", "max_turns"),
    "command": ("command", "stdin", "workdir", "env", "memory_mb", "answer"),
    "http": ("url", "headers", "answer"),
}


def build_actor(settings: ActorSettings, *, learns: bool = False, listed: Sequence[ListedTool] = ()) -> Actor:
    """Return the actor. ``learns``: refuse one that no lesson reaches. Raise ``SettingsError`` with every problem."""
    checks, defaults = ProblemCollector(), ActorSettings()
    actors = checks.run(_built, settings, learns=learns, listed=listed)
    for name in dict.fromkeys(name for names in _HEEDED.values() for name in names):
        kinds = [kind for kind, names in _HEEDED.items() if name in names]
        if settings.kind not in kinds and getattr(settings, name) != getattr(defaults, name):
            setting, accepted = f"a value with kind: {settings.kind}", f"it with kind: {' or '.join(kinds)}"
            checks.refuse([Problem(f"actor.{name}", setting, accepted)])
    if not settings.gateway.enabled and settings.kind not in ("command", "http"):
        off = f"off with kind: {settings.kind}"
        checks.refuse([Problem("actor.gateway.enabled", off, "off with kind: command or http")])
    checks.raise_problems()
    return actors[0]


def _built(settings: ActorSettings, *, learns: bool, listed: Sequence[ListedTool]) -> Actor:
    match settings.kind:
        case "chat":
            return ChatActor()
        case "tools":
            if not settings.tools and settings.mcp is None:
                accepted = "at least one module:attr for the tools actor, or servers by actor.mcp"
                raise SettingsError.one("actor.tools", "none", accepted)
            return ToolActor(tools_of(settings, listed), max_turns=settings.max_turns)
    from tfgrpo.tasks.actors import command, own  # noqa: PLC0415 - 30 ms, and few runs have such an agent

    if settings.kind in ("command", "http"):
        kind: type[command.CommandActor | own.HttpActor]
        kind = command.CommandActor if settings.kind == "command" else own.HttpActor
        if problems := list(kind.problems(settings, learns=learns)):
            raise SettingsError(problems)
        return kind(settings)
    try:
        actor = own.CallableActor(load_callable(settings.kind))
        if {"prompt", "item"}.isdisjoint(actor.declared):
            declared = f"an agent declares one of them, and may declare {', '.join(own.OFFERED)}"
            raise ValueError(f"it takes neither prompt nor item, so it cannot see what it is asked; {declared}")
        return actor
    except ValueError as error:
        kind_or_name = f"{settings.kind!r} ({error})" if is_name(settings.kind) else repr(settings.kind)
        raise SettingsError.one("actor.kind", kind_or_name, _ACCEPTED) from None


def tools_of(settings: ActorSettings, listed: Sequence[ListedTool] = ()) -> tuple[Tool, ...]:
    """Return the tools as named, then the ``listed`` ones of MCP servers. Raise ``SettingsError`` with every problem."""
    tools: list[Tool] = []
    problems: list[Problem] = []
    for reference in settings.tools:
        try:
            if reference == PYTHON:
                from tfgrpo.tasks.processes.process import python_tool  # noqa: PLC0415 - five modules, and few runs have it

                tools.append(python_tool(settings.python_container))
            else:
                tools.append(tool_from_function(load_callable(reference)))
        except ValueError as error:
            problems.append(Problem("actor.tools", f"{reference!r} ({error})", _ACCEPTED_TOOLS))
    problems += _twice("actor.tools", tools)
    if settings.mcp is not None and listed and not problems:
        tools += mcp_tools(settings.mcp, listed, [tool.spec.name for tool in tools])
        problems += _twice("actor.mcp", tools)
    if problems:
        raise SettingsError(problems)
    return tuple(tools)


def _twice(source: str, tools: Iterable[Tool]) -> Iterator[Problem]:
    names = Counter(tool.spec.name for tool in tools)
    for name in sorted(name for name, count in names.items() if count > 1):
        yield Problem(source, f"two tools named {name!r}", "tools with different names")


def listed_tools(settings: ActorSettings) -> tuple[ListedTool, ...]:
    """Return the tools of the MCP servers, which are started for it. Raise ``SettingsError``, one problem a server."""
    if settings.kind != "tools" or settings.mcp is None:
        return ()
    return list_tools(settings.mcp)


def check_actor(settings: ActorSettings, *, learns: bool = False, listed: Sequence[ListedTool] = ()) -> tuple[Problem, ...]:
    """Return every problem of the actor's settings."""
    try:
        build_actor(settings, learns=learns, listed=listed)
    except SettingsError as error:
        return tuple(error.problems)
    return ()


def own_agent(settings: ActorSettings) -> OwnAgent | None:
    """Return the actor if it is an agent of the user's own. For settings without problems."""
    actor = None if settings.kind in ("chat", "tools") else build_actor(settings)
    return cast("OwnAgent | None", actor)


def actor_warnings(settings: ActorSettings) -> tuple[str, ...]:
    """Return what a valid actor cannot do: be counted, learn, or be isolated. For settings without problems."""
    agent = own_agent(settings)
    if agent is not None:
        return tuple(agent.warnings(settings))
    if PYTHON not in settings.tools or settings.python_container is not None:
        return ()
    user = "root" if os.geteuid() == 0 else "this user"
    may = f"it reaches the network and, as {user}, files and other processes, with the keys in their environments"
    return (f"the model's code in the tool python is not isolated: {may}; actor.python_container isolates it",)
