"""``tfgrpo powl`` in pipes: one answer a model, one message a mistake, and exit codes that say which it was."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from tfgrpo.flows import cli
from tfgrpo.rewarders.powl import footprint, footprint_to_value, parse_json, parse_text, structural_key, to_json

MODEL = "SEQUENCE(a, PARALLEL(b, c), d)"


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.fixture
def ask(capsys, monkeypatch):
    """Runs the command on some input; answers with what stands on stdout and stderr."""

    def ask(*arguments, given=MODEL, code=0, stdin=io.TextIOWrapper):
        raw = given if isinstance(given, bytes) else given.encode()
        monkeypatch.setattr(sys, "stdin", stdin(io.BytesIO(raw), encoding="ascii"))
        assert cli.main(["powl", *arguments]) == code
        return capsys.readouterr()

    return ask


def test_a_model_is_read_from_text_and_written_in_one_form(ask):
    said = ask("parse")
    assert said.out == "SEQUENCE(ACTIVITY(a), PARALLEL(ACTIVITY(b), ACTIVITY(c)), ACTIVITY(d))\n"
    assert said.err == ""


@pytest.mark.parametrize(
    "given",
    [
        MODEL,
        to_json(parse_text(MODEL)),
        f"\ufeff{to_json(parse_text(MODEL))}",
        f"<think>XOR(a, b)</think>\nHere you are:\n```json\n{to_json(parse_text(MODEL))}\n```\nGood luck.",
        f"Here you are:\n```\n{MODEL}\n```",
    ],
)
def test_text_and_json_are_distinguished(ask, given):
    answer = json.loads(ask("parse", "--json", given=given).out)
    assert parse_json(answer["model"]) == parse_text(answer["text"]) == parse_text(MODEL)
    assert answer["activities"] == ["a", "b", "c", "d"]
    assert answer["key"] == structural_key(parse_text(MODEL))


def test_the_format_can_be_set(ask):
    assert "this is no JSON" in ask("parse", "--format", "json", code=2).err
    assert "read it with parse_json" in ask("parse", "--format", "text", given=to_json(parse_text(MODEL)), code=2).err


def test_other_names_of_operators_are_taken_on_request(ask):
    assert "write PARALLEL" in ask("parse", given="SEQUENCE(a, AND(b, c))", code=2).err
    assert ask("parse", "--aliases", given="seq(a, AND(b, c), d)").out == ask("parse").out


def test_a_syntax_error_is_one_message_with_its_location(ask):
    said = ask("parse", given="SEQUENCE(a,\n  XOR(b, (c)))", code=2)
    assert said.out == ""
    assert said.err.splitlines() == [
        "tfgrpo: standard input: line 2, column 10: a parenthesis without the name of an operator before it",
        "  XOR(b, (c)))",
        "         ^",
    ]


def test_a_syntax_error_is_one_object_with_its_location(ask):
    wrong = '{"type": "XOR", "children": [{"type": "ACTIVITY"}]}'
    assert json.loads(ask("parse", "--json", given=wrong, code=2).out) == {
        "status": "refused",
        "message": "expected text that is not blank, found nothing",
        "pointer": "/children/0/label",
    }
    answer = json.loads(ask("footprint", "--json", given="XOR(a,,b)", code=2).out)
    assert (answer["row"], answer["column"]) == (1, 7)


@pytest.mark.parametrize(("given", "reason"), [(b"", "there is no text"), (b"XOR(a, \xff)", "byte 7 is no UTF-8")])
def test_no_text_is_refused(ask, given, reason):
    assert reason in ask("validate", given=given, code=2).err


def test_output_lines_match_input_lines(ask):
    said = ask("score", "--lines", "--consensus", given=f"\n{MODEL}\n  \n{MODEL}\n\n")
    assert said.out.splitlines() == ["", "1.0000", "", "1.0000", ""]
    assert said.err == ""
    values = ask("parse", "--lines", "--json", given=f"\n{MODEL}\n\n").out.splitlines()
    assert [json.loads(value)["line"] for value in values] == [2]


def test_a_missing_comma_in_a_label_is_a_warning(ask):
    said = ask("parse", "--lines", given="XOR(a, b)\nSEQUENCE(check credit, ship)\n")
    assert said.out.splitlines()[1] == "SEQUENCE(ACTIVITY(check), ACTIVITY(credit), ACTIVITY(ship))"
    assert "warning: line 2: column 16: no comma before this" in said.err


def test_lines_are_processed_one_by_one_and_errors_have_line_numbers(ask):
    given = f"{MODEL}\nI'm sorry, I cannot.\n\n{to_json(parse_text('XOR(a, b)'))}\nXOR(a,,b)\n"
    said = ask("parse", "--lines", given=given, code=2)
    assert [bool(line) for line in said.out.splitlines()] == [True, False, False, True, False]
    assert "tfgrpo: line 2: column 1: no process model found" in said.err
    assert "tfgrpo: line 5: column 7: two commas" in said.err
    answers = [json.loads(line) for line in ask("parse", "--lines", "--json", given=given, code=2).out.splitlines()]
    assert [(answer["line"], answer.get("status")) for answer in answers] == [
        (1, None),
        (2, "refused"),
        (4, None),
        (5, "refused"),
    ]
    assert ask("parse", "--lines", given=f"{MODEL}\n{MODEL}").out.count("\n") == 2


def test_an_empty_line_ends_each_of_several_tables(ask):
    said = ask("footprint", "--lines", given="SEQUENCE(a, b)\nnonsense\nXOR(a, b)\n", code=2)
    parts = said.out.removesuffix("\n\n").split("\n\n")
    assert len(parts) == 2
    assert all(part.startswith("   a") for part in parts)
    assert ask("footprint", given="XOR(a, b)").out == f"{parts[1]}\n"


def test_a_model_that_is_not_valid_has_exit_code_two(ask):
    assert ask("validate").out == "valid\n"
    assert "single child" in ask("validate", given="XOR(a)").out
    said = ask("validate", "--allow", "a", "--allow", "b", "--json", given="XOR(a, c)", code=2)
    answer = json.loads(said.out)
    assert answer["valid"] is False
    assert [(each["code"], each["severity"], each["pointer"]) for each in answer["findings"]] == [
        ("label-not-allowed", "error", "/children/1")
    ]
    lines = ask("validate", "--lines", given="SEQUENCE(a, a)\nSILENT()", code=2).out.splitlines()
    assert len(lines) == 2
    assert lines[0].count("warning") == 2


@pytest.mark.parametrize("mode", ["block", "direct", "order"])
def test_a_footprint_is_printed_in_each_mode(ask, mode):
    answer = json.loads(ask("footprint", "--mode", mode, "--json").out)
    assert answer == footprint_to_value(footprint(parse_text(MODEL), mode))


def test_a_footprint_is_shown_as_the_table_of_textbooks(ask):
    assert ask("footprint", "--mode", "order").out.splitlines() == [
        "   a  b  c  d",
        "a  #  →  →  →",
        "b  ←  #  ∥  →",
        "c  ←  ∥  #  →",
        "d  ←  ←  ←  #",
    ]
    given = "SEQUENCE(XOR(ACTIVITY(check credit), b), b)"
    assert ask("footprint", given=given).out.splitlines() == [
        "              b   check credit",
        "b             →←  ←#",
        "check credit  →#  ·",
    ]
    assert ask("footprint", given="SILENT()").out == "\n"


def test_scores_are_the_similarity_to_a_reference(ask, tmp_path):
    (tmp_path / "model.txt").write_text("SEQUENCE(a, b, c, d)")
    (tmp_path / "model.json").write_text(to_json(parse_text("SEQUENCE(a, b, c, d)")))
    value = footprint_to_value(footprint(parse_text("SEQUENCE(a, b, c, d)")))
    (tmp_path / "footprint.json").write_text(json.dumps(value))
    for name in ("model.txt", "model.json", "footprint.json"):
        said = json.loads(ask("score", "--reference", str(tmp_path / name), "--json").out)
        assert said == {"score": 2 / 7, "measure": "footprint_similarity", "aggregate": "pooled", "mode": "block"}
    options = ["--reference", str(tmp_path / "model.txt"), "--aggregate", "macro", "--mode", "order"]
    assert ask("score", *options).out == "0.6111\n"
    scores = ask("score", "--lines", *options, given=f"{MODEL}\nSEQUENCE(a, b, c, d)\n").out
    assert scores == "0.6111\n1.0000\n"


def test_without_a_reference_scores_are_of_consistency_or_of_consensus(ask):
    assert json.loads(ask("score", "--json").out) == {"score": 1.0, "measure": "self_consistency"}
    assert ask("score", given="SEQUENCE(XOR(a, b), a)").out == "0.5000\n"
    given = f"{MODEL}\nnonsense\n{MODEL}\nXOR(x, y)\n"
    said = ask("score", "--lines", "--consensus", given=given, code=2)
    assert said.out.splitlines() == ["0.5000", "", "0.5000", "0.0000"]
    assert "line 2" in said.err


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        (["parse", "--reference", "x"], "--reference"),
        (["footprint", "--consensus"], "--consensus"),
        (["score", "--allow", "a"], "--allow"),
        (["score", "--consensus"], "--consensus"),
        (["score", "--consensus", "--lines"], "--consensus"),
        (["score", "--reference", "nowhere.txt"], "--reference"),
        (["score", "--mode", "blocks"], "--mode"),
        (["score", "--mode", "direct"], "--mode"),
        (["parse", "--mode", "block"], "--mode"),
        (["score", "--aggregate", "macro"], "--aggregate"),
        (["footprint", "--aggregate", "pooled"], "--aggregate"),
        (["paint"], "ACTION"),
    ],
)
def test_options_that_do_not_fit_the_action_are_refused(ask, arguments, source):
    (problem,) = json.loads(ask(*arguments, "--json", code=2).out)["problems"]
    assert problem["source"] == source


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("no model", "block", "no process model found"),
        ('{"direct_succession": 1}', "block", "a list of pairs"),
        ('{"direct_succession": [], "mode": "order"}', "block", "a footprint of mode order"),
    ],
)
def test_an_invalid_reference_is_refused_with_its_name(ask, tmp_path, text, mode, reason):
    (tmp_path / "reference").write_text(text)
    said = ask("score", "--mode", mode, "--reference", str(tmp_path / "reference"), code=2)
    assert f"--reference {tmp_path / 'reference'}" in said.err
    assert reason in said.err


def test_a_terminal_gets_a_hint_that_input_is_read(ask):
    assert ask("parse", stdin=Terminal).err == "Reading from the terminal; end with Ctrl-D.\n"


def test_the_command_works_in_a_pipe_and_imports_no_prefect():
    code = "import sys\nfrom tfgrpo.flows.cli import main\ncode = main()\nsys.exit('prefect' in sys.modules or code)"
    line = [sys.executable, "-c", code, "powl", "parse", "--lines"]
    done = subprocess.run(line, input=f"{MODEL}\n" * 3, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "SEQUENCE(ACTIVITY(a), PARALLEL(ACTIVITY(b), ACTIVITY(c)), ACTIVITY(d))\n" * 3
    assert done.stderr == ""
