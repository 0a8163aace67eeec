"""What a selection takes from its task, and what is kept there."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter

import pytest

from tests.support.records.promotions import ids_in_force
from tests.support.runs.chat_server import ChatServer
from tests.support.runs.running import ROOT
from tests.support.runs.selections import GOOD, ITEMS, ask, plan
from tfgrpo.flows import selection as selecting
from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.run.index import lock_run
from tfgrpo.flows.selection import select
from tfgrpo.stores.errors import ConfigError, StoreError
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.tasks.selection.history import recorded_rounds

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
    assert [(each.reward, each.measure, each.chosen is not None) for each in rounds] == [(1.0, "powl_footprint", True)] * 2
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

    monkeypatch.setattr(selecting.history, "record_round", full)
    selected = select(SelectRequest(dry_run=True, task_id="t", out=str(tmp_path)), {})
    assert selected.exit_code == 0
    assert "the selection was not remembered: no space left" in selected.warnings


# A selection of a task that was killed, or stopped by its budget.


def started(out, server, *more):
    asked = ["--prompt", "3 + 4?", "--reference", "7", "--k", "4", "--task-id", "t", "--out", str(out)]
    asked += ["--base-url", server.url, "--model", "m", "--set", "tfgrpo.concurrency=2", *more]
    command = [sys.executable, "-m", "tfgrpo", "select", "--json", *asked]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_the_same_command_goes_on_with_a_killed_selection_and_pays_for_no_answer_again(tmp_path):
    stuck, killed = threading.Event(), threading.Event()

    def answer(number, body):
        if number == 3:
            stuck.set()
        if number < 4 and body["temperature"] >= 0.9:  # under way when the process is killed, whichever came first
            killed.wait(60)
        return f"Answer: {body['temperature'] * 10:g}"

    with ChatServer(answer) as server:
        process = started(tmp_path, server, "--max-calls", "6")
        assert stuck.wait(60)
        process.kill()
        process.communicate()
        killed.set()
        assert len(server.bodies) == 4
        process = started(tmp_path, server, "--max-calls", "6")
        selected = json.loads(process.communicate(timeout=60)[0])
    asked = Counter(body["temperature"] for body in server.bodies)
    assert asked == {0.5: 1, 0.7: 1, 0.9: 2, 1.0: 2}
    sent = zip(server.headers, server.bodies, strict=True)
    keys = {(headers["idempotency-key"], body["temperature"]) for headers, body in sent}
    assert len(keys) == len({key for key, _ in keys}) == 4
    assert (selected["text"], selected["cost"]["calls"]) == ("Answer: 7", 6)
    assert any("2 answered calls are not asked again" in warning for warning in selected["warnings"])
    assert {path.name for path in (tmp_path / "t").iterdir()} == {"selections.jsonl"}
    rounds = list(recorded_rounds(tmp_path / "t" / "selections.jsonl", simulated=False))
    assert [(each.selection_id, each.calls) for each in rounds] == [(selected["selection_id"], 6)]


@pytest.fixture
def stopped(tmp_path):
    """Yield a server, a request that its budget stopped after three of four calls, and the directory of its task."""
    asked = {"prompt": "3 + 4?", "answer": "7", "task_id": "t", "out": str(tmp_path), "k": 4, "rewarders": ["gt"]}
    with ChatServer(lambda number, body: 503 if number < 2 else "Answer: 7") as server:
        selected = ask(server, **asked, min_success=3, max_calls=4)
        assert selected.status == "failed"
        yield server, {**asked, "min_success": 3}, tmp_path / "t"


def test_a_cap_holds_over_both_parts_of_a_selection(stopped):
    server, asked, task = stopped
    assert ask(server, **asked, max_calls=4).status == "stopped"
    assert len(server.bodies) == 4
    selected = ask(server, **asked, max_calls=6)
    assert (selected.status, selected.selection.cost.calls, len(server.bodies)) == ("finished", 6, 6)
    assert [path.name for path in task.iterdir()] == ["selections.jsonl"]


def test_after_its_end_the_same_request_is_a_new_selection_and_another_request_always_is(stopped):
    server, asked, task = stopped
    assert ask(server, **{**asked, "k": 3}).selection.cost.calls == 3
    assert ask(server, **{**asked, "prompt": "7?"}).selection.cost.calls == 4
    assert ask(server, **asked).selection.cost.calls == 6
    assert ask(server, **asked).selection.cost.calls == 4
    assert len(list(recorded_rounds(task / "selections.jsonl", simulated=False))) == 4


def test_a_selection_whose_judge_was_down_goes_on_with_its_grades(tmp_path):
    asked = {"prompt": "Which?", "task_id": "t", "out": str(tmp_path), "k": 2, "rewarders": ["judge"]}
    verdict = json.dumps({"reason": "so", "score": 0.5})
    with ChatServer(lambda number, body: "7" if number < 2 else 503 if number == 2 else verdict) as server:
        assert ask(server, **asked).status == "failed"
        again = ask(server, **asked)
    assert (again.status, again.selection.mean_reward, len(server.bodies)) == ("finished", 0.5, 4)


def test_a_selection_that_another_process_has_open_is_left_to_it(stopped):
    server, asked, task = stopped
    (directory,) = task.iterdir()
    lock = lock_run(RunPaths(directory))
    try:
        assert ask(server, **asked).selection.cost.calls == 4
    finally:
        lock.release()
    assert list(task.glob("select-*")) == [directory]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("journal.jsonl", b"", "lacks 2 answered calls of 2, and they would be paid again"),
        ("journal.jsonl", b"\0", "lacks 2 answered calls of 2"),
        ("ledger.jsonl", b"\0", "is damaged"),
        ("ledger.jsonl", b"", "what it has spent is unknown"),
    ],
)
def test_a_selection_without_its_journal_or_ledger_is_not_paid_for_again(stopped, file, content, said):
    server, asked, task = stopped
    (path,) = task.glob(f"*/{file}")
    path.write_bytes(content * 4_000)
    with pytest.raises(ConfigError, match=said) as refused:
        ask(server, **asked, max_calls=4)
    assert "restore the file" in str(refused.value)
    assert len(server.bodies) == 4
