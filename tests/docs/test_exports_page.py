"""What docs/exports.md and docs/experience-batches.md say is what the program does, and their code runs."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import get_args

import httpx
import pytest

from tests.support.agents.endpoint import Endpoint
from tests.support.runs import running as kit
from tests.support.runs.pages import blocks, commands, page, table
from tfgrpo.flows import cli
from tfgrpo.rewarders.advantages.batch import ESTIMATORS, PRESET_ALIASES, batch_advantages
from tfgrpo.stores.batch.batch import ExperienceBatch, RaggedPolicy
from tfgrpo.stores.batch.lines import append_groups
from tfgrpo.stores.batch.shapes import LogProbs
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.collector import ExperienceCollector
from tfgrpo.tasks.exports.choosing import TARGETS
from tfgrpo.tasks.exports.lessons import LESSON_FORMS

PAGE = "docs/exports.md"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "out"
    summary = kit.run(out, run_id="night", **kit.LEARNING)
    assert summary.details["decision"]["decision"] == "in force"
    return out


@pytest.fixture
def desk(out, tmp_path, monkeypatch):
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


BATCHES = "docs/experience-batches.md"


def test_the_code_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(block.text for block in blocks(BATCHES, "python"))
    exec(compile(code, BATCHES, "exec"), {"__name__": "page"})
    assert (tmp_path / "groups.parquet").exists()


async def test_the_endpoint_of_the_page_answers_a_group_with_one_request():
    names: dict = {"LogProbs": LogProbs}
    (shown,) = (block.text for block in blocks(BATCHES, "python") if "class ChatPolicy" in block.text)
    exec(compile(shown, BATCHES, "exec"), names)
    choice = {"message": {"content": "42"}, "logprobs": {"content": [{"token": "42", "logprob": -0.5}]}}
    async with Endpoint() as endpoint:
        endpoint.answer = lambda request, raw: {"choices": [choice] * json.loads(raw)["n"]}
        policy = names["ChatPolicy"](endpoint.url, "m", "sk-secret-123456")
        async with policy.http:
            batch = (await ExperienceCollector(policy, lambda state, text: 1.0, 8).collect(["6 * 7?"])).batch
    (asked,) = endpoint.asked
    assert httpx.Headers(asked.headers)["authorization"] == "Bearer sk-secret-123456"
    assert [(each.completion, each.logprob.total, each.logprob.complete) for each in batch.rollouts()] == [
        ("42", -0.5, True)
    ] * 8


def test_every_estimator_is_in_the_table_with_its_names_formula_and_needs():
    shown = {row[0].strip("`"): row[1:] for row in table(page(BATCHES), "estimator")}
    assert list(shown) == list(ESTIMATORS)
    for name, (aliases, formula, needs, alone) in shown.items():
        estimator = ESTIMATORS[name]
        assert [alias.strip("`") for alias in aliases.split(", ") if alias != "–"] == [
            alias for alias, target in PRESET_ALIASES.items() if target == name
        ]
        assert formula == estimator.formula
        assert ("token lengths" in needs) == ("token_lengths" in estimator.needs)
        assert ("greedy" in needs) == ("greedy" in estimator.needs)
        assert ("the batch" in needs) == ("batch" in estimator.needs)
        assert alone == alone_in_the_batch(name), name


def alone_in_the_batch(name):
    """What a reward gets that is alone in its group, beside another group, as the column says it."""
    groups, more = [[0.75], [1.0, 0.0, 0.5]], {"token_lengths": [[3], [2, 4, 5]], "greedy": [0.5, 0.5]}
    if ESTIMATORS[name].singleton == "refuse":
        with pytest.raises(ValueError, match="has a single reward"):
            batch_advantages(groups, estimator=name, **more)
        return "refuse"
    value = batch_advantages(groups, estimator=name, **more)[0, 0]
    known = {0.0: "zero", 0.75: "r", 0.75 / (1 + 1e-6): "r / (1 + 1e-6)"}
    return known.get(value, "by the formula")


def test_every_policy_for_ragged_groups_is_in_the_table():
    rows = table(page(BATCHES), "policy")
    assert [row[0].strip("`") for row in rows] == list(get_args(RaggedPolicy))
