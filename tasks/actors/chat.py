"""Attempt an item with one call of a chat model."""

from __future__ import annotations

from tfgrpo.tasks.actors.base import AttemptContext
from tfgrpo.tasks.shapes import Trajectory


class ChatActor:
    """Asks once. A cut-off answer keeps its finish reason, so that it does not pass for a wrong one."""

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Make one model call with the group's system text and the item."""
        reply = await attempt.chat(attempt.opening())
        return Trajectory(reply.message.content or "", attempt.frames, reply.finish_reason)
