"""``tfgrpo init``: a file of one's own becomes a pipeline that the checks accept, and no file is overwritten."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runs.chat_server import ChatServer
from tfgrpo.flows import cli
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline

ROWS = 24


@pytest.fixture(autouse=True)
def _home(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdef-0123456789")


def csv(path: str, head: str, row: str) -> str:
    Path(path).write_text("\n".join([head, *(row.format(n=number) for number in range(ROWS))]) + "\n")
    return path


def made(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    capsys.readouterr()
    assert cli.main(["init", *arguments, "--base-url", url, "--model", "m", "--json", "--yes"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    written: dict[str, Any] = yaml.safe_load(Path(facts["file"]).read_text())
    return facts, written


@pytest.mark.parametrize(
    ("head", "row", "fields", "options"),
    [
        ("Question;Solution", "What is {n} plus 1?;{n}", ("Question", "Solution", None), {"match": "numeric"}),
        ("uid,prompt,expected", '{n},"a, b or {n}?",word {n}', ("prompt", "expected", "uid"), {"match": "auto"}),
        (
            "id\tinput\tlabel\tnote",
            "{n}\tdo {n}\tyes\tx",
            ("input", "label", "id"),
            {"match": "label", "labels": ["yes"]},
        ),
        ("Question,Model answer?,Right  Answer", "ask {n},x,$ {n}", ("Question", None, None), None),
        ("Question,Right  Answer", "ask {n},${n}", ("Question", "Right  Answer", None), {"match": "numeric"}),
    ],
)
def test_delimiter_columns_and_the_kind_of_answers_are_recognised(
    capsys: pytest.CaptureFixture[str], head: str, row: str, fields: tuple[str | None, ...], options: object
) -> None:
    data = csv("My items.csv", head, row)
    with ChatServer(lambda number, body: "7") as server:
        facts, written = made(capsys, server.url, data)
    assert facts["columns"] == dict(zip(("prompt", "answer", "id"), fields, strict=True))
    assert facts["ok"] is True
    assert facts["next"][1] == "tfgrpo run --pipeline tfgrpo.yaml"
    assert written["rewarders"][0] == ({"name": "gt", "options": options} if options else {"name": "judge"})
    assert (written["task_id"], written["dataset"]["path"]) == ("my-items", data)
    assert server.bodies == []


def test_the_file_learns_as_the_template_for_tasks_of_ones_own_does(capsys: pytest.CaptureFixture[str]) -> None:
    data = csv("d.csv", "prompt,answer", "What is {n} plus 1?,{n}")
    with ChatServer(lambda number, body: "7") as server:
        facts, written = made(capsys, server.url, data)
    template = yaml.safe_load(find_pipeline("general").read_text(encoding="utf-8"))
    assert written["tfgrpo"] == {**template["tfgrpo"], "sample_size": 18, "batch_size": 18}
    assert all(written[section] == template[section] for section in ("pack", "gate", "budget", "stages"))
    assert written["tfgrpo"]["enabled"] is True
    assert facts["warnings"] == []


def test_no_renamed_part_of_the_template_loses_what_was_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "general.yaml"
    other.write_text(find_pipeline("general").read_text().replace("dataset: #", "# data\ndataset: #"))
    monkeypatch.setattr("tfgrpo.flows.commands.init.find_pipeline", lambda _: other)
    data = csv("items.csv", "question,answer", "ask {n},{n}")
    assert cli.main(["init", data, "--base-url", "http://127.0.0.1:9", "--model", "m", "--yes"]) == 2
    assert "pipeline file tfgrpo.yaml: line 45: got a second 'dataset'" in capsys.readouterr().err
    assert not Path("tfgrpo.yaml").exists()


def test_json_lines_without_answers_are_judged_and_options_name_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Path("d.jsonl").write_text("".join(json.dumps({"a": f"ask {number}", "b": 1}) + "\n" for number in range(ROWS)))
    with ChatServer(lambda number, body: "7") as server:
        _, written = made(capsys, server.url, "d.jsonl", "--prompt", "a", "--pipeline", "x.yml")
        assert Path("x.yml").is_file()
        assert written["rewarders"][0] == {"name": "judge"}
        assert written["dataset"]["fields"] == {"prompt": "a", "id": None}


def test_a_file_is_replaced_only_by_force(capsys: pytest.CaptureFixture[str]) -> None:
    data = csv("d.csv", "prompt,answer", "p{n},{n}")
    Path("tfgrpo.yaml").write_text("mine: true\n")
    assert cli.main(["init", data, "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--yes"]) == 2
    assert "--force" in capsys.readouterr().err
    assert Path("tfgrpo.yaml").read_text() == "mine: true\n"
    with ChatServer(lambda number, body: "7") as server:
        made(capsys, server.url, data, "--force")


@pytest.mark.parametrize(
    ("arguments", "sources"),
    [
        (["--yes"], ["DATA", "--base-url", "--model"]),
        (["d.csv", "--prompt", "x", "--base-url", "x", "--model", "m"], ["--base-url"]),
        (["d.csv", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], ["--prompt"]),
        (["d.csv", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--prompt", "z"], ["--prompt"]),
        (["c.jsonl", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], ["c.jsonl"]),
        (["d.csv", "--pipeline", "x.json"], ["--pipeline"]),
        (
            ["d.csv", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--prompt", "x"],
            ["endpoint http://127.0.0.1:9/v1"],
        ),
        (["few.csv", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], ["dataset"]),
        (["empty.csv", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], ["empty.csv"]),
    ],
)
def test_what_is_missing_or_wrong_is_named_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], sources: list[str]
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    csv("d.csv", "x,y", "p{n},{n}")
    Path("c.jsonl").write_text('{"messages": []}\n')
    Path("empty.csv").touch()
    Path("few.csv").write_text("prompt,answer\np,1\n")
    assert cli.main(["init", *arguments, "--json"]) == 2
    assert [each["source"] for each in json.loads(capsys.readouterr().out)["problems"]] == sources
    assert {each.name for each in Path().iterdir()} == {"d.csv", "c.jsonl", "empty.csv", "few.csv"}, "something is left"


def test_a_file_to_be_replaced_stays_until_all_checks_pass(capsys: pytest.CaptureFixture[str]) -> None:
    data = csv("d.csv", "prompt,answer", "p{n},{n}")
    Path("tfgrpo.yaml").write_text("mine: true\n")
    assert cli.main(["init", data, "--force", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--yes"]) == 2
    assert "written" not in capsys.readouterr().err
    assert Path("tfgrpo.yaml").read_text() == "mine: true\n"


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "tsv"])
def test_options_name_columns_of_the_files_of_a_folder(capsys: pytest.CaptureFixture[str], ending: str) -> None:
    Path("parts").mkdir()
    for part in ("a", "b"):
        rows = [{"aufgabe": f"{part}{number}", "loesung": str(number)} for number in range(ROWS // 2)]
        tab = "\t" if ending == "tsv" else ","
        texts = {
            "jsonl": "".join(f"{json.dumps(row)}\n" for row in rows),
            "json": json.dumps(rows),
        }
        table = "\n".join([tab.join(rows[0]), *(tab.join(row.values()) for row in rows), ""])
        Path(f"parts/{part}.{ending}").write_text(texts.get(ending, table))
    with ChatServer(lambda number, body: "7") as server:
        facts, written = made(capsys, server.url, "parts", "--prompt", "aufgabe", "--answer", "loesung")
    assert facts["columns"] == {"id": None, "prompt": "aufgabe", "answer": "loesung"}
    assert written["dataset"]["path"] == "parts"


class Terminal(io.StringIO):
    """What is typed at a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_mistyped_path_is_refused_before_the_next_question(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("nowhere.csv\n"))
    assert cli.main(["init"]) == 2
    said = capsys.readouterr().err
    assert "nowhere.csv" in said
    assert "endpoint" not in said


def test_at_a_terminal_it_asks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    data = csv("d.csv", "x,y,answer", "p{n},q{n},{n}")
    with ChatServer(lambda number, body: "7") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setattr("sys.stdin", Terminal(f"{data}\ny\n\nm\n"))
        assert cli.main(["init"]) == 0
    said = capsys.readouterr()
    assert "tfgrpo run --pipeline tfgrpo.yaml" in said.out
    assert yaml.safe_load(Path("tfgrpo.yaml").read_text())["dataset"]["fields"] == {"id": None, "prompt": "y"}
