"""``tfgrpo init``: a file of one's own becomes a pipeline that the checks accept, and no file is overwritten."""

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
NOWHERE = ("--base-url", "http://127.0.0.1:9/v1", "--model", "m")


@pytest.fixture(autouse=True)
def _home(at_home, monkeypatch):
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
        ("id\tinput\tlabel\tnote", "{n}\tdo {n}\tyes\tx", ("input", "label", "id"), {"match": "label", "labels": ["yes"]}),
        ("Question,Model answer?,Right  Answer", "ask {n},x,$ {n}", ("Question", None, None), None),
        ("Question,Right  Answer", "ask {n},${n}", ("Question", "Right  Answer", None), {"match": "numeric"}),
    ],
)
def test_delimiter_columns_and_the_kind_of_answers_are_recognised(capsys, head, row, fields, options):
    data = csv("My items.csv", head, row)
    with ChatServer(lambda number, body: "7") as server:
        facts, written = made(capsys, server.url, data)
    assert facts["columns"] == dict(zip(("prompt", "answer", "id"), fields, strict=True))
    assert facts["ok"] is True
    assert [note for note in facts["notes"] if "is surely the answer" in note] == facts["notes"]
    assert bool(facts["notes"]) == (options is None), "as in the text"
    assert facts["next"][1] == "tfgrpo run --pipeline tfgrpo.yaml"
    assert written["rewarders"][0] == ({"name": "gt", "options": options} if options else {"name": "judge"})
    assert (written["task_id"], written["dataset"]["path"]) == ("my-items", data)
    assert server.bodies == []


def test_the_file_learns_as_the_template_for_tasks_of_ones_own_does(capsys):
    data = csv("d.csv", "prompt,answer", "What is {n} plus 1?,{n}")
    with ChatServer(lambda number, body: "7") as server:
        facts, written = made(capsys, server.url, data)
    template = yaml.safe_load(find_pipeline("general").read_text(encoding="utf-8"))
    assert written["tfgrpo"] == {**template["tfgrpo"], "sample_size": 18, "batch_size": 18}
    assert all(written[section] == template[section] for section in ("pack", "gate", "budget", "stages"))
    assert written["tfgrpo"]["enabled"] is True
    assert facts["warnings"] == []


def test_no_renamed_part_of_the_template_loses_what_was_asked_for(capsys, monkeypatch, tmp_path):
    other = tmp_path / "general.yaml"
    other.write_text(find_pipeline("general").read_text().replace("dataset: #", "# data\ndataset: #"))
    monkeypatch.setattr("tfgrpo.flows.commands.init.find_pipeline", lambda _: other)
    data = csv("items.csv", "question,answer", "ask {n},{n}")
    assert cli.main(["init", data, *NOWHERE, "--yes"]) == 2
    assert "pipeline file tfgrpo.yaml: line 45: got a second 'dataset'" in capsys.readouterr().err
    assert not Path("tfgrpo.yaml").exists()


def test_a_file_is_replaced_only_by_force_and_once_all_checks_pass(capsys):
    data = csv("d.csv", "prompt,answer", "p{n},{n}")
    Path("tfgrpo.yaml").write_text("mine: true\n")
    for forced, said in (([], "--force"), (["--force"], "127.0.0.1:9")):
        assert cli.main(["init", data, *forced, *NOWHERE, "--yes"]) == 2
        assert said in capsys.readouterr().err
        assert Path("tfgrpo.yaml").read_text() == "mine: true\n"
    with ChatServer(lambda number, body: "7") as server:
        made(capsys, server.url, data, "--force")


@pytest.mark.parametrize(
    ("arguments", "sources"),
    [
        (["t.csv", *NOWHERE], ["--prompt"]),
        (["--yes"], ["DATA", "--base-url", "--model"]),
        (["d.csv", "--prompt", "x", "--base-url", "x", "--model", "m"], ["--base-url"]),
        (["d.csv", *NOWHERE, "--prompt", "z"], ["--prompt"]),
        (["d.csv", "--pipeline", "x.json"], ["--pipeline"]),
        (["d.csv", *NOWHERE, "--prompt", "x"], ["endpoint http://127.0.0.1:9/v1"]),
        (["few.csv", *NOWHERE], ["dataset"]),
        (["empty.csv", *NOWHERE], ["empty.csv"]),
    ],
)
def test_what_is_missing_or_wrong_is_named_and_nothing_is_written(capsys, monkeypatch, arguments, sources):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    csv("d.csv", "x,y,w", "p{n},{n},{n}")
    Path("empty.csv").touch()
    csv("t.csv", "subject,body,notes,label", "I cannot log in,Since {n} it fails,We reset it {n},bug")
    Path("few.csv").write_text("prompt,answer\np,1\n")
    assert cli.main(["init", *arguments, "--json"]) == 2
    assert [each["source"] for each in json.loads(capsys.readouterr().out)["problems"]] == sources
    assert {each.name for each in Path().iterdir()} == {"d.csv", "empty.csv", "few.csv", "t.csv"}, "something is left"


def test_options_name_columns_of_the_files_of_a_folder(capsys):
    Path("parts").mkdir()
    for part in ("a", "b"):
        csv(f"parts/{part}.csv", "aufgabe,loesung", part + "{n},{n}")
    with ChatServer(lambda number, body: "7") as server:
        facts, written = made(capsys, server.url, "parts", "--prompt", "aufgabe", "--answer", "loesung")
    assert facts["columns"] == {"id": None, "prompt": "aufgabe", "answer": "loesung"}
    assert written["dataset"]["path"] == "parts"


class Terminal(io.StringIO):
    """What is typed at a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_mistyped_path_is_refused_before_the_next_question(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Terminal("nowhere.csv\n"))
    assert cli.main(["init"]) == 2
    said = capsys.readouterr().err
    assert "nowhere.csv" in said
    assert "endpoint" not in said


@pytest.mark.parametrize(("name", "typed", "field"), [("answer", "", {}), ("solucion", "solucion\n", {"answer": "solucion"})])
def test_at_a_terminal_it_asks(capsys, monkeypatch, name, typed, field):
    data = csv("d.csv", f"x,y,{name}", "p{n},q{n},{n}")
    with ChatServer(lambda number, body: "7") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setattr("sys.stdin", Terminal(f"{data}\ny\n{typed}\nm\n"))
        assert cli.main(["init"]) == 0
    said = capsys.readouterr()
    assert "tfgrpo run --pipeline tfgrpo.yaml" in said.out
    assert yaml.safe_load(Path("tfgrpo.yaml").read_text())["dataset"]["fields"] == {"id": None, "prompt": "y", **field}


def read_by_init(
    capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], *arguments: str
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the fields and the first rewarder that are written for rows, and what is printed."""
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with ChatServer(lambda number, body: "7") as server:
        command = ["init", "rows.jsonl", "--base-url", server.url, "--model", "m", "--yes", "--force", *arguments]
        assert cli.main(command) == 0
    written = yaml.safe_load(Path("tfgrpo.yaml").read_text())
    fields = {"prompt": "prompt", "answer": "answer", **written["dataset"]["fields"]}
    printed = capsys.readouterr()
    return fields, written["rewarders"][0], printed.out + printed.err


@pytest.mark.parametrize(
    ("row", "prompt", "answer"),
    [
        ({"Body": "Jo has {n} pens.", "Question": "How many?", "Answer": 8.0}, "{Body}\n\n{Question}", "Answer"),
        (
            {"premise": "He fell {n}.", "question": "cause", "choice1": "a", "choice2": "b", "label": "B"},
            "{premise}\n\n{question}\n\nA) {choice1}\nB) {choice2}",
            "label",
        ),
        (
            {"premise": "p {n}", "hypothesis": "h", "label": "neutral"},
            "premise: {premise}\n\nhypothesis: {hypothesis}",
            "label",
        ),
        ({"question": "q {n}", "contexts": ["a", "b"], "ground_truth": "x"}, "{contexts}\n\n{question}", "ground_truth"),
        ({"claim": "c {n}", "evidence": "e", "label": "REFUTES"}, "{evidence}\n\n{claim}", "label"),
        ({"messages": [{"role": "user", "content": "q {n}"}], "answer": "7"}, "messages.0.content", "answer"),
        ({"question": {"stem": "q {n}"}, "exe_ans": 0.5}, "question.stem", "exe_ans"),
        ({"text": "t {n}", "rating": 4}, "text", "rating"),
        ({"question": "q {n}", "answer": None, "answer_number": 7}, "question", "answer_number"),
        ({"problem_text": "p {n}", "answer_number": 7, "source": "a book"}, "problem_text", "answer_number"),
        ({"prompt": "p {n}", "chosen": "Paris", "rejected": "Rome"}, "prompt", "chosen"),
        (
            {"subject": "It fails {n} times", "body": "Since {n} I cannot log in.", "label": "bug", "priority": "high"},
            "{subject}\n\n{body}",
            "label",
        ),
        ({"doc_id": "d{n}", "prompt": "p {n}", "answer": "7"}, "prompt", "answer"),
    ],
)
def test_a_prompt_has_all_that_it_is_about_and_the_answer_is_found(capsys, row, prompt, answer):
    rows = [json.loads(json.dumps(row).replace("{n}", str(number))) for number in range(ROWS)]
    fields, rewarder, _ = read_by_init(capsys, rows)
    assert (fields["prompt"], fields["answer"], rewarder["name"]) == (prompt, answer, "gt")
    assert fields["id"] == ("doc_id" if "doc_id" in row else None)


SQL = {"question": "q", "query": "SELECT a FROM t WHERE a > 1"}
LONG = "since it is so, as everybody knows who has ever seen one of these from nearby"


@pytest.mark.parametrize(
    ("row", "grades"),
    [
        (
            {"prompt": "def f(x):\n", "canonical_solution": "    return x", "entry_point": "f",
             "test": "def check(f):\n    assert f(1) == 1"},
            {"name": "code_tests"},
        ),
        ({"text": "Write f", "code": "def f(): ...", "test_list": ["assert f() is None"]}, {"name": "code_tests"}),
        (
            {"prompt": "Write.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
            {"name": "ifeval"},
        ),
        ({**SQL, "schema": "CREATE TABLE t(a); INSERT INTO t VALUES (2)"}, {"name": "sql_result"}),
        ({**SQL, "db_id": "x"}, {"name": "judge", "options": {"reference": True}}),
        ({"prompt": "p", "query": "SELECT a FROM t WHERE a > 1"}, {"name": "judge", "options": {"reference": True}}),
        ({"prompt": "p", "tests": "none", "answer": "7"}, {"name": "gt", "options": {"match": "numeric"}}),
    ],
)  # fmt: skip
def test_items_are_graded_by_what_they_bring(capsys, row, grades):
    asked = "question" if "question" in row else "text" if "text" in row else "prompt"
    rows = [{**row, asked: f"{row[asked]} # {number}"} for number in range(ROWS)]
    fields, rewarder, printed = read_by_init(capsys, rows)
    assert rewarder == grades
    assert f"rows.jsonl: {grades['name']} grades: " in printed
    assert ("sql_result compares rows, with the column database" in printed) == ("query" in row and "schema" not in row)
    assert ("{test_list.0}" in fields["prompt"]) == ("test_list" in row)


@pytest.mark.parametrize(
    ("answer", "remark"),
    [
        ("UK {n}|United Kingdom {n}", "'UK 0|United Kingdom 0' is read as one: accepted answers are a list"),
        ("UK {n} || United Kingdom {n}", "is read as one"),
        ("['UK {n}', 'United Kingdom {n}']", "is read as one"),
        (["toxic", "insult"], "each of several is right alone"),
        ("cat {n} | sort -u", ""),
    ],
)
def test_several_answers_of_one_item_are_remarked_on(capsys, answer, remark):
    rows = [
        {"question": f"Q{n}", "answer": answer.replace("{n}", str(n)) if isinstance(answer, str) else answer}
        for n in range(ROWS)
    ]
    _, _, printed = read_by_init(capsys, rows)
    assert remark in printed
    assert bool(remark) == ("is read as one" in printed or "is right alone" in printed)


def test_a_missing_library_of_the_rewarder_is_named_with_its_extra(capsys, monkeypatch):
    monkeypatch.setattr("tfgrpo.rewarders.options.find_spec", lambda name: None)
    row = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    Path("d.jsonl").write_text("".join(json.dumps({"prompt": f"p{n}", **row}) + "\n" for n in range(ROWS)))
    assert cli.main(["init", "d.jsonl", *NOWHERE, "--yes"]) == 2
    assert 'pip install "tfgrpo[ifeval]"' in capsys.readouterr().err
    assert not Path("tfgrpo.yaml").exists()


@pytest.mark.parametrize(
    ("row", "answer", "line"),
    [
        ({"label": "yes", "output": "Paris"}, "label", "the answer may be in 'output' instead: --answer names its column"),
        ({"answer": LONG, "label": "yes"}, "label", "the answer may be in 'answer' instead: --answer names its column"),
        ({"answer": "7", "category": "sums"}, "answer", ""),
        ({"answer": {"text": "7", "unit": "m"}}, "answer.text", ""),
        (
            {"answer": {"gold": {"n": 7}, "tags": ["x"]}},
            "answer",
            "is 'answer', an object as a whole: --answer names a part of it, such as 'answer.gold.n', 'answer.tags'",
        ),
        ({"response": LONG, "category": "sums"}, "response", ""),
        ({"outcome": "u"}, "answer", "no column is surely the answer; 'outcome' may be: --answer names it"),
        ({"Rechnungsnr": "R{n}", "outcome": "u{n}"}, "outcome", ""),
        ({"entities": {"name": "A{n}"}}, "entities", "is 'entities', an object as a whole: --answer names a part of it"),
        (
            {"entities": {"name": f"A{{n}}, {'long ' * 20}"}},
            "entities",
            "is 'entities', an object as a whole: --answer names a part",
        ),
        ({"metadata": {"name": "A{n}"}}, "answer", "no column is surely the answer: --answer names it"),
        ({"options": ["a", "b"], "answer": "c"}, "answer", "the prompt is without the options in 'options'"),
    ],
)
def test_other_columns_that_may_hold_the_answer_are_named(capsys, row, answer, line):
    cells = json.dumps(row)
    rows = [{"input": f"q{number}", **json.loads(cells.replace("{n}", str(number)))} for number in range(ROWS)]
    fields, _, printed = read_by_init(capsys, rows)
    assert fields["answer"] == answer
    assert line in printed
    assert ("--answer" in printed) == ("--answer" in line)


def test_a_text_within_an_object_is_named_by_its_path(capsys):
    Path("n.jsonl").write_text('{"k": "u", "data": {"in": {"q": "How many?"}}, "split": "x"}\n')
    assert cli.main(["init", "n.jsonl", *NOWHERE]) == 2
    assert "a path such as data.in.q, or" in capsys.readouterr().err


@pytest.mark.parametrize("column", ["messages", "conversations"])
def test_conversations_are_refused(capsys, column):
    form = ("from", "value", "human", "gpt") if column == "conversations" else ("role", "content", "user", "assistant")
    turns = [[(form[2], "Hello"), (form[3], "Hi"), (form[2], f"How many are {n}?")] for n in range(ROWS)]
    talks = [[{form[0]: role, form[1]: text} for role, text in talk] for talk in turns]
    lines = (json.dumps({column: talk, "ideal": str(n)}) for n, talk in enumerate(talks))
    Path("items.jsonl").write_text("\n".join(lines))
    assert cli.main(["init", "items.jsonl", *NOWHERE, "--yes"]) == 2
    error = capsys.readouterr().err
    assert f"conversations in the column '{column}'" in error
    assert "items with one question each" in error


@pytest.mark.parametrize(
    ("prompt", "answers", "match"),
    [
        ("Q{n}?\nA) 1\nB) 2\nC) 3", ["1", "2", "3"], "choice"),
        ("Q{n}?\nA) 1\nB) red\nC) blue", ["2", "3", "4"], "numeric"),
        ("Q{n}?\na) red\nb) blue", ["a", "b"], "choice"),
        ("Q{n}?\n1. red\n2. blue", ["1", "2"], "choice"),
        ("Do:\n1. Take {n}.\n2. Double it.", ["4", "8", "10"], "numeric"),
        ("Select {n}:\nA) red\nB) blue", ["A", "A, B"], "choice"),
    ],
)
def test_options_in_the_prompt_are_read_if_every_answer_is_one(capsys, prompt, answers, match):
    rows = [{"prompt": prompt.replace("{n}", str(number)), "answer": answers[number % len(answers)]} for number in range(ROWS)]
    _, rewarder, _ = read_by_init(capsys, rows)
    assert rewarder["options"]["match"] == match


@pytest.mark.parametrize(
    ("keys", "begins"),
    [
        (("role", "content", "user", "assistant"), ""),
        (("role", "content", "user", "assistant"), "developer"),
        (("from", "value", "human", "gpt"), "system"),
    ],
)
def test_examples_for_fine_tuning_are_questions_with_their_answers(capsys, keys, begins):
    role, text, asks, answers = keys
    said = [*([(begins, "Be brief.")] if begins else []), (asks, "How many are {}?"), (answers, "{}")]
    talks = [[{role: who, text: what.format(n)} for who, what in said] for n in range(ROWS)]
    fields, rewarder, printed = read_by_init(capsys, [{"messages": talk} for talk in talks])
    paths = [f"messages.{place}.{text}" for place in range(len(said))]
    assert [fields.get(name) for name in ("system_prompt", "prompt", "answer")] == [*([] if begins else [None]), *paths]
    assert rewarder["options"]["match"] == "numeric"
    assert "no column is surely the answer" not in printed
    fields, _, _ = read_by_init(capsys, [{"messages": talk, "ideal": str(n)} for n, talk in enumerate(talks)])
    assert fields["answer"] == "ideal"


def test_an_object_of_letters_is_the_options_where_another_column_is_the_answer(capsys):
    rows = [{"question": f"Q{n}?", "answers": {"A": f"a{n}", "B": f"b{n}"}, "correct_answer": "AB"[n % 2]} for n in range(ROWS)]
    fields, rewarder, _ = read_by_init(capsys, rows)
    assert (fields["prompt"], fields["answer"]) == ("{question}\n\n{answers}", "correct_answer")
    assert rewarder["options"] == {"match": "choice"}
    fields, _, _ = read_by_init(capsys, [{"question": each["question"], "answers": each["answers"]} for each in rows])
    assert (fields["prompt"], fields["answer"]) == ("question", "answers"), "the answers to two questions"


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Q{n}?", "answer": "a{n}", "incorrect": True},  # a flag
        {"question": "Q{n}?", "answer": "a{n}", "distractor|1": "x", "wrong": "0", "distractor": ""},
        {"complaint": "Since {n} I cannot log in.", "answer": "a{n}", "distractor": "Since long it does."},
    ],
)
def test_only_wrong_answers_whose_columns_a_template_can_name_are_options(capsys, row):
    rows = [json.loads(json.dumps(row).replace("{n}", str(number))) for number in range(ROWS)]
    fields, _, _ = read_by_init(capsys, rows)
    shown = "{complaint}\n\n{answer|distractor}" if "complaint" in row else "question"
    assert (fields["prompt"], fields["answer"]) == (shown, "answer")


@pytest.mark.parametrize(
    ("head", "row", "answers", "said"),
    [
        ("sentence,label", "movie {n}", "01", '0, 1: unless the agent knows them, --prompt "{sentence} Answer 0 for …; '),
        ("text,label", "mail {n}", ("spam", "ham"), '"{text} Answer with one of: ham, spam."'),
        ("text,label", "Is mail {n} ham or spam?", ("spam", "ham"), ""),
        ("text,label", "Is {n} even?", ("yes", "no"), ""),
        ("question,answer", "How many are {n} modulo 2?", "01", ""),  # numbers, and no labels
    ],
)
def test_answers_that_no_prompt_names_are_remarked_on_with_what_asks_for_them(capsys, head, row, answers, said):
    rows = (f"{row.format(n=number)},{answers[number % 2]}" for number in range(ROWS))
    Path("d.csv").write_text("\n".join([head, *rows]) + "\n")
    with ChatServer(lambda number, body: "7") as server:
        assert cli.main(["init", "d.csv", "--base-url", server.url, "--model", "m", "--yes"]) == 0
    told = capsys.readouterr().err
    assert said in told
    assert ("the prompts do not name the answers" in told) == bool(said)
