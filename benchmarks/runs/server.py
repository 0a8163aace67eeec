"""Load on the data server: 500 requests to grade 64 completions at the same time, round after round.

The server is a process of its own, as ``tfgrpo serve-data`` starts it; the client opens a connection per request. Beside it
somebody asks for samples every few milliseconds, who must not be kept waiting.

``python -m benchmarks server``
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml

from benchmarks.processes import ROOT, clean_environment
from benchmarks.table import Row

REQUESTS, ITEMS, ROUNDS, WARM = 500, 64, 8, 4
RECORDS = 100
_MIB = 2**20
_CLI = "import sys; from tfgrpo.flows.cli import main; sys.exit(main())"
_STEP = "First 12 boxes of 1,080 apples each are counted, then 3/4 of them are set aside for later. "


class Round(NamedTuple):
    """One round."""

    wall_s: float
    failed: int
    """Requests without a right answer."""
    memory_mb: float
    """Resident set of the server behind it."""
    sample_s: float
    """Median time of a request for samples meanwhile."""


def mix(folder: Path) -> Path:
    """Two datasets, five graders in all."""
    schema = json.dumps({"required": ["answer"]})
    records = [
        {"prompt": f"{number} + 1?", "answer": str(number + 1), "metadata": {"schema": schema}} for number in range(RECORDS)
    ]
    (folder / "items.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    content = {
        "seed": 1,
        "paths": {"data_root": "."},
        "datasets": {
            "sums": {"path": "items.jsonl", "graders": ["math_exact", "number_match"], "grader_weights": [1.0, 1.0]},
            "forms": {
                "path": "items.jsonl",
                "graders": ["json_schema"],
                "grader_weights": [1.0],
                "multiplicative_graders": ["number_only"],
            },
        },
        "stages": [{"name": "only", "until_step": 10, "datasets": [{"id": "sums", "weight": 1.0}]}],
    }
    path = folder / "mix.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@contextlib.contextmanager
def data_server(folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """A server on a free port: its process and the port."""
    command = [sys.executable, "-c", _CLI, "serve-data", str(mix(folder)), "--port", "0", "--json"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(folder / "prefect"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            raise SystemExit("the data server did not start")
        yield psutil.Process(process.pid), int(json.loads(line)["base_url"].rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def grading(request: int) -> bytes:
    """Half the completions are right."""
    items = [
        {
            "sample_id": f"{'sums' if number % 2 else 'forms'}:{number % RECORDS}",
            "completion": f"<think>{_STEP * 8}</think>\n{number % RECORDS + 1 + (number + request) % 2}",
            "completion_index": number,
            "completion_tokens": 180,
        }
        for number in range(ITEMS)
    ]
    return json.dumps({"iteration": request, "items": items}).encode()


async def _asked(port: int, path: str, body: bytes) -> tuple[int, bytes]:
    """Status and body, over a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    status, _, rest = answer.partition(b"\r\n")
    return int(status.split()[1]), rest.partition(b"\r\n\r\n")[2]


async def _graded(port: int, body: bytes) -> bool:
    """Whether every completion came back with a reward, in order."""
    status, answer = await _asked(port, "/grade", body)
    if status != 200:
        return False
    results = json.loads(answer)["results"]
    return [each["completion_index"] for each in results] == list(range(ITEMS)) and not any("error" in each for each in results)


async def _sampling(port: int, took: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await _asked(port, "/sample", b'{"iteration": 1, "batch_size": 8}')
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.02)


async def _round(server: psutil.Process, port: int, bodies: list[bytes]) -> Round:
    took: list[float] = []
    sampling = asyncio.create_task(_sampling(port, took))
    began = time.perf_counter()
    answers = await asyncio.gather(*(_graded(port, body) for body in bodies), return_exceptions=True)
    wall = time.perf_counter() - began
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)
    failed = sum(answer is not True for answer in answers)
    return Round(wall, failed, server.memory_info().rss / _MIB, statistics.median(took or [wall]))


def measure(requests: int = REQUESTS, rounds: int = ROUNDS) -> list[Row]:
    """Rounds at one server; memory is compared from the fourth on."""
    bodies = [grading(number) for number in range(requests)]
    with tempfile.TemporaryDirectory() as name, data_server(Path(name)) as (server, port):
        done = [asyncio.run(_round(server, port, bodies)) for _ in range(rounds)]
    wall = statistics.median(each.wall_s for each in done)
    note = f"{requests} requests of {ITEMS} items at once, {requests * ITEMS / wall:,.0f} items a second"
    return [
        Row("server: requests without a right answer", sum(each.failed for each in done), "", 0.0),
        Row("server: all graded", wall, "s", note=note),
        Row("server: a request for samples meanwhile", statistics.median(each.sample_s for each in done), "s", 1.0),
        Row("server: memory", done[-1].memory_mb, "MB"),
        Row("server: growth from round 4 to the last", done[-1].memory_mb - done[WARM - 1].memory_mb, "MB", 20.0),
    ]
