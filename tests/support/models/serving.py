"""Serve the simulated model on the event loop of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tfgrpo.pipelines.server import listening
from tfgrpo.tasks.models.simulated.engine import SimulatedOptions
from tfgrpo.tasks.models.simulated.server import on_port


@asynccontextmanager
async def running_server(options: SimulatedOptions, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve inside a ``with`` block, which gets the base URL."""
    app, manner = on_port(options)
    async with listening.running(app, host, port, manner) as url:
        yield f"{url}/v1"
