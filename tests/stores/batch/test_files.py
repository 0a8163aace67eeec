"""Groups on disk, as lines and as Parquet: everything comes back, nothing half, and a bad line is named; and the window."""

import json
import math
import re
import tracemalloc
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.records.rollout_groups import full_group, group, rollout
from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.lines import (
    ExperienceWindow,
    TextStore,
    append_groups,
    latest_groups,
    lines_of_group,
    read_groups,
    read_parquet,
    write_parquet,
)
from tfgrpo.stores.errors import CorruptFile, DatasetError, RecordRejected, SettingsError, ShapeError, StoreError

GROUPS = [full_group(), group("q2", (None, 0.5)), group("empty", (), target_size=4), group("q3")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "groups.jsonl"


def names(groups):
    return [made.id for made in groups]


@pytest.mark.parametrize(("write", "read"), [(append_groups, read_groups), (write_parquet, read_parquet)])
def test_every_field_round_trips(write, read, path):
    many = [*GROUPS, *(group(f"n{index}", (1.0, 0.0)) for index in range(1_010))]  # more than are written at once
    assert write(path, iter(many)) == 6 + 2_020
    assert list(read(path)) == many
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_every_field_of_the_shapes_is_in_the_lines():
    head, first, _ = map(json.loads, lines_of_group(full_group()))
    assert set(head) == {
        "kind", "schema_version", "size", "id", "state", "bare_state", "target_size", "policy_version",
        "experience_version", "prompt_token_ids", "metadata",
    }  # fmt: skip
    assert set(first) == {
        "kind", "id", "group_id", "index", "completion", "status", "reward", "reward_parts", "logprob", "sampling",
        "usage", "latency_s", "metadata",
    }  # fmt: skip
    assert json.loads(lines_of_group(group())[1]).keys() == {
        "kind", "id", "group_id", "index", "completion", "status", "reward",
    }  # fmt: skip


@pytest.mark.parametrize(("write", "read"), [(append_groups, read_groups), (write_parquet, read_parquet)])
def test_a_group_that_cannot_be_written_leaves_the_file_as_it_was(write, read, path, tmp_path):
    write(path, [group("a")])
    for bad, error in (
        (group("b", rollouts=(rollout("other"),)), ShapeError),
        (group("c", (math.nan,)), ShapeError),
        (group("d", state={"x": math.nan}), RecordRejected),
    ):
        with pytest.raises(error, match=f"'{bad.id}'"):
            write(path, [bad])
    assert names(read(path)) == ["a"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        write(tmp_path / "file" / "groups", [group()])
    with pytest.raises(DatasetError, match="no such file"):
        list(read(tmp_path / "none"))


def test_appending_again_continues_at_the_end_of_the_file_and_a_torn_last_line_is_none(path):
    append_groups(path, [group("a")])
    append_groups(path, (group(f"b{index}") for index in range(400)))
    with path.open("a") as file:
        file.write('{"kind": "group"')
    assert names(read_groups(path)) == ["a", *(f"b{index}" for index in range(400))]


def edited(number, **changes):
    def change(lines):
        value = {**json.loads(lines[number]), **changes}
        return [*lines[:number], json.dumps(value), *lines[number + 1 :]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: ["not json", *lines], "groups.jsonl:1: got not json; accepted: a JSON object"),
        (lambda lines: ["[]", *lines], "a JSON object"),
        (lambda lines: lines[1:], "a line that begins a group"),
        (lambda lines: [lines[0], *lines], "groups.jsonl:2: got {.*accepted: a rollout of the group before it"),
        (lambda lines: lines[:2], "the last group has 1 of its 2 rollouts"),
        (edited(0, schema_version=2), "groups.jsonl:1: schema_version: got 2; accepted: 1"),
        (edited(0, size=-1), "groups.jsonl:1: size: got -1"),
        (edited(0, size=True), "groups.jsonl:1: size: got True"),
        (edited(0, target="x"), "groups.jsonl:1: target: got 'x'; accepted: no field of this name"),
        (edited(0, id=7), "groups.jsonl:1: id: got 7; accepted: a valid string"),
        (edited(2, reward="high", index="last"), "groups.jsonl:3: index: got 'last'.*\n.*groups.jsonl:3: reward: got 'high'"),
        (edited(1, usage={"coins": 7}), "groups.jsonl:2: usage.coins: got 7; accepted: no field of this name"),
        (edited(1, status="lost"), "groups.jsonl:2: status: got 'lost'"),
        (edited(2, reward=1.0), "groups.jsonl:3: reward: got 1.0; accepted: None unless the status is ok or parse_error"),
        (edited(0, state="\ud800"), "groups.jsonl:1: got .*; accepted: Invalid JSON: .*hex escape"),
        (edited(0, state=json.loads("[" * 500 + "]" * 500)), "groups.jsonl:1: got .*; accepted: Invalid JSON: recursion"),
        (edited(1, group_id="other"), "groups.jsonl:2: group_id: got 'other'; accepted: 'q1'"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_named(path, change, message):
    path.parent.mkdir()
    path.write_text("\n".join(change(lines_of_group(full_group()))) + "\n")
    with pytest.raises((DatasetError, CorruptFile)) as caught:
        list(read_groups(path))
    assert re.search(message, str(caught.value)), str(caught.value)


def most_memory(path, count):
    tracemalloc.start()
    append_groups(path, (group(f"q{index}", state="s" * 10_000) for index in range(count)))
    assert sum(1 for _ in read_groups(path)) == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.untraced
def test_a_long_stream_takes_no_more_memory_than_a_short_one(tmp_path):
    assert most_memory(tmp_path / "long.jsonl", 700) < 1.3 * most_memory(tmp_path / "short.jsonl", 350)


# --- Parquet


def test_a_group_is_a_row_with_typed_columns(path):
    write_parquet(path, GROUPS)
    table = pq.read_table(path)
    assert table.column("id").to_pylist() == ["q1", "q2", "empty", "q3"]
    rollouts = table.column("rollouts").combine_chunks().flatten()
    assert rollouts.field("reward").to_pylist() == [1.0, None, None, 0.5, 1.0, 0.0]
    assert rollouts.type.field("logprob").type.field("tokens").type == pa.list_(pa.float64())
    assert rollouts.field("completion").to_pylist()[-1] == '"answer 1"'
    with pytest.raises(ShapeError, match=r"group id: expected one of its own, received 'q1'; indexes 1 and 2"):
        write_parquet(path.with_name("no file"), [group("q0"), group("q1"), group("q1")])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_foreign_files_are_refused(path):
    path.parent.mkdir()
    path.write_text("text")
    with pytest.raises(DatasetError, match="a Parquet file"):
        list(read_parquet(path))
    pq.write_table(pa.table({"prompt": ["a"]}), path)
    with pytest.raises(DatasetError, match=r"the columns prompt; accepted: rollout groups as tfgrpo writes them"):
        list(read_parquet(path))
    write_parquet(path, GROUPS)
    table = pq.read_table(path)
    for name, value, reason in (
        ("state", "{", "columns of JSON text"),
        ("state", None, "JSON text"),
        ("id", "", "group 0: id"),
    ):
        place = table.schema.get_field_index(name)
        column = pa.array([value] * table.num_rows, pa.string())
        pq.write_table(table.set_column(place, table.schema.field(place), column), path)
        with pytest.raises(DatasetError, match=reason):
            list(read_parquet(path))


def test_without_pyarrow_the_error_names_the_extra(monkeypatch, path):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(SettingsError, match=r"tfgrpo\[parquet\]"):
        write_parquet(path, [group()])


# --- long texts


def test_long_texts_are_stored_once_next_to_the_file(path, tmp_path):
    texts = TextStore(tmp_path / "texts", limit=100)
    prompt = "long prompt \r\n" * 50
    groups = [group(f"q{index}", state=[{"role": "user", "content": prompt}]) for index in range(3)]
    append_groups(path, groups, texts=texts)
    assert prompt not in path.read_text()
    assert list(read_groups(path, texts=texts)) == groups
    (kept,) = (tmp_path / "texts").iterdir()
    kept.write_text("another text")
    with pytest.raises(CorruptFile, match="was changed"):
        list(read_groups(path, texts=texts))
    kept.unlink()
    with pytest.raises(CorruptFile, match="cannot be read"):
        list(read_groups(path, texts=texts))


def test_a_value_that_looks_like_a_reference_is_not_written(path, tmp_path):
    with pytest.raises(RecordRejected, match="reference"):
        append_groups(path, [group(state={"$text": "abc"})], texts=TextStore(tmp_path / "texts"))
    append_groups(path, [group(state={"$text": "abc"})])
    assert [made.state for made in read_groups(path)] == [{"$text": "abc"}]


# --- the window


def test_a_window_holds_the_latest_groups_and_its_file_all(path):
    window = ExperienceWindow(3, path=path)
    for index in range(5):
        window.append(group(f"q{index}"))
    assert names(window) == names(window.window(9)) == ["q2", "q3", "q4"]
    assert names(window.window(2)) == names(latest_groups(path, 2)) == ["q3", "q4"]
    assert names(read_groups(path)) == ["q0", "q1", "q2", "q3", "q4"]
    append_groups(path, [group("q3", (0.5, 0.25))])
    assert latest_groups(path, 2).groups[1].rewards == (0.5, 0.25)
    window.clear()
    assert len(window) == len(window.window()) == 0


def test_a_repeated_group_is_skipped_and_another_of_its_name_refused(path):
    window = ExperienceWindow(3, path=path)
    window.extend([group("a", (1.0, 0.0)), group("b")])
    slower = group("a", (1.0, 0.0))
    slower = replace(slower, rollouts=tuple(replace(each, latency_s=9.0) for each in slower.rollouts))
    window.extend([group("c"), slower, group("b")])
    with pytest.raises(ShapeError, match=r"one that no other group of the window has, received 'a'; index 1"):
        window.extend([group("d"), group("a", (0.5, 0.5))])
    assert names(window) == names(read_groups(path)) == ["a", "b", "c"]


def test_groups_are_added_all_or_none(tmp_path):
    window = ExperienceWindow(3, path=tmp_path / "groups.jsonl")
    with pytest.raises(ShapeError):
        window.extend([group("a"), group("b", rollouts=(rollout("other"),))])
    for odd in (float("nan"), "\ud83d"):
        with pytest.raises(RecordRejected, match="group 'late'"):
            window.extend([*(group(f"q{index}") for index in range(400)), group("late", metadata={"odd": odd})])
    assert (len(window), list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize("size", [0, True, 1.5])
def test_an_invalid_size_is_refused(path, size):
    batch = ExperienceBatch((group(),))
    for ask, name in (
        (ExperienceWindow, "size"),
        (lambda size: batch.shaped("drop_group", min_group_size=size), "min_group_size"),
        (lambda size: latest_groups(path, size), "count"),
        (ExperienceWindow(3).window, "count"),
    ):
        with pytest.raises(ShapeError, match=f"{name}: expected a whole number of at least 1"):
            ask(size)
