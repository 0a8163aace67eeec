"""Build the actor that the settings ask for: ``chat``, with one model call per attempt, ``tools``, or a callable by name."""

from __future__ import annotations

from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.rewarders.importing import is_name, load_callable
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.tasks.runtime.runtime import Actor, AttemptContext
from tfgrpo.tasks.shapes import Trajectory
from tfgrpo.tasks.tools.schema import check_tools, load_tools


class ChatActor:
    """Asks once. A cut-off answer keeps its finish reason, so that it does not pass for a wrong one."""

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Make one model call with the group's system text and the item."""
        reply = await attempt.chat(attempt.opening())
        return Trajectory(reply.message.content or "", attempt.frames, reply.finish_reason)


_SOURCE = "actor.kind"
_ACCEPTED = "chat, tools, or module:attr or path/to/file.py:attr of a function or of an instance that can be called"


def build_actor(settings: ActorSettings) -> Actor:
    """Return the actor. Raise ``SettingsError`` with everything that ``check_actor`` finds."""
    problems = check_actor(settings)
    if problems:
        raise SettingsError(problems)
    if settings.kind == "chat":
        return ChatActor()
    if settings.kind == "tools":
        from tfgrpo.tasks.actors.tools import ToolActor  # noqa: PLC0415 - a run has one kind of actor

        return ToolActor(load_tools(settings.tools), max_turns=settings.max_turns)
    from tfgrpo.tasks.actors.callable import CallableActor  # noqa: PLC0415 - a run has one kind of actor

    return CallableActor(load_callable(settings.kind))


def check_actor(settings: ActorSettings) -> tuple[Problem, ...]:
    """Return every problem of the actor's settings. Import what they name; call nothing."""
    if settings.kind == "tools":
        if not settings.tools:
            return (Problem("actor.tools", "none", "at least one module:attr for the tools actor"),)
        return check_tools(settings.tools)
    problems = [] if settings.kind == "chat" else _callable_problems(settings.kind)
    if settings.tools:
        problems.append(Problem("actor.tools", f"tools for the {settings.kind} actor", "tools only with kind: tools"))
    return tuple(problems)


def actor_warnings(settings: ActorSettings) -> tuple[str, ...]:
    """Return what a valid agent cannot do: be counted, or learn. For settings without problems."""
    if settings.kind in ("chat", "tools"):
        return ()
    from tfgrpo.tasks.actors.callable import CallableActor  # noqa: PLC0415 - as in build_actor

    declared = CallableActor(load_callable(settings.kind)).declared
    if "chat" in declared:
        return ()
    unpaid = f"{settings.kind} takes no `chat`: calls that it makes itself are not counted, and no cap holds for them"
    if "system" in declared:
        return (unpaid,)
    return (f"{settings.kind} takes neither `system` nor `chat`: no lesson can reach it, so it cannot learn", unpaid)


def _callable_problems(kind: str) -> list[Problem]:
    if not is_name(kind):
        return [Problem(_SOURCE, repr(kind), _ACCEPTED)]
    from tfgrpo.tasks.actors.callable import CallableActor  # noqa: PLC0415 - as in build_actor

    try:
        CallableActor(load_callable(kind))
    except ValueError as error:
        return [Problem(_SOURCE, f"{kind!r} ({error})", _ACCEPTED)]
    return []
