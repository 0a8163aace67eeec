"""An export writes over nothing but what it wrote itself."""

from __future__ import annotations

import pytest

from tests.support.runs import running as kit
from tfgrpo.flows import cli

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def write(own_run, capsys):
    """Export to a file; what was said on stderr."""

    def write(file, code=0):
        assert cli.main(["export", "small", "--out", str(own_run.out), "--to", "jsonl", "--file", str(file)]) == code
        return capsys.readouterr().err

    return write


def everything(run):
    return {path: path.read_bytes() for path in run.out.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name",
    [
        "runs/small/rollouts.jsonl", "experiences.jsonl", "promotions.jsonl", "selections.jsonl", "state.json",
    ],
)  # fmt: skip
def test_the_records_of_a_task_are_never_overwritten(name, own_run, write):
    before = everything(own_run)
    said = write(own_run.task.root / name, code=2)
    assert said.startswith("tfgrpo: --file: got ")
    assert "which belongs to the records of a task; accepted: a file of your own" in said
    assert everything(own_run) == before


def test_records_are_protected_through_links_too(own_run, write, tmp_path):
    (tmp_path / "link").symlink_to(own_run.paths.root)
    assert "records of a task" in write(tmp_path / "link" / "rollouts.jsonl", code=2)


@pytest.mark.parametrize("text", ["notes", '{"kind": "note"}\n', "", "[1]\n"])
def test_a_file_of_another_program_is_never_overwritten(text, write, tmp_path):
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
