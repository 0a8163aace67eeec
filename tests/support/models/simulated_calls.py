"""Build requests and clients of the simulated service."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette

from benchmarks.generated_items import generate_items
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.tasks.models.simulated import simulated_app

ITEM = generate_items("arithmetic", 1)[0]
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object"}}}
    for name in ("accounts_of", "ledger_entries", "exchange_rate", "add")
]


def request(prompt: str = ITEM["prompt"], system: str = "Solve it.", **changes: Any) -> dict[str, Any]:
    """Return an ordinary request; ``changes`` replace or add keys."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    body = {"model": "simulated", "messages": messages, "temperature": 0.7, "max_tokens": 400, "seed": 1}
    return {**body, **changes}


def schema(name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a ``response_format``."""
    return {"type": "json_schema", "json_schema": {"name": name, "strict": False, "schema": dict(body or {})}}


@asynccontextmanager
async def in_process(make: Callable[..., Starlette] = simulated_app, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client whose server runs in this process."""
    transport = httpx.ASGITransport(app=make(SimulatedSettings(**options)))
    async with httpx.AsyncClient(transport=transport, base_url="http://simulated/v1") as client:
        yield client


async def ask(client: httpx.AsyncClient, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a successful answer."""
    response = await client.post("/chat/completions", json=body)
    assert response.status_code == 200, response.text
    value = response.json()
    assert isinstance(value, dict)
    return value


def content_of(answer: Mapping[str, Any]) -> Any:
    """Return the text of an answer, parsed where it is a JSON object."""
    text = answer["choices"][0]["message"]["content"]
    return json.loads(text) if text.startswith("{") else text
