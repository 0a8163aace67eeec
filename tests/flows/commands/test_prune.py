"""Old finished runs give their space back; what credit, decisions, blame, verify and resume need stays."""

import json
import shutil

import pytest
from filelock import FileLock

from tests.support.records.line_files import sign
from tests.support.runs import running as kit
from tfgrpo.flows import cli
from tfgrpo.flows.commands import runs as command
from tfgrpo.flows.run import execution
from tfgrpo.flows.run.prepare import prepare

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def task(own_run):
    """The small run, and three newer ones that are like it."""
    for day, name in enumerate(("second", "third", "fourth"), start=1):
        copied(own_run, name, started_at=f"2999-01-0{day}T00:00:00+00:00")
    return own_run


@pytest.fixture
def ask(capsys, own_run):
    def ask(*arguments, code=0):
        assert cli.main([*arguments, "--out", str(own_run.out)]) == code
        return capsys.readouterr()

    return ask


def copied(own_run, name, **changes):
    root = own_run.task.run(name).root
    shutil.copytree(own_run.paths.root, root)
    sign(root / "manifest.json", run_id=name, **changes)
    return root


def files(root):
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and path.name != ".lock"}


def pruned(ask, *arguments, keep=1, code=0):
    return json.loads(ask("prune", "--keep", str(keep), "--json", *arguments, code=code).out)


def test_a_dry_run_lists_what_pruning_frees_to_the_byte_and_changes_nothing(ask, task):
    before = files(task.out)
    listed = pruned(ask, "--dry-run", keep=2)
    assert files(task.out) == before
    assert [each["run_id"] for each in listed["pruned"]] == ["second", "small"]
    assert "second" in ask("prune", "--keep", "2", "--dry-run").out
    done = pruned(ask, keep=2)
    assert (done["pruned"], done["bytes"], done["left"]) == (listed["pruned"], listed["bytes"], [])
    after = files(task.out)
    stamps = sum(len(after[path]) - len(before[path]) for path in after if path.name == "manifest.json")
    assert sum(map(len, before.values())) - sum(map(len, after.values())) + stamps == done["bytes"]
    assert {path: data for path, data in after.items() if {"third", "fourth"} & {*path.parts}} == {
        path: data for path, data in before.items() if {"third", "fourth"} & {*path.parts}
    }
    again = pruned(ask, keep=2)
    assert (again["pruned"], again["bytes"]) == ([], 0)
    assert files(task.out) == after


def test_what_looks_at_lessons_decisions_and_nights_says_the_same_after_pruning(ask, task):
    lesson = json.loads(ask("experiences", "list", "--json").out)["experiences"][0]["experience_id"]
    looks = (
        ("experiences", "blame", lesson), ("experiences", "show", lesson), ("verify", kit.TASK),
        ("experiences", "review"), ("history",), ("runs",), ("report", "latest"), ("compare", "third", "fourth"),
    )  # fmt: skip
    before = [json.loads(ask(*look, "--json").out) for look in looks]
    assert before[0]["rollouts"]
    assert before[2]["ok"], before[2]
    freed = pruned(ask, keep=2)["bytes"]
    assert [json.loads(ask(*look, "--json").out) for look in looks] == before
    whole = sum(map(len, files(task.task.run("third").root).values()))
    assert len(kit.lines(task.paths.ledger)) == 1
    assert freed > 2 * 0.7 * whole
    ids = [row["item_id"] for row in kit.lines(task.task.run("third").items)]
    assert [row["item_id"] for row in kit.lines(task.paths.items)] == ids, "a sealed item that was seen stays seen"


def test_the_next_night_learns_from_pruned_ones_what_it_learns_from_whole_ones(tmp_path, own_run):
    copied(own_run, "newer", started_at="2999-01-01T00:00:00+00:00")
    whole = tmp_path / "whole"
    shutil.copytree(own_run.out, whole)
    assert cli.main(["prune", "--keep", "1", "--out", str(own_run.out)]) == 0
    for out in (own_run.out, whole):
        assert kit.run(out, run_id="next", seed=6, **kit.SMALL).status == "finished"
    assert kit.decided(own_run.out) == kit.decided(whole)
    assert kit.store(own_run.out) == kit.store(whole)


NEEDING = (
    "show small", "report small", "export small --to jsonl", "compare small fourth", "compare second",
    "run --resume small", "run --replay small",
)  # fmt: skip


def test_a_command_that_needs_what_was_pruned_says_when_it_was(ask, task):
    pruned(ask, keep=3)
    before = files(task.out)
    for wanted in NEEDING:
        assert "got small, pruned on 20" in " ".join(ask(*wanted.split(), code=2).err.split()), wanted
    assert files(task.out) == before


def test_a_run_that_can_be_resumed_is_not_touched(ask, task):
    states = {"running": "unfinished", "stopped": "stopped", "failed": "failed"}
    roots = [copied(task, f"old-{each}", status=each, started_at="1999-01-01T00:00:00+00:00") for each in states]
    states["closing"] = "unfinished"
    roots.append(copied(task, "old-closing", files={}, started_at="1999-01-01T00:00:00+00:00"))
    before = [files(root) for root in roots]
    done = pruned(ask)
    why = {each["run_id"]: each["why"] for each in done["left"]}
    assert why == {f"old-{status}": f"{state}, and can be resumed" for status, state in states.items()}
    assert [files(root) for root in roots] == before
    assert not {*why} & {each["run_id"] for each in done["pruned"]}


def test_a_run_that_a_process_has_open_is_left(ask, task):
    before = files(task.paths.root)
    with FileLock(task.paths.root / ".lock"):
        (left,) = pruned(ask)["left"]
    assert (left["run_id"], left["why"]) == ("small", "a process has it open")
    assert files(task.paths.root) == before


def test_a_run_that_is_pruned_while_it_is_asked_to_go_on_is_refused_before_anything_is_written(ask, task, monkeypatch):
    asked = kit.request(task.out, resume="small")
    prepared = prepare(asked, {})

    def late(run, lock=execution.lock_run):
        pruned(ask)
        return lock(run)

    monkeypatch.setattr(execution, "lock_run", late)
    refused = kit.execute(prepared, {}, kit.Observers(), kit.in_process, clock=kit.utc_now)
    assert refused.status == "refused"
    assert "pruned on 20" in refused.message
    assert not task.paths.journal.exists()


def test_a_killed_pruning_is_completed_by_the_next(ask, task, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    wanted = pruned(ask, "--dry-run", keep=3)["bytes"]
    monkeypatch.setattr(command, "replace_text", killed)
    assert cli.main(["prune", "--keep", "3", "--out", str(task.out)]) != 0
    monkeypatch.undo()
    assert "pruned on 20" in ask("show", "small", code=2).err
    assert 0 < pruned(ask, keep=3)["bytes"] <= wanted
    assert "verify" in ask("verify", "small").out
    assert pruned(ask, keep=3)["bytes"] == 0


def test_damage_is_left_as_it_is_and_named(ask, task):
    with task.paths.rollouts.open("r+b") as file:
        file.write(b"{damage")
    before = files(task.paths.root)
    (left,) = pruned(ask, keep=3, code=1)["left"]
    assert "rollouts.jsonl" in left["why"]
    assert files(task.paths.root) == before
    with task.task.experiences.open("ab") as file:
        file.write(b"{damage\n")
    assert "nothing is pruned" in ask("prune", "--keep", "1", code=1).err


def test_attempts_that_were_edited_are_not_pruned_out_of_sight(ask, task):
    text = task.paths.groups.read_text()
    task.paths.groups.write_text(text.replace("mixed", "flat", 1))
    before = files(task.paths.root)
    (left,) = pruned(ask, keep=3, code=1)["left"]
    assert "groups.jsonl: was changed since its run ended" in left["why"]
    assert files(task.paths.root) == before
