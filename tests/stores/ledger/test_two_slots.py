"""The last whole state is always there, wherever a writer was killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.ledger.shared import SLOT, Stored, TwoSlots

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state"


def test_the_newest_write_is_read_back_by_anyone(path: Path) -> None:
    slots = TwoSlots(path)
    assert slots.read() == Stored(0, "")
    for number in range(1, 12):
        slots.write(number, f"ünï {number}")
        assert TwoSlots(path).read() == Stored(number, f"ünï {number}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size == 2 * SLOT
    slots.close()
    slots.close()


def test_a_change_by_someone_else_is_noticed(path: Path) -> None:
    mine, other = TwoSlots(path), TwoSlots(path)
    assert not mine.unchanged_since(0)
    mine.write(1, "a")
    assert mine.unchanged_since(1)
    other.write(2, "b")
    assert not mine.unchanged_since(1)


@pytest.mark.parametrize("kept", [0, 5, 20, 21, 4096, SLOT - 2])
def test_a_write_cut_short_leaves_the_state_before(path: Path, kept: int) -> None:
    slots = TwoSlots(path)
    slots.write(1, "one")
    slots.write(2, "two")
    before = path.read_bytes()
    slots.write(3, "three")
    after = path.read_bytes()
    path.write_bytes(before[:SLOT] + after[SLOT : SLOT + kept] + before[SLOT + kept :])
    assert slots.read() == Stored(2, "two")
    assert slots.unchanged_since(2) == (kept < 20)
    slots.write(3, "again")
    assert slots.read() == Stored(3, "again")


def test_a_first_write_cut_short_never_happened(path: Path) -> None:
    TwoSlots(path).write(1, "one")
    path.write_bytes(path.read_bytes()[: SLOT + 4096])
    assert TwoSlots(path).read() == Stored(0, "")


@pytest.mark.parametrize("content", [b"{}", b"x" * 2 * SLOT])
def test_a_file_with_other_content_is_refused(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match="no whole state"):
        TwoSlots(path).read()


def test_a_slot_that_is_no_text_does_not_count(path: Path) -> None:
    slots = TwoSlots(path)
    slots.write(1, "one")
    slots.write(2, "two")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"two", b"\xff\xff\xff"))
    assert slots.read() == Stored(1, "one")


def test_an_over_long_state_or_a_full_disk_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = TwoSlots(path)
    slots.write(1, "one")
    with pytest.raises(StoreError, match="more than a slot"):
        slots.write(2, "x" * SLOT)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: real(descriptor, data[:100], offset))
    with pytest.raises(StoreError, match="the disk took 100"):
        slots.write(2, "two")
    assert slots.read() == Stored(1, "one")


def test_a_path_that_cannot_be_opened_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        TwoSlots(tmp_path)


def test_after_kill_nine_the_last_acknowledged_state_or_the_one_after_it_is_there(path: Path) -> None:
    script = f"""
        import itertools, os, sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r})
        from tfgrpo.stores.ledger.shared import TwoSlots
        slots = TwoSlots(Path({str(path)!r}))
        for number in itertools.count(1):
            slots.write(number, str(number) * 500)
            os.write(1, b"%d\\n" % number)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(500):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = 500 + len(writer.stdout.read().splitlines())
    number, text = TwoSlots(path).read()
    assert number in {acknowledged, acknowledged + 1}
    assert text == str(number) * 500
