"""Prefect's UI shows progress, rewards, lessons and the gate; whatever breaks there, the run goes on."""

from __future__ import annotations

import threading
from uuid import uuid4

import httpx
import pytest

from flows import artifacts
from flows.artifacts import PrefectArtifacts
from flows.observer import EpochEnd, EpochStart
from stores.ledger_state import Totals


class Calls:
    """Stands where Prefect's four functions stand."""

    def __init__(self, monkeypatch, answer=uuid4, error=None):
        self.made = []
        for name in (
            "create_markdown_artifact",
            "create_progress_artifact",
            "create_table_artifact",
            "update_progress_artifact",
        ):
            monkeypatch.setattr(artifacts, name, self._stand_in(name, answer, error))

    def _stand_in(self, name, answer, error):
        def call(*arguments, **options):
            self.made.append((name, arguments, options))
            if error is not None:
                raise error
            return answer()

        return call

    def of(self, name):
        return [call for call in self.made if call[0] == name]


def test_every_kind_of_artifact_is_written_and_labelled_as_simulated(monkeypatch, small_run):
    calls = Calls(monkeypatch)
    observer = PrefectArtifacts()
    small_run.told.play_to(observer)
    observer.wait()
    bars = calls.of("create_progress_artifact")
    assert [bar[2]["key"] for bar in bars] == ["epoch-1-progress", "epoch-2-progress", "epoch-3-progress"]
    assert all("SIMULATED" in bar[2]["description"] for bar in bars)
    updates = calls.of("update_progress_artifact")
    assert len(updates) == 30
    assert updates[-1][1][1] == 100.0
    tables = calls.of("create_table_artifact")
    per_epoch = [table for table in tables if table[2]["key"] == "per-epoch"]
    assert [len(table[1][0]) for table in per_epoch] == [1, 2, 3]
    lessons = [table for table in tables if table[2]["key"] == "lessons"]
    assert lessons[-1][1][0][0]["lesson"]
    (gate,) = calls.of("create_markdown_artifact")
    assert gate[1][0].startswith("# PROMOTE")
    assert "SIMULATED" in gate[1][0]


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("no server"), RuntimeError("a bug of theirs"), OSError(28, "full")]
)
def test_a_server_that_breaks_is_logged_and_the_run_goes_on(monkeypatch, small_run, caplog, error):
    calls = Calls(monkeypatch, error=error)
    observer = PrefectArtifacts()
    small_run.told.play_to(observer)
    observer.wait()
    assert calls.made
    assert not calls.of("update_progress_artifact")
    assert type(error).__name__ in caplog.text


def test_a_bar_that_was_not_made_is_not_moved(monkeypatch, small_run):
    calls = Calls(monkeypatch, answer=lambda: None)
    observer = PrefectArtifacts()
    observer.group_done(None, Totals())
    observer.epoch_started(EpochStart(1, 2, "train", 1, 0.7))
    observer.group_done(None, Totals())
    observer.epoch_ended(EpochEnd(1, "train", None, 0, 2, 0, 0))
    observer.wait()
    assert [call[0] for call in calls.made] == ["create_progress_artifact", "create_table_artifact"]


def test_a_lesson_cannot_hide_characters_in_the_table(monkeypatch, small_run):
    calls = Calls(monkeypatch)
    observer = PrefectArtifacts()
    records = next(arguments[0] for name, arguments in small_run.told.moments if name == "lessons_stored")
    observer.lessons_stored([records[0].model_copy(update={"summary32": "a\x1b[2Jb"})], 0)
    observer.epoch_ended(EpochEnd(1, "train", 0.5, 2, 0, 0, 1))
    observer.wait()
    assert "\x1b" not in calls.made[-1][1][0][0]["lesson"]


def test_a_server_that_does_not_answer_does_not_keep_a_run_from_ending_nor_a_flow_for_long(monkeypatch, caplog):
    asked, answered = threading.Event(), threading.Event()

    def slow():
        asked.set()
        answered.wait(60)
        return uuid4()

    calls = Calls(monkeypatch, answer=slow)
    observer = PrefectArtifacts(patience_s=0.05)
    for epoch in (1, 2):
        observer.epoch_started(EpochStart(epoch=epoch, epochs=2, phase="learning", groups=1, temperature=0.7))
    assert asked.wait(20)
    observer.closed()
    assert "longer than" not in caplog.text
    observer.wait()
    assert not answered.is_set()
    assert "longer than 0.05 s" in caplog.text
    answered.set()
    observer._writer.join(20)
    assert not observer._writer.is_alive()
    assert observer._writer.daemon
    assert len(calls.of("create_progress_artifact")) == 1
