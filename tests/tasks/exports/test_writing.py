"""Files are there whole or not at all, verl's Parquet has its types, and memory is bounded by keys and offsets."""

from __future__ import annotations

import json
import sys
import tracemalloc

import pytest

from benchmarks.parts.export import write_run
from tests.support.agents.exports import export, group, logprobs, rollout, stream
from tfgrpo.stores.errors import CorruptFile, SettingsError, StoreError
from tfgrpo.tasks.exports.choosing import ExportOptions, ExportReport
from tfgrpo.tasks.exports.exporting import export_groups


def test_a_lone_surrogate_is_written_as_it_was_sent(tmp_path):
    rows, _ = export([group(1.0, 0.0, state="\ud800b")], "trl-sft", tmp_path / "deep" / "x")
    assert rows[0]["prompt"][0]["content"] == "?b"
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "deep").iterdir()} == {"0o600"}


def test_a_failed_write_keeps_the_old_file_and_no_temporary_file(tmp_path):
    def broken():
        yield group(1.0, 0.0)
        raise CorruptFile("two")

    (tmp_path / "x").write_text("before")
    with pytest.raises(CorruptFile):
        export(broken(), "trl-sft", tmp_path / "x")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "before")]
    with pytest.raises(StoreError, match="cannot be written"):
        export([group(1.0, 0.0)], "trl-sft", tmp_path / "x" / "y")


# --- Parquet


def parquet(groups, path):
    parquet_file = pytest.importorskip("pyarrow.parquet")
    export_groups(groups, path, ExportReport("test", ExportOptions(target="verl")))
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


# --- large files


def most_memory(path, attempts):
    run = write_run(path, attempts, run_id=f"of-{attempts}")
    report = ExportReport("test", ExportOptions(target="trl-grpo"))
    tracemalloc.start()
    try:
        export_groups(stream(run), path / "x.jsonl", report)
        return tracemalloc.get_traced_memory()[1], report.rows
    finally:
        tracemalloc.stop()


@pytest.mark.untraced
def test_memory_grows_by_keys_offsets_and_prompts_alone(tmp_path):
    most_memory(tmp_path, 80)
    (few, _), (many, rows) = most_memory(tmp_path, 400), most_memory(tmp_path, 1_200)
    assert rows == 150
    # Of each attempt its files have 1,800 bytes; as objects, those would take several times as much.
    assert (many - few) / 800 < 1_000
