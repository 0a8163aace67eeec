"""One loop, one API client, honest futures: the runner that groups are mapped on, with a real Prefect server."""

import asyncio
import gc
import threading
import weakref
from types import SimpleNamespace

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import PrefectClient
from prefect.context import FlowRunContext
from prefect.futures import as_completed
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.support.agents.steps import group, no_secret, record, settings, spec
from tests.support.runs.running import prefect_server
from tests.support.waiting import eventually
from tfgrpo.flows.learning_flow import EventLoopTaskRunner, GroupsReturn, begun, groups_task, mapped_groups
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.stores.errors import RunAborted, SettingsError
from tfgrpo.tasks.runtime.runtime import RunContext

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(autouse=True)
def api():
    with temporary_settings({PREFECT_API_URL: prefect_server()}):
        yield


def quiet_task(function, **options):
    return task(function, name="t", cache_policy=NO_CACHE, persist_result=False, **options)


def in_flow(body):
    """Run a function with a started runner inside a flow run."""

    @flow(name="test", persist_result=False)
    def outer():
        with EventLoopTaskRunner() as runner:
            body(runner)
        return "done"

    assert outer() == "done"


def test_the_next_run_begins_when_the_one_before_says_that_it_has_begun_or_has_ended():
    told = []

    async def one(number):
        told.append(f"{number} in")
        if number < 2:
            begun()
        await eventually(lambda: "2 in" in told)
        await asyncio.sleep(0.1)
        told.append(f"{number} out")

    @flow(name="test", persist_result=False)
    def outer():
        with EventLoopTaskRunner() as runner:
            futures = [runner.submit(quiet_task(one), {"number": number}) for number in range(4)]
            return [future.result() for future in futures]

    assert outer() == [None] * 4
    assert told[:3] == ["0 in", "1 in", "2 in"]
    assert told.index("3 in") > told.index("2 out")


def test_no_more_runs_are_in_progress_than_asked_for():
    running, most = 0, 0

    async def one():
        nonlocal running, most
        begun()
        running += 1
        most = max(most, running)
        await eventually(lambda: most >= 3)
        await asyncio.sleep(0.05)
        running -= 1

    @flow(name="test", persist_result=False)
    def outer():
        with EventLoopTaskRunner(at_once=3).duplicate() as runner:
            return [future.result() for future in [runner.submit(quiet_task(one), {}) for _ in range(8)]]

    assert outer() == [None] * 8
    assert most == 3


def test_all_tasks_share_one_loop_and_one_api_client(monkeypatch):
    opened = []
    enter = PrefectClient.__aenter__

    async def counted(self):
        if threading.current_thread().name == "tfgrpo-groups":
            opened.append(self)
        return await enter(self)

    monkeypatch.setattr(PrefectClient, "__aenter__", counted)

    async def where(number):
        await asyncio.sleep(0.05)
        return number, id(asyncio.get_running_loop()), threading.current_thread().name

    def body(runner):
        futures = runner.map(quiet_task(where), {"number": list(range(8))})
        results = [future.result() for future in as_completed(list(futures))]
        assert sorted(number for number, _, _ in results) == list(range(8))
        assert len({loop for _, loop, _ in results}) == 1
        assert {name for _, _, name in results} == {"tfgrpo-groups"}

    in_flow(body)
    assert opened
    assert all(client is opened[0] for client in opened)


@pytest.mark.parametrize("how", ["exit", "cancel_all"])
def test_what_still_runs_is_cancelled(how):
    begun, ended = threading.Event(), []

    async def waits():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    futures = []

    def body(runner):
        futures.extend([runner.submit(quiet_task(waits), {}) for _ in range(3)])
        assert begun.wait(20)
        if how == "cancel_all":
            runner.cancel_all()
            assert all(future.wrapped_future.done() for future in futures)
            runner.cancel_all()

    in_flow(body)
    assert ended
    assert all(future.wrapped_future.done() for future in futures)


def groups_of(tmp_path, monkeypatch, run_group, per_task=1):
    """Map three groups whose work is ``run_group``, inside a flow run."""
    context = RunContext(
        settings=settings(),
        run_dir=tmp_path,
        run_id="run",
        pack_id="arithmetic",
        packs_root=None,
        read_secret=no_secret,
        models=choose_models(settings()),
    )

    async def on_runtime(_context, work):
        return await work(None)

    monkeypatch.setattr("tfgrpo.flows.learning_flow.run_on_runtime", on_runtime)
    monkeypatch.setattr("tfgrpo.flows.learning_flow.run_group", run_group)
    monkeypatch.setattr(groups_task, "retry_delay_seconds", 0)

    @flow(name="groups", persist_result=False)
    def outer():
        plan = SimpleNamespace(settings=settings(), group_size=2, groups_at_once=lambda _most: per_task)
        with mapped_groups(plan) as run_groups:
            specs = [spec(of=None, epoch=epoch) for epoch in (1, 2, 3)]
            epochs = [result.key.epoch for result in run_groups(context, specs)]
        kept = FlowRunContext.get()
        assert (kept.run_results, kept.task_run_assets) == ({}, {})
        return epochs

    return outer()


def test_groups_are_yielded_as_they_come_back(tmp_path, monkeypatch):
    async def run_group(given, _runtime, *, carrier):
        assert carrier == {}
        await asyncio.sleep(0.5 * (given.key.epoch == 1))
        return group((record(),), epoch=given.key.epoch)

    assert groups_of(tmp_path, monkeypatch, run_group)[-1] == 1


def test_a_group_that_came_back_is_not_kept_until_the_garbage_collector_looks(tmp_path, monkeypatch):
    made = []

    class Watched(GroupsReturn):
        __slots__ = ()

        def __init__(self, results):
            super().__init__(results)
            made.append(weakref.ref(self))

    async def run_group(given, _runtime, *, carrier):
        return group((record(),), epoch=given.key.epoch)

    monkeypatch.setattr("tfgrpo.flows.learning_flow.GroupsReturn", Watched)
    gc.disable()
    try:
        assert sorted(groups_of(tmp_path, monkeypatch, run_group)) == [1, 2, 3]
        assert [each() for each in made] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("per_task", [1, 2, 3])
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
