"""Hundreds of trainers at once: all are answered, on real sockets, and what they cost is given back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.pipelines.data_server import RIGHT, mix

ROOT = Path(__file__).resolve().parents[3]
COMMAND = "import sys; from tfgrpo.flows.cli import main; sys.exit(main())"
REQUESTS, ITEMS = 60, 64


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[psutil.Process, str]]:
    command = [sys.executable, "-W", "error", "-c", COMMAND, "serve-data", str(mix(tmp_path)), "--port", "0", "--json"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    try:
        yield psutil.Process(process.pid), json.loads(process.stdout.readline())["base_url"]
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert b"stopped" in said


def body(request: int) -> bytes:
    items = [
        {
            "sample_id": f"sums:{number % 12}" if number % 2 else f"plain:{number % 3}",
            "completion": f"{RIGHT if (request + number) % 2 else '<think>r</think>'}",
            "completion_index": number,
            "completion_tokens": 9,
        }
        for number in range(ITEMS)
    ]
    return json.dumps({"iteration": request, "items": items}).encode()


async def asked(port: int, request: int) -> tuple[int, Any]:
    """One request on a connection of its own."""
    sent = body(request)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /grade HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(sent)}\r\n\r\n".encode() + sent)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    status, _, rest = answer.partition(b"\r\n")
    return int(status.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])


@pytest.mark.untraced
async def test_many_concurrent_requests_are_answered_correctly_in_flat_memory(server):
    process, url = server
    port = int(url.rpartition(":")[2])
    sizes = []
    for _ in range(4):
        answers = await asyncio.gather(*(asked(port, request) for request in range(REQUESTS)))
        sizes.append(process.memory_info().rss / 2**20)
        for request, (status, answer) in enumerate(answers):
            assert status == 200, answer
            results = answer["results"]
            assert [result["completion_index"] for result in results] == list(range(ITEMS))
            assert not any("error" in result for result in results)
            expected = [1.0 if (request + number) % 2 else 0.25 / (4 if number % 2 else 1) for number in range(ITEMS)]
            assert [result["reward"] for result in results] == pytest.approx(expected)
    # A leak grows in every round; how many bodies are in memory at once also depends on what else the machine does.
    assert min(later - earlier for earlier, later in pairwise(sizes[1:])) < 4, sizes
