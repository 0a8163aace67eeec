"""The page about exports works: its commands are run in order, its tables name what is there, its code is executed."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.support.runs import running as kit
from tests.support.runs.pages import blocks, commands, page, table
from tfgrpo.flows import cli
from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.lines import append_groups
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.exports.choosing import TARGETS
from tfgrpo.tasks.exports.lessons import LESSON_FORMS

PAGE = "docs/exports.md"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exports") / "out"
    summary = kit.run(out, run_id="night", sample_size=24, batch_size=12, seed=6)
    assert summary.details["decision"]["decision"] == "in force"
    return out


@pytest.fixture
def desk(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("TFGRPO_", "FEATURE_TFGRPO", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TFGRPO_OUT", str(out))
    monkeypatch.chdir(tmp_path)
    append_groups(Path("groups.jsonl"), ExperienceBatch.from_lists(["3 + 4?"], [["7", "8"]], [[1.0, 0.0]]))
    return tmp_path


def test_every_command_of_the_page_runs_in_order(desk, out, capsys):
    lines = [line for block in blocks(PAGE, "bash") for line in commands(block)]
    assert len(lines) >= 15
    for line in lines:
        command, _, target = line.partition(">")
        words = shlex.split(command)
        assert words[0] == "tfgrpo"
        assert cli.main(words[1:]) == 0, line
        said = capsys.readouterr().out
        if target:
            name = target.strip("> ")
            Path(name).write_text(said)
    written = {path.name for path in TaskPaths.of(out, "tfgrpo-learning").export("").iterdir()}
    assert {"night-trl-grpo.jsonl", "night-trl-grpo.jsonl.report.json", "night-groups.jsonl"} <= written
    assert Path("train.parquet").is_file()


def columns(row: list[str]) -> list[str]:
    return re.findall(r"`(\w+)`", row[2].partition(":")[0] if row[0] == "`trl-grpo`" else row[2])


def test_the_columns_on_the_page_are_those_that_are_written(desk):
    rows = table(page(PAGE), "`--to` | one row per")
    assert {row[0].strip("`") for row in rows} == set(TARGETS)
    for row in rows:
        target = row[0].strip("`")
        if target == "jsonl":
            continue
        assert cli.main(["export", "night", "--to", target, "--file", "x.jsonl"]) == 0
        written = set(json.loads(Path("x.jsonl").read_text().splitlines()[0]))
        named = set(re.findall(r"`(\w+)`", row[2]))
        assert named - {"input_key", "label_key"} <= written, target


def test_the_forms_of_lessons_on_the_page_are_those_there_are():
    rows = table(page(PAGE), "`--to` | is")
    assert [row[0].strip("`") for row in rows] == list(LESSON_FORMS)


def test_the_reward_function_of_the_page_replays_what_was_recorded(desk):
    (shown,) = blocks(PAGE, "python")
    names: dict = {}
    exec(shown.text, names)
    assert cli.main(["export", "night", "--to", "trl-grpo", "--file", "x.jsonl"]) == 0
    row = json.loads(Path("x.jsonl").read_text().splitlines()[0])
    known = row["recorded_completions"]
    answers = [*known, [{"role": "assistant", "content": "never said"}]]
    again = {key: [row[key]] * len(answers) for key in ("recorded_completions", "recorded_rewards", "answer")}
    rewards = names["recorded_reward"](prompts=[row["prompt"]] * len(answers), completions=answers, **again)
    assert rewards == [*row["recorded_rewards"], None]
