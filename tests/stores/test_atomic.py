"""A batch of lines is in the file whole or not at all, whatever happens to its writer."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stores import atomic, line_file, locked_file
from stores.atomic import KeyedJsonl, append_lines, read_lines, replace_json, replace_text
from stores.errors import CorruptFile, RecordRejected, StoreError
from tests.stores import writers

ROOT = Path(__file__).resolve().parents[2]
SPAWN = multiprocessing.get_context("spawn")


def in_process(target, *args) -> int:
    process = SPAWN.Process(target=target, args=args)
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def all_at_once(target, per_process: list[tuple]) -> None:
    processes = [SPAWN.Process(target=target, args=args) for args in per_process]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- appending and reading


def test_lines_come_back_in_order_from_a_private_file_with_its_parents(tmp_path):
    path = tmp_path / "a" / "b" / "file.jsonl"
    append_lines(path, ["one", "zwei \u00e4\u2028\x85"])
    append_lines(path, ["three"], fsync=True)
    append_lines(path, ["four", "five"], fsync=True)
    assert list(read_lines(path)) == ["one", "zwei \u00e4\u2028\x85", "three", "four", "five"]
    assert mode_of(path) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["file.jsonl"]


def test_nothing_to_append_makes_no_file(tmp_path):
    append_lines(tmp_path / "file", [])
    assert list(tmp_path.iterdir()) == []
    assert list(read_lines(tmp_path / "file")) == []


def test_a_newline_in_a_line_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["kept"])
    with pytest.raises(ValueError, match="newline"):
        append_lines(path, ["fine", "not\nfine"])
    assert path.read_bytes() == b"kept\n"


def test_lines_longer_than_any_buffer_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(line_file, "_CHUNK", 7)
    monkeypatch.setattr(line_file, "_TAIL", 3)
    path = tmp_path / "file"
    lines = ["", "x" * 20, "\u00e4" * 9, "", "last"]
    append_lines(path, lines)
    with path.open("ab") as file:
        file.write(b"torn" * 5)
    assert list(read_lines(path)) == lines


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"fine\n\xff\xfe\n")
    lines = read_lines(path)
    assert next(lines) == "fine"
    with pytest.raises(CorruptFile, match="line at byte 5 is not UTF-8"):
        next(lines)


def test_reading_streams(tmp_path):
    path = tmp_path / "file"
    append_lines(path, [f"{number:0100d}" for number in range(50_000)])
    lines = read_lines(path)
    assert next(lines) == "0" * 100
    before = bytes_read()
    next(lines)
    assert bytes_read() - before < 10_000


def test_what_comes_later_is_not_in_a_reading_that_has_begun(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one", "two"])
    lines = read_lines(path)
    assert next(lines) == "one"
    append_lines(path, ["three", "four"])
    assert list(lines) == ["two"]


def test_reading_needs_only_reading_rights(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    path.chmod(0o400)
    assert list(read_lines(path)) == ["one"]
    assert path.read_bytes() == b"one\n"


def test_what_is_no_file_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match=str(tmp_path)):
        append_lines(tmp_path, ["x"])
    with pytest.raises(StoreError):
        list(read_lines(tmp_path))


def test_a_line_is_found_by_the_byte_it_begins_at(tmp_path):
    path = tmp_path / "file"
    with line_file.exclusively(path) as file:
        assert file.append(["one", "two"]) == 0
        second = file.append(["three"])
        assert file.line_at(second) == b"three"
        with pytest.raises(CorruptFile, match="no line begins at byte 14"):
            file.line_at(file.size)


# --- torn tails


def test_a_torn_tail_is_invisible_and_is_repaired_before_the_next_append(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    with path.open("ab") as file:
        file.write(b'{"half": ')
    assert list(read_lines(path)) == ["one"]
    append_lines(path, ["two"])
    assert path.read_bytes() == b"one\ntwo\n"
    assert b'{"half": ' in (tmp_path / "file.torn").read_bytes()
    assert mode_of(tmp_path / "file.torn") == 0o600


def test_a_file_that_is_one_torn_line_is_empty(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"half")
    assert list(read_lines(path)) == []
    append_lines(path, ["whole"])
    assert list(read_lines(path)) == ["whole"]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.6, 0.99])
def test_a_batch_torn_by_a_kill_was_never_there(tmp_path, share):
    path = tmp_path / "file"
    append_lines(path, ["one", "two"])
    assert in_process(writers.die_in_mid_write, path, share) == -9
    assert (tmp_path / "file.pending").exists()
    assert list(read_lines(path)) == ["one", "two"]
    append_lines(path, ["three"])
    assert list(read_lines(path)) == ["one", "two", "three"]
    assert not (tmp_path / "file.pending").exists()


def test_a_batch_whose_writer_was_killed_after_the_last_byte_counts(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    assert in_process(writers.die_in_mid_write, path, 1.0) == -9
    expected = ["one", *(f"torn {line}" for line in range(10))]
    assert list(read_lines(path)) == expected
    append_lines(path, ["last"])
    assert list(read_lines(path)) == [*expected, "last"]
    assert not (tmp_path / "file.torn").exists()


def test_a_batch_cut_at_a_line_end_by_a_loss_of_power_was_never_there(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    in_process(writers.die_in_mid_write, path, 1.0)
    size = len(b"one\n" + b"torn 0\n" * 3)
    os.truncate(path, size)
    assert list(read_lines(path)) == ["one"]
    with path.open("ab") as file:  # the length came back, the content did not
        file.write(b"\0" * (70 - (size - 4)))
    assert list(read_lines(path)) == ["one"]
    append_lines(path, ["two"])
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("note", [b"", b'{"old": 4, "ne', b"[]", b'{"old":4,"new":900,"digest":"x","more":1}'])
def test_a_note_that_is_itself_torn_announces_nothing(tmp_path, note):
    path = tmp_path / "file"
    append_lines(path, ["one", "two"])
    (tmp_path / "file.pending").write_bytes(note)
    assert list(read_lines(path)) == ["one", "two"]
    append_lines(path, ["three"])
    assert list(read_lines(path)) == ["one", "two", "three"]
    assert not (tmp_path / "file.pending").exists()


def test_a_note_older_than_the_file_voids_nothing(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one", "two", "three"])
    (tmp_path / "file.pending").write_text('{"old":4,"new":8,"digest":"x"}')
    assert list(read_lines(path)) == ["one", "two", "three"]


def test_a_writer_killed_at_any_moment_leaves_whole_batches(tmp_path):
    path = tmp_path / "file"
    for pause in (0.0, 0.004, 0.011, 0.03):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.writers", str(path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(pause)
            child.kill()
        assert_whole(list(read_lines(path)), 200)
        append_lines(path, ["end of round"])
        lines = list(read_lines(path))
        assert lines[-1] == "end of round"
        path.unlink()


def assert_whole(lines: list[str], size: int) -> None:
    assert len(lines) >= size
    assert len(lines) % size == 0
    assert [tuple(map(int, line.split()[:2])) for line in lines] == [
        (number // size, number % size) for number in range(len(lines))
    ]


# --- many at once


def test_eight_processes_lose_no_line_and_mix_no_batches_while_readers_see_whole_ones(tmp_path):
    path = tmp_path / "file"
    seen: list[int] = []
    done = threading.Event()

    def read_all_the_time() -> None:
        while not done.is_set():
            seen.append(sum(1 for _ in read_lines(path)))

    reader = threading.Thread(target=read_all_the_time)
    reader.start()
    try:
        all_at_once(writers.append_batches, [(path, writer, 10, 20) for writer in range(8)])
    finally:
        done.set()
        reader.join()
    lines = [tuple(map(int, line.split()[:3])) for line in read_lines(path)]
    assert sorted(lines) == [(w, b, n) for w in range(8) for b in range(10) for n in range(20)]
    for start in range(0, len(lines), 20):
        writer, batch, _ = lines[start]
        assert lines[start : start + 20] == [(writer, batch, number) for number in range(20)]
    assert {count % 20 for count in seen} == {0}
    assert not list(tmp_path.glob("*.torn"))


def test_threads_take_turns_too(tmp_path):
    path = tmp_path / "file"
    threads = [threading.Thread(target=writers.append_batches, args=(path, writer, 10, 5)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(read_lines(path))) == 300


# --- a full disk


def test_a_full_disk_leaves_files_as_they_were(tmp_path):
    path = tmp_path / "file"
    append_lines(path, [f"line {number}" for number in range(500)])
    replace_text(tmp_path / "state.json", "old")
    before = path.read_bytes()
    assert in_process(writers.append_on_a_full_disk, path, 20_000) == 0
    assert path.read_bytes() == before
    assert (tmp_path / "state.json").read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "state.json"]


def test_no_room_for_the_note_means_no_batch(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    with line_file.exclusively(path) as file:
        (tmp_path / "file.pending").symlink_to("/dev/full")
        with pytest.raises(StoreError, match="No space left"):
            file.append(["two", "three"])
    assert path.read_bytes() == b"one\n"
    assert not (tmp_path / "file.pending").is_symlink()


def test_a_write_the_system_cuts_short_is_undone(tmp_path, monkeypatch):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    monkeypatch.setattr(locked_file, "os", writers._OsWith(lambda fd, data: os.write(fd, data[:5])))
    with pytest.raises(StoreError, match="5 of"):
        append_lines(path, ["two", "three"])
    assert path.read_bytes() == b"one\n"
    assert not (tmp_path / "file.pending").exists()


@pytest.mark.parametrize(
    ("batch", "refused"),
    [(["two"], 1), (["two"], 2), (["two", "three"], 1), (["two", "three"], 2), (["two", "three"], 3)],
)
def test_what_the_disk_does_not_confirm_is_taken_back(tmp_path, monkeypatch, batch, refused):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    count = iter(range(1, 9))

    def full(fd: int) -> None:
        if next(count) >= refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(line_file.os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            append_lines(path, batch, fsync=True)
    assert list(read_lines(path)) == ["one"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    append_lines(path, batch, fsync=True)
    assert list(read_lines(path)) == ["one", *batch]


# --- appending costs the batch, not the store


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes by /proc")
def test_appending_reads_as_little_from_a_large_file_as_from_a_small_one(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    append_lines(small, ["x"])
    append_lines(large, ["x" * 100] * 100_000)
    batch = ["y" * 100] * 100
    costs = []
    for path in (small, large):
        before = bytes_read()
        append_lines(path, batch)
        costs.append(bytes_read() - before)
    assert costs[1] <= costs[0] + 2 * line_file._TAIL


# --- replacing


def test_replacing_is_private_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "deep" / "state.json"
    replace_json(path, {"b": 1, "a": "\u00e4"})
    replace_json(path, {"b": 2, "a": "\u00e4"})
    assert path.read_text(encoding="utf-8") == '{\n  "a": "\u00e4",\n  "b": 2\n}\n'
    assert mode_of(path) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize("value", [float("nan"), {"a": object()}, {"a": "\ud800"}])
def test_what_is_no_json_replaces_nothing(tmp_path, value):
    path = tmp_path / "state.json"
    replace_json(path, 1)
    with pytest.raises(RecordRejected, match=r"state\.json"):
        replace_json(path, value)
    assert path.read_text() == "1\n"


def test_a_reader_of_a_replaced_file_sees_one_text_or_the_other(tmp_path):
    path = tmp_path / "text"
    texts = ["a" * 300_000, "b" * 400_000]
    replace_text(path, texts[0])
    done = threading.Event()

    def replace_often() -> None:
        for number in range(30):
            replace_text(path, texts[number % 2])
        done.set()

    writer = threading.Thread(target=replace_often)
    writer.start()
    while not done.is_set():
        assert path.read_text() in texts
    writer.join()


def test_a_replacement_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "text"
    replace_text(path, "old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(StoreError, match="cannot be replaced: No space"):
        replace_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["text"]


# --- keyed rows


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
    path.write_text('{"key":"a"}\nnonsense\n{"no":"key"}\n[]\n')
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
