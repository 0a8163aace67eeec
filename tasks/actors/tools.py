"""Attempt an item with a model and tools, turn by turn, until it answers without a tool call.

Errors of tools and bad arguments are tool messages to the model; running out of turns is a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tfgrpo.stores.errors import ActorError
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.models.base import CUT_OFF, Message, ToolCall
from tfgrpo.tasks.runtime.runtime import AttemptContext
from tfgrpo.tasks.shapes import Trajectory
from tfgrpo.tasks.tools.schema import Tool

_SHOWN_CHARS = 80
"""Of an unknown tool's name in the message to the model."""


class ToolActor:
    """The OpenAI tool-calling protocol over a fixed set of tools."""

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
