"""Attempt items with an agent of the user's own: a callable, an HTTP service, or by a subclass elsewhere a command.

    async def agent(prompt, system, chat):
        draft = await chat(prompt)
        return await chat(f"Correct this if needed: {draft}")

A callable takes what it declares and returns its answer; one that takes ``base_url`` and ``api_key`` gives them to a client
of its own. A service gets one POST per attempt, whose reply is the answer. Model calls go through the run's gateway where
they can; what they used, the tools and why they stopped are then known as for our own calls. The finished attempt is
journalled as one call: a resumed run does not start the agent again.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import sysconfig
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from time import perf_counter
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.addresses import is_loopback
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.rewarders.calling import described, is_async
from tfgrpo.rewarders.threads import contained
from tfgrpo.stores.errors import ActorError, EndpointError, ModelCallError, ModelUnreachable, Problem, TfgrpoError
from tfgrpo.stores.json_values import json_of, sha256_hex
from tfgrpo.stores.ledger import UNKNOWN_USAGE, Usage
from tfgrpo.stores.numeric import count_or_none, is_cost
from tfgrpo.stores.runs import IDEMPOTENCY_KEY, idempotency_key
from tfgrpo.tasks.gateway.session import RolloutSession
from tfgrpo.tasks.models.base import ChatInput, Message, Role
from tfgrpo.tasks.models.endpoint import display_url, filled_headers, scrubbed, scrubber
from tfgrpo.tasks.models.retry import FailedAttempt, RetryPolicy, read_refusal
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, Received, exchange, never_sent, open_transport
from tfgrpo.tasks.processes.process import OUTPUT_BYTES
from tfgrpo.tasks.runtime.runtime import ENDING, AttemptContext
from tfgrpo.tasks.shapes import Trajectory, frame_of_json

_SHOWN: Final = 60
# Beginnings of files that are no agent's own: this package, Python and what is installed.
_NOT_THEIRS: Final = ("<", str(Path(__file__).parents[2]), *{sysconfig.get_path(name) for name in ("stdlib", "purelib")})


class AnswerPlace(NamedTuple):
    """Where an answer is: what ``actor.answer`` says."""

    kind: str
    """One of ``stdout``, ``last_line``, ``file``, ``json``, ``diff`` and ``text``."""
    name: str = ""
    """Of a file; or a JSON pointer (RFC 6901)."""

    def of_output(self, text: str) -> str:
        """Return the answer within an output or a reply. Raise ``ActorError`` if it is not there."""
        if self.kind == "json":
            value = json_of(text)
            if value is None and (objects := objects_in(text)):
                value = objects[-1][1]
            return pointed(value, self.name)
        stripped = text.strip()
        return stripped.rpartition("\n")[2].strip() if self.kind == "last_line" else stripped


def item_json(item: Item) -> dict[str, Any]:
    """Return an item as an agent outside this process gets it: never with its answer."""
    names = ("id", "prompt", "system_prompt", "metadata", "domain")
    return {name: getattr(item, name) for name in names}


def request_of(attempt: AttemptContext) -> dict[str, Any]:
    """Return what every agent is asked, whatever else it gets."""
    return {"prompt": attempt.user_text, "system": attempt.system, "temperature": attempt.temperature, "seed": attempt.seed}


def answer_place(text: str | None, kind: str) -> AnswerPlace:
    """Return the place for a command or an HTTP agent. Raise ``ValueError`` with what is accepted."""
    where, _, name = (text or ("stdout" if kind == "command" else "json:/answer")).partition(":")
    alone = ("stdout", "last_line", "diff") if kind == "command" else ("text",)
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    named = name.startswith("/") if where == "json" else where == "file" and kind == "command" and inside
    if not (named or (where in alone and not name)):
        files = ", file:NAME for a file in the working folder" if kind == "command" else ""
        raise ValueError(f"{', '.join(alone)}{files} or json:/POINTER")
    return AnswerPlace(where, name)


def answer_problems(settings: ActorSettings, kind: str) -> Iterator[Problem]:
    """Yield what is wrong with ``actor.answer``."""
    try:
        answer_place(settings.answer, kind)
    except ValueError as error:
        yield Problem("actor.answer", repr(settings.answer), str(error))


def pointed(value: object, pointer: str) -> str:
    """Return what a JSON pointer points at: a text as it is, anything else as JSON. Raise ``ActorError`` for nothing."""
    if value is None:
        raise ActorError("the answer is no JSON, in which actor.answer has a place")
    inner: Any = value
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(inner, Mapping) and name in inner:
            inner = inner[name]
        elif isinstance(inner, Sequence) and not isinstance(inner, str) and name.isdecimal() and int(name) < len(inner):
            inner = inner[int(name)]
        else:
            names = ", ".join(map(repr, inner)) if isinstance(inner, Mapping) else type(inner).__name__
            raise ActorError(f"nothing at {pointer} of the answer (actor.answer); there is: {names[:_SHOWN] or 'nothing'}")
    return inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)


def objects_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the lines of a text that are JSON objects, each with its value."""
    lines = [line for line in map(str.strip, text.split("\n")) if line.startswith("{")]
    return [(line, value) for line in lines if isinstance(value := json_of(line), dict)]


BYPASSED: Final = "the agent bypassed the gateway: it made no model call through it"
REMEDY: Final = (
    "an agent that takes address and key from its environment (OPENAI_BASE_URL and OPENAI_API_KEY, ANTHROPIC_BASE_URL and "
    "ANTHROPIC_API_KEY), from {base_url} and {api_key} in actor.command or actor.env, or from base_url and api_key among its "
    "arguments or in the request, and has none of its own. A command-line tool that is logged in needs a home without its "
    "login, such as by HOME or CODEX_HOME in actor.env. For an agent that can do nothing of this: actor.gateway.enabled=off"
)
_ALWAYS = ("prompt", "system", "item", "temperature", "seed", "chat")
# Address and key of the gateway, for an agent whose calls go through it: only for one that names them.
_PROXIED = ("base_url", "api_key")
OFFERED = (*_ALWAYS, *_PROXIED)
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True)
class _Finished:
    trajectory: Trajectory
    calls: tuple[Usage, ...]
    latency_s: float | None = None
    """Seconds of the whole attempt."""

    def to_json(self) -> dict[str, Any]:
        usage = asdict(Usage.total(self.calls))
        del usage["cost_usd"]
        tally = {**usage, "costs": [call.cost_usd for call in self.calls]}
        return {"trajectory": asdict(self.trajectory), "tally": tally, "latency_s": self.latency_s}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> _Finished:
        trajectory, tally = value["trajectory"], value["tally"]
        frames = tuple(map(frame_of_json, trajectory["frames"]))
        # The counts of all calls, then the cost of each. Implausible figures are unknown.
        counts = Usage(*(count_or_none(tally[name]) for name in ("calls", "prompt_tokens", "completion_tokens")))
        costs = (Usage(cost_usd=cost if is_cost(cost) else None) for cost in tally["costs"])
        ended = Trajectory(trajectory["output"], frames, trajectory["finish_reason"])
        return cls(ended, (counts, *costs), value["latency_s"])


class OwnAgent(ABC):
    """Runs an agent of the user's own, once per attempt."""

    proxied: bool
    """Whether the agent is offered the gateway, and fails if it makes no call through it."""

    def warnings(self, settings: ActorSettings) -> Iterator[str]:
        """Yield what the plan says of a valid agent. One that is started outside this process may have more."""
        if not settings.gateway.enabled:
            unseen = "its calls are not counted, no cap holds for them, and lessons reach it as `system` only"
            yield f"actor.gateway.enabled is off for the agent: {unseen}"

    @abstractmethod
    async def run(self, attempt: AttemptContext, session: RolloutSession | None) -> Trajectory:
        """Run the agent to its end. With a ``session``, if it is proxied, only the notes among its frames count."""

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        """Run the agent, or return its journalled trajectory. Raise ``ActorError`` with what the agent raised."""
        # Of the lessons a digest: they may be long, and the run has them.
        request = {**request_of(attempt), "system": sha256_hex(attempt.system)}
        attempt.own_calls = True

        def keep_unfinished() -> None:
            did = scrubbed(Trajectory("", attempt.frames, ""), attempt.runtime.scrub)
            attempt.recorder.keep_unfinished(_Finished(did, (attempt.usage,)).to_json())

        attempt.failed = keep_unfinished
        key, work = attempt.key("agent", turn=0), partial(self._run, attempt)
        try:
            done = await attempt.recorder.once(key, request, work, encode=_Finished.to_json, decode=_Finished.from_json)
        except TfgrpoError:
            if (payload := attempt.recorder.unfinished()) is not None:
                unfinished = _Finished.from_json(payload)
                attempt.adopt(unfinished.calls, unfinished.trajectory.frames)
            raise
        attempt.adopt(done.calls, done.trajectory.frames)
        attempt.latency_s = done.latency_s
        return done.trajectory

    async def _run(self, attempt: AttemptContext) -> _Finished:
        start = perf_counter()
        async with attempt.runtime.gateway.session(attempt) if self.proxied else nullcontext() as session:
            try:
                trajectory = await contained(self.run(attempt, session))
                if len(trajectory.output) > OUTPUT_BYTES:
                    raise ActorError(f"the answer has more than {OUTPUT_BYTES >> 20} MB")
                if session is not None and session.bypassed and not attempt.calls:
                    raise ActorError(f"{BYPASSED}. What it takes: {REMEDY}")
                if attempt.unanswered is not None and not attempt.calls:
                    raise attempt.unanswered
            except Exception as error:  # noqa: BLE001 - failures of any agent become typed ones
                cause = _cause(attempt, error)
                raise cause from None if cause is error else error
            if attempt.stopped_by is not None:
                raise attempt.stopped_by
            frames = trajectory.frames or attempt.frames
            if session is not None:
                frames = (*attempt.frames, *(frame for frame in trajectory.frames if frame.kind == "note"))
            calls = tuple(attempt.calls)
            if attempt.usage.calls is None:  # what it reports, all as completion: frames do not separate prompt from it
                reported = (Usage(1, 0, frame.tokens, frame.cost_usd) for frame in frames if frame.kind == "model")
                calls = tuple(reported) or (UNKNOWN_USAGE,)
            ended = scrubbed(replace(trajectory, frames=frames), attempt.runtime.scrub)
            return _Finished(ended, calls, perf_counter() - start)


def _cause(attempt: AttemptContext, error: Exception) -> TfgrpoError:
    """Return why an attempt failed: what ends the run, the endpoint when it answered no call, else its own error."""
    if attempt.stopped_by is not None:
        return attempt.stopped_by
    if isinstance(attempt.unanswered, ModelCallError) and not attempt.calls:
        error = attempt.unanswered
    if isinstance(error, TfgrpoError) and not isinstance(error, ENDING):
        return error
    # From a store, an endpoint or a budget of the agent's own: those of this run work.
    steps = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))
    own = [f" ({Path(name).name}, line {line})" for name, line in steps if not name.startswith(_NOT_THEIRS)]
    return ActorError("".join((described(error, whole=True), *own[-1:])))


class CallableActor(OwnAgent):
    """Runs a callable, a blocking one in a thread with a blocking ``chat``. Raises ``ValueError`` for one that is none."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if inspect.isclass(function):
            raise ValueError("it is a class; an agent is a function, or an instance that can be called")
        calls = (function, getattr(function, "__call__", None))  # noqa: B004 - looked at, not called
        if any(inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call) for call in calls):
            raise ValueError("it yields; an agent returns its answer, a str or a Trajectory")
        self._function = function
        self.declared = declared_arguments(function)
        self.proxied = not set(_PROXIED).isdisjoint(self.declared)
        self._asynchronous = is_async(function)

    def warnings(self, settings: ActorSettings) -> Iterator[str]:
        """Yield what it cannot do without an address or ``chat``."""
        if not {"chat", *_PROXIED}.isdisjoint(self.declared):
            return
        if "system" not in self.declared:
            yield f"{settings.kind} takes no `system` either: no lesson can reach it, so it cannot learn"
        unseen = "calls that it makes itself are not counted, and no cap holds for them"
        yield f"{settings.kind} takes neither `chat` nor `base_url`: {unseen}"

    async def run(self, attempt: AttemptContext, session: RolloutSession | None) -> Trajectory:
        """Call it with what it declares."""

        async def chat(messages: ChatInput) -> str:
            entries: list[Mapping[str, str]] = (
                [{"role": "user", "content": messages}] if isinstance(messages, str) else [*messages]
            )
            for entry in entries:
                if entry["role"] not in _ROLES:
                    raise ActorError(f"a message of role {entry['role']!r}; chat takes system, user and assistant")
            sent = [Message(_ROLES[entry["role"]], entry["content"]) for entry in entries]
            if not any(message.role == "system" for message in sent):  # else the agent's own is in its place
                sent.insert(0, Message("system", attempt.system))
            return (await attempt.chat(sent)).message.content or ""

        offered = {**request_of(attempt), "item": attempt.item, "chat": chat}
        if session is not None:
            offered |= {"base_url": session.base_url, "api_key": session.api_key}
        if not self._asynchronous:
            loop = asyncio.get_running_loop()
            offered["chat"] = lambda messages: asyncio.run_coroutine_threadsafe(chat(messages), loop).result()
        call = partial(self._function, **{name: offered[name] for name in self.declared})
        # Behind an ordinary decorator an asynchronous agent looks like a blocking one.
        value = call() if self._asynchronous else await attempt.runtime.in_thread(call)
        return _trajectory(await value if inspect.isawaitable(value) else value)


def declared_arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the offered arguments that a callable takes. Raise ``ValueError`` when it requires any other."""
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return (*_ALWAYS, *(name for name in names if name in _PROXIED))
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.name in OFFERED and parameter.kind is not parameter.POSITIONAL_ONLY:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            how = " by position" if parameter.kind is parameter.POSITIONAL_ONLY else ""
            raise ValueError(f"it demands {parameter.name!r}{how}; an agent may declare {', '.join(OFFERED)}")
    return tuple(names)


def _trajectory(value: object) -> Trajectory:
    if isinstance(value, str):
        return Trajectory(value, ())
    if not isinstance(value, Trajectory):
        hint = ", so await it" if inspect.isawaitable(value) else ""
        raise ActorError(f"the agent returned {type(value).__name__}; a str or a Trajectory is expected{hint}")
    frames = tuple(value.frames)
    texts = [value.output, *(text for frame in frames for text in (frame.name, frame.text, frame.error or ""))]
    texts += [text for frame in frames for call in frame.calls for text in call]
    if not all(isinstance(text, str) for text in texts):
        raise ActorError("the agent returned a Trajectory in which a text is no str")
    return replace(value, frames=frames)


_ACCEPTED: Final = 202
_EXCERPT: Final = 300


class HttpActor(OwnAgent):
    """Asks the service of the settings, of which ``problems`` has found none."""

    def __init__(self, settings: ActorSettings) -> None:
        self.proxied = settings.gateway.enabled
        self._url = httpx.URL(settings.url or "")
        self._headers, secrets = filled_headers(settings.headers)
        self._scrub = scrubber(*secrets)
        self._answer = answer_place(settings.answer, "http")
        self._client: httpx.AsyncClient | None = None
        self._rng = random.Random()

    async def run(self, attempt: AttemptContext, session: RolloutSession | None) -> Trajectory:
        """Post the item, and wait for the answer."""
        gateway = {"base_url": session and session.base_url, "api_key": session and session.api_key}
        body = {**request_of(attempt), "item": item_json(attempt.item), **gateway}
        call = idempotency_key(attempt.runtime.context.unique_name, attempt.recorder.waiting_for or "")
        # A request is repeated only when no byte of it was sent: an agent is not asked twice. One that starts, or is started
        # again at night, gets the time that an endpoint gets, within the attempt's: else that would be named as the cause.
        settings = attempt.runtime.context.settings
        most_s = 0.9 * settings.actor.timeout_s
        retry = RetryPolicy(max_retries=3, max_wait_s=most_s, unavailable_s=min(settings.model.wait_s, most_s))
        received = await self._posted(attempt, json.dumps(body).encode(), call, retry)
        if not received.ok or received.status == _ACCEPTED:
            raise ActorError(self._refused(received))
        text = received.content.decode("utf-8", "replace")
        if received.headers.get("content-type", "").startswith("text/event-stream"):
            raise ActorError("the agent answers with an event stream; the reply must be one JSON object or text")
        return Trajectory(self._scrub(self._answer.of_output(text)), ())

    async def _posted(self, attempt: AttemptContext, content: bytes, key: str, retry: RetryPolicy) -> Received:
        if (client := self._client) is None:
            concurrency = attempt.runtime.context.settings.tfgrpo.concurrency
            client = self._client = open_transport(concurrency=concurrency, trust_env=not is_loopback(self._url.host))
            attempt.runtime.resources.push_async_callback(client.aclose)
        kinds = {"accept": "application/json, text/plain", "content-type": "application/json"}
        headers = {**kinds, **self._headers, IDEMPOTENCY_KEY: key}
        number, waited = 1, 0.0
        while True:
            try:
                request = client.build_request("POST", self._url, content=content, headers=headers)
                return await exchange(client, request, max_bytes=OUTPUT_BYTES)
            except ModelCallError as error:  # the reply is too long
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
        message = " ".join(self._scrub(read_refusal(received.status, received.content).message).split())
        return f"{where}: {message[:_EXCERPT] or 'an empty body'}"

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
