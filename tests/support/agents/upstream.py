"""The simulated service on a port, with a record of what reached it, and programs that are started beside it."""

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.support.models.agent_service import agent_app
from tfgrpo.pipelines.server import listening
from tfgrpo.pipelines.settings.tree import SimulatedSettings

REAL_AGENTS = Path(__file__).parents[2] / "tasks" / "gateway" / "real_agents.py"


@dataclass
class Upstream:
    """A running service."""

    url: str = ""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """Path and body of each request."""


@asynccontextmanager
async def upstream(**options: Any) -> AsyncIterator[Upstream]:
    """Serve with a fresh state."""
    app, seen = agent_app(SimulatedSettings(**options)), Upstream()

    async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
        raw = b""

        async def read() -> Message:
            nonlocal raw
            message = await receive()
            raw += message.get("body", b"")
            if message["type"] == "http.request" and not message.get("more_body"):
                seen.asked.append((scope["path"], json.loads(raw or b"null")))
            return message

        await app(scope, read if scope["type"] == "http" else receive, send)

    async with listening.running(recorded) as (url, _):
        seen.url = f"{url}/v1"
        yield seen


def direct_environment(url: str) -> dict[str, str]:
    """Return the environment of an agent that calls the service itself."""
    root = url.removesuffix("/v1")
    own = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "AZURE_OPENAI_API_KEY": "k"}
    own |= {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "ANTHROPIC_BASE_URL": root, "ANTHROPIC_API_BASE": root}
    return {**os.environ, **own, "AZURE_OPENAI_ENDPOINT": root, "OPENAI_AGENTS_DISABLE_TRACING": "1"}


NODE_PROGRAMS = Path(sys.prefix) / "node" / "node_modules" / ".bin"
"""Of packages of npm in this environment: never those of the machine, which their user is logged in to."""

OWN_HOMES = ("CODEX_HOME", "CLAUDE_CONFIG_DIR")
"""Variables that would lead the programs to the files of whoever runs the tests."""


APART = Path(sys.prefix) / "apart"
"""Environments of programs whose requirements contradict those of the others, a folder each."""


def needs(*packages: str) -> str:
    """Skip unless all packages can be imported; return the Python that has them.

    ``bin:NAME`` is a program of npm, ``node:NAME`` a package of it, ``apart:NAME`` a program with an environment of its own.
    """
    python = sys.executable
    for package in packages:
        kind, _, name = package.rpartition(":")
        folders = {"bin": NODE_PROGRAMS, "node": NODE_PROGRAMS.parent, "apart": APART}
        if not (folders[kind] / name).exists() if kind else importlib.util.find_spec(name) is None:
            pytest.skip(f"{package} is not installed; `make test-agents` installs it where the index has it")
        if kind == "apart":
            python = str(APART / name / "bin" / "python")
    return python


async def answer_of(name: str, prompt: str, env: Mapping[str, str], python: str = sys.executable) -> str:
    """Return what one of the real agents prints."""
    process = await asyncio.create_subprocess_exec(
        python, str(REAL_AGENTS), name, prompt, env=dict(env), stdout=-1, stderr=-1, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()[-2000:]
    return out.decode().strip()
