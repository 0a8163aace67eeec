"""Serve the simulated model on the event loop of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from tfgrpo.pipelines.server import listening


@asynccontextmanager
async def running_server(app: ASGIApp) -> AsyncIterator[str]:
    """Serve inside a ``with`` block, which gets the base URL. Calls that hang are cut off at its end."""
    async with listening.running(app, shutdown_s=0) as (url, _):
        yield f"{url}/v1"
