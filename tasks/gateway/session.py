"""One rollout's way through the gateway: its addresses, key and journal, and what was seen of its calls."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.prompt_packs.inject import lessons_block
from tfgrpo.stores.errors import TfgrpoError
from tfgrpo.stores.ledger.state import Usage
from tfgrpo.stores.telemetry.names import SentArm
from tfgrpo.tasks.gateway.dialect import Dialect
from tfgrpo.tasks.gateway.outgoing import Additions, Outgoing
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.models.journaled import count_call
from tfgrpo.tasks.shapes import Frame, estimated_tokens, model_frame

if TYPE_CHECKING:
    from tfgrpo.tasks.runtime.runtime import AttemptContext

ROLE = "gateway"
"""Of the calls, in the journal and in telemetry."""


class _OpenCall(NamedTuple):
    """A tool call of the model whose result has not come."""

    tool: str
    since: float


class Session:
    """What an agent gets for one rollout. It ends with the attempt: later calls are refused."""

    def __init__(self, attempt: AttemptContext, origin: str) -> None:
        self.attempt = attempt
        self.runtime = attempt.runtime
        self.journal, self.telemetry, self.scrub = self.runtime.journal, self.runtime.telemetry, self.runtime.scrub
        self.provider = self.runtime.context.provider
        self.max_tokens = self.runtime.context.models.roles["actor"].max_tokens
        self.arm: SentArm | None = None
        self.headers: Mapping[str, str] = {}
        self.token = secrets.token_urlsafe(16)
        self.api_key = f"sk-tfgrpo-{secrets.token_urlsafe(24)}"
        """Random per rollout; never the real key."""
        self.root_url = f"{origin}/r/{self.token}"
        """For clients that add ``/v1`` (Anthropic)."""
        self.base_url = f"{self.root_url}/v1"
        """For OpenAI clients."""
        self.additions = _additions(attempt)
        self.calls: list[Usage] = []
        """One per answered call."""
        self.carrier: Mapping[str, str] = self.telemetry.carrier()
        """Position in the trace: requests arrive in tasks of the server."""
        self.running: set[asyncio.Task[Any]] = set()
        """Tasks of the calls in flight."""
        self.bypassed = True
        """Whether no call has arrived."""
        self._frames: dict[int, Frame] = {}
        self._open_calls: dict[str, _OpenCall] = {}
        self._taken: dict[str, set[int]] = {}

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Calls of models and tools that returned, by arrival."""
        return tuple(self._frames[place] for place in sorted(self._frames))

    def end(self) -> None:
        """Cancel the calls in flight."""
        for task in self.running:
            task.cancel()

    def stop(self, error: TfgrpoError) -> None:
        """End the attempt by a failure after which no further call makes sense."""
        self.attempt.stopped_by = self.attempt.stopped_by or error

    def begin(self, request: Outgoing) -> int:
        """Record the results of tools that a request brings; return the place of its own frame.

        Raises ``ActorError`` when the attempt is over, and the error that stopped it.
        """
        if self.attempt.stopped_by is not None:
            raise self.attempt.stopped_by
        self.bypassed = False
        now = perf_counter()
        results = {result.call_id: result for result in request.results} if self._open_calls else {}
        for call_id, result in results.items():
            called = self._open_calls.pop(call_id, None)
            # The tools actor measures no call of a tool that does not exist.
            if called is not None and (called.tool in request.tools or not request.tools):
                text = self.runtime.scrub(result.text)
                failed = result.error or text[:5].lower() == "error"
                self._set(self.attempt.open_frame(), _tool_frame(called, text, now, failed=failed))
        return self.attempt.open_frame(turn=True)

    def answered(self, place: int, request: Outgoing, reply: ChatReply) -> None:
        """Record an answer."""
        reply = replace(reply, message=scrubbed(reply.message, self.runtime.scrub))
        now = perf_counter()
        for call in reply.message.tool_calls:
            self._open_calls[call.id] = _OpenCall(call.name, now)
        self.calls.append(reply.used)
        self.attempt.calls.append(reply.used)
        self._set(place, replace(model_frame(reply), added=request.added))

    def take_number(self, digest: str) -> int:
        """Return the lowest free number of a request among equal ones, and take it."""
        taken = self._taken.setdefault(digest, set())
        number = next(each for each in range(len(taken) + 1) if each not in taken)
        taken.add(number)
        return number

    def free_number(self, digest: str, number: int) -> None:
        """Give a number back: the call failed, or its answer did not reach the agent."""
        self._taken[digest].discard(number)

    def key_text(self, digest: str, number: int) -> str:
        """Return the call's key in the journal."""
        return self.attempt.key(ROLE, 0, number).text(digest)

    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:  # noqa: ARG002 - the same for all
        """Return what is written into a request."""
        return self.additions

    def count(self, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count a call in the metrics."""
        count_call(self.telemetry, self.attempt.key(ROLE, 0, 0), model, self.provider, result, took_s)

    def _set(self, place: int, frame: Frame) -> None:
        self._frames[place] = frame
        self.attempt.fill_frame(place, frame)


def _additions(attempt: AttemptContext) -> Additions:
    context = attempt.runtime.context
    settings, model = context.settings.actor.gateway, context.models.roles["actor"]
    sampling: dict[str, float | int] = {}
    if settings.sampling and model.send_temperature:
        sampling["temperature"] = attempt.temperature
    if settings.sampling and model.send_seed:
        sampling["seed"] = attempt.seed
    return Additions(
        lessons=lessons_block(attempt.system),
        # The simulated service has one model, whatever an agent asks for.
        models={"*": context.models.name} if context.models.simulated else settings.models,
        auxiliary=settings.auxiliary,
        sampling=sampling,
    )


def _tool_frame(called: _OpenCall, text: str, now: float, *, failed: bool) -> Frame:
    return Frame(
        kind="tool",
        name=called.tool,
        text=text,
        tokens=estimated_tokens(text),
        cost_usd=None,
        latency_ms=(now - called.since) * 1000.0,
        error=text[:200] if failed else None,
    )
