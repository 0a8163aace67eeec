"""After three nights without a change a run says that the library is saturated, and what a pause would save."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support.records.promotions import record_promotion
from tests.support.records.records import NOW
from tests.support.runs import running as kit
from tfgrpo.flows.orchestration.artifacts import night_page
from tfgrpo.flows.run.saturation import saturation
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.library import Promotion
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.ledger.state import Totals


def test_the_third_night_without_a_change_says_so_everywhere(tmp_path):
    asked = {"sample_size": 2, "batch_size": 2, "dry_run": True, "world": "unlearnable"}
    ended = [kit.run(tmp_path, run_id=f"n{number}", **asked) for number in range(3)]
    assert [summary.details["saturated"] is None for summary in ended] == [True, True, False]
    last = ended[-1]
    calls = last.details["ledger"]["calls"]
    assert calls > 0
    said = f"saturated: the library has not changed in 3 nights; a night like this one takes {calls:,} calls"
    assert said in last.message
    assert "saturated" not in ended[1].message
    assert (last.details["saturated"]["nights"], last.details["saturated"]["calls"]) == (3, calls)
    assert last.as_json()["saturated"] == kit.manifest(tmp_path, "n2")["saturated"]
    assert "Saturated: the library has not changed in 3 nights" in kit.paths(tmp_path, "n2").report.read_text()
    assert said in night_page(last.status, last.message, last.run_id, last.details)
    again = kit.run(tmp_path, replay="n2")
    assert (again.status, again.details["saturated"]) == ("finished", None)


def nights(path, *kinds, capital=None):
    for kind in kinds:
        simulated = not kind.startswith("real ")
        figures = {"estimate": None, "low": None, "high": None, "pairs": 0, "capital": capital}
        one = {"run_id": "n", "decided_at": NOW, "decision": kind.removeprefix("real "), "library_id": ""}
        record_promotion(path, Promotion(**one, **figures, experience_ids=(), simulated=simulated))


def session(folder, gate="a decision"):
    books, plan = SimpleNamespace(gate=gate), SimpleNamespace(simulated=True)
    return SimpleNamespace(books=books, plan=plan, task=TaskPaths(folder))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("undecided", "reject"), None),
        (("undecided", "reject", "undecided"), 3),
        (("promote", "undecided", "reject", "undecided", "undecided"), 4),
        (("undecided", "undecided", "retire", "undecided", "undecided"), None),
        (("undecided", "undecided", "rollback", "undecided"), None),
        (("undecided", "undecided", "real promote", "real undecided", "undecided"), 3),
        (("real undecided", "real undecided", "undecided"), None),
    ],
)
def test_only_nights_in_a_row_that_leave_the_library_of_the_same_model_count(tmp_path, kinds, expected):
    nights(tmp_path / "promotions.jsonl", *kinds)
    found = saturation(session(tmp_path), Totals(calls=7))
    assert (found and (found["nights"], found["calls"])) == (expected and (expected, 7))


@pytest.mark.parametrize(
    ("decided", "differences", "saturated"),
    [("undecided", [1.0], False), ("undecided", [-1.0], True), ("undecided", None, True), ("reject", [1.0], True)],
)
def test_a_candidate_that_the_evidence_speaks_for_is_no_saturation(tmp_path, decided, differences, saturated):
    capital = None if differences is None else Capital().after(differences).logs
    nights(tmp_path / "promotions.jsonl", *["undecided"] * 2, decided, capital=capital)
    assert (saturation(session(tmp_path), Totals()) is not None) == saturated


def test_before_the_gate_nothing_is_said(tmp_path):
    nights(tmp_path / "promotions.jsonl", *["undecided"] * 3)
    assert saturation(session(tmp_path, None), Totals()) is None


def test_calls_that_were_not_measured_are_unknown(tmp_path):
    nights(tmp_path / "promotions.jsonl", *["undecided"] * 3)
    found = saturation(session(tmp_path), Totals(calls=7, unmeasured_attempts=1))
    assert found["calls"] is None
    assert "7 + unknown calls" in found["explanation"]
