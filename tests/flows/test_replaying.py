"""A replay compares its store with the original's; the run that is no replay has nothing to compare."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from flows.replaying import compare_with_original
from stores.identifiers import LONGEST
from stores.layout import TaskPaths
from tests.flows.kit import RUN, SMALL, TASK, run, store


def test_a_run_of_its_own_is_no_replay():
    with pytest.raises(ValueError, match="not a replay"):
        compare_with_original(SimpleNamespace(replay_of=None), "")


def test_only_records_of_the_run_itself_are_compared(tmp_path):
    run(tmp_path, run_id="another", seed=9, **SMALL)
    run(tmp_path, run_id=RUN, **SMALL)
    summary = run(tmp_path, replay=RUN)
    assert summary.exit_code == 0, summary.message
    own = [row for row in store(tmp_path) if row["run_id"] == RUN]
    assert own
    assert f"{len(own)} records" in summary.message
    assert len(list(TaskPaths.of(tmp_path, TASK).root.glob("replays/*"))) == 1


def test_a_replay_takes_the_first_number_that_is_free(tmp_path):
    name = "n" * LONGEST
    run(tmp_path, run_id=name, **SMALL)
    replays = TaskPaths.of(tmp_path, TASK).root / "replays"
    for _ in range(2):
        assert run(tmp_path, replay=name).exit_code == 0
    first, second = sorted(replays.iterdir())
    shutil.rmtree(first)
    assert run(tmp_path, replay=name).exit_code == 0
    assert sorted(replays.iterdir()) == [first, second]
    assert first.name == f"{name[:-2]}-1"
    assert {path.stat().st_mode & 0o777 for path in replays.iterdir()} == {0o700}


def test_a_replay_that_is_refused_takes_no_number(tmp_path, monkeypatch):
    run(tmp_path, run_id=RUN, **SMALL)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "no address")
    assert run(tmp_path, replay=RUN).exit_code == 2
    assert not (TaskPaths.of(tmp_path, TASK).root / "replays").exists()
