"""Dataset files are read whole or refused whole, every bad line by file and line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.pipelines.datasets.datasets import load_dataset, read_dataset, shipped_dataset
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError

GOOD = {"id": "a", "prompt": "What?", "answer": "42"}


def refusal(path: Path, fields: FieldMap | None = None) -> list[str]:
    with pytest.raises(DatasetError) as caught:
        load_dataset(path, fields)
    return [str(problem) for problem in caught.value.problems]


def csv_file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "items.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_jsonl_items_keep_every_field_as_given(write_jsonl: Callable[..., Path]) -> None:
    row = {"id": " a/../b ", "prompt": " What?\n", "answer": "4 2", "system_prompt": "Be brief.", "domain": "sums"}
    path = write_jsonl([{**row, "metadata": {"level": 3, "tags": ["x"]}}, GOOD])
    first, second = load_dataset(path)
    assert (first.id, first.prompt, first.answer, first.system_prompt, first.domain) == tuple(row.values())
    assert first.metadata == {"level": 3, "tags": ["x"]}
    assert (first.source, second.source) == (f"{path}:1", f"{path}:2")
    assert (second.system_prompt, second.metadata, second.domain) == ("", {}, "")


def test_csv_items_equal_those_of_jsonl(tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    path = csv_file(
        tmp_path,
        'id,prompt,answer,metadata\r\na,"What, ""now""?\nAnd then?",42,"{""level"": 3}"\r\n\r\nb,Why?,,\r\n',
    )
    items = load_dataset(path)
    same = load_dataset(
        write_jsonl(
            [
                {"id": "a", "prompt": 'What, "now"?\nAnd then?', "answer": 42, "metadata": {"level": 3}},
                {"id": "b", "prompt": "Why?", "answer": None},
            ]
        )
    )
    fields = [(item.id, item.prompt, item.answer, item.metadata) for item in items]
    assert fields == [(item.id, item.prompt, item.answer, item.metadata) for item in same]
    assert [item.source for item in items] == [f"{path}:2", f"{path}:5"]


@pytest.mark.parametrize("name", ["items.jsonl", "items.csv", "ITEMS.JSONL", "items.ndjson"])
def test_a_byte_order_mark_is_tolerated(tmp_path: Path, name: str) -> None:
    text = "id,prompt,answer\na,What?,42\n" if name.endswith("csv") else json.dumps(GOOD) + "\n"
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_dataset(tmp_path / name)[0].id == "a"


def test_numbers_are_text_in_ids_and_answers(write_jsonl: Callable[..., Path]) -> None:
    items = load_dataset(
        write_jsonl([{"id": 7, "prompt": "x", "answer": 2.5}, {"id": "8", "prompt": "y", "answer": 10**30}])
    )
    assert [(item.id, item.answer) for item in items] == [("7", "2.5"), ("8", str(10**30))]


def test_columns_can_be_called_otherwise(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    fields = FieldMap(id="nr", prompt="question", answer="solution", metadata="extra")
    row = {"nr": 1, "question": "Q?", "solution": "S", "extra": {"a": 1}}
    item = load_dataset(write_jsonl([row]), fields)[0]
    assert (item.id, item.prompt, item.answer, item.metadata) == ("1", "Q?", "S", {"a": 1})
    path = csv_file(tmp_path, 'nr,question,solution,extra\n1,Q?,S,"{""a"": 1}"\n')
    assert load_dataset(path, fields)[0].metadata == {"a": 1}


def test_bad_lines_are_all_named_by_file_and_line(write_jsonl: Callable[..., Path]) -> None:
    path = write_jsonl(
        [
            GOOD,
            "{broken",
            "",
            "[1]",
            '"text"',
            "null",
            '{"id": "b"}',
            '{"id": "", "prompt": "x"}',
            '{"id": "c", "prompt": 3}',
            '{"id": "d", "prompt": "x", "answer": true}',
            '{"id": "e", "prompt": "x", "answer": ["a"]}',
            '{"id": "f", "prompt": "x", "metadata": "text"}',
            '{"id": "a", "prompt": "again"}',
            '{"id": "g", "id": "h", "prompt": "x"}',
            '{"id": "i", "prompt": "x", "metadata": {"v": NaN}}',
            '{"id": "j", "prompt": "\\ud800"}',
            "[" * 100_000,
            '{"id": true, "prompt": "x"}',
        ]
    )
    told = {line.split(": got ")[0].removeprefix(f"{path}:"): line for line in refusal(path)}
    assert set(told) == {"2", *map(str, range(4, 19))}
    assert "no JSON: Expecting property name" in told["2"]
    assert "JSON that is a list" in told["4"]
    assert "JSON that is null" in told["6"]
    assert "got no 'prompt'" in told["7"]
    assert "got no 'id'" in told["8"]
    assert "int in the field 'prompt'; accepted: text in the field 'prompt'" in told["9"]
    assert "bool in the field 'answer'; accepted: text or a number" in told["10"]
    assert "a JSON object in the field 'metadata'" in told["12"]
    assert "the id 'a' of line 1 again; accepted: an id of its own for every item" in told["13"]
    assert "the key 'id' twice" in told["14"]
    assert "NaN, which is no JSON number" in told["15"]
    assert "half a surrogate pair" in told["16"]
    assert "nested without end" in told["17"]


def test_a_whole_surrogate_pair_is_a_character(write_jsonl: Callable[..., Path]) -> None:
    assert load_dataset(write_jsonl(['{"id": "a", "prompt": "\\ud83d\\ude00", "answer": "x"}']))[0].prompt == "😀"


def test_bytes_that_are_no_utf8_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "\xff"}\n')
    assert refusal(path) == [f"{path}:2: got no UTF-8 at byte 8; accepted: a line in UTF-8"]
    assert refusal(csv_file(tmp_path, b"id,prompt\na,\xff\n"))[0].endswith("accepted: a file in UTF-8")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,prompt\na,x,y\nb,z\nc\n", ["2: got 3 values; accepted: 2 values", "4: got 1 value; accepted: 2 values"]),
        ("id,prompt,metadata\na,x,{\n", ["2: got no JSON"]),
        ("id,prompt,metadata\na,x,[1]\n", ["2: got list in the field 'metadata'"]),
        ('id,prompt\na,"x"y\nb,z\n', ["2: got ',' expected after '\"'"]),
        (
            "id,question\na,x\n",
            [
                "1: got a header without 'prompt': 'id', 'question'; accepted: a header with 'id' and 'prompt', another name"
            ],
        ),
        ("id,id,prompt\na,b,x\n", ["1: got a header with 'id' twice"]),
        ('id,"pro"mpt\n', ["1: got ',' expected after '\"'"]),
        ("id,prompt\na,x\na,y\n", ["3: got the id 'a' of line 2 again"]),
    ],
)
def test_bad_csv_lines_are_named_by_file_and_line(tmp_path: Path, text: str, told: list[str]) -> None:
    path = csv_file(tmp_path, text)
    found = refusal(path)
    assert len(found) == len(told)
    for line, expected in zip(found, told, strict=True):
        assert line.startswith(f"{path}:{expected}")


def test_a_prompt_of_any_length_is_taken_from_csv_as_from_jsonl(
    tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    prompt = "x, " * 400_000
    path = csv_file(tmp_path, f'id,prompt,answer\na,"{prompt}",42\n')
    assert load_dataset(path)[0].prompt == load_dataset(write_jsonl([{**GOOD, "prompt": prompt}]))[0].prompt
    assert read_dataset(path, held_chars=0).items[0].prompt == prompt


def test_a_value_beyond_the_longest_is_refused_with_the_limit(tmp_path: Path) -> None:
    bound = csv.field_size_limit(1_000)
    try:
        (told,) = refusal(csv_file(tmp_path, f'id,prompt\na,"open {"x" * 2_000}\n'))
    finally:
        csv.field_size_limit(bound)
    assert "2: got a value of more than 1,000 characters; is a quote not closed?" in told


NUMBERED = "another name by dataset.fields.id, or rows numbered by --set dataset.fields.id=none"


def test_a_missing_field_is_reported_with_the_existing_ones_and_its_setting(
    tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    path = write_jsonl([{"nr": 1, "question": "x"}, {"id": "a", "question": "x"}, {}])
    number = f"text or a number in the field 'id', {NUMBERED}"
    asked = "text in the field 'prompt', another name by dataset.fields.prompt"
    assert refusal(path) == [
        f"{path}:1: got no 'id' among the fields 'nr', 'question'; accepted: {number}",
        f"{path}:2: got no 'prompt' among the fields 'id', 'question'; accepted: {asked}",
        f"{path}:3: got no 'id' among the fields (there are none); accepted: {number}",
    ]
    path = csv_file(tmp_path, "question,solution\nx,y\n")
    (told,) = refusal(path)
    assert told.startswith(f"{path}:1: got a header without 'id': 'question', 'solution'; accepted: ")
    assert told.endswith(f"a header with 'id' and 'prompt', {NUMBERED}")
    taken = FieldMap(id=None, prompt="question", answer="solution")
    assert [item.id for item in load_dataset(path, taken)] == ["0"]


def test_names_of_a_wide_table_are_shown_in_part(tmp_path: Path) -> None:
    header = [f"column {number}" for number in range(200)] + ["y" * 5_000]
    (told,) = refusal(csv_file(tmp_path, f"{','.join(header)}\n"))
    assert "'column 0', 'column 1'," in told
    assert "and 181 more; accepted: " in told
    assert len(told) < 700


@pytest.mark.parametrize("name", ["none.jsonl", "none.csv", "none.parquet", "none", "none.txt"])
def test_a_missing_file_is_reported_with_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (told,) = refusal(Path("data", name))
    assert told.lower().startswith(f"data/{name}: got no such file")
    assert f" at {tmp_path / 'data' / name}; accepted: " in told


def test_fifty_bad_lines_are_shown_and_the_rest_counted(write_jsonl: Callable[..., Path]) -> None:
    path = write_jsonl(["{x"] * 87)
    told = refusal(path)
    assert len(told) == 51
    assert told[0].startswith(f"{path}:1:")
    assert told[-1].startswith(f"{path}: got 37 more problems")


@pytest.mark.parametrize("name", ["items.xlsx", "items.txt", "items", "items.jsonl.gz"])
def test_an_unknown_kind_of_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("", encoding="utf-8")
    assert "accepted: a .jsonl, .json, .csv, .tsv or .parquet file" in refusal(tmp_path / name)[0]


def test_missing_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.jsonl") == [
        f"{tmp_path / 'none.jsonl'}: got No such file or directory; accepted: a file that can be read"
    ]
    (tmp_path / "folder.csv").mkdir()
    assert "got a folder without data" in refusal(tmp_path / "folder.csv")[0]


@pytest.mark.parametrize(
    ("name", "text"), [("e.jsonl", ""), ("e.jsonl", "\n\n"), ("e.csv", ""), ("e.csv", "id,prompt\n")]
)
def test_a_file_without_items_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert "got no items" in refusal(tmp_path / name)[0]


def test_equal_prompts_stay_different_items_with_a_warning(write_jsonl: Callable[..., Path]) -> None:
    rows = [{"id": f"t{n}", "prompt": f"Same  {n // 2}\n?", "answer": str(n)} for n in range(14)]
    found = read_dataset(write_jsonl([*rows, GOOD]))
    assert len(found.items) == 15
    assert found.warnings[0].endswith("items t0, t1 ask the same in the same words")
    assert found.warnings[5].endswith("2 more sets of items ask the same in the same words")


def test_unused_columns_and_missing_answers_are_warned_of(write_jsonl: Callable[..., Path]) -> None:
    path = write_jsonl([GOOD, {"id": "b", "prompt": "x", "anwser": "y"}])
    unused, without = read_dataset(path).warnings
    assert unused.startswith(f"{path}: the field 'anwser' of 1 item is not used; used are answer (did you mean that?)")
    assert without == f"{path}: 1 of 2 items without an answer to compare with"


@pytest.mark.parametrize("world", ["arithmetic", "ledger-tools", "powl", "unlearnable"])
def test_shipped_items_are_in_the_package(world: str) -> None:
    assert shipped_dataset(world).name == f"{world}.jsonl"
    assert shipped_dataset(world).parent.name == "data"


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1).filter(str.strip)


@given(rows=st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=8, unique_by=lambda row: row[0]))
def test_any_text_survives_both_formats(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("round")
    names = ("id", "prompt", "answer")
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=len(row[0]) % 2 == 0) for row in rows]
    (folder / "a.jsonl").write_bytes("".join(f"{line}\n" for line in lines).encode())
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([names, *rows])
    (folder / "a.csv").write_bytes(buffer.getvalue().encode())
    for name in ("a.jsonl", "a.csv"):
        assert [(item.id, item.prompt, item.answer) for item in load_dataset(folder / name)] == rows


def test_a_blank_answer_is_no_answer_to_compare_with(write_jsonl):
    found = read_dataset(
        write_jsonl([{"id": "a", "prompt": "1?", "answer": " "}, {"id": "b", "prompt": "2?", "answer": "2"}])
    )
    assert found.answers == 1
    assert any("1 of 2 items without an answer" in text for text in found.warnings)
