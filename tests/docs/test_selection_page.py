"""What docs/selection.md says of commands, outcomes, stages and memory is what the program does."""

import inspect
import io
import json
import re
import shlex
from typing import get_args

import click
import pytest

from tests.support.runs.pages import ROOT, blocks, commands, page, table
from tfgrpo.flows import cli
from tfgrpo.flows.commands.table import COMMANDS
from tfgrpo.flows.orchestration.request import EXIT_CODES
from tfgrpo.pipelines.settings.layers import fields_by_key
from tfgrpo.pipelines.settings.tree import FormatName, MemoryMode, SelectionSettings, SelectionStage
from tfgrpo.rewarders.powl import scoring
from tfgrpo.rewarders.registry import known_scorers
from tfgrpo.stores.errors import ModelCallError, ModelReplyMalformed
from tfgrpo.tasks.models.wire import decode_reply
from tfgrpo.tasks.selection import round as selection_round

PAGE = "docs/selection.md"
TEXT = page(PAGE)


def first(heading):
    return {row[0].strip("`") for row in table(TEXT, heading)}


def test_the_commands_for_newcomers_run(monkeypatch, tmp_path, capsys):
    for folder in ("pipelines", "benchmarks"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    shown = [line for name in (PAGE, "docs/use-lessons.md") for block in blocks(name, "bash") for line in commands(block)]
    for line in shown:
        if line.startswith("tfgrpo select "):
            assert cli.main(shlex.split(line)[1:]) == 0, line
            assert capsys.readouterr().out


def test_the_other_commands_parse():
    for block in blocks(PAGE, "console"):
        for line in commands(block):
            words = shlex.split(line.removeprefix("$ ").partition(" < ")[0])
            if words[0] == "tfgrpo":
                COMMANDS["select"].make_context("select", words[2:])


def test_the_python_on_the_page_runs(capsys):
    for block in blocks(PAGE, "python"):
        exec(compile(block.text, PAGE, "exec"), {})
    assert capsys.readouterr().out.startswith("Step 1")


def test_as_many_candidates_are_right_as_the_page_says(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    shown = re.search(r"^tfgrpo (select .*--k 8) +# (\w+) of eight are right$", TEXT, re.MULTILINE)
    assert shown is not None
    assert cli.main([*shlex.split(shown[1]), "--json"]) == 0
    rewards = [candidate["reward"] for candidate in json.loads(capsys.readouterr().out)["candidates"]]
    assert (rewards.count(1.0), rewards.count(0.0)) == ({"three": 3}[shown[2]], 5)


def test_options_and_settings_on_the_page_exist():
    select = COMMANDS["select"]
    known = {name for param in select.get_params(click.Context(select)) for name in param.opts}
    elsewhere = {"--params"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) <= known | elsewhere | {"--dry-run"}
    for key in re.findall(r"`(selection\.[a-z_.]+)`", TEXT):
        assert key in fields_by_key(), key


def test_the_tables_name_everything_there_is():
    assert first("candidate | means") == set(get_args(selection_round.CandidateEnd))
    assert {int(code) for code in first("exit code | means")} == set(EXIT_CODES.values())
    assert first("`--format` | an answer is") == set(get_args(FormatName))
    assert first("stage | rewards") == set(get_args(SelectionStage))
    assert first("`--memory` | does") == set(get_args(MemoryMode))
    assert first("name | says") == {name for name in known_scorers() if name.startswith("powl_")}


def test_the_options_of_process_rewarders_are_those_on_the_page():
    classes = {name: name.title().replace("_", "") for name in known_scorers() if name.startswith("powl_")}
    takes = {name: set(inspect.signature(getattr(scoring, each)).parameters) for name, each in classes.items()}
    assert {name for name in takes if {"mode", "aggregate"} <= takes[name]} == {"powl_footprint", "powl_group_consensus"}
    assert {name for name in takes if "concurrency" in takes[name]} == {"powl_footprint"}
    assert "`powl_footprint` and `powl_group_consensus` take `mode` and `aggregate`" in TEXT


def test_an_empty_reply_of_an_endpoint_is_a_broken_call():
    assert re.search(r"\| `transport_error` \|[^|]*reply was empty", TEXT)
    with pytest.raises(ModelReplyMalformed, match="the reply is empty") as caught:
        decode_reply({"choices": [{"message": {"content": " "}, "finish_reason": "stop"}]})
    assert isinstance(caught.value, ModelCallError)


@pytest.mark.parametrize(
    ("said", "true"),
    [
        ("1 to 16, by default 4", SelectionSettings().k == 4),
        ("four attempts in all by default", SelectionSettings().max_validations == 3),
        ("have to be `ok`, by default 1", SelectionSettings().min_success == 1),
        ("`--stage auto`, the default", SelectionSettings().stage == "auto"),
    ],
)
def test_the_defaults_on_the_page_are_those_of_the_settings(said, true):
    assert said in TEXT
    assert true
