"""One request of a client in production: its conversation, its arm, its lessons, and what is counted of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from aiohttp import web

from tfgrpo.prompt_packs.inject import holds_lessons
from tfgrpo.tasks.gateway.chat import EmbeddingsDialect
from tfgrpo.tasks.gateway.dialect import Dialect, offers_tools
from tfgrpo.tasks.gateway.live.conversations import Conversation, Opening, name_by_agent, opening_of
from tfgrpo.tasks.gateway.live.traffic import PROVIDER, Traffic
from tfgrpo.tasks.gateway.outgoing import Additions, Outgoing
from tfgrpo.tasks.gateway.responses import ResponsesDialect
from tfgrpo.tasks.gateway.session import Caller
from tfgrpo.tasks.gateway.upstream import keys_in
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.endpoint import Scrub

_CONVERSATION = "x-tfgrpo-conversation"
_ARM = "x-tfgrpo-arm"
_TRACE = ("traceparent", "tracestate")
_MIN_SECRET = 6


class LiveClient(Caller):
    """The caller of one request. Nothing of it is journalled."""

    def __init__(self, traffic: Traffic, request: web.BaseRequest, scrub: Scrub) -> None:
        """``scrub`` removes the endpoint's own secrets; the client's keys are removed with them."""
        carrier = {name: request.headers[name] for name in _TRACE if name in request.headers}
        super().__init__(traffic.telemetry, PROVIDER, traffic.max_tokens, carrier, self._masked)
        self.arm = "off"
        self._traffic = traffic
        self._request = request
        self._secrets = [key for key in keys_in(request) if len(key) >= _MIN_SECRET]
        self._scrub = scrub
        self._conversation, self._opening = Conversation("", ""), Opening("", "")
        self._keeps = self._undecided = False

    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:
        """Draw the arm of the conversation, and return its lessons."""
        traffic, headers = self._traffic, self._request.headers
        opening, named = opening_of(body), name_by_agent(headers, body)
        name = headers.get(_CONVERSATION) or named
        self._conversation = conversation = traffic.conversations.of(body, opening, name)
        self._opening = opening._replace(prompt=conversation.prompt, media=conversation.media)
        tools = offers_tools(dialect, body)
        auxiliary = traffic.conversations.is_auxiliary(conversation, tools=tools)
        self._undecided = bool(named) and not tools
        taught = ""
        if headers.get("x-tfgrpo-lessons", "").lower() != "off" and not isinstance(dialect, EmbeddingsDialect):
            self.arm = traffic.arm_of(conversation.name)
            taught = traffic.lessons() if self.arm == "lessons" else ""
            self._keeps = conversation.begun_here and not auxiliary and not holds_lessons(self._opening.system)
            self.headers = {_CONVERSATION: traffic.id_of(conversation.name)}
        self.headers = {**self.headers, _ARM: str(self.arm)}
        return Additions(taught, models=traffic.models, lessons_in=traffic.lessons_in, auxiliary=auxiliary)

    def begin(self, request: Outgoing) -> int:
        """Count the request."""
        self._traffic.begun(self.arm or "off", taught=request.added is not None)
        return 0

    def answered(self, place: int, request: Outgoing, reply: ChatReply) -> None:  # noqa: ARG002 - there are no frames
        """Remember the conversation, and keep the answer if traffic is kept."""
        if isinstance(request.dialect, ResponsesDialect):
            self._traffic.conversations.remember(self._conversation, reply.response_id)
        if self._keeps and self._traffic.kept is not None:
            keep = partial(self._traffic.kept.add, self._opening, self.arm or "off", request, reply, self.scrub)
            self._traffic.keep(self._conversation, keep, undecided=self._undecided)

    def count(self, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count an answer or a failure by arm."""
        self._traffic.ended(self.arm or "off", model, result, took_s)

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return self._scrub(text)
