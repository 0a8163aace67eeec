"""A damaged journal is counted, repaired or refused, and never an answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.records.journals import entries, written
from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.runs.journal import Journal


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_tail_is_moved_to_the_torn_file(path: Path, cut: int) -> None:
    with Journal(path) as journal:
        journal.append("a", {"n": 1})
        journal.append("b", {"n": 2})
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with Journal(path) as journal:
        assert journal.get("a") is not None
        assert journal.get("b") is None
        journal.append("b", {"n": 3})
    assert [entry["payload"] for entry in written(path)] == [{"n": 1}, {"n": 3}]
    assert path.with_name("journal.jsonl.torn").read_bytes().startswith(b'{"schema":2,"key":"b"')


def test_a_tail_torn_while_the_journal_is_open_is_repaired_before_the_next_append(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("a", {})
        with path.open("ab") as other:
            other.write(b'{"schema":1,"key":"torn","ki')
        assert journal.get("torn") is None
        journal.append("b", {})
    assert [entry["key"] for entry in written(path)] == ["a", "b"]


def test_lines_that_are_no_entries_are_counted(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("a", {})
    with path.open("ab") as other:
        other.write(b"\n\x00\x00\x00\n" + b'{"schema":1,"key":"cut","kind":"reply","at":"","payl\n')
    with Journal(path) as journal:
        assert journal.damaged == 2
        assert len(journal) == 1
        assert journal.get("a") is not None
        assert journal.get("cut") is None
        journal.append("b", {})
        assert journal.get("b") is not None


OLD = b'{"schema":1,"key":"%b","kind":"reply","at":"","payload":{"text":"abc"}}\n'


def three(path: Path, *, old: bool) -> list[bytes]:
    """Lines of a journal with the keys a, b and c."""
    if old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(OLD % key for key in (b"a", b"b", b"c")))
    else:
        with Journal(path) as journal:
            for key in "abc":
                journal.append(key, {"text": "abc"})
    return path.read_bytes().splitlines(keepends=True)


DAMAGES = {
    "last byte": lambda line: line[:-2] + b"X\n",
    "no JSON, last byte whole": lambda line: line.replace(b'"text":"abc"', b'"text":"a"c"'),
    "cut off": lambda line: line[:30] + b"\n",
    "cut off, ending in a brace": lambda line: line[:-12] + b"}\n",
    "zeros": lambda line: b"\0" * (len(line) - 1) + b"\n",
    "no payload": lambda line: line.replace(b'{"text":"abc"}', b'["text","abc"]'),
    "in two": lambda line: line[:40] + b"\n" + line[40:],
    "no UTF-8": lambda line: line.replace(b"abc", b"a\xffc"),
    "another kind": lambda line: line.replace(b"reply", b"maybe"),
}


@pytest.mark.parametrize("old", [False, True], ids=["with checksums", "without"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_line_is_counted_moved_away_and_unanswered(path: Path, damage, old) -> None:
    first, second, third = three(path, old=old)
    path.write_bytes(first + damage(second) + third)
    with Journal(path, repair=False) as journal:
        assert journal.damaged >= 1
    assert path.read_bytes() == first + damage(second) + third
    with Journal(path) as journal:
        assert journal.damaged >= 1
        assert journal.get("b") is None
        assert all(journal.get(key) for key in "ac")
        journal.append("b", {"text": "again"})
    assert path.with_name("journal.jsonl.torn").read_bytes() == damage(second)
    assert path.with_name("journal.jsonl.torn").stat().st_mode & 0o777 == 0o600
    with Journal(path, repair=False) as journal:
        assert (journal.damaged, len(journal)) == (0, 3)
        assert [entry["key"] for entry in entries(journal)] == ["a", "c", "b"]


def test_an_edited_answer_is_a_damaged_line(path: Path) -> None:
    three(path, old=False)
    path.write_bytes(path.read_bytes().replace(b'"text":"abc"', b'"text":"xyz"', 1))
    with Journal(path) as journal:
        assert (journal.damaged, journal.get("a")) == (1, None)


@pytest.mark.parametrize("old", [False, True], ids=["with checksums", "without"])
def test_a_journal_whose_line_ends_were_converted_is_read(path: Path, old) -> None:
    path.write_bytes(b"".join(line[:-1] + b"\r\n" for line in three(path, old=old)))
    with Journal(path) as journal:
        assert journal.damaged == 0
        journal.append("d", {})
        assert all(journal.get(key) for key in "abcd")
        assert len(entries(journal)) == 4


def test_a_replay_counts_an_incomplete_last_line_and_leaves_it(path: Path) -> None:
    first, second, third = three(path, old=False)
    path.write_bytes(first + second + third[:-1])
    with Journal(path, repair=False) as journal:
        assert (journal.damaged, journal.get("c")) == (1, None)
    assert path.read_bytes() == first + second + third[:-1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw.replace(b'"key":"k"', b'"key":"j"'), "changed"),
        (lambda raw: raw[:-9], "cut off"),
        (lambda raw: b"", "cut off"),
        (lambda raw: b"x" * (len(raw) - 1) + b"\n", "changed"),
        (lambda raw: b"[" + b" " * (len(raw) - 3) + b"]\n", "changed"),
    ],
)
def test_a_file_changed_under_an_open_journal_is_an_error_not_an_answer(path: Path, damage, message: str) -> None:
    with Journal(path) as journal:
        journal.append("k", {"n": 1})
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(CorruptFile, match=message):
            journal.get("k")


@pytest.mark.parametrize("short", [True, False])
def test_a_full_disk_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch, short: bool) -> None:
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if short:
            return real(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with Journal(path) as journal:
        journal.append("a", {})
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StoreError, match=r"the disk took|No space left"):
            journal.append("b", {})
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert journal.get("b") is None
        journal.append("b", {})
    assert [entry["key"] for entry in written(path)] == ["a", "b"]
