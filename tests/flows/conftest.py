"""One small run of the simulated model, made once and shared for reading; copies of it for changing."""

import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.support.runs import running as kit
from tests.support.tracing import traced
from tfgrpo.flows.orchestration.request import RunSummary
from tfgrpo.flows.run.execution import execute
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.files.layout import RunPaths, TaskPaths


class Told:
    """Keeps every moment an observer is told of, with what it was told."""

    def __init__(self) -> None:
        self.moments: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def keep(*arguments: Any) -> None:
            self.moments.append((name, arguments))

        return keep

    def play_to(self, observer: Any) -> None:
        for name, arguments in self.moments:
            getattr(observer, name)(*arguments)


@dataclass(frozen=True)
class SmallRun:
    """A finished run: 24 items an epoch in batches of 12, three epochs."""

    out: Path
    summary: RunSummary
    told: Told

    @property
    def task(self) -> TaskPaths:
        return TaskPaths.of(self.out, "tfgrpo-learning")

    @property
    def paths(self) -> RunPaths:
        return self.task.run("small")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """Made by the first worker that asks and shared by all tests: read it, never write it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent / "small" if "PYTEST_XDIST_WORKER" in os.environ else base / "small"
    shared.mkdir(exist_ok=True)
    made = shared / "made.pickle"
    with FileLock(shared / "made.lock"):
        if not made.exists():
            told = Told()
            asked = kit.request(shared / "out", run_id="small", sample_size=24, batch_size=12, seed=6)
            with traced():
                summary = execute(asked, {}, told, kit.in_process, clock=utc_now)
            assert summary.status == "finished", summary.message
            assert summary.details["decision"]["decision"] == "in force"
            made.write_bytes(pickle.dumps((summary, told.moments)))
    told = Told()
    summary, told.moments = pickle.loads(made.read_bytes())
    return SmallRun(shared / "out", summary, told)


@pytest.fixture
def own_run(small_run, tmp_path):
    """A copy of the small run that a test may change."""
    out = tmp_path / "out"
    shutil.copytree(small_run.out, out)
    return SmallRun(out, small_run.summary, small_run.told)
