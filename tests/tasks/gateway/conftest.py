"""Doubles of the gateway's tests: an endpoint that answers by a script, and an attempt with a way to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.agents.endpoint import Endpoint, Opener


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens sessions of attempts that write to one folder."""
    async with AsyncExitStack() as stack:
        yield Opener(tmp_path, stack)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running
