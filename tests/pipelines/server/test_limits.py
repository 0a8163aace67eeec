"""What is asked at once has bounds, who comes beyond them is told, and within them many are answered."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.pipelines.data_server import RIGHT, graded, in_process, item, mix, on_a_port, rogue
from tfgrpo.pipelines.server import listening
from tfgrpo.pipelines.server.app import ServerLimits


async def test_a_batch_beyond_the_limit_is_a_bad_body(tmp_path):
    async with in_process(mix(tmp_path), limits=ServerLimits(max_batch=3)) as (client, _):
        assert len((await client.post("/sample", json={"iteration": 0, "batch_size": 3})).json()["samples"]) == 3
        samples = await client.post("/sample", json={"iteration": 0, "batch_size": 4})
        assert len(await graded(client, *[item()] * 3)) == 3
        grades = await client.post("/grade", json={"iteration": 0, "items": [item()] * 4})
    assert samples.status_code == grades.status_code == 422
    assert samples.json()["detail"][0]["loc"] == ["body", "batch_size"]
    assert grades.json()["detail"][0]["loc"] == ["body", "items"]


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read(tmp_path):
    read = 0

    async def endless():
        nonlocal read
        while True:
            read += 1
            yield b" " * 1000

    async with in_process(mix(tmp_path), limits=ServerLimits(max_body=100_000)) as (client, _):
        announced = await client.post("/grade", json={"iteration": 0, "items": [item("x" * 110_000)]})
        streamed = await client.post("/grade", content=endless(), headers={"content-type": "application/json"})
        small = await client.post("/sample", json={"iteration": 0, "batch_size": 1, "more": "x" * 70_000})
        fits = await client.post("/grade", json={"iteration": 0, "items": [item("x" * 80_000)]})
    assert [reply.status_code for reply in (announced, streamed, small, fits)] == [413, 413, 413, 200]
    assert "100000 bytes" in announced.json()["detail"]
    assert read < 110


async def test_a_body_that_never_arrives_releases_its_slot(tmp_path):
    limits = ServerLimits(body_s=0.2, concurrency=1)
    async with on_a_port(mix(tmp_path), limits=limits) as (url, _), httpx.AsyncClient(base_url=url, trust_env=False) as client:
        async with half_sent(url, 90, b"{") as reader:
            assert b" 408 " in await reader.readline()
        assert (await graded(client, item()))[0]["reward"] == 1.0


async def test_requests_beyond_the_queue_are_answered_with_503(tmp_path):
    limits = ServerLimits(concurrency=1, queue=1)
    async with in_process(rogue(tmp_path, "Slow"), limits=limits) as (client, _):
        waiting = [asyncio.create_task(graded(client, item())) for _ in range(2)]
        await asyncio.sleep(0.1)
        refused = await client.post("/grade", json={"iteration": 0, "items": [item()]})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await client.post("/sample", json={"iteration": 0, "batch_size": 1})).status_code == 200
        results = await asyncio.gather(*waiting)
        assert [one["reward"] for (one,) in results] == [1.0, 1.0]
        assert (await graded(client, item(RIGHT)))[0]["reward"] == 1.0


async def test_connections_that_only_announce_a_body_delay_no_request(tmp_path):
    """What counts is what has arrived: neither the bytes nor the slots are taken by an announcement."""
    limits = ServerLimits(concurrency=2, max_held=1 << 20, max_body=1 << 20, queue=1)
    async with (
        on_a_port(mix(tmp_path), limits=limits) as (url, _),
        httpx.AsyncClient(base_url=url, trust_env=False) as client,
        AsyncExitStack() as idle,
    ):
        for _ in range(17):
            await idle.enter_async_context(half_sent(url, 1 << 20, b"{"))
        async with asyncio.timeout(limits.body_s / 2):
            assert (await graded(client, item()))[0]["reward"] == 1.0


async def test_a_body_that_memory_has_no_room_for_is_told_to_come_again(tmp_path):
    """What has arrived of others counts until they are answered, or gone."""
    body = json.dumps({"iteration": 0, "items": [item("x" * 700_000)]}).encode()
    limits = ServerLimits(max_held=1 << 20, max_body=1 << 20, body_s=20.0)
    async with on_a_port(mix(tmp_path), limits=limits) as (url, _), httpx.AsyncClient(base_url=url, trust_env=False) as client:
        async with half_sent(url, len(body), body[: len(body) * 3 // 4]):
            await asyncio.sleep(0.3)
            refused = await client.post("/grade", content=body, headers={"content-type": "application/json"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        await asyncio.sleep(0.1)
        fits = await client.post("/grade", content=body, headers={"content-type": "application/json"})
    assert fits.status_code == 200


@asynccontextmanager
async def half_sent(url, length, part):
    """A connection with a request to grade whose body has begun."""
    address = httpx.URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    head = "POST /grade HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {length}\r\n\r\n".encode() + part)
    await writer.drain()
    try:
        yield reader
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /meta HTTP/1.1\r\nhost: x\r\n", b"GET /meta HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /m"]
)
async def test_a_connection_whose_headers_do_not_come_is_closed(tmp_path, monkeypatch, sent):
    monkeypatch.setattr(listening, "_HEADERS_S", 0.3)
    async with on_a_port(mix(tmp_path)) as (url, _), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        writer.write(sent)
        answer = await reader.read()  # to the end of the connection
        writer.close()
        assert answer.count(b"200 OK") == sent.count(b"\r\n\r\n")
        assert (await asyncio.to_thread(httpx.get, f"{url}/healthz", trust_env=False)).is_success


ROOT = Path(__file__).resolve().parents[3]
COMMAND = "import sys; from tfgrpo.flows.cli import main; sys.exit(main())"
REQUESTS, ITEMS = 30, 32


@pytest.fixture
def server(tmp_path):
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
        item(
            RIGHT if (request + number) % 2 else "<think>r</think>",
            f"sums:{number % 12}" if number % 2 else f"plain:{number % 3}",
            completion_index=number,
        )
        for number in range(ITEMS)
    ]
    return json.dumps({"iteration": request, "items": items}).encode()


async def asked(url: str, request: int) -> tuple[int, Any]:
    """One request on a connection of its own."""
    sent = body(request)
    async with half_sent(url, len(sent), sent) as reader:
        answer = await reader.read()
    status, _, rest = answer.partition(b"\r\n")
    return int(status.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])


@pytest.mark.untraced
async def test_many_concurrent_requests_are_answered_correctly_in_flat_memory(server):
    process, url = server
    sizes = []
    for _ in range(4):
        answers = await asyncio.gather(*(asked(url, request) for request in range(REQUESTS)))
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
