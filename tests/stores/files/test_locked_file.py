"""Whatever the operating system refuses about a file that stays open is a ``StoreError`` that names it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.line_file import LockedFile
from tfgrpo.stores.runs.journal import Journal


def _lock(file: LockedFile) -> None:
    with file:
        pass


REFUSED: list[tuple[ModuleType, str, Callable[[LockedFile], object], str]] = [
    (fcntl, "flock", _lock, "cannot be locked: "),
    (os, "fstat", LockedFile.size, "cannot be examined: "),
    (os, "pread", lambda file: file.read_at(0, 1), "cannot be read: "),
    (os, "write", lambda file: file.append(b"x"), "cannot be written: "),
    (os, "ftruncate", lambda file: file.cut(1), ""),
]


@pytest.fixture
def file(tmp_path: Path) -> LockedFile:
    file = LockedFile(tmp_path / "file")
    file.append(b"abc")
    return file


def _refuse(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(("module", "call", "use", "what"), REFUSED, ids=[call for _, call, *_ in REFUSED])
def test_a_system_call_that_is_refused_is_a_store_error_with_the_path(
    file: LockedFile,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    call: str,
    use: Callable[[LockedFile], object],
    what: str,
) -> None:
    monkeypatch.setattr(module, call, _refuse)
    with pytest.raises(StoreError) as refused:
        use(file)
    assert str(refused.value) == f"{file.path}: {what}Input/output error"
    monkeypatch.undo()
    with file:  # and nobody is kept out
        assert file.append(b"d") == file.size() - 1


def test_a_lock_that_cannot_be_let_go_of_is_a_store_error_and_the_thread_s_turn_is_over(
    file: LockedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="file: cannot be unlocked: Input/output error"), file:
        monkeypatch.setattr(fcntl, "flock", _refuse)
    monkeypatch.undo()
    _lock(file)


@pytest.mark.parametrize("written", [None, 1])
def test_an_undo_that_fails_is_a_store_error(
    file: LockedFile, monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    monkeypatch.setattr(os, "write", _refuse if written is None else lambda *_: written)
    monkeypatch.setattr(os, "ftruncate", _refuse)
    with pytest.raises(StoreError, match="file: Input/output error"):
        file.append(b"xy")


def test_an_unwritable_torn_file_is_a_store_error(file: LockedFile) -> None:
    file.path.with_name("file.torn").mkdir()
    with pytest.raises(StoreError, match=r"file\.torn: Is a directory"):
        file.cut(1)
    assert file.size() == 3


def test_a_failed_close_is_raised_once(file: LockedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.close

    def refused(fd: int) -> None:
        real(fd)
        _refuse()

    monkeypatch.setattr(os, "close", refused)
    with pytest.raises(StoreError, match="file: Input/output error"):
        file.close()
    file.close()


def test_users_of_a_journal_meet_no_other_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        monkeypatch.setattr(fcntl, "flock", _refuse)
        with pytest.raises(StoreError, match=r"journal\.jsonl: cannot be locked"):
            journal.append("key", {})
        monkeypatch.undo()
        journal.append("key", {})
