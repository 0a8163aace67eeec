"""A replaced file is the old one or the new one; lines for other programs are appended whole."""

import errno
import stat

import pytest

from tfgrpo.stores.errors import CorruptFile, RecordRejected, StoreError
from tfgrpo.stores.files import atomic
from tfgrpo.stores.files.atomic import append_lines, read_lines, replace_json, replace_text


def test_lines_for_other_programs_are_read_as_they_were_appended(tmp_path):
    path = tmp_path / "a" / "b" / "file.jsonl"
    append_lines(path, [])
    assert not path.parent.exists()
    assert list(read_lines(path)) == []
    append_lines(path, ["one", "zwei \u00e4\u2028\x85"])
    with path.open("ab") as file:
        file.write(b"half" * 50_000)
    assert list(read_lines(path)) == ["one", "zwei \u00e4\u2028\x85"]
    append_lines(path, ["", "three"])
    assert list(read_lines(path)) == ["one", "zwei \u00e4\u2028\x85", "", "three"]
    assert path.with_name("file.jsonl.torn").read_bytes() == b"half" * 50_000 + b"\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="newline"):
        append_lines(path, ["fine", "not\nfine"])
    path.write_bytes(b"fine\n\xff\xfe\n")
    with pytest.raises(CorruptFile, match="line 2 is not UTF-8"):
        list(read_lines(path))


def test_replacing_is_private_and_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "deep" / "state.json"
    replace_json(path, {"b": 1, "a": "\u00e4"})
    replace_json(path, {"b": 2, "a": "\u00e4"})
    assert path.read_text(encoding="utf-8") == '{\n  "a": "\u00e4",\n  "b": 2\n}\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize("value", [float("nan"), {"a": object()}, {"a": "\ud800"}])
def test_an_unserialisable_value_leaves_the_file_unchanged(tmp_path, value):
    path = tmp_path / "state.json"
    replace_json(path, 1)
    with pytest.raises(RecordRejected, match=r"state\.json"):
        replace_json(path, value)
    assert path.read_text() == "1\n"


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
