"""Attempt items with any Python callable, which takes what it declares and returns its answer.

    async def agent(prompt, system, chat):
        draft = await chat(prompt)
        return await chat(f"Correct this if needed: {draft}")

The finished attempt is journalled as one call, so that a resumed run does not start the agent again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.threads import is_async
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import ActorError, TfgrpoError
from tfgrpo.stores.ledger.state import UNKNOWN_USAGE, Usage
from tfgrpo.stores.numeric import count_or_none, is_cost
from tfgrpo.tasks.models.base import Message, Role
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.runtime.containment import contained
from tfgrpo.tasks.runtime.runtime import ENDING, AttemptContext
from tfgrpo.tasks.shapes import Frame, Trajectory

ChatInput: TypeAlias = str | Sequence[Mapping[str, str]]
OFFERED = ("prompt", "system", "item", "temperature", "seed", "chat")
"""Keyword arguments an agent may declare."""
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True)
class _Finished:
    """Attempt of an agent, as journalled."""

    trajectory: Trajectory
    calls: tuple[Usage, ...]
    """Usage of each model call."""

    def to_json(self) -> dict[str, Any]:
        usage = asdict(Usage.total(self.calls))
        del usage["cost_usd"]
        tally = {**usage, "costs": [call.cost_usd for call in self.calls]}
        # Events would be calls of our tools, which an agent has none of.
        return {"trajectory": asdict(self.trajectory), "events": [], "tally": tally}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> _Finished:
        trajectory = value["trajectory"]
        frames = tuple(Frame(**frame) for frame in trajectory["frames"])
        tally = value["tally"]
        # The counts of all calls, then the cost of each. Implausible figures are unknown.
        counts = Usage(*(count_or_none(tally[name]) for name in ("calls", "prompt_tokens", "completion_tokens")))
        costs = (Usage(cost_usd=cost if is_cost(cost) else None) for cost in tally["costs"])
        return cls(Trajectory(trajectory["output"], frames, trajectory["finish_reason"]), (counts, *costs))


def _reported_calls(frames: Sequence[Frame]) -> tuple[Usage, ...]:
    """Return the usage that an agent reports of its model calls; unknown if it reports none.

    Frames do not separate prompt from completion, so all their tokens count as completion.
    """
    reported = tuple(Usage(1, 0, frame.tokens, frame.cost_usd) for frame in frames if frame.kind == "model")
    return reported or (UNKNOWN_USAGE,)


class CallableActor:
    """Runs a user's callable, asynchronous or not; blocking ones get a thread and a blocking ``chat``.

    Raises ``ValueError`` for one that cannot answer: a class, a generator, one that requires other arguments.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        _refuse_what_never_answers(function)
        self._function = function
        self.declared = declared_arguments(function)
        """Offered arguments that it takes."""
        self._asynchronous = is_async(function)

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Run the agent, or return its journalled trajectory. Raise ``ActorError`` with what the agent raised."""
        request = {
            "system": sha256_hex(attempt.system),
            "prompt": attempt.user_text,
            "temperature": attempt.temperature,
            "seed": attempt.seed,
        }
        attempt.own_calls = True
        done = await attempt.recorder.once(
            attempt.key("agent", turn=0),
            request,
            lambda: self._run(attempt),
            encode=_Finished.to_json,
            decode=_Finished.from_json,
        )
        attempt.adopt(done.calls, done.trajectory.frames)
        return done.trajectory

    async def _run(self, attempt: AttemptContext) -> _Finished:
        try:
            value = await contained(self._call(attempt))
        except TfgrpoError as error:
            if attempt.stopped_by is not None:
                raise attempt.stopped_by from None
            if isinstance(error, ENDING):
                # From a store, an endpoint or a budget of the agent's own: those of this run work.
                raise ActorError(described(error, whole=True)) from error
            raise
        except Exception as error:
            raise (attempt.stopped_by or ActorError(described(error, whole=True))) from error
        if attempt.stopped_by is not None:
            raise attempt.stopped_by
        trajectory = scrubbed(_trajectory(value, attempt), attempt.runtime.scrub)
        unseen = attempt.usage.calls is None
        calls = _reported_calls(trajectory.frames) if unseen else tuple(attempt.calls)
        return _Finished(trajectory, calls)

    async def _call(self, attempt: AttemptContext) -> object:
        async def chat(messages: ChatInput) -> str:
            reply = await attempt.chat(_as_messages(messages, attempt.system))
            return reply.message.content or ""

        if self._asynchronous:
            return await self._function(**self._arguments(attempt, chat))
        loop = asyncio.get_running_loop()

        def blocking_chat(messages: ChatInput) -> str:
            return asyncio.run_coroutine_threadsafe(chat(messages), loop).result()

        arguments = self._arguments(attempt, blocking_chat)
        value = await attempt.runtime.in_thread(lambda: self._function(**arguments))
        return await value if inspect.isawaitable(value) else value

    def _arguments(self, attempt: AttemptContext, chat: Callable[[ChatInput], Any]) -> dict[str, Any]:
        offered = {
            "prompt": attempt.user_text,
            "system": attempt.system,
            "item": attempt.item,
            "temperature": attempt.temperature,
            "seed": attempt.seed,
            "chat": chat,
        }
        return {name: offered[name] for name in self.declared}


def _refuse_what_never_answers(function: Callable[..., Any]) -> None:
    if inspect.isclass(function):
        raise ValueError("it is a class; an agent is a function, or an instance that can be called")
    calls = (function, getattr(function, "__call__", None))  # noqa: B004 - looked at, not called
    if any(inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call) for call in calls):
        raise ValueError("it yields; an agent returns its answer, a str or a Trajectory")


def declared_arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the offered arguments that a callable takes. Raise ``ValueError`` when it requires any other."""
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return OFFERED
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.name in OFFERED and parameter.kind is not parameter.POSITIONAL_ONLY:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            raise ValueError(f"it demands {parameter.name!r}; an agent may declare {', '.join(OFFERED)}")
    return tuple(names)


def _as_messages(given: ChatInput, system: str) -> tuple[Message, ...]:
    """Return messages; a text is a user message, and the group's system text goes first unless there is another."""
    raw: list[Mapping[str, str]] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    for entry in raw:
        if entry["role"] not in _ROLES:
            raise ActorError(f"a message of role {entry['role']!r}; chat takes system, user and assistant")
    messages = tuple(Message(_ROLES[entry["role"]], entry["content"]) for entry in raw)
    return messages if any(message.role == "system" for message in messages) else (Message("system", system), *messages)


def _trajectory(value: object, attempt: AttemptContext) -> Trajectory:
    if isinstance(value, str):
        return Trajectory(value, attempt.frames)
    if not isinstance(value, Trajectory):
        raise ActorError(f"the agent returned {type(value).__name__}; a str or a Trajectory is expected")
    frames = tuple(value.frames) or attempt.frames
    texts = (value.output, *(text for frame in frames for text in (frame.name, frame.text, frame.error or "")))
    if not all(isinstance(text, str) for text in texts):
        raise ActorError("the agent returned a Trajectory in which a text is no str")
    return replace(value, frames=frames)
