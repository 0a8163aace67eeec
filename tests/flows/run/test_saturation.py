"""After three nights without a change a run says that the task is saturated, and the next sweeps half as many items."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support.records.promotions import decision, record_decision
from tests.support.runs import running as kit
from tfgrpo.flows.orchestration.artifacts import night_page
from tfgrpo.flows.run.close import saturation
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.ledger import Totals

ASKED = {"sample_size": 8, "batch_size": 8, "dry_run": True, "world": "arithmetic", "tfgrpo__min_spread": 2.0}
"""Nights that learn nothing."""


def tonight(out, **asked):
    return prepare(kit.request(out, **{**ASKED, **asked}), {}, preflight=False).plan


def test_the_third_night_without_a_change_says_so_and_the_next_sweeps_half_as_many_items(tmp_path):
    ended = [kit.run(tmp_path, run_id=f"n{number}", **ASKED) for number in range(3)]
    assert [summary.details["saturated"] is None for summary in ended] == [True, True, False]
    last = ended[-1]
    calls = last.details["ledger"]["calls"]
    said = f"saturated: nothing has changed in 3 nights; a night like this one takes {calls:,} calls"
    assert said in last.message
    assert "saturated" not in ended[1].message
    assert (last.details["saturated"]["nights"], last.details["saturated"]["calls"]) == (3, calls)
    assert last.as_json()["saturated"] == kit.manifest(tmp_path, "n2")["saturated"]
    assert said in kit.paths(tmp_path, "n2").report.read_text()
    assert said in night_page(last.status, last.message, last.run_id, last.details)
    half, other = (tonight(tmp_path), tonight(tmp_path, model="m", base_url="http://127.0.0.1:9/v1", dry_run=False))
    assert 2 * len(half.eval_items) == len(other.eval_items)
    assert len(half.cohort(1).items) == len(other.cohort(1).items)
    # What a night decided when it began holds when it is resumed or replayed, whatever was decided since.
    kit.run(tmp_path, run_id="n3", **ASKED)
    record_decision(TaskPaths.of(tmp_path, kit.TASK).promotions, decision("in force", ("a",)))
    swept = [len(tonight(tmp_path, **how).eval_items) for how in ({"resume": "n3"}, {"replay": "n3"}, {})]
    assert swept == [len(half.eval_items), len(half.eval_items), len(other.eval_items)]


def nights(path, *kinds):
    for number, kind in enumerate(kinds):
        ids = ("a",) if kind.endswith("in force") else ()
        fields = {"run_id": f"n{number}", "considered": ids, "simulated": not kind.startswith("real ")}
        record_decision(path, decision(kind.removeprefix("real "), ids, **fields))


def session(folder, decided="a decision"):
    books, plan = SimpleNamespace(decision=decided), SimpleNamespace(simulated=True)
    return SimpleNamespace(books=books, plan=plan, task=TaskPaths(folder))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("not yet", "not yet"), None),
        (("not yet", "not yet", "not yet"), 3),
        (("in force", "in force", "in force", "in force"), 3),
        (("in force", "in force", "taken back", "not yet", "not yet"), None),
        (("not yet", "not yet", "rollback", "not yet"), None),
        (("not yet", "not yet", "real in force", "real not yet", "not yet"), 3),
        (("real not yet", "real not yet", "not yet"), None),
    ],
)
def test_only_nights_in_a_row_that_change_nothing_for_the_same_model_count(tmp_path, kinds, expected):
    nights(tmp_path / "promotions.jsonl", *kinds)
    found = saturation(session(tmp_path), Totals(calls=7))
    assert (found and (found["nights"], found["calls"])) == (expected and (expected, 7))


def test_a_library_that_is_considered_and_not_yet_in_force_is_a_change_under_way(tmp_path):
    for _ in range(4):
        record_decision(tmp_path / "promotions.jsonl", decision("not yet", (), considered=("a",)))
    assert saturation(session(tmp_path), Totals()) is None
