"""After three nights without a change a run says that the library is saturated, and the next takes half of the items."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.support.records.promotions import record_promotion
from tests.support.records.records import NOW
from tests.support.runs import running as kit
from tfgrpo.flows.orchestration.artifacts import night_page
from tfgrpo.flows.run import saturation as saturating
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.flows.run.saturation import saturated_before, saturation
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.library import Promotion
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.ledger.state import Totals

ASKED = {"sample_size": 2, "batch_size": 2, "dry_run": True, "world": "unlearnable"}


def tonight(out, **asked):
    return prepare(kit.request(out, **{**ASKED, **asked}), {}, preflight=False).plan


def test_the_third_night_without_a_change_says_so_and_the_next_is_half(tmp_path):
    asked = ASKED
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
    assert "saturated: the library has not changed in 3 nights" in kit.paths(tmp_path, "n2").report.read_text()
    assert said in night_page(last.status, last.message, last.run_id, last.details)
    half, full, other = (
        tonight(tmp_path, **how)
        for how in (
            {},
            {"tfgrpo__half_night": False},
            {"model": "m", "base_url": "http://127.0.0.1:9/v1", "dry_run": False},
        )
    )
    assert [len(plan.cohort(1).items) for plan in (half, full, other)] == [1, 2, 2]
    assert half.sources["tfgrpo.half_night"] == "the library is saturated"
    assert str(half.forecast).endswith("; half of the items, for the library is saturated")
    assert "half of the items" not in str(full.forecast)
    fourth = kit.run(tmp_path, run_id="n3", **asked)
    assert 2 * fourth.details["epochs"][0]["scored"] == last.details["epochs"][0]["scored"]
    # What a night decided when it began holds when it is resumed or replayed, whatever was decided since.
    nights(kit.paths(tmp_path, "n3").root.parents[1] / "promotions.jsonl", "promote")
    assert [len(tonight(tmp_path, **how).cohort(1).items) for how in ({"resume": "n3"}, {"replay": "n3"}, {})] == [
        1,
        1,
        2,
    ]
    again = kit.run(tmp_path, replay="n3")
    assert (again.status, again.details["saturated"]) == ("finished", None)


def nights(path, *kinds, capital=None):
    for number, kind in enumerate(kinds):
        simulated = not kind.startswith("real ")
        figures = {"estimate": None, "low": None, "high": None, "pairs": 0, "capital": capital}
        one = {"run_id": "n", "decided_at": NOW, "decision": kind.removeprefix("real "), "library_id": ""}
        record_promotion(
            path, Promotion(**one | {"run_id": f"n{number}"}, **figures, experience_ids=(), simulated=simulated)
        )


def session(folder, gate="a decision"):
    books, plan = SimpleNamespace(gate=gate), SimpleNamespace(simulated=True)
    return SimpleNamespace(books=books, plan=plan, task=TaskPaths(folder), settings=Settings())


def groups(folder, run_id, *means, phase="train"):
    path = TaskPaths(folder).run(run_id).groups
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"phase": phase, "mean_reward": mean}) + "\n" for mean in means))


@pytest.mark.parametrize(
    ("means", "phase", "saturated"),
    [
        ([0.0, 1.0] * 10, "train", True),
        ([0.0, 0.0, 0.0, 1.0] * 5, "train", False),
        ([0.0] * 20, "eval", True),
        ([0.0] * 20 + [None], "train", False),
        ([0.0], "train", True),
        ([1.0] * 20, "train", True),
    ],
)
def test_a_success_that_falls_beyond_chance_is_no_saturation(tmp_path, means, phase, saturated):
    nights(tmp_path / "promotions.jsonl", "promote", *["undecided"] * 4)
    groups(tmp_path, "n0", *[1.0] * 50)  # before the change of the library
    for name in ("n1", "n2", "n3"):
        groups(tmp_path, name, *[0.0, 1.0] * 10)
    groups(tmp_path, "n4", *means, phase=phase)
    assert (saturation(session(tmp_path), Totals()) is not None) == saturated


def split(arm, before, after):
    halves = [{"arm": arm, "mean_reward": before}, {"arm": "candidate", "mean_reward": after}]
    return {"phase": "train", "mean_reward": 0.5, "halves": halves}


@pytest.mark.parametrize(
    ("arm", "tonight", "saturated"),
    [
        ("baseline", [(0.0, 0.5), (0.5, 1.0)], True),
        ("baseline", [(0.0, 0.0), (0.0, 0.5)], False),
        ("baseline", [(0.5, 0.5), (1.0, 1.0)], False),  # easier items hide what lessons have lost
        ("baseline", [(0.0, 0.5), (0.0, 0.5)], True),  # harder ones are no loss
        ("baseline", [(0.0, 0.5), (0.5, 1.0), (None, 0.0)], True),
        ("champion", [(0.5, 0.5), (1.0, 1.0)], True),  # before learning rules 6 there was no half without lessons
    ],
)
def test_a_night_in_which_lessons_gain_less_is_no_saturation(tmp_path, arm, tonight, saturated):
    nights(tmp_path / "promotions.jsonl", "promote", *["undecided"] * 4)
    usual = [(0.0, 0.5), (0.5, 1.0)]
    for name, half in {"n1": usual, "n2": usual, "n3": usual, "n4": tonight}.items():
        path = TaskPaths(tmp_path).run(name).groups
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(split(arm, *one)) + "\n" for one in half * 8))
    assert (saturation(session(tmp_path), Totals()) is not None) == saturated


@pytest.mark.parametrize(("wins", "saturated"), [(3, False), (40, True)])
def test_evidence_that_is_on_its_way_may_change_the_library_and_evidence_enough_has_done_so(tmp_path, wins, saturated):
    capital = Capital().after([0.5] * wins).logs
    nights(tmp_path / "promotions.jsonl", "promote", *["undecided"] * 3, capital=capital)
    assert (saturation(session(tmp_path), Totals()) is not None) == saturated


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


@pytest.mark.parametrize(
    "manifest",
    ["{", "[]", '{"schema_version": 1, "saturated": {}}', '{"schema_version": 1, "saturated": {"nights": 3}}'],
)
def test_a_damaged_manifest_is_no_saturation_and_an_error_of_the_code_is_not_hidden(tmp_path, monkeypatch, manifest):
    nights(tmp_path / "t" / "promotions.jsonl", *["undecided"] * 3)
    run = TaskPaths(tmp_path / "t").run("n2")
    run.root.mkdir(parents=True)
    run.manifest.write_text(manifest)
    settings = Settings(out=str(tmp_path), task_id="t", dry_run=True)
    assert not saturated_before(settings)

    def broken(*_args, **_options):
        raise AttributeError("a mistake in the code")

    monkeypatch.setattr(saturating, "nights_unchanged", broken)
    with pytest.raises(AttributeError, match="a mistake"):
        saturated_before(settings)
