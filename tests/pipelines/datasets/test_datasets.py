"""Dataset files are read whole or refused whole, every bad line by file and line."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.powl.world import ITEMS as FILES
from tests.support.pipelines.datasets import refusal
from tfgrpo.pipelines.datasets.datasets import load_dataset, read_dataset
from tfgrpo.pipelines.datasets.items import item_of
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.rewarders.powl import labels_of, parse_json, parse_text, to_json, to_text, validate
from tfgrpo.stores.errors import CappedProblems, DatasetError, Problem, SettingsError

GOOD = {"id": "a", "prompt": "What?", "answer": "42"}
CHOICE = "{question}\nA) {A}\nB) {B}"


def csv_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "items.csv"
    path.write_bytes(text.encode())
    return path


BAD_LINES: list[tuple[Any, str]] = [
    ("{broken", "no JSON: Expecting property name"),
    ("[1]", "JSON that is a list"),
    ('"text"', "JSON that is text"),
    ("null", "JSON that is null"),
    ({"id": "b"}, "got no 'prompt'"),
    ({"id": "", "prompt": "x"}, "got no 'id'"),
    ({"id": "c", "prompt": 3}, "int in the field 'prompt'; accepted: text in the field 'prompt'"),
    ({"id": "d", "prompt": ["x"], "answer": True}, "list in the field 'prompt'; accepted: text"),
    ({"id": False, "prompt": "x"}, "bool in the field 'id'; accepted: text or a number"),
    ({"id": "f", "prompt": "x", "metadata": "{text"}, "a JSON object in the field 'metadata'"),
    ({"id": "a", "prompt": "again"}, "the id 'a' of line 1 again; accepted: an id of its own for every item"),
    ('{"id": "g", "id": "h", "prompt": "x"}', "the key 'id' twice"),
    ('{"id": "i", "prompt": "x", "metadata": {"v": NaN}}', "NaN, which is no JSON number"),
    ('{"id": "j", "prompt": "\\ud800"}', "half a surrogate pair"),
    ("[" * 100_000, "nested without end"),
]


def test_bad_lines_are_all_named_by_file_and_line(write_jsonl):
    path = write_jsonl([GOOD, "", *(line for line, _ in BAD_LINES), '{"id": "k", "prompt": "\\ud83d\\ude00"}'])
    found = refusal(path)
    assert len(found) == len(BAD_LINES)
    for number, (line, (_, expected)) in enumerate(zip(found, BAD_LINES, strict=True), start=3):
        assert line.startswith(f"{path}:{number}: got ")
        assert expected in line


HEADER = "1: got a header without 'prompt': 'id', 'question'; accepted: a header with 'id' and 'prompt', another name"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,prompt\na,x,y\nb,z\nc\n", ["2: got 3 values; accepted: 2 values", "4: got 1 value; accepted: 2 values"]),
        ("id,prompt,metadata\na,x,{\n", ["2: got no JSON in the field 'metadata'"]),
        ('id,prompt\na,"x"y\nb,z\n', ["2: got ',' expected after '\"'"]),
        ("id,question\na,x\n", [HEADER]),
        ("question,solution\nx,y\n", ["1: got a header without 'id': 'question', 'solution'; accepted: "]),
        ("id,id,prompt\na,b,x\n", ["1: got a header with 'id' twice"]),
        ('id,"pro"mpt\n', ["1: got ',' expected after '\"'"]),
        ("id,prompt\na,x\na,y\n", ["3: got the id 'a' of line 2 again"]),
    ],
)
def test_bad_csv_lines_are_named_by_file_and_line(tmp_path, text, told):
    path = csv_file(tmp_path, text)
    found = refusal(path)
    assert len(found) == len(told)
    assert all(line.startswith(f"{path}:{expected}") for line, expected in zip(found, told, strict=True))


def test_a_value_of_a_table_may_be_long_up_to_a_limit(tmp_path):
    prompt = "x, " * 400_000
    assert load_dataset(csv_file(tmp_path, f'id,prompt,answer\na,"{prompt}",42\n'))[0].prompt == prompt
    bound = csv.field_size_limit(1_000)
    try:
        (told,) = refusal(csv_file(tmp_path, f'id,prompt\na,"open {"x" * 2_000}\n'))
    finally:
        csv.field_size_limit(bound)
    assert "2: got a value of more than 1,000 characters; is a quote not closed?" in told


def test_a_missing_file_is_reported_with_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("none.jsonl", "none.csv", "none.parquet", "none", "none.txt"):
        (told,) = refusal(Path("data", name))
        assert told.lower().startswith(f"data/{name}: got no such file")
        assert f" at {tmp_path / 'data' / name}; accepted: " in told


def test_fifty_different_problems_are_shown_and_the_rest_counted():
    problems = CappedProblems()
    for first in "abcdefgh":
        for second in "abcdefghij":
            problems.add(Problem(f"f:{first}{second}", f"no {first}{second}", "a word"))
    with pytest.raises(DatasetError) as caught:
        problems.raise_problems(DatasetError, "f")
    told = [str(problem) for problem in caught.value.problems]
    assert (len(told), told[0]) == (51, "f:aa: got no aa; accepted: a word")
    assert told[-1].startswith("f: got 30 more problems")


ROW = {
    "ask": {"text": "Q?", "by": None}, "choices": ["x", "y"], "a.b": 7, "tags": ["s", 1],
    "steps": [{"do": "p"}, {"do": "q"}], "many": [*range(27)],
    "letters": {"A": "x", "B": 2, "C": None}, "small": {"a": "x", "b": "y"}, "marked": ["A)21", "B)22"],
    "round": ["(a) x", "(b) y"], "half": ["A. x", "y"], "other": {"A": "x", "why": "y"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{ask.text} {ask.by}|", "Q? |"), ("A) {choices.0} B) {choices.1}", "A) x B) y"), ("{a.b} {tags}", "7 A) s\nB) 1"),
        ("{ ask.text }{steps.do}", "Q?A) p\nB) q"), ("{ask.text} {steps}", 'Q? [{"do":"p"},{"do":"q"}]'),
        ("{many}", f"[{','.join(map(str, range(27)))}]"), ("{ask}", '{"by":null,"text":"Q?"}'), ("{letters}", "A) x\nB) 2"),
        ("{small}", "A) x\nB) y"), ("{marked}", "A) 21\nB) 22"), ("{round}", "A) x\nB) y"), ("{half}", "A) A. x\nB) y"),
        ("{other}", '{"A":"x","why":"y"}'),
    ],
)  # fmt: skip
def test_names_in_a_template_are_columns_or_paths_and_options_have_one_letter_each(write_jsonl, template, prompt):
    assert load_dataset(write_jsonl([ROW]), FieldMap(id=None, prompt=template))[0].prompt == prompt


def test_columns_of_one_brace_are_options_in_an_order_of_chance_that_is_always_the_same(write_jsonl):
    rows = [{"q": f"Q{n}?", "right": f"r{n}", "wrong 1": f" r{n}\n{n}", "more": [f"x{n}", 7, None, f"x{n}"]} for n in range(40)]
    fields = FieldMap(id=None, prompt="{q}\n{right | wrong 1|more}", answer="right")
    items = load_dataset(write_jsonl(rows), fields)
    shown = [item.prompt.splitlines()[1:] for item in items]
    assert [{line[3:] for line in lines} for lines in shown] == [{f"r{n}", f"r{n} {n}", f"x{n}", "7"} for n in range(40)]
    assert {"".join(line[:3] for line in lines) for lines in shown} == {"A) B) C) D) "}
    places = Counter(line[0] for n, lines in enumerate(shown) for line in lines if line[3:] == f"r{n}")
    assert min(places[letter] for letter in "ABCD") >= 4
    assert [item.prompt for item in load_dataset(write_jsonl(rows), fields)] == [item.prompt for item in items]
    rows = [{"q": "Q?", "right": "Paris", "wrong": wrong} for wrong in (None, "", [], "Rome")]
    items = load_dataset(write_jsonl(rows), FieldMap(id=None, prompt="{q}{right|wrong}", answer="right"))
    assert ["Paris" in item.prompt for item in items] == [False, False, False, True], "an only option would be the answer"
    with pytest.raises(DatasetError, match="items:3: got NaN or infinity"):
        item_of({**rows[0], "wrong": float("nan")}, FieldMap(id=None, prompt="{q}{right|wrong}"), number=0, source="items:3")
    (item,) = load_dataset(
        write_jsonl([{"q|en": "Q?", "a|b": "x", "a": "kept"}]), FieldMap(id=None, prompt="q|en", answer="a|b")
    )
    assert (item.prompt, item.answer, item.metadata) == ("Q?", "x", {"a": "kept"}), "a bar mixes columns in templates alone"


EMPTY_DROP = {"number": "", "spans": [], "date": {"day": "", "month": "", "year": ""}, "hit_id": "h"}


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (2.5, ("2.5",)),
        (10**30, (str(10**30),)),
        (" ", ()),
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
        ({**EMPTY_DROP, "number": 7}, ("7",)),
        ({**EMPTY_DROP, "number": "0"}, ("0",)),
        ({**EMPTY_DROP, "spans": ["Paris", "Rome"]}, ("Paris, Rome",)),
        ({**EMPTY_DROP, "date": {"day": "3", "month": "May", "year": "1990"}}, ("3 May 1990",)),
        ({**EMPTY_DROP, "date": {"day": "", "month": "May", "year": "1990"}}, ("May 1990",)),
        (EMPTY_DROP, ()),
    ],
)
def test_numbers_lists_truth_values_and_objects_are_answers(write_jsonl, value, accepted):
    found = read_dataset(write_jsonl([{**GOOD, "id": 7, "answer": value}]))
    (item,) = found.items
    assert (item.id, item.accepted, item.alternatives) == ("7", accepted, accepted[1:])
    assert item.as_record()["answer"] == ([*accepted] if accepted[1:] else next(iter(accepted), item.answer or None))
    assert found.answers == bool(accepted)


def test_items_without_an_answer_are_counted_among_others_that_have_one(write_jsonl):
    for answers, said in (("   ", False), ("7  ", True), ("777", False)):
        found = read_dataset(
            write_jsonl([{"id": at, "prompt": at, "answer": text} for at, text in zip("abc", answers, strict=True)])
        )
        counted = f"{found.name}: 2 of 3 items without an answer to compare with"
        assert found.warnings == ((counted,) if said else ()), "of data for a judge this is no news"


def test_columns_that_a_template_lacks_are_one_error_that_names_them(tmp_path, write_jsonl):
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


def test_an_empty_column_of_a_template_is_empty_and_a_template_of_empty_columns_is_no_field(tmp_path, write_jsonl):
    fields = FieldMap(prompt=CHOICE, answer="{value} {unit}", system_prompt="Hint: {hint}")
    header = "id,question,A,B,value,unit,hint\n1,Q?,x,,,,\n"
    empty = {"id": 2, "question": None, "A": "", "B": " ", "value": 5, "unit": "km", "hint": "h"}
    for path, line in ((csv_file(tmp_path, f"{header}2,,,,5,km,h\n"), 3), (write_jsonl([empty]), 1)):
        (told,) = refusal(path, fields)
        assert told.startswith(f"{path}:{line}: got nothing in the columns of the template {CHOICE!r}; accepted: text in ")
    (first,) = load_dataset(csv_file(tmp_path, header), fields)
    assert (first.prompt, first.answer, first.accepted, first.system_prompt) == ("Q?\nA) x\nB) ", "", (), "")


BRACES = "a template with {column}, and {{ or }} for a brace that is text"
NAMES = "a template with names of columns in braces, without !conversion or :format"


@pytest.mark.parametrize(
    ("template", "accepted"),
    [
        ("{question", BRACES),
        ("question}", BRACES),
        ("{a{b}}", BRACES),
        ("{}", NAMES),
        ("{a!r}", NAMES),
        ("{a:>9}", NAMES),
        ("{{question}}", "the name of a column, or a template with at least one {column}"),
    ],
)
def test_a_bad_template_is_an_error_of_the_settings(template, accepted):
    for field in ("id", "prompt", "answer", "system_prompt", "domain"):
        with pytest.raises(SettingsError) as caught:
            resolve_settings(cli={f"dataset.fields.{field}": template}, env={})
        assert str(caught.value) == f"--set dataset.fields.{field}: got {template!r}; accepted: {accepted}"


@pytest.mark.parametrize(
    ("given", "answer", "metadata"),
    [
        ("{'topic': 'Science'}", "answer", {"topic": "Science"}),  # SimpleQA
        ('{"topic": "Science"}', "answer", {"topic": "Science"}),
        ("from the web", "answer", {"metadata": "from the web"}),
        (["a", 1], "answer", {"metadata": ["a", 1]}),
        ("", "answer", {}),
        ("42", "metadata", {"answer": "42"}),
        (["42", "Rome"], "metadata", {"answer": "42"}),
        ({"gold": "42", "level": 3}, "metadata.gold", {"answer": "42", "level": 3}),
        ({"gold": {"text": "42"}, "level": 3}, "{metadata.gold.text}", {"answer": "42", "level": 3}),
    ],
)
def test_metadata_that_is_text_is_read_what_is_no_object_is_a_column_and_an_answer_within_is_none(
    write_jsonl, given, answer, metadata
):
    item = load_dataset(write_jsonl([{**GOOD, "metadata": given}]), FieldMap(answer=answer))[0]
    assert (item.answer, item.metadata) == ("42", metadata)


def test_equal_prompts_stay_different_items_with_a_warning(write_jsonl):
    rows = [{"id": f"t{n}", "prompt": f"Same  {n // 2}\n?", "answer": str(n)} for n in range(14)]
    path = write_jsonl([*rows, GOOD])
    found = read_dataset(path)
    assert len(found.items) == 15
    told = "7 sets of items ask the same in the same words: t0, t1; t2, t3; t4, t5; t6, t7; t8, t9 and 2 more"
    assert found.warnings == (f"{path}: {told}",)
    (told,) = read_dataset(write_jsonl([{**GOOD, "id": f"{n:04}"} for n in range(3_000)])).warnings
    assert told.endswith("items 0000, 0001, 0002, 0003, 0004 and 2,995 more ask the same in the same words")


LEARN, HELD_OUT = map(load_dataset, FILES)
ITEMS = LEARN + HELD_OUT
LABELS_LINE = "\n\nActivity labels: "


def kinds(items):
    return Counter(item.metadata["kind"] for item in items)


def test_the_powl_world_has_enough_kinds_with_valid_references_and_measures_on_none_that_it_learns_on():
    learned, measured, every = kinds(LEARN), kinds(HELD_OUT), kinds(ITEMS)
    assert not learned.keys() & measured.keys()
    assert (min(len(learned), len(measured)) >= 5, len(every) >= 10, min(every.values()) >= 6) == (True, True, True)
    assert len({item.id for item in ITEMS}) == len({item.prompt for item in ITEMS}) == len(ITEMS) >= 60
    for item in ITEMS:
        model = parse_text(item.answer)
        named = item.prompt.split(LABELS_LINE)[1].split(", ")
        checked = validate(model, allowed_labels=named)
        assert checked.findings == ()
        assert parse_text(to_text(model)) == parse_json(to_json(model)) == model
        assert to_text(model) == item.answer
        assert sorted(labels_of(model)) == named == sorted(named) == item.metadata["labels"]
