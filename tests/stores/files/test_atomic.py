"""A batch of lines is in the file whole or not at all, whatever happens to its writer."""

from __future__ import annotations

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.records import writers
from tests.support.records.processes import all_at_once, bytes_read, in_process
from tfgrpo.stores.errors import CorruptFile, RecordRejected, StoreError
from tfgrpo.stores.files import atomic, line_file
from tfgrpo.stores.files.atomic import append_lines, read_lines, replace_json, replace_text
from tfgrpo.stores.files.line_file import LineReader, exclusively


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- appending and reading


def test_lines_are_read_in_order_from_a_private_file(tmp_path):
    path = tmp_path / "a" / "b" / "file.jsonl"
    append_lines(path, ["one", "zwei \u00e4\u2028\x85"])
    append_lines(path, ["three"], fsync=True)
    append_lines(path, ["four", "five"], fsync=True)
    assert list(read_lines(path)) == ["one", "zwei \u00e4\u2028\x85", "three", "four", "five"]
    assert mode_of(path) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["file.jsonl"]


def test_appending_no_lines_makes_no_file(tmp_path):
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
    monkeypatch.setattr(line_file, "_BLOCK", 7)
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


def test_later_lines_are_not_in_a_running_read(tmp_path):
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


def test_a_directory_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match=str(tmp_path)):
        append_lines(tmp_path, ["x"])
    with pytest.raises(StoreError):
        list(read_lines(tmp_path))


def test_a_line_is_read_by_its_offset(tmp_path):
    path = tmp_path / "file"
    long = "x" * 3_000_000
    with line_file.exclusively(path) as file:
        assert file.append_lines(["one", "two"]) == 0
        second = file.append_lines([long])
    with path.open("rb") as opened:
        reader = LineReader.of_fd(path, opened.fileno())
        assert reader.at(second) == long.encode()
        assert reader.at(0) == b"one"
        with pytest.raises(CorruptFile, match="the line at byte 3000009 was cut off"):
            reader.at(path.stat().st_size)


def test_a_reader_continues_after_the_last_line_that_it_gave(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\n\ntwo\nthr")
    with path.open("rb") as opened:
        reader = LineReader.of_fd(path, opened.fileno())
        assert list(reader.unread(4)) == [(0, b"one")]
        assert list(reader.unread()) == [(4, b""), (5, b"two")]
        assert (reader.end, list(reader.unread())) == (9, [])
        with path.open("ab") as more:
            more.write(b"ee\nfour")
        assert list(reader.unread()) == [(9, b"three")]


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
            file.append_lines(["two", "three"])
    assert path.read_bytes() == b"one\n"
    assert not (tmp_path / "file.pending").is_symlink()


def test_a_write_the_system_cuts_short_is_undone(tmp_path, monkeypatch):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    monkeypatch.setattr(line_file, "os", writers._OsWith(lambda fd, data: os.write(fd, data[:5])))
    with pytest.raises(StoreError, match="5 of"):
        append_lines(path, ["two", "three"])
    assert path.read_bytes() == b"one\n"
    assert not (tmp_path / "file.pending").exists()


@pytest.mark.parametrize(
    ("batch", "refused"),
    [(["two"], 1), (["two"], 2), (["two", "three"], 1), (["two", "three"], 2), (["two", "three"], 3)],
)
def test_an_append_that_cannot_be_synced_is_undone(tmp_path, monkeypatch, batch, refused):
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


def test_replacing_is_private_and_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "deep" / "state.json"
    replace_json(path, {"b": 1, "a": "\u00e4"})
    replace_json(path, {"b": 2, "a": "\u00e4"})
    assert path.read_text(encoding="utf-8") == '{\n  "a": "\u00e4",\n  "b": 2\n}\n'
    assert mode_of(path) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize("value", [float("nan"), {"a": object()}, {"a": "\ud800"}])
def test_an_unserialisable_value_leaves_the_file_unchanged(tmp_path, value):
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


def test_a_reader_waits_for_the_batch_that_is_being_written(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    with ThreadPoolExecutor(1) as pool:
        with exclusively(path) as file:
            whole = file.size()
            with path.open("ab") as under_way:
                under_way.write(b"half a batch\n")
            reading = pool.submit(lambda: list(read_lines(path)))
            with pytest.raises(TimeoutError):
                reading.result(timeout=0.3)
            file.truncate(whole)
        assert reading.result(timeout=10) == ["one"]
