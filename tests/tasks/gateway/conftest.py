"""Doubles of the gateway's tests: an endpoint that answers by a script, and an attempt with a way to it."""

from contextlib import AsyncExitStack

import pytest

from tests.support.agents.endpoint import Endpoint, Opener


@pytest.fixture
async def opened(tmp_path):
    """Opens sessions of attempts that write to one folder."""
    async with AsyncExitStack() as stack:
        yield Opener(tmp_path, stack)


@pytest.fixture
async def endpoint():
    async with Endpoint() as running:
        yield running


@pytest.fixture
def runtime(endpoint, opened):
    return opened.runtime(endpoint.url)


@pytest.fixture
async def session(opened, runtime):
    return await opened.session(runtime)


@pytest.fixture
async def agent(opened, session):
    """An HTTP client with the key and the address of the session."""
    return await opened.agent(session)
