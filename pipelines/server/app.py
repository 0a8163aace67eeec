"""The HTTP interface of the data server: who may call, limits, routes, replies, errors and log lines.

Completions are untrusted text: in the log each of their lines is marked, so that none can look like one of the server's. Bodies
are read within limits, and a limited number of requests at a time is served.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfgrpo.pipelines.server.service import DataService, GradeItem, GradeRequest, ItemGrade, SampleRequest
from tfgrpo.pipelines.settings.addresses import names_loopback
from tfgrpo.stores.errors import DatasetError
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.text import pluralize

MEBIBYTE: Final = 2**20
RETRY_AFTER: Final = {"Retry-After": "1"}


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of the server."""

    max_batch: int = 16_384
    """Most samples, and most items to grade, of one request."""
    max_body: int = 32 * MEBIBYTE
    concurrency: int = 256
    """Requests graded concurrently: many, so that requests for a slow grader do not delay others."""
    max_held: int = 512 * MEBIBYTE
    """Bytes of all bodies in memory; a request whose body would exceed them is answered with 503."""
    queue: int = 4096
    """Most waiting requests; further ones are answered with 503."""
    body_s: float = 30.0
    refuse_lost: bool = False
    """Answer 503 to a request of whose items failing graders leave more than half ungraded."""


class BodyQueue:
    """Serves the POST requests of one path in order of arrival, a limited number at a time, and bounds their bodies in memory.

    Bytes count from their arrival until their request is answered; an announced length costs none.
    """

    def __init__(self, app: ASGIApp, limits: ServerLimits, most: int) -> None:
        """``most``: bytes of one body."""
        self._app, self._limits, self._most = app, limits, most
        # First in, first out.
        self._turns = asyncio.Semaphore(limits.concurrency)
        self._held = 0
        # Requests that wait for their turn or have it.
        self._present = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it: 408 if its body is late, 413 if it is too large, 503 if too many wait."""
        body = bytearray()
        try:
            await self._read(Request(scope, receive), body)
            if self._present >= self._limits.concurrency + self._limits.queue:
                raise HTTPException(503, f"{self._present} requests are waiting or being graded; come again", RETRY_AFTER)
            self._present += 1
            try:
                async with self._turns:
                    await self._app(scope, partial(_whole, bytes(body)), send)
            finally:
                self._present -= 1
            return
        except HTTPException as error:
            reply = answer({"detail": error.detail}, error.status_code, error.headers)
        except ClientDisconnect:
            reply = answer({"detail": "the body did not arrive"}, 400)
        except asyncio.CancelledError:
            # The server ends, and the client still waits for an answer.
            reply = answer({"detail": "the server is being stopped; come again"}, 503)
        finally:
            self._held -= len(body)
        await reply(scope, receive, send)

    async def _read(self, request: Request, body: bytearray) -> None:
        too_large = HTTPException(413, f"the body is larger than {self._most} bytes")
        length = request.headers.get("content-length", "")
        # Python refuses to convert more than 4,300 digits.
        if length.isdecimal() and int(length[:20]) > self._most:
            raise too_large
        try:
            async with asyncio.timeout(self._limits.body_s):
                async for chunk in request.stream():
                    body += chunk
                    self._held += len(chunk)
                    if len(body) > self._most:
                        raise too_large
                    if self._held > self._limits.max_held:
                        raise HTTPException(503, "other bodies take all memory; come again", RETRY_AFTER)
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {self._limits.body_s:g} seconds") from None


async def _whole(body: bytes) -> Message:
    return {"type": "http.request", "body": body}


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of compact UTF-8 JSON. Half surrogate pairs are escaped; NaN and infinity become null."""
    try:
        body = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        # For half a surrogate pair, too, which cannot be encoded.
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        body = json.dumps(finite, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")


Say: TypeAlias = Callable[[str], None]
"""Writes whole lines and does not raise."""
NAME: Final = "[dataserver]"
_LONGEST_REASON: Final = 300
_WARNING_INTERVAL_S: Final = 10.0
# Most bytes of a request for samples, which is two numbers.
_SAMPLE_BODY: Final = MEBIBYTE // 16
_MOST_PROBLEMS: Final = 100
_ROUTES: Final = frozenset({"/meta", "/sample", "/grade", "/healthz"})
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})


def data_app(
    service: DataService,
    *,
    limits: ServerLimits,
    telemetry: Telemetry,
    say: Say,
    version: str,
    token: str | None = None,
    local_only: bool = False,
    verbose: bool = False,
) -> ASGIApp:
    """Return the app of a service. ``say`` gets lines about failing graders, and with ``verbose`` about every request.

    With a ``token`` every path but ``/healthz`` requires it. ``local_only``: serve clients only that address loopback.
    """
    handlers = _Handlers(service, limits, telemetry, GradeTally(telemetry), say if verbose else None, say)
    about = "Samples of a staged data mix, and rewards for completions of them."
    app = FastAPI(title="tfgrpo data server", description=about, version=version)
    app.exception_handler(HTTPException)(_refused)
    app.exception_handler(RequestValidationError)(_bad_body)
    app.exception_handler(Exception)(_internal_error)
    # Answers are made by hand: FastAPI would refuse half surrogate pairs and NaN, which graders and records may have.
    app.get("/healthz", response_model=None)(handlers.health)
    app.get("/meta", response_model=None)(handlers.meta)
    app.post("/sample", response_model=None)(handlers.sample)
    app.post("/grade", response_model=None)(handlers.grade)
    # Each path has its own queue.
    queues = {"/sample": BodyQueue(app, limits, _SAMPLE_BODY), "/grade": BodyQueue(app, limits, limits.max_body)}

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        started, status, path, method = time.perf_counter(), 500, scope["path"], scope["method"]

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            refusal = _refusal(path, Headers(scope=scope), token, local_only=local_only)
            served = queues.get(path, app) if method == "POST" else app
            await (refusal or served)(scope, receive, watched)
        finally:
            telemetry.record(
                "request",
                method=method if method in _METHODS else "_OTHER",
                # All other paths are one: no client can flood the metrics.
                route=path if path in _ROUTES else "other",
                status=status,
                duration_s=time.perf_counter() - started,
            )

    return guarded


def _refusal(path: str, headers: Headers, token: str | None, *, local_only: bool) -> Response | None:
    host = headers.get("host", "").strip()
    # A web page in a browser here can reach a port of this machine under its own name, once that name resolves to loopback
    # (DNS rebinding); the Host header shows it.
    if local_only and not names_loopback(host):
        reason = "the Host header names another machine" if host else "the request has no Host header"
        return answer({"detail": f"{reason}; ask for localhost, or start the server with --token-env"}, 400)
    if token is None or path == "/healthz":
        return None
    kind, _, credentials = headers.get("authorization", "").partition(" ")
    # Headers are decoded as Latin-1: so the bytes are those that came. The token is ASCII.
    right = hmac.compare_digest(credentials.strip().encode("latin-1"), token.encode())
    if kind.lower() == "bearer" and right:
        return None
    return answer({"detail": "a valid bearer token is needed"}, 401, {"WWW-Authenticate": "Bearer"})


async def _refused(_: Request, error: HTTPException) -> Response:
    return answer({"detail": error.detail}, error.status_code, error.headers)


async def _internal_error(_request: Request, _error: Exception) -> Response:
    return answer({"detail": "Internal Server Error"}, 500)


async def _bad_body(_: Request, error: RequestValidationError) -> Response:
    # FastAPI's problems, some of many, without the input, which may be long.
    rows = [{name: problem[name] for name in ("type", "loc", "msg")} for problem in error.errors()[:_MOST_PROBLEMS]]
    return answer({"detail": rows}, 422)


def _too_much(field: str, kind: str, message: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body", field), "msg": message}])


@dataclass(frozen=True, slots=True)
class _Handlers:
    service: DataService
    limits: ServerLimits
    telemetry: Telemetry
    tally: GradeTally
    say: Say | None
    """Logs every request; None without ``--verbose``."""
    warn: Say

    async def health(self) -> Response:
        """Answer that the server is up."""
        return answer({"status": "ok"})

    async def meta(self) -> Response:
        """Return the length of the mix and its stages."""
        return answer(self.service.meta())

    async def sample(self, request: SampleRequest) -> Response:
        """Draw samples from the stage of an iteration: with replacement, others at every request."""
        most = self.limits.max_batch
        if request.batch_size > most:
            raise _too_much("batch_size", "less_than_equal", f"Input should be less than or equal to {most}")
        if self.say is not None:
            stage = self.service.config.stage_at(request.iteration).name
            self.say(f"{NAME} /sample iteration={request.iteration} batch_size={request.batch_size} stage={stage}")
        try:
            samples = await self.service.sample(request.iteration, request.batch_size)
        except DatasetError as error:
            raise HTTPException(400, "; ".join(problem.given for problem in error.problems)) from error
        for dataset, count in Counter(sample["dataset_id"] for sample in samples).items():
            self.telemetry.record("samples", dataset=dataset, count=count)
        return answer({"samples": samples})

    async def grade(self, request: GradeRequest) -> Response:
        """Grade completions: one result for each item, in their order. An ungradable item affects no other."""
        most = self.limits.max_batch
        if len(request.items) > most:
            raise _too_much("items", "too_long", f"List should have at most {most} items, not {len(request.items)}")
        try:
            grades = await self.service.grade(request.items)
        except DatasetError as error:
            raise HTTPException(400, str(error)) from error
        for line in self.tally.add(grades):
            self.warn(line)
        if self.say is not None:
            self.say("\n".join(grade_lines(request.iteration, request.items, grades)))
        # A retry may help these alone.
        lost = [grade for grade in grades if grade.broke or grade.late]
        if self.limits.refuse_lost and 2 * len(lost) > len(grades):
            reason = lost[-1].reasons[:_LONGEST_REASON]
            detail = f"graders failed on {len(lost)} of {pluralize(len(grades), 'item')}: {reason}"
            raise HTTPException(503, detail, RETRY_AFTER)
        results = []
        for item, grade in zip(request.items, grades, strict=True):
            reward = 0.0 if grade.reward is None else grade.reward
            result: dict[str, Any] = {"sample_id": item.sample_id, "reward": reward, "completion_index": item.completion_index}
            if request.parts:
                result["parts"] = dict(grade.parts)
            if grade.reward is None:
                result["error"] = grade.reasons
            results.append(result)
        return answer({"results": results})


class GradeTally:
    """Counts grades. A failing grader is reported once in ten seconds at most, not once an item."""

    def __init__(self, telemetry: Telemetry, clock: Callable[[], float] = time.monotonic) -> None:
        self._telemetry, self._clock = telemetry, clock
        self._reported_at: dict[str, float] = {}
        self._unreported: Counter[str] = Counter()

    def add(self, grades: Sequence[ItemGrade]) -> Iterator[str]:
        """Count the grades of one request, and yield the warnings that are due."""
        scored = Counter(name for grade in grades for name in grade.parts)
        failed = Counter(name for grade in grades for name in grade.errors)
        for name in scored | failed:
            self._telemetry.record("grades", grader=name, scored=scored[name], ungraded=failed[name])
        for name, count in failed.items():
            self._unreported[name] += count
            now = self._clock()
            if now - self._reported_at.get(name, float("-inf")) >= _WARNING_INTERVAL_S:
                self._reported_at[name] = now
                example = next(grade for grade in grades if name in grade.errors)
                reason = example.errors[name][:_LONGEST_REASON]
                items = pluralize(self._unreported.pop(name), "item")
                yield f"{NAME} grader {name} left {items} ungraded; the last: {reason}"


def grade_lines(iteration: int, items: Sequence[GradeItem], grades: Sequence[ItemGrade]) -> Iterator[str]:
    """Yield the log lines of a request to grade: figures, each item, and the best and worst completion in full.

    The figures are those of the items with a reward.
    """
    head = f"{NAME} iteration={iteration} graded"
    if not items:
        yield f"{head} 0 completions."
        return
    scored = [(grade.reward, item) for item, grade in zip(items, grades, strict=True) if grade.reward is not None]
    rewards, lost, figures = [reward for reward, _ in scored], len(items) - len(scored), "no rewards"
    if rewards:
        # Divided first: the sum of large ones would be infinite.
        mean = sum(reward / len(rewards) for reward in rewards)
        figures = f"avg={mean:.3f} min={min(rewards):.3f} max={max(rewards):.3f}"
    yield f"{head} {len(items)} | {figures}{f' ungraded={lost}' if lost else ''}"
    for item, grade in zip(items, grades, strict=True):
        parts = " ".join(f"{name}={reward:.3f}" for name, reward in grade.parts.items())
        ungraded = grade.reward is None
        yield f"  {_name(item)} {f'ungraded: {grade.reasons}' if ungraded else f'reward={grade.reward:.3f} {parts}'.rstrip()}"
    for title, best in (("BEST", max), ("WORST", min)) if scored else ():
        reward, item = best(scored, key=lambda one: one[0])
        yield f"{NAME} {title} reward={reward:.3f} {_name(item)}"
        yield from (f"  | {line}" for line in item.completion.splitlines() or [""])


def _name(item: GradeItem) -> str:
    return item.sample_id if item.completion_index is None else f"{item.sample_id} #{item.completion_index}"
