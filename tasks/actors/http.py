"""Attempt items with an agent behind HTTP: one POST per attempt, whose reply is the answer."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import httpx

from tfgrpo.pipelines.settings.addresses import is_loopback
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.stores.errors import ActorError, EndpointError, ModelReplyMalformed, ModelUnreachable, Problem
from tfgrpo.stores.json_values import json_of
from tfgrpo.stores.runs import IDEMPOTENCY_KEY, idempotency_key
from tfgrpo.tasks.actors.own import OwnAgent, answer_place, answer_problems, item_json, pointed
from tfgrpo.tasks.gateway.session import RolloutSession
from tfgrpo.tasks.models.endpoint import display_url, filled_headers, scrubber
from tfgrpo.tasks.models.retry import FailedAttempt, RetryPolicy, read_refusal
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, Received, exchange, never_sent, open_transport
from tfgrpo.tasks.processes.process import OUTPUT_BYTES
from tfgrpo.tasks.runtime.runtime import AttemptContext, Runtime
from tfgrpo.tasks.shapes import Trajectory

_ACCEPTED: Final = 202
_EXCERPT: Final = 300


class HttpActor(OwnAgent):
    """Asks the service of the settings, of which ``problems`` has found none."""

    def __init__(self, settings: ActorSettings) -> None:
        self.proxied = settings.gateway.enabled
        self._url = httpx.URL(settings.url or "")
        self._headers, secrets = filled_headers(settings.headers)
        self._scrub = scrubber(*secrets)
        self._place = answer_place(settings.answer, "http")
        self._client: httpx.AsyncClient | None = None
        self._rng = random.Random()

    async def run(self, attempt: AttemptContext, session: RolloutSession | None) -> Trajectory:
        """Post the item, and wait for the answer."""
        body = {
            "prompt": attempt.user_text,
            "system": attempt.system,
            "item": item_json(attempt.item),
            "temperature": attempt.temperature,
            "seed": attempt.seed,
            "base_url": session and session.base_url,
            "api_key": session and session.api_key,
        }
        call = idempotency_key(attempt.runtime.context.unique_name, attempt.recorder.waiting_for or "")
        # A request is repeated only when no byte of it was sent: an agent is not asked twice. One that starts, or is started
        # again at night, gets the time that an endpoint gets, within the attempt's: else that would be named as the cause.
        settings = attempt.runtime.context.settings
        most_s = 0.9 * settings.actor.timeout_s
        retry = RetryPolicy(max_retries=3, max_wait_s=most_s, unavailable_s=min(settings.model.wait_s, most_s))
        received = await self._posted(attempt, json.dumps(body).encode(), call, retry)
        if not received.ok or received.status == _ACCEPTED:
            raise ActorError(self._refused(received))
        return Trajectory(self._scrub(self._answer(received)), ())

    def _connected(self, runtime: Runtime) -> httpx.AsyncClient:
        if self._client is None:
            concurrency = runtime.context.settings.tfgrpo.concurrency
            self._client = open_transport(concurrency=concurrency, trust_env=not is_loopback(self._url.host))
            runtime.resources.push_async_callback(self._client.aclose)
        return self._client

    async def _posted(self, attempt: AttemptContext, content: bytes, key: str, retry: RetryPolicy) -> Received:
        client = self._connected(attempt.runtime)
        kinds = {"accept": "application/json, text/plain", "content-type": "application/json"}
        headers = {**kinds, **self._headers, IDEMPOTENCY_KEY: key}
        number, waited = 1, 0.0
        while True:
            try:
                request = client.build_request("POST", self._url, content=content, headers=headers)
                return await exchange(client, request, max_bytes=OUTPUT_BYTES)
            except ModelReplyMalformed as error:
                raise ActorError(str(error)) from None
            except TRANSPORT_ERRORS as error:
                cause = str(error) or type(error).__name__
                broken = ModelUnreachable(f"no answer from the agent at {display_url(self._url)}: {cause}")
                unsent = never_sent(error)
                wait = retry.wait(number, FailedAttempt(broken, unsent, unavailable=unsent), waited, self._rng)
            if wait is None:
                attempt.own_calls = not unsent  # an agent that was never reached has asked no model
                raise broken
            number, waited = number + 1, waited + wait
            await asyncio.sleep(wait)

    def _refused(self, received: Received) -> str:
        where = f"{received.status} from the agent at {display_url(received.url)}"
        if received.status == _ACCEPTED:
            return f"{where}, which has no answer yet; the reply to the POST must be the answer"
        if received.moved_to is not None:
            return f"{where}: it moved to {display_url(received.moved_to)}, which is the address for actor.url"
        said = " ".join(self._scrub(read_refusal(received.status, received.content).message).split())
        return f"{where}: {said[:_EXCERPT] or 'an empty body'}"

    def _answer(self, received: Received) -> str:
        text = received.content.decode("utf-8", "replace")
        if received.headers.get("content-type", "").startswith("text/event-stream"):
            raise ActorError("the agent answers with an event stream; the reply must be one JSON object or text")
        return pointed(json_of(text), self._place.where) if self._place.place == "json" else text.strip()

    @staticmethod
    def problems(settings: ActorSettings, *, learns: bool) -> Iterator[Problem]:  # noqa: ARG004 - it is sent ``system``
        """Yield what is wrong with the settings."""
        yield from answer_problems(settings, "http")
        if settings.url is None:
            yield Problem("actor.url", "none", "the address of the agent for kind: http")
        try:
            filled_headers(settings.headers)
        except EndpointError as error:
            yield from error.problems

    def warnings(self, settings: ActorSettings) -> Iterator[str]:
        """Yield what is probably not meant, too."""
        yield from super().warnings(settings)
        if settings.gateway.enabled and not is_loopback(urlsplit(settings.url or "").hostname or ""):
            yield (
                f"the agent at {settings.url} gets the address of a gateway that listens on this machine only: "
                "start it here, or set actor.gateway.enabled=off"
            )
