"""Every resource opened for a run is closed again, despite errors of others."""

from __future__ import annotations

import pytest

from tests.support.agents.steps import context
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import PackError, StoreError
from tfgrpo.stores.ledger import Ledger
from tfgrpo.stores.runs import Journal
from tfgrpo.tasks.runtime import host
from tfgrpo.tasks.runtime.host import open_runtime


@pytest.fixture
def shut(monkeypatch):
    """What was closed, in order; each part is really closed, and says no afterwards."""
    order = []

    def watch(part, name):
        close = getattr(part, name)

        def breaking(self):
            close(self)
            order.append(part)
            raise StoreError(f"the disk refuses {part.__name__}")

        monkeypatch.setattr(part, name, breaking)

    watch(RewarderThreads, "shutdown")
    watch(Ledger, "close")
    watch(Journal, "close")
    return order


async def test_a_resource_that_fails_to_close_leaves_no_other_open(tmp_path, shut):
    runtime = await open_runtime(context(tmp_path))
    with pytest.raises(StoreError, match="refuses Journal"):
        await runtime.aclose()
    assert shut == [RewarderThreads, Ledger, Journal]


async def test_a_failed_opening_closes_the_rest_and_is_the_error_raised(tmp_path, shut):
    with pytest.raises(PackError) as caught:
        await open_runtime(context(tmp_path, pack_id="no-such-pack"))
    assert shut == [RewarderThreads, Ledger, Journal]
    assert caught.value.__notes__ == ["closing the opened resources failed too: StoreError: the disk refuses Journal"]


async def test_a_ledger_that_cannot_be_opened_leaves_no_journal_open(tmp_path, shut, monkeypatch):
    def refuse(*_, **__):
        raise StoreError("no ledger")

    monkeypatch.setattr(host, "Ledger", refuse)
    with pytest.raises(StoreError, match="no ledger"):
        await open_runtime(context(tmp_path))
    assert shut == [Journal]
