"""Any finished run leaves for a trainer with one command, and says what it left behind and overwrites nothing of others."""

import json
from pathlib import Path

import pytest

from tests.support.records.line_files import seal
from tests.support.runs import running as kit
from tfgrpo.flows import cli
from tfgrpo.stores.batch.lines import read_groups
from tfgrpo.tasks.exports.choosing import TARGETS

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def ask(capsys):
    def ask(*arguments, code=0):
        assert cli.main(["export", *map(str, arguments)]) == code
        return capsys.readouterr()

    return ask


@pytest.fixture
def export(ask, small_run, tmp_path):
    def export(target, *more, code=0):
        file = tmp_path / f"{target}.jsonl"
        said = ask("small", "--out", small_run.out, "--to", target, "--file", file, "--json", *more, code=code)
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return rows, json.loads(said.out)

    return export


def rollouts(run):
    return kit.lines(run.paths.rollouts)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.untraced
def test_every_form_holds_what_the_run_recorded(target, export, small_run):
    rows, report = export(target)
    assert rows
    assert report["target"] == target
    assert report["simulated"] is True
    groups = kit.lines(small_run.paths.groups)
    assert report["groups"]["read"] == sum(len(row.get("halves", [row])) for row in groups) > len(groups)
    assert report["rollouts"]["read"] == len(rollouts(small_run))
    written, left = report["groups"]["written"], sum(report["left_out"]["groups"].values())
    assert written + left == report["groups"]["read"]
    assert json.loads(Path(report["report"]).read_text())["rows"] == len(rows)


@pytest.mark.untraced
def test_the_prompt_is_what_the_endpoint_was_sent_with_the_lessons_of_its_batch(tmp_path, ask):
    with kit.Server() as server:
        summary = kit.run(tmp_path / "out", run_id="served", **kit.on_server(server))
        sent = {json.dumps(json.loads(body)["messages"]) for body in server.bodies}
    assert summary.status == "finished", summary.message
    file = tmp_path / "x.jsonl"
    ask("served", "--out", tmp_path / "out", "--to", "trl-grpo", "--phase", "all", "--degenerate", "flag", "--file", file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows
    assert all(json.dumps(row["prompt"]) in sent for row in rows)
    assert len({row["provenance"]["library_id"] for row in rows}) > 1
    assert any("<lessons>" in row["prompt"][0]["content"] for row in rows)


def test_bare_prompts_hold_neither_pack_nor_lessons(export):
    rows, _ = export("trl-sft", "--prompt", "bare")
    assert all([turn["role"] for turn in row["prompt"]] == ["user"] for row in rows)


def test_the_canonical_form_keeps_flat_groups_and_can_be_exported_again(export, ask, tmp_path):
    _, report = export("jsonl", "--phase", "all")
    groups = list(read_groups(tmp_path / "jsonl.jsonl"))
    assert len(groups) == report["groups"]["read"]
    direct, _ = export("trl-kto")
    ask(tmp_path / "jsonl.jsonl", "--to", "trl-kto", "--file", tmp_path / "again.jsonl")
    assert [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()] == direct


def test_the_default_path_of_an_export_is_in_the_task(own_run, ask):
    said = ask("small", "--out", own_run.out, "--to", "trl-sft")
    file = own_run.task.export("small-trl-sft.jsonl")
    assert said.out.strip() == str(file)
    assert file.with_name("small-trl-sft.jsonl.report.json").is_file()
    assert "SIMULATED" in said.err
    assert "held out for the sweep" in said.err
    assert ask("small", "--out", own_run.out, "--to", "jsonl").out.strip().endswith("small-groups.jsonl")
    assert "lines from" in ask("small", "--out", own_run.out, "--to", "jsonl").err


@pytest.mark.untraced
def test_a_run_with_tools_leaves_with_its_conversations_and_its_tools(tmp_path, ask):
    asked = {**kit.BOOKS, "run_id": "tools", "sample_size": 6, "batch_size": 3, "task_id": "books"}
    assert kit.run(tmp_path / "out", **asked).status == "finished"
    ask("tools", "--out", tmp_path / "out", "--to", "trl-sft", "--degenerate", "flag", "--file", tmp_path / "x.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert rows
    for row in rows:
        assert {turn["role"] for turn in row["completion"]} == {"assistant", "tool"}
        assert row["completion"][-1]["content"].splitlines()[-1].startswith("Answer: ")
        assert {tool["function"]["name"] for tool in json.loads(row["tools"])} >= {"add", "ledger_entries"}


def test_of_a_run_that_stopped_the_accepted_batches_leave(own_run, ask, tmp_path):
    manifest = json.loads(own_run.paths.manifest.read_text())
    own_run.paths.manifest.write_text(json.dumps({**manifest, "status": "stopped"}))
    groups = own_run.paths.groups.read_text().splitlines()
    own_run.paths.groups.write_text("\n".join(groups[:6]) + "\n")
    seal(own_run.paths.groups)
    said = json.loads(ask("small", "--out", own_run.out, "--to", "jsonl", "--json").out)
    assert said["groups"]["written"] == 6
    assert said["left_out"]["groups"]["of a batch that was never accepted"] == len(groups) - 6
    assert "the run is stopped: only its accepted batches are here" in said["notes"]


def test_an_empty_export_writes_no_file_and_exits_with_one(export, tmp_path, ask, small_run):
    rows, report = export("trl-sft", "--min-reward", "5", code=1)
    assert rows == []
    assert report["file"] is None
    assert report["left_out"]["groups"]["no answer reaches the least reward"] > 0
    said = ask("small", "--out", small_run.out, "--to", "trl-sft", "--min-reward", "5", "--file", tmp_path / "y", code=1)
    assert "none of" in said.err
    assert "report is" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody", "--to", "verl"), "a run of"),
        (("../up", "--to", "verl"), "RUN"),
        (("small", "--to", "nothing"), "trl-grpo"),
        (("small",), "--to"),
        (("small", "--to", "trl-dpo", "--pairs", "0"), "--pairs"),
        (("small", "--to", "trl-dpo", "--file", "x.parquet"), "Parquet only with --to verl"),
        (("missing.jsonl", "--to", "verl"), "no such file"),
        (("groups.parquet", "--to", "verl"), "a .jsonl file of groups"),
    ],
)
def test_what_cannot_be_exported_is_refused(arguments, says, ask, small_run):
    assert says in ask(*arguments, "--out", small_run.out, code=2).err


@pytest.mark.parametrize(
    ("option", "value", "takers"),
    [("--pairs", "1", {"trl-dpo"}), ("--min-gap", "0.0", {"trl-dpo"}), ("--min-reward", "0.5", {"trl-kto", "trl-sft"})],
)
def test_an_option_that_the_target_does_not_take_is_refused(option, value, takers, ask, small_run, tmp_path):
    file = tmp_path / "x.jsonl"
    for target in sorted(set(TARGETS) - takers):
        said = ask("small", "--out", small_run.out, "--to", target, option, value, "--file", file, code=2).err
        assert f"{option}: got it with {target}; accepted: {' or '.join(sorted(takers))} only" in said
    assert list(tmp_path.glob("x.*")) == []
    for target in takers:
        ask("small", "--out", small_run.out, "--to", target, option, value, "--file", file)


def test_the_file_that_is_read_is_never_the_one_that_is_written(ask, tmp_path):
    file = tmp_path / "groups.jsonl"
    file.write_text("kept\n")
    assert "a file other than the one that is read" in ask(file, "--to", "jsonl", "--file", file, code=2).err
    assert file.read_text() == "kept\n"


@pytest.fixture
def write(own_run, capsys):
    """Export to a file; what was said on stderr."""

    def write(file, code=0):
        assert cli.main(["export", "small", "--out", str(own_run.out), "--to", "jsonl", "--file", str(file)]) == code
        return capsys.readouterr().err

    return write


def everything(run):
    return {path: path.read_bytes() for path in run.out.rglob("*") if path.is_file()}


def test_the_records_of_a_task_are_never_overwritten_and_links_protect_none(own_run, write, tmp_path):
    (tmp_path / "link").symlink_to(own_run.paths.root)
    own = ("runs/small/rollouts.jsonl", "experiences.jsonl", "promotions.jsonl", "selections.jsonl", "state.json")
    before = everything(own_run)
    for file in (*(own_run.task.root / name for name in own), tmp_path / "link" / "rollouts.jsonl"):
        said = write(file, code=2)
        assert said.startswith("tfgrpo: --file: got ")
        assert "which belongs to the records of a task; accepted: a file of your own" in said
    assert everything(own_run) == before


def test_a_file_of_another_program_is_never_overwritten(write, tmp_path):
    for text in ("notes", '{"kind": "note"}\n', "", "[1]\n"):
        (tmp_path / "mine.jsonl").write_text(text)
        assert "which is there already; accepted: a new file, or one" in write(tmp_path / "mine.jsonl", code=2)
        assert (tmp_path / "mine.jsonl").read_text() == text


def test_an_earlier_export_is_replaced(write, tmp_path):
    for _ in range(2):
        write(tmp_path / "deep" / "x.jsonl")
    assert kit.lines(tmp_path / "deep" / "x.jsonl")[0]["kind"] == "group"


def test_an_unwritable_path_is_refused_before_reading(write, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "a.jsonl").mkdir()
    assert "a directory; accepted: a file of your own that can be written" in write(tmp_path / "a.jsonl", code=2)
    for place in (tmp_path / "file" / "x.jsonl", "/proc/nowhere/x.jsonl", tmp_path / f"{'n' * 300}.jsonl"):
        assert "--file: got " in write(place, code=2)
