"""The same run on Dask workers: other processes, the same store."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.flows.kit import run, store

SMALL = {"sample_size": 6, "batch_size": 3, "run_id": "same", "dry_run": True}


@pytest.mark.xdist_group("prefect")
@pytest.mark.timeout(300)
def test_groups_on_dask_workers_teach_the_same_lessons_as_in_one_process(tmp_path):
    command = [sys.executable, "-m", "flows.tfgrpo", "--dry-run", "--json", "--task-runner", "dask", "--run-id", "same"]
    sizes = ["--sample-size", "6", "--batch-size", "3", "--out", str(tmp_path / "dask")]
    done = subprocess.run(
        [*command, *sizes], env={**os.environ}, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "distributed" not in done.stderr
    assert list((tmp_path / "dask").rglob("*.owner")) == [], "a worker left its claim on the ledger behind"
    summary = json.loads(done.stdout)
    assert summary["status"] == "finished"
    alone = run(tmp_path / "alone", **SMALL)
    assert store(tmp_path / "dask") == store(tmp_path / "alone") != []
    assert summary["ledger"]["calls"] == alone.details["ledger"]["calls"]
    assert summary["ledger"]["nano_usd"] == alone.details["ledger"]["nano_usd"]
