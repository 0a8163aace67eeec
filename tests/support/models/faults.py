"""Break a share of the simulated model's calls, as a function of the request and how often it was seen."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.json_values import derive_seed
from tfgrpo.tasks.models.simulated import simulated_app
from tfgrpo.tasks.models.simulated.engine import digest_of

FAULTS: Final = ("rate_limit", "server_error", "hang", "reset", "bad_json", "empty", "truncated")


class _Faulty:
    """Answers chat requests as the app does, or breaks."""

    def __init__(self, app: ASGIApp, shares: Mapping[str, float], seed: int) -> None:
        self._app, self._shares, self._seed = app, shares, seed
        self._seen = Counter[str]()

    def _fault(self, digest: str) -> str | None:
        point = derive_seed(self._seed, "fault", digest, self._seen[digest]) / 2.0**53
        self._seen[digest] += 1
        for kind in FAULTS:
            point -= self._shares.get(kind, 0.0)
            if point < 0.0:
                return kind
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith("/chat/completions"):
            await self._app(scope, receive, send)
            return
        raw = await Request(scope, receive).body()
        fault = self._fault(digest_of(json.loads(raw)))
        if fault == "hang":
            while (await receive())["type"] != "http.disconnect":
                pass
        elif fault == "reset":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
            await send({"type": "http.response.body", "body": b"{", "more_body": True})
            raise httpx.ReadError("a reset of the connection")
        elif fault in ("rate_limit", "server_error"):
            limited = fault == "rate_limit"
            refused = Response("{}", 429 if limited else 500, {"retry-after": "1"} if limited else None, "application/json")
            await refused(scope, receive, send)
        else:
            await self._altered(scope, raw, send, fault)

    async def _altered(self, scope: Scope, raw: bytes, send: Send, fault: str | None) -> None:
        async def read() -> Any:
            return {"type": "http.request", "body": raw, "more_body": False}

        async def answer(message: Any) -> None:
            if fault and message["type"] == "http.response.start":
                message["headers"] = [line for line in message["headers"] if line[0] != b"content-length"]
            if fault and message.get("body"):
                message["body"] = _broken(message["body"], fault)
            await send(message)

        await self._app(scope, read, answer)


def _broken(body: bytes, fault: str) -> bytes:
    if fault == "bad_json":
        return body[: len(body) // 2]
    completion = json.loads(body)
    choice = completion["choices"][0]
    text = choice["message"]["content"] or ""
    choice["message"] = {"role": "assistant", "content": "" if fault == "empty" else text[: len(text) // 2]}
    choice["finish_reason"] = "stop" if fault == "empty" else "length"
    return json.dumps(completion).encode()


def faulty_app(
    settings: SimulatedSettings, shares: Mapping[str, float], make: Callable[..., Starlette] = simulated_app
) -> Starlette:
    """Return the simulated service that breaks these shares of its calls."""
    app = make(settings)
    if shares:
        app.add_middleware(_Faulty, shares=shares, seed=settings.seed)
    return app


@contextmanager
def broken_calls(**shares: float) -> Iterator[None]:
    """Break these shares of the calls of dry runs in this process, for the length of a block."""
    with patch("tfgrpo.tasks.models.simulated.simulated_app", lambda settings: faulty_app(settings, shares)):
        yield
