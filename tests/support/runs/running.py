"""Run in process or as a real command, against a server that records requests, and read the files of a run."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from contextvars import Context
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

from starlette.applications import Starlette
from starlette.responses import Response

from benchmarks.generated_items import LEDGER
from tests.support.models.faults import faulty_app
from tests.support.models.serving import running_server
from tests.support.tracing import untraced
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.orchestration.local_server import LocalServer
from tfgrpo.flows.orchestration.request import RunRequest, RunSummary
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.loop.books import RunGroups
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.models.simulated import simulated_app
from tfgrpo.tasks.runtime.host import runtime_for
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

ROOT = Path(__file__).resolve().parents[3]
PACKS = ROOT / "prompt_packs"
TASK = "tfgrpo-learning"
RUN = "night"
PATIENCE_S = 300.0
"""Longest wait for what has to happen: on a busy machine a server may take minutes to start."""
SHORT = str(Path(__file__).with_name("short.jsonl"))
"""The first eighty items of the shipped dataset: to look at all of it takes a quarter of a small run's time."""
SIZE = {"sample_size": 4, "batch_size": 2, "epochs": 2}
SMALL: dict[str, Any] = {"dataset": SHORT, **SIZE}
"""A run with two batches, lessons on trial and a sweep, of a tenth of a second."""
BOOKS: dict[str, Any] = {
    "pipeline": str(ROOT / "benchmarks/ledger/pipeline.yaml"),
    "dataset": str(ROOT / "benchmarks/ledger/items.jsonl"),
    "world": LEDGER,
}
"""A run whose actor has tools."""
LEARNING: dict[str, Any] = {"dataset": SHORT, "sample_size": 10, "batch_size": 5, "epochs": 3}
"""A run whose lessons come into force, four times as long."""


@contextmanager
def in_process(_plan: Plan) -> Iterator[RunGroups]:
    """Run groups on the runtime of this process, without Prefect; yield them as they finish."""

    def run_groups(context: RunContext, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
        host = runtime_for(context)
        # In an empty context, as under Prefect: the carrier alone links the groups to the spans of the flow.
        empty = Context()
        futures = [empty.run(host.submit, partial(run_group, spec, carrier=context.carrier)) for spec in specs]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    yield run_groups


def request(out: Path, **asked: Any) -> RunRequest:
    """Return a request; keywords are its fields, or settings by their dotted key with two underscores for a dot."""
    fields = {*RunRequest.model_fields, *RunRequest.KEYS}
    own = {key: value for key, value in asked.items() if key in fields}
    dotted = {key.replace("__", "."): value for key, value in asked.items() if key not in fields}
    return RunRequest.model_validate({"out": str(out), "settings": dotted, **own})


_traced: set[bool] = set()
"""Whether the coverage tracer saw a run begin, and one go on or be repeated."""


def run(out: Path, *, env: dict[str, str] | None = None, observer: Any = None, **asked: Any) -> RunSummary:
    """Execute one run without Prefect; in each worker the coverage tracer sees the first of both kinds."""
    again = not asked.keys().isdisjoint({"resume", "replay"})
    with untraced() if again in _traced else nullcontext():
        _traced.add(again)
        return execute(request(out, **asked), env or {}, observer or Observers(), in_process, clock=utc_now)


class At:
    """An observer that does something whenever a run is at a moment, and otherwise nothing."""

    def __init__(self, moment: str, act: Callable[..., object]) -> None:
        self.moment, self.act = moment, act

    def __getattr__(self, name: str) -> Callable[..., object]:
        return self.act if name == self.moment else lambda *_: None


def interrupt(*_: object) -> None:
    """Interrupt as Ctrl-C does."""
    raise KeyboardInterrupt


def words(sizes: dict[str, Any]) -> list[str]:
    """Return options of the command line; data are those of the shipped pipeline unless another is named."""
    sizes = {**({"pipeline": "tfgrpo-learning"} if "dataset" in sizes else {}), **sizes}
    return [word for name, size in sizes.items() for word in (f"--{name.replace('_', '-')}", str(size))]


def on_server(server: Server, **asked: Any) -> dict[str, Any]:
    """Return the keywords of ``request`` for a run on the server, with few and quick retries."""
    quick = {"model__max_retries": 4, "model__timeout_s": 20.0}
    return {**SMALL, "model": "simulated", "base_url": server.url, **quick, **asked}


def paths(out: Path, run_id: str = RUN, task: str = TASK) -> RunPaths:
    return TaskPaths.of(out, task).run(run_id)


def manifest(out: Path, run_id: str = RUN) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(paths(out, run_id).manifest.read_text(encoding="utf-8"))
    return content


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of any file of JSON lines, without checksums, damaged or not."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return [{name: value for name, value in row.items() if name != "sum"} for row in rows]


def store(out: Path, task: str = TASK) -> list[dict[str, Any]]:
    """Return the records of the store in file order, without clock times and the signatures that cover them."""
    return timeless(TaskPaths.of(out, task).experiences)


def decided(out: Path, task: str = TASK) -> list[dict[str, Any]]:
    """Return the lines of credit and the decisions of a task, without clock times and signatures."""
    files, clocked = TaskPaths.of(out, task), {"created_at", "decided_at", "signatures", "credit_sha256"}
    rows = [*lines(files.credit), *lines(files.promotions)]
    return [{key: value for key, value in row.items() if key not in clocked} for row in rows]


def timeless(experiences: Path) -> list[dict[str, Any]]:
    clocked = {"created_at", "stamp_signature"}
    return [{key: value for key, value in row.items() if key not in clocked} for row in lines(experiences)]


class Server:
    """The simulated model on a port of this process, in a thread; records requests and the tokens of the answers."""

    def __init__(
        self,
        settings: SimulatedSettings | None = None,
        *,
        make: Callable[..., Starlette] = simulated_app,
        key: str | None = None,
        **faults: float,
    ) -> None:
        """``key``: callers that do not send it are refused. ``faults``: shares of calls that break, by kind."""
        self.make_app = partial(faulty_app, settings or SimulatedSettings(), faults, make)
        self.key = key
        self.bodies: list[str] = []
        """Every request to the model, in order of arrival."""
        self.tokens = 0
        """Usage of all answers."""
        self.prompt_tokens = 0
        self.answered = Counter[int]()
        self.before_answer: Callable[[int], int | None] = lambda _: None
        """Called with the number of a request, from 1; a status that it returns is the response."""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def asked(self) -> Counter[str]:
        return Counter(self.bodies)

    def systems(self) -> list[str]:
        """Return the system texts of the requests, in order of arrival."""
        return [json.loads(body)["messages"][0]["content"] for body in self.bodies]

    def wait_for(self, calls: int, timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self.bodies) < calls:
            assert time.monotonic() < deadline, f"{len(self.bodies)} of {calls} calls arrived"
            time.sleep(0.005)

    def wait_until_idle(self, idle_s: float = 0.5) -> None:
        """Wait until no more requests arrive: those of a killed client may still be in the sockets."""
        seen = -1
        while seen < len(self.bodies):
            seen = len(self.bodies)
            time.sleep(idle_s)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._until_stopped())
        self._loop.close()

    async def _until_stopped(self) -> None:
        app = self.make_app()
        app.add_middleware(_Tap, server=self)
        async with running_server(app) as url:
            self.url = url
            self._ready.set()
            await self._stop.wait()


class _Tap:
    def __init__(self, app: Any, server: Server) -> None:
        self.app = app
        self.server = server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.server.key and (b"authorization", f"Bearer {self.server.key}".encode()) not in scope["headers"]:
            await Response("{}", 401)(scope, receive, send)
            return
        if not scope["path"].endswith(("/chat/completions", "/responses", "/messages")):
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.server.bodies.append(body.decode())
        status = self.server.before_answer(len(self.server.bodies))
        if status is not None:
            self.server.answered[status] += 1
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})
            return
        replayed = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Any:
            return next(replayed, None) or await receive()

        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.server.answered[message["status"]] += 1
            self._count(message.get("body", b""))
            await send(message)

        await self.app(scope, again, watched)

    def _count(self, body: bytes) -> None:
        sent, received = _usage_in(body)
        self.server.tokens += sent + received
        self.server.prompt_tokens += sent


def _usage_in(body: bytes) -> tuple[int, int]:
    """Return the tokens of the prompt and of the completion in an answer, or in one event of a stream."""
    try:
        value = json.loads(body.rpartition(b"\ndata: ")[2] if body.startswith(b"event: ") else body)
    except ValueError:
        return 0, 0
    kind = value.get("type", "")
    if kind.startswith("response."):
        value = value["response"] if kind in {"response.completed", "response.incomplete"} else {}
    elif kind == "message_start":  # with a first count of the completion, which a later event replaces
        return value["message"]["usage"]["input_tokens"], 0
    usage = value.get("usage") or {}
    sent, received = (usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    return usage.get("input_tokens", sent), usage.get("output_tokens", received)


@cache
def _prefect_home() -> Path:
    """Return where the shared Prefect server has its database."""
    return Path(tempfile.mkdtemp(prefix="tfgrpo-api-"))


def migrated_home(home: Path) -> Path:
    """Make a ``PREFECT_HOME`` with a copy of the shared server's database: to make a new one takes five seconds of CPU."""
    prefect_server()
    home.mkdir()
    shutil.copy(_prefect_home() / "memo_store.toml", home)
    with (
        closing(sqlite3.connect(_prefect_home() / "prefect.db")) as made,
        closing(sqlite3.connect(home / "prefect.db")) as copy,
    ):
        made.backup(copy)
    return home


@cache
def prefect_server() -> str:
    """Return the address of a Prefect server shared by all tests of this process; it ends with the process."""
    server = LocalServer({**os.environ, "PREFECT_HOME": str(_prefect_home())})
    atexit.register(shutil.rmtree, _prefect_home(), ignore_errors=True)
    atexit.register(server.stop)
    server.serve({}, PATIENCE_S)
    return server.api_url


def start(
    out: Path, *arguments: str, env: dict[str, str] | None = None, program: Sequence[str] = ("-m", "flows.tfgrpo")
) -> subprocess.Popen[str]:
    """Start ``python -m flows.tfgrpo`` on the shared Prefect server, or as ``env`` sets it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"PREFECT_API_URL": prefect_server()} if env is None else env)}
    return subprocess.Popen(
        [sys.executable, *program, "--json", "--out", str(out), *arguments],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], timeout_s: float = PATIENCE_S) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the JSON object on stdout and the text on stderr."""
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"the run did not end: {stderr[-2000:]}") from None
    return process.returncode, json.loads(stdout) if stdout.strip() else {}, stderr
