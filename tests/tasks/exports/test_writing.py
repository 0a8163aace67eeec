"""Files are there whole or not at all, verl's Parquet has its types, and memory does not grow with the run."""

from __future__ import annotations

import json
import sqlite3
import sys
import tracemalloc

import pytest

from benchmarks.parts.export import write_run
from tests.support.agents.exports import export, group, logprobs, rollout, stream
from tfgrpo.stores.errors import CorruptFile, SettingsError, StoreError
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.tasks.exports.choosing import ExportOptions, ExportReport
from tfgrpo.tasks.exports.exporting import encode_row, export_groups, write_lines
from tfgrpo.tasks.exports.run_reading import line_index


def test_a_lone_surrogate_is_written_as_it_was_sent(tmp_path):
    write_lines(tmp_path / "x", [encode_row({"a": "\ud800b"})])
    assert json.loads((tmp_path / "x").read_text(encoding="utf-8")) == {"a": "?b"}


def test_rows_with_nan_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_row({"a": float("nan")})


def test_a_failed_write_keeps_the_old_file_and_no_temporary_file(tmp_path):
    def broken():
        yield "one"
        raise CorruptFile("two")

    (tmp_path / "x").write_text("before")
    with pytest.raises(CorruptFile):
        write_lines(tmp_path / "x", broken())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "before")]


def test_a_failed_disk_operation_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_lines(tmp_path / "file" / "x", ["one"])


def test_files_are_readable_by_their_owner_only(tmp_path):
    export([group(1.0, 0.0)], "trl-sft", tmp_path / "deep" / "x.jsonl")
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "deep").iterdir()} == {"0o600"}


# --- Parquet


def parquet(groups, path):
    parquet_file = pytest.importorskip("pyarrow.parquet")
    report = ExportReport("test", ExportOptions(target="verl"))
    export_groups(groups, path, report)
    return parquet_file.read_table(path).to_pylist()


def test_verl_takes_parquet_with_a_type_for_every_column(tmp_path):
    plain = [group(1.0, 0.0, name=f"g{number}") for number in range(1_001)]
    rollouts = tuple(rollout(index, float(index), logprob=logprobs(-0.5, token_ids=(7,))) for index in range(2))
    rows = parquet([*plain, group(rollouts=rollouts)], tmp_path / "x.parquet")
    assert len(rows) == 1_002
    assert rows[0]["prompt"][-1] == {"role": "user", "content": "3 + 4?"}
    info = rows[0]["extra_info"]
    assert (info["recorded_rewards"], info["recorded_logprobs"]) == ([1.0, 0.0], [])
    assert json.loads(info["recorded_completions"][0]) == [{"role": "assistant", "content": "answer 0"}]
    assert rows[-1]["extra_info"]["recorded_logprobs"] == [[-0.5], [-0.5]]
    assert rows[-1]["extra_info"]["index"] == 1_001


def test_prompts_with_tools_are_refused_for_parquet(tmp_path):
    turns = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "tool_call_id": "c", "content": "7"},
    ]
    with pytest.raises(StoreError, match=r"'g' has turns with tools; write a \.jsonl file"):
        parquet([group(1.0, 0.0, state=turns)], tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SettingsError, match=r"tfgrpo\[parquet\]"):
        export([group(1.0, 0.0)], "verl", tmp_path / "x.parquet")


# --- the index of a large file


def test_lines_are_found_by_their_key_in_file_order_and_damaged_ones_are_named(tmp_path):
    path = tmp_path / "lines"
    rows = [{"key": "a", "n": 1}, {"key": "b", "text": "x" * 50_000}, {"key": "a", "n": 2}, {"no": "key"}]
    LineFile(path).append(rows)

    def key(line: bytes) -> str | None:
        return json.loads(line).get("key")

    with line_index(path, key) as index:
        found = index.lines(["a", "b", "c"])
        assert {name: [json.loads(line)["n"] for line in found[name]] for name in "a"} == {"a": [1, 2]}
        assert (len(found["b"][0]) > 50_000, index.lines([])) == (True, {})
    with line_index(tmp_path / "none", key) as index:
        assert index.lines(["a"]) == {}
    path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":3'))
    with pytest.raises(CorruptFile, match="line 3 is damaged"), line_index(path, key):
        pass
    with line_index(path, key, lenient=True) as index:
        assert len(index.lines(["a"])["a"]) == 1


def test_an_index_that_cannot_be_made_is_a_store_error(tmp_path, monkeypatch):
    def refused(_name: str) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(sqlite3, "connect", refused)
    with pytest.raises(StoreError, match="cannot be indexed: disk full"), line_index(tmp_path / "lines", str):
        pass


# --- memory


@pytest.mark.untraced
def test_memory_does_not_grow_with_the_number_of_attempts(tmp_path):
    run = write_run(tmp_path, 8_000)
    read = sum(path.stat().st_size for path in run.root.iterdir())
    report = ExportReport("test", ExportOptions(target="trl-grpo"))
    export_groups(stream(write_run(tmp_path, 80, run_id="warm")), tmp_path / "warm.jsonl", report)
    tracemalloc.start()
    try:
        export_groups(stream(run), tmp_path / "x.jsonl", report)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.rows == 1_010
    # The chunks of a few files, and their lines; as objects, what was read would take several times its size on disk.
    assert read > 14_000_000
    assert peak < 10_000_000, f"{peak:,} bytes for {read:,} bytes of files"
