"""Prefect's page of a run shows its progress and how it went; whatever breaks there, the run goes on."""

import re
import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from uuid import uuid4

import httpx
import pytest

from tfgrpo.flows.console.observer import EpochEnd, EpochStart
from tfgrpo.flows.orchestration import deployed
from tfgrpo.flows.orchestration.deployed import PrefectArtifacts, night_page
from tfgrpo.flows.orchestration.request import RunSummary
from tfgrpo.stores.ledger import Totals


class Calls:
    """Stands where the three functions stand that ask Prefect."""

    def __init__(self, monkeypatch, answer=uuid4, error=None):
        self.made = []
        self.error = error
        for name in ("create_markdown_artifact", "create_progress_artifact", "update_artifact"):
            monkeypatch.setattr(deployed, name, self._stand_in(name, answer))

    def _stand_in(self, name, answer):
        def call(*arguments, **options):
            self.made.append((name, arguments, options))
            if self.error is not None:
                raise self.error
            return answer()

        return call

    def of(self, name):
        return [call for call in self.made if call[0] == name]


def test_the_page_of_a_flow_run_that_died_shows_how_its_run_ended(monkeypatch, small_run):
    calls, dead = Calls(monkeypatch), uuid4()
    monkeypatch.setattr(deployed, "_artifact_of", lambda run, key: f"{key} of {run}")
    observer = PrefectArtifacts()
    observer.resumed(replace(small_run.summary, run_id=str(dead)))
    observer.resumed(small_run.summary)  # begun by a command
    observer.wait()
    (night, progress) = [call[1] for call in calls.made]
    assert night[0] == f"night of {dead}"
    assert night[1].startswith(f"# {small_run.summary.details['decision']['decision'].upper()}")
    assert progress == (f"progress of {dead}", 100.0)


def test_the_page_of_a_run_says_what_was_decided_what_it_cost_and_where_the_rest_is(small_run):
    summary = small_run.summary
    page = night_page(summary.status, summary.message, summary.run_id, summary.details)
    assert page.startswith(f"# {summary.details['decision']['decision'].upper()}\n")
    facts = dict(line[2:].split("**: ", 1) for line in page.splitlines() if line.startswith("**"))
    shown = {line["label"]: line["text"] for line in summary.details["morning"]["lines"]}
    assert {label: text.replace("\\", "") for label, text in facts.items()} == {
        **shown,
        "directory": summary.details["run"],
        "report": summary.details["report"],
    }
    assert page.count("| epoch | phase |") == 1
    assert f"## Lessons: {len(summary.details['lessons'])}" in page
    first = summary.details["lessons"][0]
    effect = f"{first['effect']['mean']:+.1f} points ({first['effect']['low']:+.1f} … {first['effect']['high']:+.1f})"
    counted = f"groups: {first['groups_for']} for, {first['groups_against']} against; {first['tokens']} tokens)"
    said = page.replace("\\", "")
    assert f"({first['id']}; {first['state']}; {effect}, " in said
    assert counted in said


def test_how_to_go_on_is_said_once_before_and_after_the_end():
    details = {"resume with": "--resume mine", "run": "out/t/runs/mine", "warnings": ["one"]}
    before = night_page("running", "epoch 1 is done", "mine", details).replace("\\", "")
    lines = [{"label": "look at", "text": "one"}, {"label": "next", "text": "tfgrpo run --resume mine --task-id t"}]
    details["morning"] = {"verdict": "stopped", "lines": lines}
    after = night_page("stopped", "the budget is spent", "mine", details).replace("\\", "")
    assert [page.count("--resume mine") for page in (before, after)] == [1, 1]
    assert [page.count("**: one") for page in (before, after)] == [1, 1]
    assert "a flow run with this run as resume, and a higher cap" in after


@pytest.mark.parametrize("text", ["![x](http://a/b.png)", "<img src=x>", "[click](http://a)", "a\x1b[2Jb", "| a\n# B"])
def test_a_models_words_are_text_on_the_page_and_nothing_more(text):
    effect = {"mean": 1.0, "low": 0.0, "high": 2.0, "attempts": 3}
    counts = {"effect": effect, "groups_for": 1, "groups_against": 0, "tokens": 5, "state": "known"}
    details = {"lessons": [{"polarity": "do", "text": text, "id": "1", **counts}], "warnings": [text]}
    page = night_page("failed", text, "mine", details)
    assert "\x1b" not in page
    assert not re.search(r"(?<!\\)[\[\]<>!]", page)
    assert not re.search(r"(?<!\\)://", page)
    assert "\n# B" not in page


@pytest.mark.parametrize("error", [httpx.ConnectError("no server"), RuntimeError("a bug of theirs"), OSError(28, "full")])
def test_a_server_that_breaks_is_logged_and_the_run_goes_on(monkeypatch, small_run, caplog, error):
    calls = Calls(monkeypatch, error=error)
    observer = PrefectArtifacts(patience_s=2.0)
    small_run.told.play_to(observer)
    observer.wait()
    assert calls.made
    assert not calls.of("update_artifact")
    assert type(error).__name__ in caplog.text


def test_an_artifact_that_was_not_made_is_not_changed(monkeypatch):
    calls = Calls(monkeypatch, answer=lambda: None)
    observer = PrefectArtifacts()
    observer.group_done(None, Totals())
    observer.epoch_started(EpochStart(1, 2, "train", 1, 0.7))
    observer.group_done(None, Totals())
    observer.epoch_ended(EpochEnd(1, "train", None, 0, 2, 0, 0))
    observer.wait()
    made = [call[0] for call in calls.made]
    assert made == ["create_progress_artifact", "create_progress_artifact", "create_markdown_artifact"]


def test_a_server_that_does_not_answer_does_not_keep_a_run_from_ending_nor_a_flow_for_long(monkeypatch):
    asked, answered = threading.Event(), threading.Event()

    def slow():
        asked.set()
        answered.wait(60)
        return uuid4()

    calls = Calls(monkeypatch, answer=slow)
    observer = PrefectArtifacts(patience_s=0.05)
    for epoch in (1, 2):
        observer.epoch_started(EpochStart(epoch=epoch, epochs=2, phase="learning", groups=1, temperature=0.7))
    assert asked.wait(60)
    observer.closed()
    assert observer.wait() == "Prefect did not take the last of this run's page: progress (no reply within 0.05 s)"
    assert not answered.is_set()
    answered.set()
    with pytest.raises(CancelledError):
        observer._last.result(20)
    assert len(calls.of("create_progress_artifact")) == 1


def test_what_a_server_that_comes_back_missed_is_written_at_the_end_and_only_the_last(monkeypatch, small_run):
    calls = Calls(monkeypatch, error=httpx.ConnectError("no server"))
    monkeypatch.setattr(deployed, "_PAUSE_S", 0.01)
    observer = PrefectArtifacts(patience_s=20.0)
    small_run.told.play_to(observer)
    observer.finish(small_run.summary)
    observer._last.result(20)
    missed = len(calls.made)
    calls.error = None
    assert observer.wait() is None
    written = {call[2]["key"]: call[1][0] for call in calls.made[missed:]}
    assert len(calls.made[missed:]) == len(written) == 2
    assert written["night"].startswith(f"# {small_run.summary.details['decision']['decision'].upper()}")
    assert written["progress"] == 100.0


def test_progress_is_full_after_a_run_without_a_sweep(monkeypatch):
    calls = Calls(monkeypatch)
    observer = PrefectArtifacts()
    observer.epoch_started(EpochStart(1, 2, "train", 1, 0.7))
    observer.finish(RunSummary("failed", "mine", "it broke", {}))
    observer.wait()
    assert [call[1][-1] for call in calls.made if isinstance(call[1][-1], float)][-1] == 100.0
