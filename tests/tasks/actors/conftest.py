"""No agent of an earlier test has been called."""

import pytest

from tests.support.agents import agents


@pytest.fixture(autouse=True)
def _fresh_calls():
    agents.CALLS.clear()
