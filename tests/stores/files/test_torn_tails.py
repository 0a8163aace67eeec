"""A batch torn by a kill, a loss of power or by hand was never there, and the next append repairs the file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.records import writers
from tests.support.records.processes import in_process
from tfgrpo.stores.files.atomic import append_lines, read_lines

ROOT = Path(__file__).resolve().parents[3]


def test_a_torn_tail_is_invisible_and_is_repaired_before_the_next_append(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one"])
    with path.open("ab") as file:
        file.write(b'{"half": ')
    assert list(read_lines(path)) == ["one"]
    append_lines(path, ["two"])
    assert path.read_bytes() == b"one\ntwo\n"
    assert b'{"half": ' in (tmp_path / "file.torn").read_bytes()
    assert stat.S_IMODE((tmp_path / "file.torn").stat().st_mode) == 0o600


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
def test_an_incomplete_pending_note_is_ignored(tmp_path, note):
    path = tmp_path / "file"
    append_lines(path, ["one", "two"])
    (tmp_path / "file.pending").write_bytes(note)
    assert list(read_lines(path)) == ["one", "two"]
    append_lines(path, ["three"])
    assert list(read_lines(path)) == ["one", "two", "three"]
    assert not (tmp_path / "file.pending").exists()


def test_a_pending_note_older_than_the_file_is_ignored(tmp_path):
    path = tmp_path / "file"
    append_lines(path, ["one", "two", "three"])
    (tmp_path / "file.pending").write_text('{"old":4,"new":8,"digest":"x"}')
    assert list(read_lines(path)) == ["one", "two", "three"]


def test_a_writer_killed_at_any_moment_leaves_whole_batches(tmp_path):
    path = tmp_path / "file"
    for pause in (0.0, 0.004, 0.011, 0.03):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.records.writers", str(path)], cwd=ROOT, stdout=subprocess.PIPE
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
