"""One request of a client in production: its arm, its lessons, and what is counted of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from aiohttp import web

from tfgrpo.prompt_packs.inject import LESSONS_MARK
from tfgrpo.stores.errors import TfgrpoError
from tfgrpo.stores.runs.journal import Journal
from tfgrpo.stores.telemetry.names import SentArm
from tfgrpo.tasks.gateway.dialect import Dialect
from tfgrpo.tasks.gateway.embeddings import EmbeddingsDialect
from tfgrpo.tasks.gateway.live.opening import Opening, named_conversation, opening_of
from tfgrpo.tasks.gateway.live.traffic import PROVIDER, Traffic
from tfgrpo.tasks.gateway.outgoing import Additions, Outgoing
from tfgrpo.tasks.gateway.upstream import keys_in
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.endpoint import Scrub

CONVERSATION = "x-tfgrpo-conversation"
_ARM = "x-tfgrpo-arm"
_TRACE = ("traceparent", "tracestate")
_MIN_SECRET = 6


class LiveClient:
    """The ``Caller`` of one request. Nothing of it is journalled."""

    journal: Journal | None = None

    def __init__(self, traffic: Traffic, request: web.BaseRequest, scrub: Scrub) -> None:
        """``scrub`` removes the endpoint's own secrets."""
        self.running: set[asyncio.Task[Any]] = set()
        self.telemetry, self.provider = traffic.telemetry, PROVIDER
        self.max_tokens = traffic.max_tokens
        self.carrier: Mapping[str, str] = {name: request.headers[name] for name in _TRACE if name in request.headers}
        self.arm: SentArm | None = "off"
        self.headers: Mapping[str, str] = {_ARM: "off"}
        self._traffic = traffic
        self._keys = [key for key in keys_in(request) if len(key) >= _MIN_SECRET]
        self._scrub = scrub
        self._named = request.headers.get(CONVERSATION)
        self._declined = request.headers.get("x-tfgrpo-lessons", "").lower() == "off"
        self._opening = Opening("", "")
        self._conversation = ""
        self._auxiliary = False

    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:
        """Draw the arm of the conversation, and return its lessons: those for its first message."""
        self._opening = opening = opening_of(body)
        self._conversation = (
            self._named
            or named_conversation(body)
            or self._traffic.conversation_after(body.get("previous_response_id"))
            or opening.prompt
        )
        asked = str(body.get("model"))
        self._auxiliary = any(fnmatchcase(asked, pattern) for pattern in self._traffic.auxiliary)
        taught = ""
        if not self._declined and not isinstance(dialect, EmbeddingsDialect):
            self.arm = self._traffic.arm_of(self._conversation)
            if self.arm == "lessons":
                taught = self._traffic.lessons(opening.prompt)
        self.headers = {_ARM: str(self.arm)}
        return Additions(taught, models=self._traffic.models, auxiliary=self._traffic.auxiliary)

    def begin(self, request: Outgoing) -> int:
        """Count the request."""
        self._traffic.begun(self.arm or "off", taught=request.added is not None)
        return 0

    def take_number(self, digest: str) -> int:  # noqa: ARG002 - equal requests are nothing special here
        """Return 0."""
        return 0

    def free_number(self, digest: str, number: int) -> None:
        """Do nothing."""

    def key_text(self, digest: str, number: int) -> str:  # noqa: ARG002 - there is no journal
        """Return nothing."""
        return ""

    def answered(self, place: int, request: Outgoing, reply: ChatReply) -> None:  # noqa: ARG002 - there are no frames
        """Remember the conversation, and keep the answer if traffic is kept."""
        self._traffic.remember(reply.response_id, self._conversation)
        kept = self._traffic.kept
        if kept is not None and self.arm != "off" and not self._auxiliary and LESSONS_MARK not in self._opening.system:
            kept.add(self._opening, self.arm or "off", request, reply, self.scrub)

    def stop(self, error: TfgrpoError) -> None:
        """Do nothing: a refusal of one client's key concerns no other."""

    def count(self, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count an answer or a failure by arm."""
        self._traffic.ended(self.arm or "off", model, result, took_s)

    def scrub(self, text: str) -> str:
        """Return a text without the endpoint's secrets and the client's key."""
        for key in self._keys:
            text = text.replace(key, "***")
        return self._scrub(text)
