"""What attempts an item? The actor protocol, the actors that ship, and any Python callable."""

from tasks.actors.base import Actor, AttemptContext
from tasks.actors.callable import CallableActor
from tasks.actors.chat import ChatActor
from tasks.actors.registry import build_actor, check_actor
from tasks.actors.tools import ToolActor

__all__ = ["Actor", "AttemptContext", "CallableActor", "ChatActor", "ToolActor", "build_actor", "check_actor"]
