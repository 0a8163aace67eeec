"""What a selection takes from its task, and what is kept there."""

from __future__ import annotations

import threading

from tests.support.records.promotions import ids_in_force
from tests.support.runs.chat_server import ChatServer
from tests.support.runs.selections import GOOD, ITEMS, ask, plan
from tfgrpo.flows.selection import select as selecting
from tfgrpo.flows.selection.request import SelectRequest
from tfgrpo.flows.selection.select import select
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.runs.selections import recorded_rounds

OTHER = "XOR(ACTIVITY(a), ACTIVITY(b))"


def test_lessons_in_force_of_a_task_are_in_the_prompt_with_their_own_pack(small_run):
    asked = {"item": f"{ITEMS}#ar-0001", "task_id": "tfgrpo-learning", "out": str(small_run.out)}
    planned = plan(dry_run=True, **asked)
    assert planned.spec.pack.pack_id == "arithmetic"
    assert planned.spec.pack.experience_ids == ids_in_force(small_run.task.promotions) != ()
    assert "<lessons>" in planned.spec.system.system
    real = plan(base_url="http://there/v1", model="m", **asked)
    assert (real.spec.pack.pack_id, real.spec.pack.experience_ids) == ("general", ())


def test_lessons_of_another_pack_stay_out_with_a_warning(small_run):
    planned = plan(dry_run=True, task_id="tfgrpo-learning", out=str(small_run.out), pack="general")
    assert planned.spec.pack.experience_ids == ()
    assert any("kept out, not stamped for the pack in force" in warning for warning in planned.warnings)


def test_without_a_task_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert select(SelectRequest(dry_run=True), {}).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_rounds_and_structures_of_a_task_are_remembered_and_shown_to_the_next(tmp_path):
    texts = iter([GOOD, OTHER, GOOD, OTHER])
    lock = threading.Lock()

    def answer(number, body):
        with lock:
            return next(texts)

    asked = {
        "prompt": "Model it.", "answer": GOOD, "format": "powl", "task_id": "t", "out": str(tmp_path), "k": 2,
        "rewarders": ["powl_footprint"],
    }  # fmt: skip
    with ChatServer(answer) as server:
        ask(server, memory="record", **asked)
        ask(server, memory="exploit", **asked)
    first, second = server.bodies[0]["messages"][0]["content"], server.bodies[-1]["messages"][0]["content"]
    assert "<structures>" not in first
    assert "- did well, 1.00 over 1: " in second
    assert "- did badly, 0.00 over 1: " in second
    task = tmp_path / "t"
    rounds = list(recorded_rounds(task / "selections.jsonl", simulated=False))
    assert [(each.reward, each.measure, each.chosen is not None) for each in rounds] == [
        (1.0, "powl_footprint", True)
    ] * 2
    assert {path.name for path in task.iterdir()} >= {"selections.jsonl", "patterns.jsonl"}
    planned = plan(memory="explore", base_url="http://there/v1", model="m", **asked)
    assert {pattern.count for pattern in planned.memory.read().patterns} == {2}
    assert "- tried, " in planned.spec.hint


def test_only_graded_structures_are_remembered_and_only_where_that_was_asked_for(tmp_path):
    def answer(number, body):
        return {0.5: 503, 0.7: "prose", 0.9: GOOD}[body["temperature"]]

    asked = {
        "prompt": "x", "answer": GOOD, "format": "powl", "task_id": "t", "out": str(tmp_path), "k": 3,
        "none_valid": "best_effort", "rewarders": ["powl_footprint"], "max_validations": 1,
    }  # fmt: skip
    with ChatServer(answer) as server:
        ask(server, **asked)
        assert {path.name for path in (tmp_path / "t").iterdir()} == {"selections.jsonl"}
        ask(server, **asked, memory="record")
    with ChatServer(lambda number, body: "prose") as server:
        ask(server, **asked, memory="record")
    planned = plan(memory="record", base_url="http://there/v1", model="m", **asked)
    assert [pattern.count for pattern in planned.memory.read().patterns] == [1]


def test_a_disk_that_refuses_costs_a_warning_and_not_the_answer(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(selecting, "record_round", full)
    selected = select(SelectRequest(dry_run=True, task_id="t", out=str(tmp_path)), {})
    assert selected.exit_code == 0
    assert "the selection was not remembered: no space left" in selected.warnings


def test_any_actor_takes_part():
    selected = select(
        SelectRequest(
            prompt="x", answer="Answer: 7", dry_run=True, actor="tests.support.runs.settings_probe:slow", k=2
        ),
        {},
    )
    assert selected.selection.best.text == "Answer: 7"
    assert selected.selection.cost.calls == 0
