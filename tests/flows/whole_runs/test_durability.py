"""Does a run survive `kill -9`, and come to the same store? Real processes, real Prefect, a server that counts."""

import io
import json
import os
import random
import shutil
import signal
import sqlite3
from contextlib import closing

import pytest
from rich.console import Console as RichConsole

from tests.support.runs.running import (
    LEARNING,
    PATIENCE_S,
    RUN,
    SMALL,
    TASK,
    Server,
    finish,
    lines,
    manifest,
    migrated_home,
    on_server,
    paths,
    run,
    start,
    store,
    timeless,
    words,
)
from tfgrpo.flows import cli
from tfgrpo.flows.console.observer import Progress
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.files.layout import TaskPaths

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    """Directory of a run that nothing happened to, on a server of its own, and that server's requests."""
    out = tmp_path_factory.mktemp("unkilled")
    with Server() as server:
        summary = run(out, run_id=RUN, **on_server(server))
    assert summary.exit_code == 0, summary.message
    assert store(out)
    return out, server.asked()


def options(server, *more):
    return ("--model", "simulated", "--base-url", server.url, *words(SMALL), *more)


def credit(out):
    """The lines of credit, clocks aside."""
    return [{**row, "created_at": ""} for row in lines(TaskPaths.of(out, TASK).credit)]


def answered(out):
    """Keys in the journal."""
    return {row["key"] for row in lines(paths(out).journal)}


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_at_any_moment_and_resumed_it_sends_no_journalled_call_again(tmp_path, unkilled, kills):
    reference, asked = unkilled
    total = sum(asked.values())
    moments = sorted(random.Random(7).sample(range(1, total - 1), kills))
    with Server(SimulatedSettings(latency_s=0.02)) as server:
        arguments = options(server, "--run-id", RUN)
        for moment in moments:
            process = start(tmp_path, *arguments)
            server.wait_for(max(moment, len(server.bodies) + 1))
            os.kill(process.pid, signal.SIGSTOP)
            refused = run(tmp_path, resume=RUN)
            assert (refused.status, refused.exit_code) == ("refused", 2)
            assert "a run that no other process has open" in refused.message
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
            process.communicate()
            arguments = ("--resume", RUN)
            known = len(lines(paths(tmp_path).journal))
            counted = lines(paths(tmp_path).ledger)[-1]["totals"]["journalled"]
            assert known - 1 <= counted <= known, "a journal cut after this kill would be noticed"
        summary = run(tmp_path, resume=RUN)
        assert (summary.status, summary.exit_code) == ("finished", 0), summary.message
    assert cli.main(["verify", TASK, "--out", str(tmp_path)]) == 0, "kills are no damage"
    journal = lines(paths(tmp_path).journal)
    assert len({row["key"] for row in journal}) == len(journal), "a journalled call was made again"
    # What was sent twice had not been answered when the process died: at most what was in flight, each time.
    repeated = sum(server.asked().values()) - len(server.asked())
    assert repeated == len(server.bodies) - len(journal) <= len(moments) * 32
    assert set(server.asked()) == set(asked)
    assert known < len(journal)
    assert store(tmp_path) == store(reference)
    assert credit(tmp_path) == credit(reference)
    finished, expected = manifest(tmp_path), manifest(reference)
    for row in (*finished["tfgrpo"]["epochs"], *expected["tfgrpo"]["epochs"]):
        del row["latency_ms"]  # a clock's: what comes from the journal takes no time
    for closed in (finished, expected):
        del closed["decision"]["decided_at"]
    for part in ("tfgrpo", "decision", "cohorts", "in_force"):
        assert finished[part] == expected[part], part
    assert [row["rollout_id"] for row in lines(paths(tmp_path).rollouts)] == [
        row["rollout_id"] for row in lines(paths(reference).rollouts)
    ]


def test_killed_in_process_after_every_write_the_store_is_the_same(tmp_path, unkilled):
    """The journal and the store cut back to any earlier state: what a kill at that moment leaves behind."""
    reference, _ = unkilled
    journal = paths(reference).journal.read_bytes().splitlines(keepends=True)
    steps = paths(reference).ledger.read_bytes().splitlines(keepends=True)
    for kept in (1, len(journal) // 2):
        out = tmp_path / str(kept)
        shutil.copytree(reference, out)
        place, task = paths(out), TaskPaths.of(out, TASK)
        place.journal.write_bytes(b"".join(journal[:kept]) + journal[kept][:40])
        place.ledger.write_bytes(b"".join(step for step in steps if json.loads(step)["totals"]["journalled"] <= kept))
        place.manifest.write_text(json.dumps({**manifest(out), "status": "running", "ledger": None}))
        of_task = (task.experiences, task.batches, task.credit, task.promotions, task.state)
        for path in (place.rollouts, place.groups, place.metrics, *of_task):
            path.unlink()
        with Server() as server:
            summary = run(out, resume=RUN, base_url=server.url)
        assert summary.exit_code == 0, summary.message
        assert len(server.bodies) == len(journal) - kept
        assert (store(out), credit(out)) == (store(reference), credit(reference))


def test_a_finished_run_that_is_resumed_makes_no_change_and_no_call_and_late_brings_no_old_library_back(tmp_path, unkilled):
    reference, _ = unkilled
    out = tmp_path / "copy"
    shutil.copytree(reference, out)
    before = {name: (paths(out).root / name).read_bytes() for name in ("journal.jsonl", "rollouts.jsonl", "metrics.jsonl")}
    task = TaskPaths.of(out, TASK)
    of_task = {path: path.read_bytes() for path in (task.promotions, task.experiences, task.credit)}
    with Server() as server:
        console = RichConsole(file=io.StringIO(), width=400)
        summary = run(out, resume=RUN, base_url=server.url, observer=Progress(console))
        assert summary.exit_code == 0, summary.message
        assert server.bodies == []
        assert "nothing is sent: the run had finished" in console.file.getvalue()
        assert {name: (paths(out).root / name).read_bytes() for name in before} == before
        assert {path: path.read_bytes() for path in of_task} == of_task
        assert manifest(out)["decision"] == manifest(reference)["decision"]
        second = run(out, run_id="second", seed=5, **on_server(server, **LEARNING))
        assert second.exit_code == 0, second.message
        state = json.loads(task.state.read_text())
        run(out, resume=RUN, base_url=server.url)
    assert json.loads(task.state.read_text())["in_force"] == state["in_force"]


def flow_runs(home):
    """How many flow runs the server with this home has on record."""
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        return database.execute("SELECT count(*) FROM flow_run").fetchone()[0]


@pytest.mark.parametrize(
    ("send", "number"), [pytest.param(os.killpg, signal.SIGINT, marks=pytest.mark.slow), (os.kill, signal.SIGTERM)]
)
def test_an_interrupt_stops_cleanly_and_the_run_can_be_resumed(tmp_path, unkilled, send, number):
    """As a terminal sends it, to the run's whole group with its own server, and as ``docker stop`` does, to the run."""
    reference, asked = unkilled
    home = migrated_home(tmp_path / "prefect") if send is os.killpg else None
    before = 0 if home is None else flow_runs(home)
    with Server(SimulatedSettings(latency_s=0.1)) as server:
        own_server = None if home is None else {"PREFECT_HOME": str(home)}
        process = start(tmp_path, *options(server, "--run-id", RUN), env=own_server)
        server.wait_for(sum(asked.values()) // 2)
        send(process.pid, number)
        code, summary, said = finish(process)
        assert code == 3, said
        assert summary["status"] == "stopped"
        assert summary["resume with"] == f"--resume {RUN}"
        assert "Traceback" not in said
        assert home is None or flow_runs(home) == before + 1, "Prefect used another server"
        assert manifest(tmp_path)["status"] == "stopped"
        assert paths(tmp_path).report.exists()
        sent = len(server.bodies)
        assert sent < sum(asked.values())
        resumed = run(tmp_path, resume=RUN)
    assert resumed.exit_code == 0, resumed.message
    assert store(tmp_path) == store(reference)


def test_a_replay_needs_no_endpoint_and_produces_the_same_store(tmp_path, unkilled):
    reference, _ = unkilled
    out = tmp_path / "copy"
    shutil.copytree(reference, out)
    # The server of that run is long gone.
    summary = run(out, replay=RUN)
    assert summary.exit_code == 0, summary.message
    assert "same store" in summary.message
    (replayed,) = TaskPaths.of(out, TASK).root.glob("replays/*/experiences.jsonl")
    assert timeless(replayed) == store(reference)
    assert summary.details["ledger"]["calls"] == 0
    assert store(out) == store(reference)


def test_a_replay_with_a_missing_entry_fails_in_one_typed_sentence(tmp_path, unkilled):
    reference, _ = unkilled
    out = tmp_path / "copy"
    shutil.copytree(reference, out)
    kept = paths(out).journal.read_bytes().splitlines(keepends=True)
    del kept[len(kept) // 2]
    paths(out).journal.write_bytes(b"".join(kept))
    summary = run(out, replay=RUN)
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert "ReplayMiss" in summary.message
    assert summary.details["resume with"] is None
