"""Groups as mapped tasks, with a real Prefect server."""

import _thread
import asyncio
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
from prefect import flow
from prefect.client.orchestration import PrefectClient, SyncPrefectClient
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.support.agents.steps import group, no_secret, record, settings, spec
from tests.support.runs.running import prefect_server
from tfgrpo.flows.learning_flow import GroupsReturn, groups_task, mapped_groups
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.stores.errors import RunAborted, SettingsError
from tfgrpo.tasks.runtime.runtime import RunContext

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(autouse=True)
def api():
    with temporary_settings({PREFECT_API_URL: prefect_server()}):
        yield


def groups_of(tmp_path, monkeypatch, run_group, per_task=1, read=list, **sections):
    """Map three groups whose work is ``run_group``, inside a flow run; ``read`` takes what comes back."""
    chosen = settings(**sections)
    context = RunContext(
        settings=chosen,
        run_dir=tmp_path,
        run_id="run",
        pack_id="arithmetic",
        packs_root=None,
        read_secret=no_secret,
        models=choose_models(chosen),
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def start_here(_context, work):
        return asyncio.run_coroutine_threadsafe(work(None), loop)

    monkeypatch.setattr("tfgrpo.flows.learning_flow.start_here", start_here)
    monkeypatch.setattr("tfgrpo.flows.learning_flow.run_group", run_group)
    monkeypatch.setattr(groups_task, "retry_delay_seconds", 0)

    @flow(name="groups", persist_result=False)
    def outer():
        plan = SimpleNamespace(settings=chosen, group_size=2, groups_at_once=lambda _most: per_task)
        with mapped_groups(plan) as run_groups:
            specs = [spec(of=None, epoch=epoch) for epoch in (1, 2, 3)]
            with closing(run_groups(context, specs)) as arriving:
                epochs = [result.key.epoch for result in read(arriving)]
        kept = FlowRunContext.get()
        assert (kept.run_results, kept.task_run_assets) == ({}, {})
        return epochs

    try:
        return outer()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_no_more_tasks_are_in_progress_than_rollouts_may_be(tmp_path, monkeypatch):
    running, most = 0, 0

    async def run_group(given, _runtime, *, carrier):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1
        return group((record(),), epoch=given.key.epoch)

    assert sorted(groups_of(tmp_path, monkeypatch, run_group, tfgrpo={"concurrency": 2})) == [1, 2, 3]
    assert most == 2


def test_groups_are_yielded_as_they_come_back(tmp_path, monkeypatch):
    """And no task run opens an API client, nor do the futures of Prefect keep what came back."""
    opened, kept = [], []
    for kind in (PrefectClient, SyncPrefectClient):
        made = kind.__init__

        def counted(self, *args, made=made, **kwargs):
            opened.append(threading.current_thread().name)
            made(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", counted)

    class Watched(GroupsReturn):
        __slots__ = ()

        def __init__(self, results):
            super().__init__(results)
            kept.append(self)

    async def run_group(given, _runtime, *, carrier):
        assert carrier == {}
        await asyncio.sleep(0.5 * (given.key.epoch == 1))
        return group((record(),), epoch=given.key.epoch)

    monkeypatch.setattr("tfgrpo.flows.learning_flow.GroupsReturn", Watched)
    came = groups_of(tmp_path, monkeypatch, run_group)
    assert (sorted(came), came[-1]) == ([1, 2, 3], 1)
    assert opened
    assert not [name for name in opened if name.startswith("ThreadPoolExecutor")]
    assert [each.results for each in kept] == [()] * 3


@pytest.mark.parametrize("per_task", [1, 3])
def test_a_run_that_ends_early_cancels_the_groups_under_way_and_begins_no_other(tmp_path, monkeypatch, caplog, per_task):
    begun, ended = [], []

    async def run_group(given, _runtime, *, carrier):
        begun.append(given.key.epoch)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(given.key.epoch)

    def until_begun(arriving):
        stop = threading.Timer(0.5, _thread.interrupt_main)
        stop.start()
        return list(arriving)

    with pytest.raises(KeyboardInterrupt):
        groups_of(tmp_path, monkeypatch, run_group, per_task, until_begun, tfgrpo={"concurrency": 2})
    assert sorted(ended) == sorted(begun)
    assert 0 < len(begun) <= max(2, per_task)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("per_task", [1, 2])
def test_a_fault_of_the_infrastructure_is_tried_again_for_its_group_alone(tmp_path, monkeypatch, per_task):
    tries = []

    async def run_group(given, _runtime, *, carrier):
        tries.append(given.key.epoch)
        if tries.count(2) == 1 and given.key.epoch == 2:
            raise ConnectionResetError("the worker went away")
        return group((record(),), epoch=given.key.epoch)

    assert sorted(groups_of(tmp_path, monkeypatch, run_group, per_task)) == [1, 2, 3]
    assert sorted(tries) == [1, 2, 2, 3]


def test_an_infrastructure_that_stays_broken_ends_the_run_with_its_reason(tmp_path, monkeypatch):
    async def run_group(given, _runtime, *, carrier):
        raise ConnectionResetError("the worker went away")

    with pytest.raises(RunAborted, match="ConnectionResetError: the worker went away"):
        groups_of(tmp_path, monkeypatch, run_group)


def test_what_our_own_code_refuses_is_not_tried_again(tmp_path, monkeypatch):
    tries = []

    async def run_group(given, _runtime, *, carrier):
        tries.append(given.key.epoch)
        raise SettingsError.one("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke", "grpc or http/protobuf")

    with pytest.raises(SettingsError, match="smoke"):
        groups_of(tmp_path, monkeypatch, run_group)
    assert len(tries) == len(set(tries))
