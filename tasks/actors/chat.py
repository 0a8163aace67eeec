"""How does a plain chat model attempt an item? One call, one answer."""

from __future__ import annotations

from tfgrpo.tasks.actors.base import AttemptContext
from tfgrpo.tasks.shapes import Trajectory


class ChatActor:
    """Asks once. A cut-off answer is handed back with its finish reason, so that nobody mistakes it for a wrong one."""

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """One model call with the group's system text and the item."""
        reply = await attempt.chat(attempt.opening())
        return Trajectory(reply.message.content or "", attempt.frames, reply.finish_reason)
