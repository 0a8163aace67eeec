"""The OpenAI embeddings protocol as the gateway sees it: measured and bounded, with nothing to teach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tfgrpo.tasks.gateway.chat import ChatDialect
from tfgrpo.tasks.gateway.dialect import reply_of
from tfgrpo.tasks.gateway.splice import Document
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.wire import decode_usage


class EmbeddingsDialect(ChatDialect):
    """``POST /embeddings``. Its errors are those of the chat protocol."""

    path: ClassVar[str] = "/embeddings"
    limits: ClassVar[tuple[str, ...]] = ()
    sampling: ClassVar[tuple[str, ...]] = ()

    def add_lessons(self, request: Document, lessons: str) -> bool:  # noqa: ARG002
        """Add none."""
        return False

    def read(self, body: Mapping[str, Any]) -> ChatReply | None:
        """Read the usage."""
        return reply_of("", (), "stop", decode_usage(body), body) if isinstance(body.get("data"), list) else None
