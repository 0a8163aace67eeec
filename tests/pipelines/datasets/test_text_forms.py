"""Tables and JSON are read in the forms that spreadsheets and scripts write, or named for what they are."""

import json
from pathlib import Path

import pytest

from tests.support.pipelines.datasets import refusal
from tfgrpo.pipelines.datasets.datasets import load_dataset, read_dataset
from tfgrpo.pipelines.settings.tree import FieldMap


def written(folder: Path, text: str | bytes, name: str = "items.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def prompts(path: Path) -> list[str]:
    return [item.prompt for item in load_dataset(path)]


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
        ('{\n "data": []\n}\n', [":1: got a JSON object over several lines; accepted: one JSON object on each line"]),
    ],
)
def test_what_is_no_array_of_objects_is_named_by_line(tmp_path, text, told):
    found = refusal(written(tmp_path, text, "items.json"))
    assert len(found) == len(told)
    assert all(part in line for part, line in zip(told, found, strict=True))


def test_a_json_file_that_describes_a_folder_is_no_data_of_it(tmp_path):
    written(tmp_path, '{\n "license": "mit"\n}\n', "dataset_info.json")
    written(tmp_path, "id\tprompt\na\tx\n", "a.tsv")
    assert prompts(tmp_path) == ["x"]
    (tmp_path / "a.tsv").unlink()
    written(tmp_path, '[{"id": "b", "prompt": "y"}]', "dataset_info.json")
    assert prompts(tmp_path) == ["y"]


READ = [("Größe?", ("7,15",)), ("Wie viel\nkostet es?", ("5 €",))]
"""What every file that can be read has: prompts and accepted answers."""
COMMAS = 'prompt,answer\nGröße?,"7,15"\n"Wie viel\nkostet es?",5 €\n'
SEMICOLONS = 'prompt;answer\nGröße?;7,15\n"Wie viel\nkostet es?";5 €\n'
OBJECTS = [{"prompt": "Größe?", "answer": "7,15"}, {"prompt": "Wie viel\nkostet es?", "answer": "5 €"}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in OBJECTS)
PRETTY = json.dumps(OBJECTS, ensure_ascii=False, indent=2)
CYRILLIC = "prompt,answer\nКак зовут столицу Франции?,Париж\n"  # noqa: RUF001
MAC = "prompt;answer\rCafé?;7\r"

FILES: dict[str, tuple[str, str | bytes, object]] = {
    "commas": ("a.csv", COMMAS, READ),
    "byte order mark": ("a.csv", "\ufeff" + COMMAS, READ),
    "lines of Windows": ("a.csv", SEMICOLONS.replace("\n", "\r\n").replace("viel\r", "viel"), READ),
    "carriage return twice": ("a.csv", "prompt,answer\r\r\nx,1\r\r\ny,2\r\r\n", [("x", ("1",)), ("y", ("2",))]),
    "carriage returns": ("a.csv", COMMAS.replace("\n", "\r"), READ),
    "carriage returns and a line feed within": ("a.csv", SEMICOLONS.replace("\n", "\r").replace("viel\r", "viel\n"), READ),
    "semicolons": ("a.csv", SEMICOLONS, READ),
    "semicolons of Windows-1252": ("a.csv", SEMICOLONS.encode("cp1252"), READ),
    "French spaces in Windows-1252": ("a.csv", "prompt;answer\n«\xa0café\xa0»;é\xa0»\n".encode("cp1252"), [
        ("«\xa0café\xa0»", ("é\xa0»",))]),
    "Excel's sep": ("a.csv", "sep=;\r\n" + SEMICOLONS, READ),
    "tabs in UTF-16": ("a.csv", SEMICOLONS.replace(";", "\t").encode("utf-16"), READ),
    "tabs": ("a.tsv", SEMICOLONS.replace(";", "\t"), READ),
    "spaces around names": ("a.csv", COMMAS.replace("prompt,answer", " prompt , answer "), READ),
    "spaces behind commas": ("a.csv", 'prompt, answer\nGröße?, "7,15"\n"Wie viel\nkostet es?", 5 €\n', READ),
    "empty lines": ("a.csv", "\n\n" + COMMAS.replace("5 €\n", "5 €\n\n   \n\n"), READ),
    "lines of separators": ("a.csv", SEMICOLONS + ";\n;\n", READ),
    "empty columns": ("a.csv", 'prompt;answer;;\nGröße?;7,15;;\n"Wie viel\nkostet es?";5 €;;\n', READ),
    "separators behind the last value": ("a.csv", 'prompt;answer\nGröße?;7,15;\n"Wie viel\nkostet es?";5 €;;\n', READ),
    "the index of a frame": ("a.csv", ',prompt,answer\n0,Größe?,"7,15"\n1,"Wie viel\nkostet es?",5 €\n', READ),
    "a delimiter that shifts into an empty column": ("a.csv", "prompt,answer,\nHm, so?,7,\nGröße?,7,15\n", [
        ":2: got a value in a column without a name", ":3: got a value in a column without a name"]),
    "a header without names for all": ("a.csv", "prompt,answer,\nGröße?,7,15\n", ":2: got a value in a column without"),
    "no header": ("a.csv", "Größe?,7\n", ":1: got a header without 'prompt': 'Größe?', '7'"),
    "bars": ("a.csv", SEMICOLONS.replace(";", "|"), READ),
    "metadata as Python writes it": ("a.csv", "metadata,prompt,answer\n\"{'topic': 'Art'}\",x,1\n", [("x", ("1",))]),
    "broken metadata": ("a.csv", "metadata,prompt,answer\n\"{'topic': \",x,1\n", ":2: got no JSON in the field 'metadata'"),
    "a quote that is not closed": ("a.csv", 'prompt,answer\n"x,1\ny,2\n', ":2: got unexpected end of data"),
    "quotes by a backslash": ("a.csv", 'prompt,answer\n"x \\"y\\", z",1\n', ":2: got ',' expected after '\"'"),
    "a name twice": ("a.csv", "prompt,answer,answer\nx,1,2\n", ":1: got a header with 'answer' twice"),
    "Mac Roman": ("a.csv", MAC.encode("mac_roman"), "probably Mac Roman (iconv -f MACINTOSH -t UTF-8)"),
    "UTF-8 and Windows-1252": ("a.csv", COMMAS.encode() + "ß,2\n".encode("cp1252"), [
        ":5: got bytes that are no UTF-8, while line 2 is UTF-8: a file in two encodings"]),
    "a mark of UTF-8 before Windows-1252": ("a.csv", b"\xef\xbb\xbf" + COMMAS.encode("cp1252"), "while line 1 is UTF-8"),
    "Cyrillic in UTF-8 and a byte": ("a.jsonl", '{"prompt": "Да"}\n'.encode() + b'{"prompt": "\xfc"}', "two encodings"),
    "Cyrillic of Windows": ("a.csv", CYRILLIC.encode("cp1251"), [
        ":2: got no UTF-8, and probably no Windows-1252"]),
    "Japanese of Windows": ("a.csv", "prompt,answer\n日本の首都は、どこですか。,東京\n".encode("cp932"), ":2: got "),
    "bytes that no code page has": ("a.csv", b"prompt,answer\nx,1\ny,\x81\n", [
        ":3: got bytes that neither UTF-8 nor Windows-1252 has; accepted: text in UTF-8"]),
    "zero bytes": ("a.csv", b"prompt,answer\nx,1\n\xfc\0,2\n", ":3: got a zero byte, which is no text"),
    "UTF-32": ("a.csv", COMMAS.encode("utf-32"), "text in UTF-32; accepted: text in UTF-8, or in UTF-16 with a"),
    "half a character of UTF-16": ("a.csv", COMMAS.encode("utf-16") + b"\x00", "no UTF-16 at byte"),
    "UTF-16 without a mark": ("a.csv", COMMAS.encode("utf-16-le"), "UTF-16 without a byte order mark"),
    "a sheet named as a table": ("a.csv", b"PK\x03\x04\x14\0", "a zip archive, as .xlsx files are: save its sheet as CSV"),
    "an old sheet named as a table": ("a.csv", b"\xd0\xcf\x11\xe0\xa1", "a spreadsheet of an old Excel: save its sheet"),
    "a compressed file named as lines": ("a.jsonl", b"\x1f\x8b\x08\0", "data compressed by gzip: unpack it"),
    "Parquet named as lines": ("a.jsonl", b"PAR1\x15\x04", "a Parquet file: let its name end in .parquet"),
    "a pointer of Git LFS": ("a.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
    "a web page": ("a.csv", "\n<!DOCTYPE html>\n<html>\n", "a web page in place of the data"),
    "a sheet": ("a.xlsx", b"PK\x03\x04", "a file that ends in '.xlsx': save the sheet as CSV UTF-8; accepted: a .jsonl"),
    "a compressed file": ("a.jsonl.gz", b"\x1f\x8b", "a file that ends in '.gz': unpack it; accepted: a .jsonl"),
    "an archive": ("a.zip", b"PK\x03\x04", "a file that ends in '.zip': unpack it"),
    "plain text": ("a.txt", LINES, "a file that ends in '.txt': let the name of JSON lines end in .jsonl"),
    "a pickle": ("a.pkl", b"\x80", "a file that ends in '.pkl': write it as JSON lines"),
    "JSON lines": ("a.jsonl", LINES, READ),
    "JSON lines with carriage returns": ("a.ndjson", LINES.replace("\n", "\r"), READ),
    "JSON lines named as an array": ("a.json", LINES, READ),
    "JSON lines, the first one cut": ("a.jsonl", '{"prompt": "x", "answer"\n' + LINES, ":1: got no JSON: Expecting ':'"),
    "JSON lines of lists": ("a.jsonl", '["x", 1]\n["y", 2]\n', [
        ":1: got JSON that is text", ":1: got JSON that is a number", ":2: got more text behind the end of the array"]),
    "an array": ("a.json", PRETTY, READ),
    "an array in UTF-16": ("a.json", PRETTY.encode("utf-16"), READ),
    "objects over several lines": ("a.jsonl", "\n".join(json.dumps(row, indent=1) for row in OBJECTS), READ),
    "one object over several lines": ("a.json", json.dumps(OBJECTS[0], indent=1), READ[:1]),
    "data in an object": ("a.json", json.dumps({"version": "1.1", "data": OBJECTS}), READ),
    "data under a name with escapes": ("a.json", json.dumps({"s": '"é": [', "é": OBJECTS}), READ),
    "a list in an object in an object": ("a.json", json.dumps({"version": 2, "data": {"items": OBJECTS}}), READ),
    "objects by id": ("a.json", json.dumps({"a": OBJECTS[0], "b": OBJECTS[1]}), READ),
    "objects that have nothing in common": ("a.json", '{"a": {"x": 1},\n "b": {"y": 1}}', "got a JSON object over several"),
    "two lists of one name": ("a.json", '{"data": [{"a": 1}], "data": [{"a": 2}]}', ["with several lists of objects"]),
    "rows in an object over several lines": ("a.json", json.dumps({"rows": OBJECTS, "n": 2, "f": ["x"]}, indent=1), READ),
    "examples in an object, among lines": ("a.jsonl", json.dumps({"examples": OBJECTS}) + "\n", READ),
    "two lists in an object": ("a.json", json.dumps({"train": OBJECTS, "test": OBJECTS}), [
        ":1: got a JSON object with several lists of objects: 'train', 'test'; accepted: one JSON object on each line"]),
    "a list of lists in an object": ("a.json", json.dumps({"columns": ["prompt"], "data": [["x"]]}), [
        ":1: got no 'prompt' among the fields 'columns', 'data'"]),
    "columns of a frame": ("a.json", json.dumps({"prompt": {"0": "x"}, "answer": {"0": 1}}), "got dict in the field 'prompt'"),
    "conversations": ("a.jsonl", json.dumps({"messages": [{"role": "user", "content": "x"}]}), [
        ":1: got no 'prompt' among the fields 'messages'"]),
    "data that is cut": ("a.json", json.dumps({"data": OBJECTS}, indent=1)[:60], ": got no JSON: "),
    "comments": ("a.json", "// items\n" + PRETTY, ":1: got a comment, which JSON does not have"),
    "a comment behind an object": ("a.json", PRETTY.replace("},", "} /* 1 */,"), ":5: got a comment, which JSON does not have"),
    "a comma too many": ("a.json", PRETTY.replace("}\n]", "},\n]"), ": got no JSON: "),
    "single quotes": ("a.jsonl", "{'prompt': 'x'}\n", ":1: got no JSON: Expecting property name enclosed in double quotes"),
    "NaN": ("a.jsonl", '{"prompt": "x", "answer": NaN}\n', ":1: got NaN, which is no JSON number"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_any_kind_is_read_right_or_refused_clearly(tmp_path, kind):
    name, content, expected = FILES[kind]
    path = written(tmp_path, content, name)
    fields = FieldMap(id=None)
    if isinstance(expected, list) and isinstance(expected[0], tuple):
        items = load_dataset(path, fields)
        assert [(item.prompt, item.accepted) for item in items] == expected
        assert not any(item.metadata.keys() - {"id", "topic"} for item in items)
        return
    told = refusal(path, fields)
    parts = expected if isinstance(expected, list) else [expected]
    assert all(str(path) in line and "; accepted: " in line for line in told)
    assert all(part in line for part, line in zip(parts, told, strict=True))


def test_files_of_a_folder_in_windows_1252_are_warned_of_once_each_and_then_counted(tmp_path):
    for number in range(7):
        written(tmp_path, f"id,prompt,answer\n{number},Größe {number}?,1\n".encode("cp1252"), f"{number}.csv")
    *first, more = read_dataset(tmp_path).warnings
    assert [line.partition(": line 2 is no UTF-8")[0] for line in first] == [
        str(tmp_path / f"{number}.csv") for number in range(3)
    ]
    assert more == f"{tmp_path}: 4 more files are read so"
