"""Rows of a key are written once, whoever else writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.records import writers
from tests.support.records.processes import all_at_once, bytes_read
from tfgrpo.stores.errors import RecordRejected
from tfgrpo.stores.files import line_file
from tfgrpo.stores.files.atomic import KeyedJsonl, read_lines


def by_key(path: Path) -> KeyedJsonl:
    return KeyedJsonl(path, lambda row: row["key"])


def test_a_key_is_written_once(tmp_path):
    path = tmp_path / "rows"
    file = by_key(path)
    assert file.append([{"key": "a", "n": 1}, {"key": "b", "n": 1}, {"key": "a", "n": 2}]) == 2
    assert file.append([{"key": "a", "n": 3}]) == 0
    assert by_key(path).append([{"key": "b"}, {"key": "c"}]) == 1
    assert [json.loads(line) for line in read_lines(path)] == [{"key": "a", "n": 1}, {"key": "b", "n": 1}, {"key": "c"}]


def test_no_rows_make_no_file(tmp_path):
    assert by_key(tmp_path / "rows").append([]) == 0
    assert list(tmp_path.iterdir()) == []


def test_two_open_files_know_of_each_other(tmp_path):
    one, other = by_key(tmp_path / "rows"), by_key(tmp_path / "rows")
    assert one.append([{"key": "a"}]) == 1
    assert other.append([{"key": "a"}, {"key": "b"}]) == 1
    assert one.append([{"key": "b"}]) == 0


def test_processes_that_write_the_same_rows_write_each_once(tmp_path):
    keys = [f"k{number}" for number in range(40)]
    all_at_once(writers.append_keyed, [(tmp_path / "rows", keys) for _ in range(4)])
    assert sorted(json.loads(line)["key"] for line in read_lines(tmp_path / "rows")) == sorted(keys)


@pytest.mark.parametrize("row", [{"key": "b", "n": float("nan")}, {"key": "b", "n": {1}}])
def test_a_row_that_is_no_json_stops_the_whole_batch(tmp_path, row):
    file = by_key(tmp_path / "rows")
    file.append([{"key": "a"}])
    with pytest.raises(RecordRejected):
        file.append([{"key": "c"}, row])
    assert list(read_lines(tmp_path / "rows")) == ['{"key":"a"}']


def test_lines_damaged_by_hand_do_not_stop_the_next_append(tmp_path):
    path = tmp_path / "rows"
    path.write_text('{"key":"a"}\nnonsense\n{"no":"key"}\n[]\n' + "[" * 200_000 + "\n")
    assert by_key(path).append([{"key": "a"}, {"key": "b"}]) == 1


def test_a_file_shortened_by_hand_is_read_anew(tmp_path):
    path = tmp_path / "rows"
    file = by_key(path)
    file.append([{"key": "a"}, {"key": "b"}])
    path.write_text('{"key":"b"}\n')
    assert file.append([{"key": "a"}, {"key": "b"}]) == 1


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes by /proc")
def test_a_row_costs_a_row_once_the_file_is_known(tmp_path):
    file = by_key(tmp_path / "rows")
    file.append([{"key": f"{number:050d}"} for number in range(50_000)])
    file.append([{"key": "first"}])
    before = bytes_read()
    file.append([{"key": "second"}])
    assert bytes_read() - before < 2 * line_file._TAIL + 10_000
