"""The same run on Dask workers: other processes, the same store."""

import os
import sys

import psutil
import pytest

from tests.support.agents.steps import no_secret, settings
from tests.support.runs.running import LEARNING, RUN, Server, finish, on_server, run, start, store, words
from tfgrpo.flows.learning_flow import dask_workers
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.tasks.runtime.runtime import RunContext


def test_a_dask_worker_does_the_work_of_a_group_without_prefect(tmp_path):
    context = RunContext(settings(), tmp_path, "run", "arithmetic", None, no_secret, choose_models(settings()))
    here = os.getpid()

    async def seen(_runtime):
        return os.getpid() != here, "prefect" in sys.modules

    with dask_workers(1) as start_on_worker:
        assert start_on_worker(context, seen).result() == (True, False)


@pytest.mark.slow
@pytest.mark.xdist_group("prefect")
def test_dask_workers_share_the_caps_outlive_one_of_them_and_teach_what_one_process_teaches(tmp_path):
    with Server(SimulatedSettings(latency_s=0.1)) as server:
        under_way = [0]

        def count(number):
            under_way.append(number - sum(server.answered.values()))

        server.before_answer = count
        common = ["--task-runner", "dask", "--model", "simulated", "--base-url", server.url, "--concurrency", "4"]
        first = start(tmp_path / "dask", *common, *words(LEARNING), "--max-calls", "30", "--run-id", RUN)
        code, summary, said = finish(first)
        assert (code, summary["status"]) == (3, "stopped"), said
        assert len(server.bodies) == summary["ledger"]["calls"] == 30
        assert max(under_way) <= 4, "several workers had more rollouts in flight than one process may have"
        assert "distributed" not in said
        assert list(tmp_path.rglob("*.owner")) == [], "a worker left its claim on the ledger behind"

        again = start(tmp_path / "dask", *common, "--resume", RUN, "--max-calls", "400")
        server.wait_for(40)
        workers = [child for child in psutil.Process(again.pid).children(True) if "spawn_main" in str(child.cmdline())]
        workers[0].kill()
        code, summary, said = finish(again)
        assert (code, summary["status"]) == (0, "finished"), said
        sent_again = len(server.bodies) - len(server.asked())
        assert sent_again <= 4, "more was sent again than the dead worker had under way"
        run(tmp_path / "alone", **on_server(server, run_id=RUN, **LEARNING))
    assert store(tmp_path / "dask") == store(tmp_path / "alone") != []


@pytest.mark.slow
@pytest.mark.xdist_group("prefect")
def test_no_more_rollouts_are_under_way_in_all_workers_than_may_be_in_a_sweep_of_larger_groups_too(tmp_path):
    with Server(SimulatedSettings(latency_s=0.3)) as server:
        under_way = [0]

        def count(number):
            under_way.append(number - sum(server.answered.values()))

        server.before_answer = count
        common = ["--task-runner", "dask", "--model", "simulated", "--base-url", server.url, "--concurrency", "4"]
        sizes = ["--world", "arithmetic", "--sample-size", "10", "--batch-size", "5", "--group-size", "2"]
        code, summary, said = finish(start(tmp_path, *common, *sizes, "--set", "gate.group_size=4"))
    assert (code, summary["decision"]["pairs"]) == (0, 10), said
    assert max(under_way) <= 4
