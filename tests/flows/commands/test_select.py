"""``tfgrpo select``: the chosen text alone on stdout, everything else beside it, and one exit code for each end."""

import io
import json

import pytest

from tests.support.runs.chat_server import ChatServer
from tfgrpo.flows import cli


@pytest.fixture(autouse=True)
def _home(at_home, monkeypatch):
    """An empty directory, and a terminal on standard input."""
    piped(monkeypatch, "", terminal=True)


def piped(monkeypatch, text, *, terminal=False):
    class Stdin(io.TextIOWrapper):
        def isatty(self):
            return terminal

    raw = text if isinstance(text, bytes) else text.encode()
    monkeypatch.setattr("sys.stdin", Stdin(io.BytesIO(raw), encoding="utf-8"))


def on(server, *arguments):
    at_once = ["--set", "model.max_retries=0", "--set", "model.wait_s=0"]
    return cli.main(["select", "--base-url", server.url, "--model", "m", *at_once, *arguments])


def test_a_dry_run_works_without_a_key_and_is_one_object_as_json(capsys):
    assert cli.main(["select", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("Answer: ")
    assert "SIMULATED" in said.err
    assert "chosen  candidate" in said.err
    assert cli.main(["select", "--dry-run", "--json", "--k", "2"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["status"], len(value["candidates"]), value["simulated"]) == ("finished", 2, True)
    assert value["text"] == value["candidates"][value["chosen"]]["text"]


def test_the_chosen_text_is_on_stdout_and_the_table_on_stderr(capsys):
    def answer(number, body):
        return 503 if body["temperature"] == 0.5 else f"Answer: {7 if body['temperature'] == 0.9 else 8}"

    with ChatServer(answer) as server:
        assert on(server, "--prompt", "3 + 4?", "--reference", "7", "--k", "3") == 0
    said = capsys.readouterr()
    assert said.out == "Answer: 7\n"
    rows = [line.split() for line in said.err.splitlines() if line.strip()[:1] in "→012"]
    assert ["→", "2", "ok", "1.000", "+1.00", "0", "0.9"] in [row[:7] for row in rows]
    assert ["0", "transport_error", "–", "–", "0", "0.5"] in [row[:6] for row in rows]
    assert "of 3 candidates 1 transport_error (503 from " in said.err
    assert "graded by  gt" in said.err
    assert "at an unknown price" in said.err


def test_the_prompt_may_come_through_a_pipe(capsys, monkeypatch):
    piped(monkeypatch, "Which day is it?\n")
    with ChatServer(lambda number, body: "Answer: 7") as server:
        assert on(server, "--rewarder", "completion_length_cap", "--rewarder", "json_valid", "--k", "1") == 2
        piped(monkeypatch, "Which day is it?\n")
        assert on(server, "--rewarder", "json_valid", "--k", "1") == 0
    assert server.bodies[0]["messages"][-1]["content"] == "Which day is it?\n"


def test_a_binary_prompt_is_refused(capsys, monkeypatch):
    piped(monkeypatch, b"\xff")
    assert cli.main(["select"]) == 2
    assert "standard input: got no UTF-8 at byte 0" in capsys.readouterr().err


def test_without_a_choice_stdout_is_empty_and_the_exit_code_is_one_or_three_for_an_exhausted_budget(capsys):
    asked = ("--prompt", "Model it.", "--format", "powl", "--k", "2")
    with ChatServer(lambda number, body: "I cannot.") as server:
        code = on(server, *asked, "--max-validations", "1")
        said = capsys.readouterr()
        assert (code, said.out, len(server.bodies)) == (1, "", 4)
        assert "tfgrpo: none of 2 candidates valid: 2 parse_error (line 1, column 1: no process model found" in said.err
        assert on(server, *asked, "--max-calls", "2") == 3


@pytest.mark.parametrize(
    ("arguments", "source"),
    [(["--k", "99"], "--k"), (["--kk", "3"], "--kk"), (["--k"], "--k"), (["--set", "selection.kk=3"], "--set selection.kk")],
)
def test_problems_name_the_options_of_the_command(arguments, source, capsys):
    assert cli.main(["select", "--prompt", "x", "--json", *arguments]) == 2
    assert source in json.loads(capsys.readouterr().out)["problems"][0]["source"]
