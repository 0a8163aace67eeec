"""Build the actor that the settings ask for: ``chat``, with one model call per attempt, ``tools``, or a callable by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.rewarders.importing import is_name, load_callable
from tfgrpo.stores.errors import ActorError, Problem, SettingsError
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.models.base import CUT_OFF, Message, ToolCall
from tfgrpo.tasks.runtime.runtime import Actor, AttemptContext
from tfgrpo.tasks.shapes import Trajectory
from tfgrpo.tasks.tools.schema import Tool, load_tools

if TYPE_CHECKING:
    from tfgrpo.tasks.actors.callable import CallableActor

_SHOWN_CHARS = 80
"""Of an unknown tool's name in the message to the model."""


class ChatActor:
    """Asks once. A cut-off answer keeps its finish reason, so that it does not pass for a wrong one."""

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Make one model call with the group's system text and the item."""
        reply = await attempt.chat(attempt.opening())
        return Trajectory(reply.message.content or "", attempt.frames, reply.finish_reason)


class ToolActor:
    """The OpenAI tool-calling protocol over a fixed set of tools, turn by turn, until there is an answer without a call.

    Errors of tools and bad arguments are tool messages to the model; running out of turns is a failure.
    """

    def __init__(self, tools: Sequence[Tool], *, max_turns: int) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._specs = tuple(tool.spec for tool in tools)
        self._max_turns = max_turns

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Converse until there is an answer. Raise ``ActorError`` when the turns run out."""
        messages = list(attempt.opening())
        for _ in range(self._max_turns):
            reply = await attempt.chat(messages, self._specs)
            calls = reply.message.tool_calls
            if not calls or reply.finish_reason in CUT_OFF:
                return Trajectory(reply.message.content or "", attempt.frames, reply.finish_reason)
            messages.append(reply.message)
            messages.extend(await asyncio.gather(*(self._answer(attempt, call) for call in calls)))
        raise ActorError(f"no answer after {self._max_turns} turns")

    async def _answer(self, attempt: AttemptContext, call: ToolCall) -> Message:
        tool = self._tools.get(call.name)
        if tool is None:
            return Message("tool", no_such_tool(call.name, self._tools), tool_call_id=call.id)
        result = await attempt.call_tool(tool, call.arguments)
        return Message("tool", result.text, tool_call_id=call.id)


def no_such_tool(name: str, known: Iterable[str]) -> str:
    """Return the message to a model that calls an unknown tool."""
    return f"error: no tool named {shorten_middle(name, _SHOWN_CHARS)!r}; there are: {', '.join(known)}"


_ACCEPTED = "chat, tools, or module:attr or path/to/file.py:attr of a function or of an instance that can be called"


def build_actor(settings: ActorSettings) -> Actor:
    """Return the actor. Import what its settings name; call nothing. Raise ``SettingsError`` with every problem."""
    if settings.kind == "tools":
        if not settings.tools:
            raise SettingsError.one("actor.tools", "none", "at least one module:attr for the tools actor")
        return ToolActor(load_tools(settings.tools), max_turns=settings.max_turns)
    actor: Actor = ChatActor()
    problems: list[Problem] = []
    if settings.kind != "chat":
        try:
            actor = _callable_actor(settings.kind)
        except ValueError as error:
            given = f"{settings.kind!r} ({error})" if is_name(settings.kind) else repr(settings.kind)
            problems.append(Problem("actor.kind", given, _ACCEPTED))
    if settings.tools:
        problems.append(Problem("actor.tools", f"tools for the {settings.kind} actor", "tools only with kind: tools"))
    if problems:
        raise SettingsError(problems)
    return actor


def check_actor(settings: ActorSettings) -> tuple[Problem, ...]:
    """Return every problem of the actor's settings."""
    try:
        build_actor(settings)
    except SettingsError as error:
        return tuple(error.problems)
    return ()


def actor_warnings(settings: ActorSettings) -> tuple[str, ...]:
    """Return what a valid agent cannot do: be counted, or learn. For settings without problems."""
    if settings.kind in ("chat", "tools"):
        return ()
    declared = _callable_actor(settings.kind).declared
    if "chat" in declared:
        return ()
    unpaid = f"{settings.kind} takes no `chat`: calls that it makes itself are not counted, and no cap holds for them"
    if "system" in declared:
        return (unpaid,)
    return (f"{settings.kind} takes neither `system` nor `chat`: no lesson can reach it, so it cannot learn", unpaid)


def _callable_actor(kind: str) -> CallableActor:
    from tfgrpo.tasks.actors.callable import CallableActor  # noqa: PLC0415 - a run has one kind of actor

    return CallableActor(load_callable(kind))
