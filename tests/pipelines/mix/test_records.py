"""Records are indexed, not held: read by number from any thread, and what cannot be served is named."""

from __future__ import annotations

import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.pipelines.mixes import rows, write_rows
from tfgrpo.pipelines.mix.records import index_records, unservable
from tfgrpo.stores.errors import DatasetError


def test_records_are_numbered_without_blank_lines_and_know_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "first"}\r\n\n  \n{"prompt": "zwei \xc3\xbc"}\n{"prompt": "last"}')
    records = index_records(path)
    assert [record["prompt"] for record in records] == ["first", "zwei ü", "last"]
    assert [records.where(each) for each in range(3)] == [f"{path}:1", f"{path}:4", f"{path}:5"]
    assert records[-1]["prompt"] == "last"
    with pytest.raises(IndexError):
        records[3]


@pytest.mark.parametrize("space", ["\u00a0", "\x0c", "\x1c", "\u2028", "\x85", "\u3000 \t"])
def test_white_space_of_any_kind_around_a_record_is_none_of_it(tmp_path: Path, space: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(f'{space}\n{{"prompt": "p"}}{space}\n{space}{{"prompt": "q"}}\n{space}{space}\n'.encode())
    assert [record["prompt"] for record in index_records(path)] == ["p", "q"]


def test_what_can_be_graded_and_not_served_is_kept_and_named(tmp_path: Path) -> None:
    lines = [
        '{"prompt": "fine", "system_prompt": null, "metadata": {}, "answer": NaN}',
        "[1]",
        '{"answer": "42"}',
        '{"prompt": 3}',
        '{"prompt": "x", "system_prompt": 1}',
        '{"prompt": "x", "metadata": []}',
        '{"prompt": "x", "metadata": {"v": NaN}}',
        '{"prompt": "\\ud800"}',
        '{"prompt": "\\ud83d\\ude00", "prompt": "again"}',
    ]
    write_rows(tmp_path / "a.jsonl", lines)
    records = index_records(tmp_path / "a.jsonl")
    assert len(records) == len(lines)
    assert records.malformed == {
        1: "no JSON object",
        2: "no 'prompt'",
        3: "int in 'prompt'",
        4: "int in 'system_prompt'",
        5: "list in 'metadata'",
        6: "NaN or infinity, which is no JSON number",
        7: "half a surrogate pair, which is no character",
    }
    assert records[2] == {"answer": "42"}
    assert unservable({"prompt": "", "metadata": None}) == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "no JSON: Expecting property name enclosed in double quotes at column 2"),
        (b"\xff", "no UTF-8 at byte 0"),
        (b"[" * 100_000, "JSON nested without end"),
        (b'{"prompt": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
    ],
)
def test_what_is_no_json_is_refused_by_line_unless_it_was_checked_before(
    tmp_path: Path, line: bytes, told: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"prompt": "x"}\n' + line + b"\n")
    with pytest.raises(DatasetError) as caught:
        index_records(path)
    assert str(caught.value).startswith(f"{path}:2: got {told}")
    records = index_records(path, check=False)
    assert records[0] == {"prompt": "x"}
    with pytest.raises(DatasetError, match="accepted: a file that stays unchanged"):
        records[1]


def test_a_record_that_is_overwritten_is_refused_whatever_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_rows(path, rows("a"))
    for check in (True, False):
        before = path.read_bytes()
        records = index_records(path, check=check)
        with path.open("r+b") as stream:
            stream.write(before.replace(b'"answer": "1"', b'"answer": "7"'))
        assert records[0] == rows("a")[0]
        with pytest.raises(DatasetError) as caught:
            records[1]
        given = "a line that changed since the file was opened; accepted: a file that stays unchanged"
        assert str(caught.value) == f"{path}:2: got {given}"
        path.write_bytes(before + b'{"prompt": "more"}\n')
        assert records[1] == rows("a")[1]
        write_rows(path, rows("a"))


def test_a_replaced_file_has_no_effect_and_a_truncated_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_rows(path, rows("a"))
    records = index_records(path)
    path.rename(tmp_path / "old.jsonl")
    write_rows(path, rows("b"))
    assert list(records) == rows("a")
    (tmp_path / "old.jsonl").write_bytes(b"")
    with pytest.raises(DatasetError):
        records[5]


def test_many_threads_read_what_one_would(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", rows("a", 200))
    records = index_records(tmp_path / "a.jsonl")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(records.__getitem__, [*range(200)] * 5)) == rows("a", 200) * 5


def test_an_index_takes_a_few_bytes_a_record(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n} {'x' * 400}"}) + "\n" for n in range(5_000)), "utf-8")
    tracemalloc.start()
    try:
        records = index_records(path)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(records) == 5_000
    assert held < 40 * 5_000
    assert peak < 60 * 5_000 < path.stat().st_size / 6
