"""Attempt items with any Python callable, which takes what it declares and returns its answer.

    async def agent(prompt, system, chat):
        draft = await chat(prompt)
        return await chat(f"Correct this if needed: {draft}")

One that takes ``base_url`` and ``api_key`` gives them to a client of its own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tfgrpo.pipelines.settings.actor import ActorSettings
from tfgrpo.rewarders.threads import is_async
from tfgrpo.stores.errors import ActorError
from tfgrpo.tasks.actors.own import OwnAgent
from tfgrpo.tasks.gateway.session import RolloutSession
from tfgrpo.tasks.models.base import ChatInput, Message, Role
from tfgrpo.tasks.runtime.runtime import AttemptContext
from tfgrpo.tasks.shapes import Trajectory

_ALWAYS = ("prompt", "system", "item", "temperature", "seed", "chat")
_PROXIED = ("base_url", "api_key")
"""Address and key of the gateway, for an agent whose calls go through it: only for one that names them."""
OFFERED = (*_ALWAYS, *_PROXIED)
"""Keyword arguments an agent may declare."""
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


class CallableActor(OwnAgent):
    """Runs a user's callable, asynchronous or not; blocking ones get a thread and a blocking ``chat``.

    Raises ``ValueError`` for one that cannot answer: a class, a generator, one that requires other arguments.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if inspect.isclass(function):
            raise ValueError("it is a class; an agent is a function, or an instance that can be called")
        calls = (function, getattr(function, "__call__", None))  # noqa: B004 - looked at, not called
        if any(inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call) for call in calls):
            raise ValueError("it yields; an agent returns its answer, a str or a Trajectory")
        self._function = function
        self.declared = declared_arguments(function)
        """Offered arguments that it takes."""
        self.proxied = not set(_PROXIED).isdisjoint(self.declared)
        self._asynchronous = is_async(function)

    def warnings(self, settings: ActorSettings) -> Iterator[str]:
        """Yield what it cannot do without an address or ``chat``."""
        if not {"chat", *_PROXIED}.isdisjoint(self.declared):
            return
        if "system" not in self.declared:
            yield f"{settings.kind} takes no `system` either: no lesson can reach it, so it cannot learn"
        unseen = "calls that it makes itself are not counted, and no cap holds for them"
        yield f"{settings.kind} takes neither `chat` nor `base_url`: {unseen}"

    async def run(self, attempt: AttemptContext, session: RolloutSession | None) -> Trajectory:
        """Call it with what it declares."""

        async def chat(messages: ChatInput) -> str:
            reply = await attempt.chat(_as_messages(messages, attempt.system))
            return reply.message.content or ""

        if self._asynchronous:
            return _trajectory(await self._function(**self._arguments(attempt, session, chat)))
        loop = asyncio.get_running_loop()

        def blocking_chat(messages: ChatInput) -> str:
            return asyncio.run_coroutine_threadsafe(chat(messages), loop).result()

        arguments = self._arguments(attempt, session, blocking_chat)
        value = await attempt.runtime.in_thread(lambda: self._function(**arguments))
        return _trajectory(await value if inspect.isawaitable(value) else value)

    def _arguments(
        self, attempt: AttemptContext, session: RolloutSession | None, chat: Callable[[ChatInput], Any]
    ) -> dict[str, Any]:
        offered = {
            "prompt": attempt.user_text,
            "system": attempt.system,
            "item": attempt.item,
            "temperature": attempt.temperature,
            "seed": attempt.seed,
            "chat": chat,
        }
        if session is not None:
            offered |= {"base_url": session.base_url, "api_key": session.api_key}
        return {name: offered[name] for name in self.declared}


def declared_arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the offered arguments that a callable takes. Raise ``ValueError`` when it requires any other."""
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return (*_ALWAYS, *(name for name in names if name in _PROXIED))
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.name in OFFERED and parameter.kind is not parameter.POSITIONAL_ONLY:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            how = " by position" if parameter.kind is parameter.POSITIONAL_ONLY else ""
            raise ValueError(f"it demands {parameter.name!r}{how}; an agent may declare {', '.join(OFFERED)}")
    return tuple(names)


def _as_messages(given: ChatInput, system: str) -> tuple[Message, ...]:
    """Return messages; a text is a user message, and the group's system text goes first unless there is another."""
    raw: list[Mapping[str, str]] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    for entry in raw:
        if entry["role"] not in _ROLES:
            raise ActorError(f"a message of role {entry['role']!r}; chat takes system, user and assistant")
    messages = tuple(Message(_ROLES[entry["role"]], entry["content"]) for entry in raw)
    return messages if any(message.role == "system" for message in messages) else (Message("system", system), *messages)


def _trajectory(value: object) -> Trajectory:
    if isinstance(value, str):
        return Trajectory(value, ())
    if not isinstance(value, Trajectory):
        hint = ", so await it" if inspect.isawaitable(value) else ""
        raise ActorError(f"the agent returned {type(value).__name__}; a str or a Trajectory is expected{hint}")
    frames = tuple(value.frames)
    texts = [value.output, *(text for frame in frames for text in (frame.name, frame.text, frame.error or ""))]
    texts += [text for frame in frames for call in frame.calls for text in call]
    if not all(isinstance(text, str) for text in texts):
        raise ActorError("the agent returned a Trajectory in which a text is no str")
    return replace(value, frames=frames)
