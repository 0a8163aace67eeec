"""Groups on disk: everything comes back, nothing half, and a bad line is named."""

from __future__ import annotations

import json
import math
import tracemalloc

import pytest

from tests.support.records.rollout_groups import full_group, group, rollout
from tfgrpo.stores.batch.lines import SCHEMA_VERSION, TextStore, append_groups, lines_of_group, read_groups
from tfgrpo.stores.errors import CorruptFile, DatasetError, RecordRejected, ShapeError, StoreError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "groups.jsonl"


def test_every_field_round_trips(path):
    groups = [full_group(), group("q2", (None, 0.5)), group("empty", (), target_size=4)]
    assert append_groups(path, groups) == 4
    assert list(read_groups(path)) == groups
    assert path.stat().st_mode & 0o777 == 0o600


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
    assert head["schema_version"] == SCHEMA_VERSION


def test_appending_again_continues_at_the_end_of_the_file(path):
    append_groups(path, [group("a")])
    append_groups(path, (group(f"b{index}") for index in range(700)))
    assert [made.id for made in read_groups(path)] == ["a", *(f"b{index}" for index in range(700))]


def test_a_group_that_cannot_be_written_leaves_the_file_as_it_was(path):
    append_groups(path, [group("a")])
    with pytest.raises(ShapeError, match="group_id"):
        append_groups(path, [group("b", rollouts=(rollout("other"),))])
    with pytest.raises(ShapeError, match="finite"):
        append_groups(path, [group("c", (math.nan,))])
    with pytest.raises(RecordRejected, match="'d'"):
        append_groups(path, [group("d", state={"x": math.nan})])
    assert [made.id for made in read_groups(path)] == ["a"]


def test_an_unwritable_path_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        append_groups(tmp_path / "file" / "groups.jsonl", [group()])


def test_a_missing_file_is_a_dataset_error(path):
    with pytest.raises(DatasetError, match="no such file"):
        list(read_groups(path))


def broken(path, change):
    lines = lines_of_group(full_group())
    path.parent.mkdir()
    path.write_text("\n".join(change(lines)) + "\n")
    with pytest.raises((DatasetError, CorruptFile)) as caught:
        list(read_groups(path))
    return str(caught.value)


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
        (edited(0, target="x"), "groups.jsonl:1: target: got 'x'"),
        (edited(0, id=7), "groups.jsonl:1: id: got 7; accepted: input should be a valid string"),
        (edited(2, reward="high"), "groups.jsonl:3: reward: got 'high'"),
        (edited(1, colour="red"), "groups.jsonl:2: colour: got 'red'; accepted: no field of this name"),
        (edited(1, sampling={"seed": "7"}), "groups.jsonl:2: sampling.seed: got '7'"),
        (edited(1, usage={"coins": 7}), "groups.jsonl:2: usage.coins: got 7; accepted: no field of this name"),
        (edited(1, status="lost"), "groups.jsonl:2: status: got 'lost'"),
        (edited(2, reward=1.0), "None unless the status is ok or parse_error"),
        (edited(0, state="\ud800"), "groups.jsonl:1: got .*; accepted: invalid json: .*hex escape"),
        (
            edited(0, state=json.loads("[" * 500 + "]" * 500)),
            "groups.jsonl:1: got .*; accepted: invalid json: recursion",
        ),
        (edited(1, group_id="other"), "group_id: expected 'q1', received 'other'"),
    ],
)
def test_an_invalid_line_is_named(path, change, message):
    text = broken(path, change)
    assert __import__("re").search(message, text), text


def test_every_problem_of_a_group_is_in_one_error(path):
    text = broken(path, edited(2, reward="high", index="last"))
    assert "groups.jsonl:3: reward" in text
    assert "groups.jsonl:3: index" in text


def test_a_torn_last_line_is_no_line(path):
    append_groups(path, [group("a")])
    with path.open("a") as file:
        file.write('{"kind": "group"')
    assert [made.id for made in read_groups(path)] == ["a"]


def most_memory(path, count):
    tracemalloc.start()
    append_groups(path, (group(f"q{index}", state="s" * 10_000) for index in range(count)))
    assert sum(1 for _ in read_groups(path)) == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.untraced
def test_a_long_stream_takes_no_more_memory_than_a_short_one(tmp_path):
    assert most_memory(tmp_path / "long.jsonl", 2_000) < 1.3 * most_memory(tmp_path / "short.jsonl", 500)


# --- long texts


def test_long_texts_are_stored_once_next_to_the_file(path, tmp_path):
    texts = TextStore(tmp_path / "texts", limit=100)
    prompt = "long prompt \r\n" * 50
    groups = [group(f"q{index}", state=[{"role": "user", "content": prompt}]) for index in range(3)]
    append_groups(path, groups, texts=texts)
    assert prompt not in path.read_text()
    assert len(list((tmp_path / "texts").iterdir())) == 1
    assert list(read_groups(path, texts=texts)) == groups


def test_a_text_that_is_lost_or_changed_is_an_error(path, tmp_path):
    texts = TextStore(tmp_path / "texts", limit=10)
    append_groups(path, [group(state="a long enough prompt")], texts=texts)
    (kept,) = (tmp_path / "texts").iterdir()
    kept.write_text("another text")
    with pytest.raises(CorruptFile, match="was changed"):
        list(read_groups(path, texts=texts))
    kept.unlink()
    with pytest.raises(CorruptFile, match="cannot be read"):
        list(read_groups(path, texts=texts))
    path.write_text(path.read_text().replace(kept.stem, "\\u0000"))
    with pytest.raises(CorruptFile, match="cannot be read"):
        list(read_groups(path, texts=texts))


def test_a_value_that_looks_like_a_reference_is_not_written(path, tmp_path):
    texts = TextStore(tmp_path / "texts")
    with pytest.raises(RecordRejected, match="reference"):
        append_groups(path, [group(state={"$text": "abc"})], texts=texts)
    append_groups(path, [group(state={"$text": "abc"})])
    assert [made.state for made in read_groups(path)] == [{"$text": "abc"}]
