"""Sealed items are seen by no night, and opened once for each library; saturated nights sweep fewer items."""

import json
from types import SimpleNamespace

import pytest

from tests.support.records.promotions import decision, record_decision
from tests.support.runs import running as kit
from tests.support.runs.running import TASK, lines, manifest, paths, run
from tfgrpo.flows.orchestration.deployed import night_page
from tfgrpo.flows.run.close import saturation
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.stores.experiences.decisions import sealed_tests
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.ledger import Totals

SEALED = {"dataset__sealed": 0.5, "sample_size": 12, "batch_size": 6}


def on_record(out):
    return list(sealed_tests(TaskPaths.of(out, TASK).tests))


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A night that puts lessons into force, and a test of them."""
    out = tmp_path_factory.mktemp("sealed")
    learned = run(out, run_id="night", **SEALED)
    assert learned.details["decision"]["decision"] == "in force", learned.message
    stopped = run(out, run_id="test", test=True, max_calls=60)  # with the settings of the night
    assert (stopped.status, on_record(out)) == ("stopped", [])
    again = run(out, test=True, **SEALED)
    assert (again.status, "--resume test" in again.message) == ("refused", True)
    assert run(out, resume="test", max_calls=10_000).exit_code == 0
    return out


def test_no_night_attempts_what_the_test_does(tested):
    night, test = ({row["item_id"] for row in lines(paths(tested, name).items)} for name in ("night", "test"))
    assert test
    assert not night & test
    (one,) = on_record(tested)
    assert one.seen == 0
    assert len(test) == one.pairs == manifest(tested, "night")["dataset"]["sealed"]


def test_the_lessons_in_force_are_compared_with_none_and_nothing_is_learned_or_decided(tested):
    (one,) = on_record(tested)
    rows = lines(paths(tested, "test").rollouts)
    assert {row["arm"] for row in rows} == {"library", "none"}
    assert {row["phase"] for row in rows} == {"eval"}
    sent = {row["digest"]: row["experience_ids"] for row in lines(paths(tested, "test").prompts)}
    assert sorted(map(len, sent.values())) == [0, len(one.experience_ids)]
    ended = manifest(tested, "test")
    assert (ended["decision"], ended["test"]["estimate"]) == (None, one.estimate)
    assert one.low < one.estimate < one.high
    assert ended["ledger"]["calls"] == len(rows)
    state = json.loads(TaskPaths.of(tested, TASK).state.read_text())
    assert state["last_run"] == "night"


def test_a_second_test_of_the_same_library_is_refused_and_says_what_the_first_found(tested):
    again = run(tested, test=True, **SEALED)
    assert again.status == "refused"
    assert on_record(tested)[0].result in again.message
    assert "which run test has tested" in again.message


REAL = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "world": "arithmetic", "dataset__sealed": 0.1}


@pytest.mark.parametrize(
    ("asked", "model", "sealed"), [({}, "simulated", 0.5), ({"dry_run": True}, "simulated", 0.5), (REAL, "m", 0.1)]
)
def test_options_of_a_test_are_laid_over_the_settings_of_the_newest_run_of_its_kind(tested, monkeypatch, asked, model, sealed):
    monkeypatch.setattr("tfgrpo.flows.run.prepare.refuse_second_test", lambda _: None)
    request = kit.request(tested, test=True, tfgrpo__temperature__eval=0.2, **asked)
    plan = prepare(request, {"TFGRPO_BATCH_SIZE": "5"}, preflight=False).plan
    found = plan.settings.tfgrpo
    assert (found.temperature.eval, found.batch_size, plan.models.name, plan.settings.dataset.sealed) == (0.2, 5, model, sealed)


def test_a_test_that_has_ended_is_resumed_and_replayed_to_the_same_result(tested):
    before = on_record(tested)
    assert run(tested, resume="test").exit_code == 0
    again = run(tested, replay="test")
    assert again.exit_code == 0, again.message
    assert before[0].result in again.message
    assert on_record(tested) == before


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
