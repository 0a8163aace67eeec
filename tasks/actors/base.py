"""Actor protocol, and the context through which an actor attempts an item.

The context is the actor's only access to models and tools: it numbers the calls, derives their seeds, journals tool
results and measures everything. It grades nothing, and never shows the reference answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.stores.errors import ActorError, BudgetRefused, ModelAuthRefused, ReplayMiss, StoreError, TfgrpoError
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.stores.seeds import derive_seed
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.stores.usage import UNKNOWN_USAGE, Usage
from tfgrpo.tasks.actors.recorded import Recorder, model_key
from tfgrpo.tasks.models.base import ChatModel, ChatReply, ChatRequest, Message, ToolSpec
from tfgrpo.tasks.runtime.scrubbing import Scrub
from tfgrpo.tasks.shapes import Frame, GroupSpec, ToolMetricEvent, Trajectory
from tfgrpo.tasks.tools.schema import Tool, ToolResult

FATAL = (ModelAuthRefused, ReplayMiss, StoreError)
"""Failures after which no further call of the run can succeed."""
ENDING = (*FATAL, BudgetRefused)
"""Failures by which a run ends, or asks for no more of its attempts."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What every model call of a rollout has in common."""

    model: str
    max_tokens: int
    run_seed: int
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Seams:
    """Model, journal, tools and telemetry of an attempt."""

    model: ChatModel
    recorder: Recorder
    run_tool: Callable[[Tool, str], Awaitable[ToolResult]]
    """Runs a tool on its raw JSON arguments; never raises for what the tool or the model did wrong."""
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    """Runs a blocking function without holding up the event loop."""
    telemetry: Telemetry
    scrub: Scrub = replace_surrogates
    """Makes a text of foreign code storable."""


class AttemptContext:
    """One attempt at one item: what the actor may know, and the calls that it may make."""

    def __init__(self, spec: GroupSpec, index: int, options: CallOptions, seams: Seams) -> None:
        self.item: Item = replace(spec.item, answer="")
        """The item without its reference answer."""
        self.system = spec.pack.system
        """System text of the group: pack and lessons."""
        self.temperature = spec.temperature
        self.calls: list[Usage] = []
        """Usage of each answered call."""
        self.own_calls = False
        """Whether the actor may call models outside this context."""
        self.seams = seams
        self.stopped_by: TfgrpoError | None = None
        """Failure that ends the run, even if the agent catches it."""
        self._over = False
        self._spec = spec
        self._index = index
        self._options = options
        self._turns = 0
        self._tool_calls = 0
        self._frames: list[Frame | None] = []
        self._events: list[ToolMetricEvent | None] = []
        self.seed = self._seed()

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Calls that returned, in the order in which they were made."""
        return tuple(frame for frame in self._frames if frame is not None)

    @property
    def usage(self) -> Usage:
        """Return the sum over all calls; unknown for an agent that may call models by itself and asked for none here."""
        return UNKNOWN_USAGE if self.own_calls and not self._turns else Usage.total(self.calls)

    @property
    def tool_events(self) -> tuple[ToolMetricEvent, ...]:
        """One event per tool call that returned, in the order in which they were made."""
        return tuple(event for event in self._events if event is not None)

    @property
    def user_text(self) -> str:
        """The item as the user message shows it."""
        parts = (self.item.system_prompt, self.item.prompt)
        return "\n\n".join(part for part in parts if part)

    def end(self) -> None:
        """Refuse further calls: a blocking agent that timed out would spend more otherwise."""
        self._over = True

    def opening(self) -> tuple[Message, ...]:
        """Return the first two messages of every conversation: the stable text first, for caching, then the item."""
        return (Message("system", self.system), Message("user", self.user_text))

    async def chat(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> ChatReply:
        """Ask the model. Raise what ``ChatModel.complete`` raises, and ``ActorError`` when the attempt is over."""
        self._refuse_when_over()
        turn, slot = self._turns, self._slot()
        self._turns += 1
        request = ChatRequest(
            model=self._options.model,
            messages=tuple(messages),
            temperature=self.temperature,
            max_tokens=self._options.max_tokens,
            seed=self._seed(turn),
            tools=tuple(tools),
            logprobs=self._options.logprobs,
        )
        key = self.key("rollout", turn)
        recorder = self.seams.recorder
        recorder.begun(key, partial(model_key, key, request))
        try:
            reply = await self.seams.model.complete(request, key)
        except ENDING as error:
            self.stopped_by = error
            raise
        recorder.ended(key)
        self.calls.append(reply.used)
        self._frames[slot] = _model_frame(reply)
        return reply

    async def call_tool(self, tool: Tool, arguments: str) -> ToolResult:
        """Run a tool on the raw JSON arguments that the model wrote; reuse the journalled result of this call.

        Mistakes of the model and errors of the tool are a result whose ``ok`` is false.
        """
        self._refuse_when_over()
        number, slot = self._tool_calls, self._slot()
        self._tool_calls += 1
        self._events.append(None)
        key = self.key("tool", turn=max(0, self._turns - 1), attempt=number)
        result = await self.seams.recorder.once(
            key,
            {"tool": tool.spec.name, "arguments": arguments},
            lambda: self._observed(tool, arguments),
            encode=ToolResult.to_json,
            decode=ToolResult.from_json,
        )
        self._frames[slot] = _tool_frame(tool, result)
        self._events[number] = self._event(tool, result)
        return result

    def adopt(self, calls: Sequence[Usage], frames: Sequence[Frame], events: Sequence[ToolMetricEvent]) -> None:
        """Replace the measurements: by those of a journalled attempt, or of an agent's own."""
        self.calls, self.own_calls = list(calls), False
        self._frames = list(frames)
        self._events = list(events)

    def key(self, role: str, turn: int, attempt: int = 0) -> CallKey:
        """Return the key of one call of this attempt."""
        return CallKey(self._spec.key, self._index, turn, role, attempt)

    def _seed(self, *turn: int) -> int:
        """Return a seed that champion and candidate share, so that their difference is not one of luck."""
        key = self._spec.key
        return derive_seed(self._options.run_seed, "rollout", key.epoch, key.phase, key.draw_id, self._index, *turn)

    def _refuse_when_over(self) -> None:
        if self._over:
            raise ActorError("the attempt is over")

    def _slot(self) -> int:
        self._frames.append(None)
        return len(self._frames) - 1

    async def _observed(self, tool: Tool, arguments: str) -> ToolResult:
        with self.seams.telemetry.tool_span(tool=tool.spec.name) as span:
            result = await self.seams.run_tool(tool, arguments)
            span.set(tool_cost_usd=result.cost_usd)
            if not result.ok:
                span.fail("tool_error")
        return result

    def _event(self, tool: Tool, result: ToolResult) -> ToolMetricEvent:
        return ToolMetricEvent(
            epoch=self._spec.key.epoch,
            group_id=self._spec.group_id,
            tool=tool.spec.name,
            tokens=estimated_tokens(result.text),
            cost_usd=result.cost_usd,
            latency_ms=result.latency_ms,
            ok=result.ok,
        )


class Actor(Protocol):
    """Attempts items; keeps no state between attempts, because they run concurrently."""

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Attempt the item of the context.

        Raises ``ModelCallError``, ``BudgetRefused`` or ``ReplayMiss`` of the context, and ``ActorError`` for any other
        failure.
        """
        ...


def _model_frame(reply: ChatReply) -> Frame:
    calls = "".join(f"\n→ {call.name}({call.arguments})" for call in reply.message.tool_calls)
    return Frame(
        kind="model",
        name=reply.model,
        text=((reply.message.content or "") + calls).lstrip("\n"),
        tokens=reply.usage.total if reply.usage else None,
        cost_usd=reply.cost_usd,
        latency_ms=reply.latency_s * 1000.0,
    )


def _tool_frame(tool: Tool, result: ToolResult) -> Frame:
    return Frame(
        kind="tool",
        name=tool.spec.name,
        text=result.text,
        tokens=estimated_tokens(result.text),
        cost_usd=result.cost_usd,
        latency_ms=result.latency_ms,
        error=None if result.ok else result.text[:200],
    )


def estimated_tokens(text: str) -> int:
    """Return tokens of a text at four characters each, rounded up: no tokenizer is at hand."""
    return -(-len(text) // 4)
