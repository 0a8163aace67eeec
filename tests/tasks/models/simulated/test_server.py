"""The server: on any free port, gone at once when told to, whoever hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.models.serving import running_server
from tests.support.models.simulated_calls import ask, request
from tfgrpo.stores.errors import SettingsError
from tfgrpo.tasks.models.simulated import SimulatedOptions
from tfgrpo.tasks.models.simulated.server import run_server

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import sys
from tfgrpo.tasks.models.simulated import SimulatedOptions
from tfgrpo.tasks.models.simulated.server import run_server
options = SimulatedOptions(faults={"hang": float(sys.argv[1])})
run_server(options, "127.0.0.1", 0, lambda url: print(url, flush=True))
print("ended", flush=True)
"""


async def test_a_server_answers_many_clients_at_once():
    async with (
        running_server(SimulatedOptions()) as base_url,
        httpx.AsyncClient(base_url=base_url, trust_env=False) as client,
    ):
        answers = await asyncio.gather(*(ask(client, request(seed=seed)) for seed in range(40)))
    assert len(answers) == 40
    assert base_url.endswith("/v1")


async def test_calls_that_hang_do_not_delay_the_shutdown(monkeypatch):
    monkeypatch.setattr("tfgrpo.tasks.models.simulated.server._SHUTDOWN_S", 60)
    async with asyncio.timeout(20), httpx.AsyncClient(trust_env=False) as client:
        async with running_server(SimulatedOptions(faults={"hang": 1.0})) as base_url:
            calls = [
                asyncio.create_task(client.post(f"{base_url}/chat/completions", json=request(seed=n))) for n in range(8)
            ]
            await asyncio.sleep(0.2)
            assert not any(call.done() for call in calls)
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, httpx.TransportError) for result in results)


async def test_a_port_in_use_is_a_settings_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"--port: got {port} .*127.0.0.1"):
            async with running_server(SimulatedOptions(), port=port):
                pass


async def test_ipv6_addresses_are_written_in_brackets():
    try:
        async with running_server(SimulatedOptions(), host="::1") as base_url:
            assert base_url.startswith("http://[::1]:")
    except SettingsError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize(("number", "hang"), [(signal.SIGINT, 0.0), (signal.SIGHUP, 0.0), (signal.SIGTERM, 1.0)])
def test_a_signal_ends_the_server_cleanly(number, hang):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, str(hang)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            base_url = process.stdout.readline().strip()
            with httpx.Client(trust_env=False, timeout=20) as client:
                if hang:
                    with pytest.raises(httpx.ReadTimeout):
                        client.post(f"{base_url}/chat/completions", json=request(), timeout=0.3)
                assert client.get(f"{base_url}/models").status_code == 200
                process.send_signal(number)
                assert process.wait(60) == 0
            assert process.stdout.read() == "ended\n"
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_run_server_serves_until_a_signal(monkeypatch):
    seen = []

    def stop_at_once(base_url):
        seen.append(base_url)
        signal.raise_signal(signal.SIGTERM)

    run_server(SimulatedOptions(), "127.0.0.1", 0, stop_at_once)
    run_server(SimulatedOptions(latency_s=0.0), "127.0.0.1", 0, stop_at_once)
    assert len(seen) == 2
