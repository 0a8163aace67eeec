"""An endpoint on a port that speaks the three protocols, and attempts that reach it through the gateway."""

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import httpx
from aiohttp import web

from tests.support.agents import steps as kit
from tfgrpo.stores.ledger import Budget, Ledger, Price
from tfgrpo.tasks.gateway.session import RolloutSession
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import ApiKey, endpoint_of, scrubber
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport
from tfgrpo.tasks.runtime.runtime import AttemptContext, Gateway, Runtime

KEY = "sk-upstream-0123456789abcdef"
LESSONS = (
    "<lessons>\nEarlier attempts at other tasks taught these lessons. Follow each of them that fits the task at hand.\n"
    "- Do: add “both” parts.\n</lessons>"
)
SYSTEM = f"Be careful.\n\n{LESSONS}"
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
Answer = Callable[[web.Request, bytes], Any]


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    path: str
    query: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Endpoint:
    """Records requests and answers by ``answer``: a JSON value, or a response; by default a short text."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.asked: list[Asked] = []
        self.gone = asyncio.Event()
        """Set when a client closed its connection before the end of an answer."""
        self.answer: Answer = lambda request, raw: chat_body("seven")

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.asked.append(Asked(request.path, request.query_string, request.headers, raw))
        try:
            value = self.answer(request, raw)
            value = await value if asyncio.iscoroutine(value) else value
        except (asyncio.CancelledError, ConnectionError):
            self.gone.set()
            raise
        return value if isinstance(value, web.StreamResponse) else web.json_response(value)


def chat_body(text: str, **more: Any) -> dict[str, Any]:
    """Return a chat completion."""
    message = {"role": "assistant", "content": text, **more}
    finish = "tool_calls" if more.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "r", "object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE}


async def begin(request: web.Request, start: bytes = b"") -> web.StreamResponse:
    """Begin an event stream that is not ended here."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(start)
    return response


async def stream(request: web.Request, parts: Sequence[bytes], *, pause_s: float = 0.0) -> web.StreamResponse:
    """Send parts of an event stream, with a pause before each."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for part in parts:
        await asyncio.sleep(pause_s)
        await response.write(part)
    await response.write_eof()
    return response


class Opener:
    """Opens sessions whose runs write to one folder, so that a second run resumes the first."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack

    def runtime(
        self, url: str | None, *, budget: Budget | None = None, prices: Mapping[str, Price] | None = None, **sections: Any
    ) -> Runtime:
        """Return a runtime whose gateway forwards to ``url``; None: it replays."""
        runtime = kit.runtime(lambda request, key: "unused", self.folder, **sections)
        runtime = replace(runtime, ledger=Ledger(budget or Budget()), scrub=scrubber(ApiKey(KEY)))
        self._stack.callback(runtime.threads.shutdown)
        if url is None:
            self._stack.push_async_callback(runtime.aclose)
            return replace(runtime, gateway=Gateway())
        client = ChatClient(
            endpoint_of(runtime.context.settings.model, url, KEY),
            open_transport(concurrency=64, trust_env=False),
            concurrency=64,
            ledger=runtime.ledger,
            prices=prices or {},
            retry=RetryPolicy(),
            rng=random.Random(0),
        )
        self._stack.push_async_callback(client.aclose)
        models = replace(runtime.context.models, in_process=False)
        context = replace(runtime.context, models=models)
        self._stack.push_async_callback(runtime.aclose)
        return replace(runtime, context=context, gateway=Gateway(client))

    async def session(self, runtime: Runtime, index: int = 0, system: str = SYSTEM) -> RolloutSession:
        """Open the gateway for an attempt, until the end of the test."""
        attempt = AttemptContext(kit.spec(system=system), index, runtime)
        return await self._stack.enter_async_context(attempt.runtime.gateway.session(attempt))

    async def agent(self, session: RolloutSession, **headers: str) -> httpx.AsyncClient:
        """Return an HTTP client with the session's key."""
        client = httpx.AsyncClient(
            base_url=session.base_url,
            headers={"authorization": f"Bearer {session.api_key}", **headers},
            trust_env=False,
            verify=False,  # to read certificates takes 20 ms
            timeout=20,
        )
        return await self._stack.enter_async_context(client)


def event(value: object, name: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name else ""
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{head}data: {data}\n\n".encode()


def chat_events(text: str, body: Mapping[str, Any], calls: Sequence[tuple[str, str, str]] = ()) -> list[bytes]:
    """Return the stream of a chat completion, word by word; its usage only if the request asks for it."""
    asked = (body.get("stream_options") or {}).get("include_usage")
    head = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", **({"usage": None} if asked else {})}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    parts = [chunk({"role": "assistant", "content": ""})]
    parts += [chunk({"content": word}) for word in text.split(" ")]
    for index, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        parts.append(chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}))
        parts += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in (arguments[:3], arguments[3:])
        ]
    parts.append(chunk({}, "tool_calls" if calls else "stop"))
    if asked:
        parts.append(event({**head, "choices": [], "usage": USAGE}))
    return [*parts, b"data: [DONE]\n\n"]


def response_body(text: str, calls: Sequence[tuple[str, str, str]] = (), **more: Any) -> dict[str, Any]:
    """Return a body of the responses protocol."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output: list[dict[str, Any]] = [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    ]
    output += [
        {"type": "function_call", "id": f"fc_{each}", "call_id": each, "name": name, "arguments": arguments}
        for each, name, arguments in calls
    ]
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    known = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m", "error": None}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "incomplete_details": None}
    return {**known, **rest, "output": output, "usage": usage, **more}


def response_events(text: str, calls: Sequence[tuple[str, str, str]] = (), **more: Any) -> list[bytes]:
    """Return the stream of a response."""
    body = response_body(text, calls, **more)
    started = {**body, "status": "in_progress", "output": [], "usage": None}
    values: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(body["output"]):
        where = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            bare = {**item, "status": "in_progress", "content": []}
            values.append({"type": "response.output_item.added", "output_index": index, "item": bare})
            part = {"type": "output_text", "text": "", "annotations": []}
            values.append({"type": "response.content_part.added", **where, "content_index": 0, "part": part})
            values += [
                {"type": "response.output_text.delta", **where, "content_index": 0, "delta": word, "logprobs": []}
                for word in text.split(" ")
            ]
            done = {"type": "response.output_text.done", **where, "content_index": 0, "text": text, "logprobs": []}
            values += [done, {"type": "response.content_part.done", **where, "content_index": 0, "part": item["content"][0]}]
        else:
            values.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}})
            values.append({"type": "response.function_call_arguments.done", **where, "arguments": item["arguments"]})
        values.append({"type": "response.output_item.done", "output_index": index, "item": item})
    values.append({"type": f"response.{body['status']}", "response": body})
    return [event({**value, "sequence_number": number}, value["type"]) for number, value in enumerate(values)]


def message_body(text: str, calls: Sequence[tuple[str, str, str]] = (), **more: Any) -> dict[str, Any]:
    """Return a body of the messages protocol."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    content += [
        {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)} for call_id, name, arguments in calls
    ]
    usage = {"input_tokens": 6, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": 5}
    known = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return {**known, **stop, "usage": usage, **more}


def message_events(text: str, calls: Sequence[tuple[str, str, str]] = ()) -> list[bytes]:
    """Return the stream of a message."""
    body = message_body(text, calls)
    started = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 1}}
    values: list[dict[str, Any]] = [{"type": "message_start", "message": started}, {"type": "ping"}]
    for index, block in enumerate(body["content"]):
        if block["type"] == "text":
            bare, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": word} for word in text.split(" ")]
        else:
            written = json.dumps(block["input"])
            bare = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", written[:3], written[3:])]
        values.append({"type": "content_block_start", "index": index, "content_block": bare})
        values += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        values.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    values.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
    values.append({"type": "message_stop"})
    return [event(value, value["type"]) for value in values]
