"""Tables and JSON are read in the forms that spreadsheets and scripts write, or named for what they are."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.pipelines.datasets.datasets import load_dataset, read_dataset
from tfgrpo.pipelines.datasets.sources import Row
from tfgrpo.pipelines.datasets.sources import files as text_files
from tfgrpo.pipelines.datasets.sources.json_text import array_rows
from tfgrpo.pipelines.mix.records import index_records
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError


def written(folder: Path, text: str | bytes, name: str = "items.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path, fields: FieldMap | None = None) -> list[str]:
    with pytest.raises(DatasetError) as caught:
        load_dataset(path, fields)
    return [str(problem) for problem in caught.value.problems]


def prompts(path: Path, fields: FieldMap | None = None) -> list[str]:
    return [item.prompt for item in load_dataset(path, fields)]


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("id,prompt,answer\na,x; y; z,1;2;3\n", "x; y; z"),
        ("id,prompt,a;b;c;d\na,x,1\n", "x"),
        ('id,"prompt",a\tb\tc\na,x;y,1\n', "x;y"),
        ("id;prompt;answer\na;x, y, z;1,5\n", "x, y, z"),
        ("id;prompt;a,b,c,d\na;x;1\n", "x"),
        ("id\tprompt\na\tx, y; z\n", "x, y; z"),
        ('"id";"prompt"\r\n"a";"x;y"\r\n', "x;y"),
        ("\ufeffid;prompt\na;x\n", "x"),
    ],
)
@pytest.mark.parametrize("name", ["items.csv", "items.tsv"])
def test_the_header_alone_decides_what_separates_values(tmp_path: Path, text: str, prompt: str, name: str) -> None:
    path = written(tmp_path, text, name)
    assert prompts(path) == [prompt]
    assert read_dataset(path, held_chars=0).items[0].prompt == prompt


def test_a_table_of_one_column_is_separated_as_its_ending_says(tmp_path: Path) -> None:
    fields = FieldMap(id=None)
    assert prompts(written(tmp_path, "prompt\nx;y\tz\n"), fields) == ["x;y\tz"]
    assert prompts(written(tmp_path, "prompt\nx;y,z\n", "items.tsv"), fields) == ["x;y,z"]


def test_a_table_with_the_line_ends_of_an_old_mac_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "id,prompt\ra,x\r")
    told = "lines that end in a carriage return alone; accepted: a header of comma-separated names"
    assert refusal(path) == [f"{path}:1: got {told}"]


def test_a_header_that_lacks_a_name_is_shown_in_its_columns(tmp_path: Path) -> None:
    (told,) = refusal(written(tmp_path, "id;question, if any;answer\na;x;1\n"))
    assert "a header without 'prompt': 'id', 'question, if any', 'answer'" in told


def test_a_bad_row_is_reported_with_the_separator_of_its_file(tmp_path: Path) -> None:
    (told,) = refusal(written(tmp_path, 'id;prompt\na;"x"y\n'))
    assert told.endswith("accepted: semicolon-separated values, in quotes where needed")


@pytest.mark.parametrize("form", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("items.csv", "id,prompt\na,Gruß 𝄞\n"),
        ("items.tsv", "id\tprompt\na\tGruß 𝄞\n"),
        ("items.jsonl", '{"id": "a", "prompt": "Gruß 𝄞"}\n'),
        ("items.json", '[{"id": "a", "prompt": "Gruß 𝄞"}]'),
    ],
)
def test_utf16_with_a_byte_order_mark_is_read(tmp_path: Path, form: str, name: str, text: str) -> None:
    assert prompts(written(tmp_path, f"\ufeff{text}".encode(form), name)) == ["Gruß 𝄞"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("id,prompt\na,x\n".encode("utf-16-le"), "no text, or UTF-16 without a byte order mark"),
        ("id,prompt\na,x\n".encode("utf-32"), "text in UTF-32"),
        (b"\xff\xfei", "no UTF-16 at byte"),
        ("\ufeffid,prompt\na,".encode("utf-16-le") + b"\x00\xd8", "no UTF-16 at byte"),
    ],
)
def test_other_encodings_are_named(tmp_path: Path, raw: bytes, told: str) -> None:
    (found,) = refusal(written(tmp_path, raw))
    assert told in found
    assert found.endswith("accepted: text in UTF-8, or in UTF-16 with a byte order mark")


def test_utf16_beyond_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_UTF16_BYTES", 20)
    (found,) = refusal(written(tmp_path, "\ufeffid,prompt\na,x\n".encode("utf-16-le")))
    assert "more than 20 bytes of UTF-16; accepted: a file of this size in UTF-8" in found


@pytest.mark.parametrize("name", ["items.json", "items.jsonl"])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_objects_is_read_from_both_endings(tmp_path: Path, name: str, indent: int | None) -> None:
    rows = [{"id": str(number), "prompt": "x]},\n" * 999 + "\ue000😀" * number} for number in range(40)]
    path = written(tmp_path, f"\n {json.dumps(rows, indent=indent, ensure_ascii=False)}\n", name)
    assert prompts(path) == [row["prompt"] for row in rows]
    assert [item.prompt for item in read_dataset(path, held_chars=0).items] == [row["prompt"] for row in rows]


def test_json_lines_are_read_from_a_json_file(tmp_path: Path) -> None:
    assert prompts(written(tmp_path, '{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "y"}\n', "items.json")) == [
        "x",
        "y",
    ]


ARRAY = "accepted: a JSON array of objects"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", ["items.json: got no items; accepted: at least one line with an item"]),
        ("[1, 23, null]", [f":1: got JSON that is {kind}; {ARRAY}" for kind in ("a number", "a number", "null")]),
        ('[{"id": "a", "prompt": "x"},\n7]', [f":2: got JSON that is a number; {ARRAY}"]),
        ('[{"id": "a", "prompt": "x"},\n]', [f":2: got no JSON: Expecting value; {ARRAY}"]),
        ('[{"id": "a", "prompt": "x"}\n{"id": "b"}]', [f":2: got no JSON: ',' or ']' expected; {ARRAY}"]),
        ('[{"id": "a", "prompt": "x"}]\n[]', [f":2: got more text behind the end of the array; {ARRAY}"]),
        ('[{"id": "a", "prompt": "x"}', [f":1: got no JSON: ',' or ']' expected; {ARRAY}"]),
        ('[{"id": "a", "prompt": "x', [f":1: got no JSON: Unterminated string starting at; {ARRAY}"]),
        ('[{"id": "a", "id": "b"}]', [f":1: got the key 'id' twice; {ARRAY}"]),
        (f"[{'[' * 100_000}", [f":1: got JSON nested without end; {ARRAY}"]),
        (b'[{"id": "a", "prompt": "\xff"}]', [f":1: got no UTF-8; {ARRAY}"]),
        ('{\n "data": []\n}\n', [":1: got a JSON object over several lines; accepted: one JSON object on each line"]),
    ],
)
def test_what_is_no_array_of_objects_is_named_by_line(tmp_path: Path, text: str | bytes, told: list[str]) -> None:
    found = refusal(written(tmp_path, text, "items.json"))
    assert len(found) == len(told)
    assert all(part in line for part, line in zip(told, found, strict=True))


def test_many_elements_behind_a_long_one_are_read_in_linear_time() -> None:
    rows = [{"id": "long", "prompt": "x" * 5_000_000}, *({"id": str(n), "prompt": "y"} for n in range(100_000))]
    stream = io.BytesIO(json.dumps(rows).encode())
    started = time.process_time()
    assert sum(isinstance(row, Row) for row in array_rows(stream, "items.json")) == len(rows)
    assert time.process_time() - started < 4.0  # takes 0.5 s, and took 12 when each element copied the buffer


def test_an_error_early_in_a_long_array_is_found_without_reading_all_of_it(tmp_path: Path) -> None:
    rows = json.dumps([{"id": str(number), "prompt": "x" * 1_000} for number in range(20_000)])
    path = written(tmp_path, rows.replace('"prompt"', "prompt", 1), "items.json")
    tracemalloc.start()
    try:
        (found,) = refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert ":1: got no JSON: Expecting property name" in found


def test_a_json_file_that_describes_a_folder_is_no_data_of_it(tmp_path: Path) -> None:
    written(tmp_path, '{\n "license": "mit"\n}\n', "dataset_info.json")
    written(tmp_path, "id\tprompt\na\tx\n", "a.tsv")
    assert prompts(tmp_path) == ["x"]
    (tmp_path / "a.tsv").unlink()
    written(tmp_path, '[{"id": "b", "prompt": "y"}]', "dataset_info.json")
    assert prompts(tmp_path) == ["y"]


@pytest.mark.parametrize(
    ("name", "raw", "told"),
    [
        ("mix.jsonl", '\ufeff{"prompt": "x"}\n'.encode("utf-16-le"), "text in UTF-16"),
        ("mix.jsonl", '{"prompt": "x"}\n'.encode("utf-16-le"), "no text, or UTF-16 without a byte order mark"),
        ("mix.jsonl", b'[\n {"prompt": "x"}\n]\n', "a JSON array"),
        ("mix.json", b'\n[{"prompt": "x"}, {"prompt": "y"}]\n', "a JSON array"),
        ("mix.json", b'{\n "prompt": "x"\n}\n', "a JSON object over several lines"),
        ("mix.csv", b"prompt,answer\nx,y\n", "a table of separated values"),
        ("mix.TSV", b"prompt\tanswer\n1\t2\n", "a table of separated values"),
    ],
)
def test_a_mix_names_what_is_no_json_lines(tmp_path: Path, name: str, raw: bytes, told: str) -> None:
    path = written(tmp_path, raw, name)
    with pytest.raises(DatasetError) as caught:
        index_records(path)
    (problem,) = caught.value.problems
    assert (problem.source, problem.given) == (str(path), told)


def test_a_mix_of_lines_that_are_lists_can_still_be_graded(tmp_path: Path) -> None:
    rows: list[Any] = [[1], {"prompt": "x"}]
    assert len(index_records(written(tmp_path, "".join(f"{json.dumps(row)}\n" for row in rows)))) == 2
