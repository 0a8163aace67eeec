"""Context of a run, the resources that its steps share in one process, and the part of them that an actor may use.

The resources are built from the context, and kept, in ``tfgrpo.tasks.runtime.host``. An attempt numbers its calls, derives
their seeds, journals tool results and measures all. It never shows the reference answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.model_choice import ModelChoice
from tfgrpo.pipelines.settings.tree import ModelSettings, Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.rewarders.threads import RewarderThreads, in_thread
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import (
    ActorError,
    BudgetRefused,
    ModelAuthRefused,
    RecordRejected,
    ReplayMiss,
    StoreError,
    TfgrpoError,
)
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.json_values import canonical_json, derive_seed, sha256_hex
from tfgrpo.stores.ledger import UNKNOWN_USAGE, Ledger, Usage
from tfgrpo.stores.runs import UNFINISHED, CallKey, Journal
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.models.base import ChatModel, ChatReply, ChatRequest, Message, ToolSpec
from tfgrpo.tasks.models.endpoint import Scrub
from tfgrpo.tasks.models.retry import Outages
from tfgrpo.tasks.models.wire import request_digest
from tfgrpo.tasks.shapes import Frame, GroupSpec, ToolMetricEvent, Trajectory, model_frame, tool_frame
from tfgrpo.tasks.tools.schema import ListedTool, Tool, ToolResult, run_tool

if TYPE_CHECKING:
    from tfgrpo.tasks.gateway.server import RolloutServer
    from tfgrpo.tasks.gateway.session import RolloutSession
    from tfgrpo.tasks.models.chat import ChatClient


SecretReader: TypeAlias = Callable[[ModelSettings], str | None]
"""Returns the API key in the process that uses it: a function of an importable module, so that it pickles by name."""

FATAL = (ModelAuthRefused, ReplayMiss, StoreError)
"""Failures after which no further call of the run can succeed."""
ENDING = (*FATAL, BudgetRefused)
"""Failures by which a run ends, or asks for no more of its attempts."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run as each of its processes needs it. Picklable, and without the API key."""

    settings: Settings
    run_dir: Path
    run_id: str
    pack_id: str
    packs_root: Path | None
    """None: the built-in packs."""
    read_secret: SecretReader
    models: ModelChoice
    began: str = ""
    """When the run began, in any of its processes."""
    replay: bool = False
    """No request is sent: a call that is not in the journal fails."""
    replay_from: Path | None = None
    """Journal to replay when it is not the run's own."""
    labels: frozenset[str] = frozenset()
    """Reference answers that many of the items to learn on share, so that a lesson which names one gives no item away."""
    ledger_path: Path | None = None
    """File through which several processes share one budget; None when the run has one process."""
    task_ledger_path: Path | None = None
    """File through which all runs of the task share ``budget.task_max_usd``; None without that cap."""
    mcp_tools: tuple[ListedTool, ...] | None = None
    """Tools of the MCP servers, as the plan listed them. None: listed where the runtime is opened."""
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions)
    carrier: Mapping[str, str] = field(default_factory=dict)
    """Trace context of the run, for spans of other processes."""

    @property
    def paths(self) -> RunPaths:
        """Files of the run."""
        return RunPaths(self.run_dir)

    @property
    def unique_name(self) -> str:
        """Name that no other run has, on any machine."""
        return f"{self.run_id} {self.began}"


_T = TypeVar("_T")


class Gateway:
    """Way to the endpoint for agents that call it themselves: a server that starts with the first attempt."""

    def __init__(self, client: ChatClient | None = None) -> None:
        """``client``: connections, limits and ledger of the run. None: only what is in the journal is answered."""
        self._client = client
        self._server: RolloutServer | None = None
        self._starting = asyncio.Lock()
        self.requested: set[str] = set()
        """Models that agents named."""

    @asynccontextmanager
    async def session(self, attempt: AttemptContext) -> AsyncIterator[RolloutSession]:
        """Open the gateway for one attempt. Later calls with its address or key are refused."""
        async with self._starting:
            if self._server is None:
                from tfgrpo.tasks.gateway.server import RolloutServer  # noqa: PLC0415 - 70 ms, and few runs need one

                server = RolloutServer(self._client)
                attempt.runtime.resources.push_async_callback(server.aclose)
                await server.open()
                self._server = server
        with self._server.session(attempt) as session:
            yield session


@dataclass(frozen=True, slots=True)
class Runtime:
    """Models, actor, rewarders and records of one run in one process, for one event loop."""

    context: RunContext
    model: ChatModel
    """For every role, with the journal in front."""
    actor: Actor
    rewarders: tuple[Weighted, ...]
    scorers: ScoreRunner
    pack: LoadedPack
    journal: Journal | None
    ledger: Ledger
    slots: asyncio.Semaphore
    threads: RewarderThreads
    outages: Outages = field(default_factory=Outages)
    scrub: Scrub = replace_surrogates
    """Removes the API keys from text of foreign code, before it is recorded or shown."""
    gateway: Gateway = field(default_factory=Gateway)
    """Way to the endpoint for agents that call it themselves; replays alone unless it has a client."""
    telemetry: Telemetry = field(default_factory=lambda: Telemetry(TelemetryOptions()))
    clock: Clock = utc_now
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """Run a blocking function in a thread, which is abandoned when this is cancelled."""
        return await in_thread(self.threads, work)

    async def sync(self) -> str | None:
        """Sync the answers of a group and their cost to the disk, in a thread; return why the disk refused, if it did."""
        try:
            if self.journal is not None:
                await asyncio.to_thread(self.journal.sync)
                await asyncio.to_thread(self.ledger.sync)
        except StoreError as error:
            return f"{type(error).__name__}: {error}"
        return None

    async def aclose(self) -> None:
        """Close all resources, newest first, despite errors; the last error is raised, after the others in its context."""
        await self.resources.aclose()


def model_key(key: CallKey, request: ChatRequest) -> str:
    """Return the text under which the model client journals a request."""
    return key.text(request_digest(request))


class WorkRecorder:
    """Journals work outside the model client, so that no resumed run repeats it, and knows the calls in progress."""

    def __init__(self, journal: Journal | None, *, replay: bool = False) -> None:
        self._journal = journal
        self._replay = replay
        self.made = False
        """Whether any work was done that the journal did not have."""
        self._pending: dict[CallKey, Callable[[], str]] = {}

    @property
    def waiting_for(self) -> str | None:
        """Key text of the outermost call in progress, or of the last that failed."""
        return next((key_text() for key_text in self._pending.values()), None)

    @contextmanager
    def waiting(self, key: CallKey, key_text: Callable[[], str]) -> Iterator[None]:
        """Mark a call as in progress; it stays marked if it fails. Few texts are ever needed, so they are made late."""
        self._pending[key] = key_text
        yield
        del self._pending[key]

    async def once(
        self,
        key: CallKey,
        request: Mapping[str, Any],
        work: Callable[[], Awaitable[_T]],
        *,
        encode: Callable[[_T], dict[str, Any]],
        decode: Callable[[Mapping[str, Any]], _T],
    ) -> _T:
        """Return the journalled result, or that of ``work``, then journalled. Raises recorded failures, and ``ReplayMiss``."""
        key_text = key.text(sha256_hex(canonical_json(request).encode("utf-8", "surrogatepass")))
        with self.waiting(key, lambda: key_text):
            result = None if self._journal is None else self._journal.answer(key_text, decode, final=self._replay)
            if isinstance(result, TfgrpoError):
                raise result
            if result is None:
                if self._replay:
                    raise ReplayMiss(f"the journal holds no {key.role} call {key_text}")
                self.made = True
                result = await work()
                self._keep(key_text, encode(result))
        return result

    def keep_unfinished(self, payload: dict[str, Any]) -> None:
        """Journal what a failed attempt did and used: the failure itself is recorded only once its batch is accepted."""
        if self.made and self._pending:
            self._keep(self._unfinished_key(), payload)

    def unfinished(self) -> Mapping[str, Any] | None:
        """Return what the attempt whose recorded failure was raised did and used; None if it is not journalled."""
        entry = self._journal.get(self._unfinished_key()) if self._journal and self._pending and not self.made else None
        return None if entry is None else entry["payload"]

    def _unfinished_key(self) -> str:
        key, key_text = next(iter(self._pending.items()))
        return replace(key, role=UNFINISHED).text(key_text()[-16:])

    def _keep(self, key_text: str, payload: dict[str, Any]) -> None:
        try:
            if self._journal is not None:
                self._journal.append(key_text, payload)
        except RecordRejected as error:
            # Not a fault of the disk: the agent or tool returned what JSON cannot represent.
            raise ActorError(f"its result cannot be recorded: {error}") from error


class AttemptContext:
    """One attempt at one item: what the actor may know, and the calls that it may make."""

    def __init__(self, spec: GroupSpec, index: int, runtime: Runtime) -> None:
        self.item: Item = replace(spec.item, answer="")
        """The item without its reference answer."""
        self.system = spec.pack.system
        self.temperature = spec.temperature
        self.calls: list[Usage] = []
        self.own_calls = False
        """Whether the actor may call models outside this context."""
        self.latency_s: float | None = None
        """Seconds of an agent of the user's own, as journalled; None: those of its calls."""
        self.runtime = runtime
        self.recorder = WorkRecorder(runtime.journal, replay=runtime.context.replay)
        self.failed: Callable[[], None] = lambda: None
        self.stopped_by: TfgrpoError | None = None
        """Failure that ends the run, even if the agent catches it."""
        self.unanswered: TfgrpoError | None = None
        """Failure of the last call that has not been answered."""
        self._over = False
        self._spec = spec
        self._index = index
        self._turns = 0
        self._tool_calls = 0
        self._slots: list[list[Frame]] = []
        """One for each call in the order in which they were made, empty until it returns."""
        self.seed = self._seed()

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Calls that returned, in the order in which they were made, or what was adopted in their place."""
        return tuple(frame for slot in self._slots for frame in slot)

    @property
    def usage(self) -> Usage:
        """The sum over all calls; unknown for an agent that may call models directly and asked for none here."""
        return UNKNOWN_USAGE if self.own_calls and not self._turns else Usage.total(self.calls)

    @property
    def tool_events(self) -> tuple[ToolMetricEvent, ...]:
        """One event per tool call that returned or was adopted, in their order."""
        return tuple(
            ToolMetricEvent(
                epoch=self._spec.key.epoch,
                group_id=self._spec.group_id,
                tool=frame.name,
                tokens=frame.tokens or 0,
                cost_usd=frame.cost_usd,
                latency_ms=frame.latency_ms,
                ok=frame.error is None,
            )
            for frame in self.frames
            if frame.kind == "tool"
        )

    @property
    def user_text(self) -> str:
        """The item as the user message shows it."""
        return "\n\n".join(filter(None, (self.item.system_prompt, self.item.prompt)))

    def end(self) -> None:
        """Refuse further calls: a blocking agent that timed out would spend more otherwise."""
        self._over = True

    def opening(self) -> tuple[Message, ...]:
        """Return the first two messages of every conversation: the stable text first, for caching, then the item."""
        return (Message("system", self.system), Message("user", self.user_text))

    async def chat(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> ChatReply:
        """Ask the model. Raise what ``ChatModel.complete`` raises, and ``ActorError`` when the attempt is over."""
        turn, slot = self._turns, self.open_slot(turn=True)
        context = self.runtime.context
        request = ChatRequest(
            model=context.models.name,
            messages=tuple(messages),
            temperature=self.temperature,
            max_tokens=context.models.roles["actor"].max_tokens,
            seed=self._seed(turn),
            tools=tuple(tools),
            logprobs=context.settings.model.logprobs,
        )
        key = self.key("rollout", turn)
        try:
            with self.recorder.waiting(key, partial(model_key, key, request)):
                reply = await self.runtime.model.complete(request, key)
        except TfgrpoError as error:
            self.unanswered = error
            self.stopped_by = error if isinstance(error, ENDING) else self.stopped_by
            raise
        self.calls.append(reply.used)
        slot.append(model_frame(reply))
        return reply

    async def call_tool(self, tool: Tool, arguments: str) -> ToolResult:
        """Run a tool, or reuse its journalled result; mistakes of model and tool are not ``ok``. Raises ``ToolUnavailable``."""
        number, slot = self._tool_calls, self.open_slot()
        self._tool_calls += 1
        key = self.key("tool", turn=max(0, self._turns - 1), attempt=number)
        request, work = {"tool": tool.spec.name, "arguments": arguments}, partial(self._observed, tool, arguments)
        result = await self.recorder.once(key, request, work, encode=asdict, decode=lambda value: ToolResult(**value))
        slot.append(tool_frame(tool.spec.name, result.text, result.latency_ms, result.cost_usd, failed=not result.ok))
        return result

    def adopt(self, calls: Sequence[Usage], frames: Sequence[Frame]) -> None:
        """Replace the measurements by those of a journalled attempt, or of an agent's own; the attempt is over."""
        self.calls, self.own_calls = list(calls), False
        # What an abandoned call returns later goes to a slot that is not read any more.
        self._slots, self._over = [list(frames)], True

    def open_slot(self, *, turn: bool = False) -> list[Frame]:
        """Return a list for the frame of a new call, once it returns. Raises ``ActorError`` when the attempt is over."""
        if self._over:
            raise ActorError("the attempt is over")
        self._turns += turn
        self._slots.append([])
        return self._slots[-1]

    def key(self, role: str, turn: int, attempt: int = 0) -> CallKey:
        """Return the key of one call of this attempt."""
        return CallKey(self._spec.key, self._index, turn, role, attempt)

    def _seed(self, *turn: int) -> int:
        """Return a seed that both sides of a sweep share, so that their difference is not one of luck."""
        key, seed = self._spec.key, self.runtime.context.settings.tfgrpo.night_seed
        return derive_seed(seed, "rollout", key.epoch, key.phase, key.draw_id, self._index, *turn)

    async def _observed(self, tool: Tool, arguments: str) -> ToolResult:
        with self.runtime.telemetry.tool_span(tool=tool.spec.name) as span:
            result = await run_tool(tool, arguments, self.runtime.in_thread)
            result = replace(result, text=self.runtime.scrub(result.text))
            span.set(tool_cost_usd=result.cost_usd)
            if not result.ok:
                span.fail("tool_error")
        return result


class Actor(Protocol):
    """Attempts items; keeps no state between attempts, because they run concurrently."""

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Attempt the item. Raises the ``ModelCallError``, ``BudgetRefused`` or ``ReplayMiss`` of a call, or ``ActorError``."""
