"""What attempts an item? The actor protocol, the actors that ship, and any Python callable."""

from tfgrpo.tasks.actors.base import Actor, AttemptContext
from tfgrpo.tasks.actors.callable import CallableActor
from tfgrpo.tasks.actors.chat import ChatActor
from tfgrpo.tasks.actors.registry import build_actor, check_actor
from tfgrpo.tasks.actors.tools import ToolActor

__all__ = [
    "Actor",
    "AttemptContext",
    "CallableActor",
    "ChatActor",
    "ToolActor",
    "build_actor",
    "check_actor",
    "recorded",
]
