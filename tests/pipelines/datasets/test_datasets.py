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
from tfgrpo.pipelines.problems import CappedProblems
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem, SettingsError

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
            '{"id": "d", "prompt": ["x"], "answer": true}',
            '{"id": false, "prompt": "x", "answer": ["a"]}',
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
    assert "list in the field 'prompt'; accepted: text" in told["10"]
    assert "bool in the field 'id'; accepted: text or a number" in told["11"]
    assert "a JSON object in the field 'metadata'" in told["12"]
    assert "the id 'a' of line 1 again; accepted: an id of its own for every item" in told["13"]
    assert "the key 'id' twice" in told["14"]
    assert "NaN, which is no JSON number" in told["15"]
    assert "half a surrogate pair" in told["16"]
    assert "nested without end" in told["17"]


def test_a_whole_surrogate_pair_is_a_character(write_jsonl: Callable[..., Path]) -> None:
    assert load_dataset(write_jsonl(['{"id": "a", "prompt": "\\ud83d\\ude00", "answer": "x"}']))[0].prompt == "😀"


@pytest.mark.parametrize("name", ["items.jsonl", "items.json", "items.csv"])
def test_text_of_a_western_windows_is_read_with_a_warning_that_names_its_first_line(tmp_path: Path, name: str) -> None:
    text = "id,prompt,answer\na,What?,42\nb,Größe – „naïf“?,5 €\n"
    if name != "items.csv":
        rows = [GOOD, {"id": "b", "prompt": "Größe – „naïf“?", "answer": "5 €"}]
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path = tmp_path / name
    path.write_bytes(text.encode("cp1252"))
    found = read_dataset(path)
    assert [(item.prompt, item.answer) for item in found.items] == [("What?", "42"), ("Größe – „naïf“?", "5 €")]
    line = 3 if name == "items.csv" else 2
    assert found.warnings[0].startswith(
        f"{path}: line {line} is no UTF-8, so the file is read as Windows-1252 (cp1252)"
    )
    assert "`iconv -f CP1252 -t UTF-8 FILE` converts it" in found.warnings[0]


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


def test_equal_problems_are_one_line_with_a_count(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    path = write_jsonl([GOOD, *[{"id": number, "prompt": number} for number in range(3_000)], "{x", "{y", "{z"])
    many, *few = refusal(path)
    told = "got int in the field 'prompt'; accepted: text in the field 'prompt'"
    assert many == f"{path}: lines 2, 3, 4 and 2,997 more: {told}"
    assert [line.partition(": got no JSON")[0] for line in few] == [f"{path}:{line}" for line in (3_002, 3_003, 3_004)]
    (told,) = refusal(write_jsonl([{**GOOD, "prompt": str(number)} for number in range(1_000)], "same.jsonl"))
    assert "same.jsonl: lines 2, 3, 4 and 996 more: got the id 'a' of line 1 again; " in told
    (told,) = refusal(write_jsonl([{"nr": 1, "prompt": "x"}, *[{"nr": 1, "q": 2, "prompt": "x"}] * 9], "names.jsonl"))
    assert "lines 1, 2, 3 and 7 more: got no 'id' among the fields 'nr', 'prompt' (the first); accepted: " in told


def test_equal_problems_of_several_files_are_one_line(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    for number in range(5):
        write_jsonl([{"id": str(number)}], f"{number}.jsonl")
    (told,) = refusal(tmp_path)
    names = [f"{tmp_path / f'{number}.jsonl'}:1" for number in range(3)]
    assert told.startswith(f"{', '.join(names)} and 2 more: got no 'prompt' among the fields 'id'; ")


def test_fifty_different_problems_are_shown_and_the_rest_counted() -> None:
    letters = [f"{first}{second}" for first in "abcdefgh" for second in "abcdefghij"]
    problems = CappedProblems()
    for number, word in enumerate(letters):
        problems.add(Problem(f"f:{number}", f"no {word}", "a word"))
    with pytest.raises(DatasetError) as caught:
        problems.raise_problems(DatasetError, "f")
    told = [str(problem) for problem in caught.value.problems]
    assert (len(told), told[0]) == (51, "f:0: got no aa; accepted: a word")
    assert told[-1].startswith("f: got 30 more problems")


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


CHOICE = "{question}\nA) {A}\nB) {B}"


def test_a_template_makes_a_field_of_several_columns_in_every_format(
    tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    fields = FieldMap(
        id="{set}-{nr}", prompt=CHOICE, answer="{key}) {{{unit}}}", system_prompt="Be {tone}.", domain="{set}/x"
    )
    row = {
        "set": "s",
        "nr": 1,
        "question": "Q?",
        "A": "x",
        "B": 2.5,
        "key": "B",
        "unit": "km",
        "tone": "brief",
        "n": True,
    }
    header = ",".join(row)
    sources = [
        write_jsonl([row]),
        csv_file(tmp_path, f"{header}\ns,1,Q?,x,2.5,B,km,brief,true\n"),
    ]
    for path in sources:
        (item,) = load_dataset(path, fields)
        assert (item.id, item.prompt, item.answer) == ("s-1", "Q?\nA) x\nB) 2.5", "B) {km}")
        assert (item.system_prompt, item.domain) == ("Be brief.", "s/x")
    assert load_dataset(sources[0], FieldMap(id="nr", prompt="{n} {{}} {nr}"))[0].prompt == "true {} 1"


def test_names_in_a_template_are_columns_or_paths_into_objects_and_lists(write_jsonl: Callable[..., Path]) -> None:
    ask, steps = {"text": "Q?", "by": None}, [{"do": "p"}, {"do": "q"}]
    path = write_jsonl(
        [{"ask": ask, "choices": ["x", "y"], "a.b": 7, "tags": ["s", 1], "steps": steps, "many": [*range(27)]}]
    )
    for template, expected in {
        "{ask.text} {ask.by}|": "Q? |",
        "A) {choices.0} B) {choices.1}": "A) x B) y",
        "{a.b} {tags}": "7 A) s\nB) 1",
        "{ ask.text }{steps.do}": "Q?A) p\nB) q",
        "{ask.text} {steps}": 'Q? [{"do":"p"},{"do":"q"}]',
        "{many}": f"[{','.join(map(str, range(27)))}]",
        "{ask}": '{"by":null,"text":"Q?"}',
    }.items():
        assert load_dataset(path, FieldMap(id=None, prompt=template))[0].prompt == expected


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"A": "x", "B": 2, "C": None}, "A) x\nB) 2"),
        ({"a": "x", "b": "y"}, "A) x\nB) y"),
        (["A)21", "B)22"], "A) 21\nB) 22"),
        (["(a) x", "(b) y"], "A) x\nB) y"),
        (["A. x", "y"], "A) A. x\nB) y"),
        ({"A": "x", "why": "y"}, '{"A":"x","why":"y"}'),
    ],
)
def test_options_of_a_template_have_one_letter_each(
    write_jsonl: Callable[..., Path], options: object, shown: str
) -> None:
    path = write_jsonl([{"options": options}])
    assert load_dataset(path, FieldMap(id=None, prompt="{options}"))[0].prompt == shown


@pytest.mark.parametrize(
    ("filled", "answer"),
    [
        ({"number": 7}, "7"),
        ({"number": "0"}, "0"),
        ({"spans": ["Paris"]}, "Paris"),
        ({"spans": ["Paris", "Rome"]}, "Paris, Rome"),
        ({"date": {"day": "3", "month": "May", "year": "1990"}}, "3 May 1990"),
        ({"date": {"day": "", "month": "May", "year": "1990"}}, "May 1990"),
        ({}, ""),
    ],
)
def test_an_answer_of_drop_is_what_it_holds(
    write_jsonl: Callable[..., Path], filled: dict[str, object], answer: str
) -> None:
    empty = {"number": "", "spans": [], "date": {"day": "", "month": "", "year": ""}, "hit_id": "h"}
    path = write_jsonl([{"prompt": "p", "answer": {**empty, **filled}}])
    assert load_dataset(path, FieldMap(id=None))[0].answer == answer


def test_columns_that_a_template_lacks_are_one_error_that_names_them(
    tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    fields = FieldMap(prompt=CHOICE, domain="{kind}")
    path = csv_file(tmp_path, "id,question,A\n" + "1,x,y\n" * 9)
    needed = "'id', 'question', 'A', 'B' and 'kind', as the template dataset.fields.prompt has it"
    assert refusal(path, fields) == [
        f"{path}:1: got a header without 'B': 'id', 'question', 'A'; accepted: a header with {needed}"
    ]
    path = write_jsonl([{"id": number, "question": "x"} for number in range(50)])
    (told,) = refusal(path, fields)
    assert told.startswith(f"{path}: lines 1, 2, 3 and 47 more: got no 'A', 'B' among the fields 'id', 'question'; ")
    assert told.endswith(f"accepted: a value for every column of the template {CHOICE!r}")
    (told,) = refusal(
        write_jsonl([{"choices": ["x"], "id": 1}]), FieldMap(prompt="{choices.0} {choices.1} {choices.x}")
    )
    assert "got no 'choices.1', 'choices.x' among the fields 'choices', 'id'" in told


def test_an_empty_column_of_a_template_is_empty_and_a_template_of_empty_columns_is_no_field(
    tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    fields = FieldMap(prompt=CHOICE, answer="{value} {unit}", system_prompt="Hint: {hint}")
    csv_path = csv_file(tmp_path, "id,question,A,B,value,unit,hint\n1,Q?,x,,,,\n2,,,,5,km,h\n")
    jsonl = write_jsonl(
        [
            {"id": 1, "question": "Q?", "A": "x", "B": None, "value": "", "unit": None, "hint": " "},
            {"id": 2, "question": None, "A": "", "B": " ", "value": 5, "unit": "km", "hint": "h"},
        ]
    )
    for path, line in ((csv_path, 3), (jsonl, 2)):
        (told,) = refusal(path, fields)
        assert told.startswith(
            f"{path}:{line}: got nothing in the columns of the template {CHOICE!r}; accepted: text in "
        )
    first = load_dataset(csv_file(tmp_path, "id,question,A,B,value,unit,hint\n1,Q?,x,,,,\n"), fields)[0]
    assert (first.prompt, first.answer, first.accepted, first.system_prompt) == ("Q?\nA) x\nB) ", "", (), "")


@pytest.mark.parametrize(
    ("template", "accepted"),
    [
        ("{question", "a template with {column}, and {{ or }} for a brace that is text"),
        ("question}", "a template with {column}, and {{ or }} for a brace that is text"),
        ("{a{b}}", "a template with {column}, and {{ or }} for a brace that is text"),
        ("{}", "a template with names of columns in braces, without !conversion or :format"),
        ("{a!r}", "a template with names of columns in braces, without !conversion or :format"),
        ("{a:>9}", "a template with names of columns in braces, without !conversion or :format"),
        ("{{question}}", "the name of a column, or a template with at least one {column}"),
    ],
)
@pytest.mark.parametrize("field", ["id", "prompt", "answer", "system_prompt", "domain"])
def test_a_bad_template_is_an_error_of_the_settings(field: str, template: str, accepted: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve_settings(cli={f"dataset.fields.{field}": template}, env={})
    assert str(caught.value) == f"--set dataset.fields.{field}: got {template!r}; accepted: {accepted}"


def test_metadata_is_one_column_and_no_template() -> None:
    with pytest.raises(SettingsError, match="accepted: the name of a column, which is no template"):
        resolve_settings(cli={"dataset.fields.metadata": "{a}"}, env={})


def test_columns_that_no_field_takes_are_metadata_under_that_of_the_item(
    tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    own = {"level": 3, "hint": "own"}
    row = {**GOOD, "system_prompt": "s", "domain": "d", "hint": "h", "source": "web", "none": None, "metadata": own}
    path = write_jsonl([{**row, "tags": ["x", {"y": 1}]}])
    merged = {"level": 3, "hint": "own", "source": "web"}
    assert load_dataset(path)[0].metadata == {**merged, "tags": ["x", {"y": 1}]}
    assert read_dataset(path).warnings == ()
    table = csv_file(
        tmp_path, 'id,prompt,answer,hint,source,none,metadata\na,What?,42,h,web,,"{""level"": 3, ""hint"": ""own""}"\n'
    )
    assert load_dataset(table)[0].metadata == merged
    assert load_dataset(table, FieldMap(metadata="other"))[0].metadata["metadata"] == json.dumps(own)


def test_columns_of_templates_are_metadata_except_what_only_an_answer_is_made_of(
    write_jsonl: Callable[..., Path],
) -> None:
    row = {
        "id": 1,
        "question": "Q?",
        "A": "x",
        "B": "y",
        "answer": "B",
        "value": 5,
        "unit": "km",
        "part": {"a": 1, "b": 2},
    }
    path = write_jsonl([row])
    shown = {"question": "Q?", "A": "x", "B": "y"}
    rest = {"value": 5, "unit": "km", "part": {"a": 1, "b": 2}}
    assert load_dataset(path, FieldMap(prompt=CHOICE))[0].metadata == {**shown, **rest}
    made = FieldMap(prompt=f"{CHOICE} in {{unit}}", answer="{value} {unit}")
    expected = {**shown, "unit": "km", "answer": "B", "part": {"a": 1, "b": 2}}
    assert load_dataset(path, made)[0].metadata == expected
    for answer in ("part.a", "{part.a}"):
        assert "part" not in load_dataset(path, FieldMap(prompt="question", answer=answer))[0].metadata


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (["Paris", "paris, France"], ("Paris", "paris, France")),
        (["Paris", " ", None, "Paris", "", "Lutetia"], ("Paris", "Lutetia")),
        ([42, 42.0, True], ("42", "42.0", "true")),
        ([], ()),
        ([None, ""], ()),
        (True, ("true",)),
        (False, ("false",)),
        ({"b": [1], "a": "ü"}, ('{"a":"ü","b":[1]}',)),
        ([{"b": 1}, "x"], ('[{"b":1},"x"]',)),
        ([[1, 2], [3]], ("[[1,2],[3]]",)),
    ],
)
def test_lists_truth_values_and_objects_are_answers(
    write_jsonl: Callable[..., Path], value: object, accepted: tuple[str, ...]
) -> None:
    path = write_jsonl([{**GOOD, "answer": value}])
    (item,) = load_dataset(path)
    assert item.accepted == accepted
    assert (item.answer, item.alternatives) == ((accepted or ("",))[0], accepted[1:])
    assert read_dataset(path).answers == bool(accepted)


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["Denver", "Denver, Colorado"], "answer_start": [1, 2]},
        [{"text": "Denver"}, {"text": "Denver, Colorado"}],
    ],
)
def test_the_answers_of_reading_tasks_are_taken_by_their_path(
    write_jsonl: Callable[..., Path], answers: object
) -> None:
    path = write_jsonl([{"id": 1, "context": "c", "question": "q", "title": "t", "answers": answers}])
    item = load_dataset(path, FieldMap(prompt="{context}\n\n{question}", answer="answers.text"))[0]
    assert item.accepted == ("Denver", "Denver, Colorado")
    assert item.metadata == {"context": "c", "question": "q", "title": "t"}


def test_cells_of_a_table_stay_text(tmp_path: Path) -> None:
    items = load_dataset(csv_file(tmp_path, 'id,prompt,answer\n1,a,"[""x"", ""y""]"\n2,b,true\n3,c,007\n'))
    assert [item.accepted for item in items] == [('["x", "y"]',), ("true",), ("007",)]


def test_equal_prompts_stay_different_items_with_a_warning(write_jsonl: Callable[..., Path]) -> None:
    rows = [{"id": f"t{n}", "prompt": f"Same  {n // 2}\n?", "answer": str(n)} for n in range(14)]
    path = write_jsonl([*rows, GOOD])
    found = read_dataset(path)
    assert len(found.items) == 15
    told = "7 sets of items ask the same in the same words: t0, t1; t2, t3; t4, t5; t6, t7; t8, t9 and 2 more"
    assert found.warnings == (f"{path}: {told}",)
    (told,) = read_dataset(write_jsonl([*rows[:2], GOOD])).warnings
    assert told.endswith("items t0, t1 ask the same in the same words")
    (told,) = read_dataset(write_jsonl([{**GOOD, "id": f"{n:04}"} for n in range(3_000)])).warnings
    assert told.endswith("items 0000, 0001, 0002, 0003, 0004 and 2,995 more ask the same in the same words")


def test_missing_answers_are_warned_of(write_jsonl: Callable[..., Path]) -> None:
    path = write_jsonl([GOOD, {"id": "b", "prompt": "x", "anwser": "y"}])
    assert read_dataset(path).warnings == (f"{path}: 1 of 2 items without an answer to compare with",)


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
