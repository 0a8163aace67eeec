"""What was answered is on disk before anyone sees it, and is found again by its key."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.records.journals import entries, written
from tfgrpo.stores.errors import RecordRejected, StoreError
from tfgrpo.stores.files.line_file import LockedFile
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey, Journal

ROOT = Path(__file__).resolve().parents[3]


def test_a_key_text_has_every_field_and_sixteen_digits_of_the_digest() -> None:
    key = CallKey(GroupKey(1, "train", "group", 2, "q/7"), rollout=3, turn=4, role="rollout")
    assert key.text("0123456789abcdef99") == "1/group/2/q/7/3/4/rollout/0#0123456789abcdef"


LINE = (
    b'{"schema":2,"key":"2/library/3/q/7~1/4/5/rollout/1#0123456789abcdef","kind":"reply",'
    b'"at":"2026-01-02T00:00:00+00:00","payload":{"text":"seven"},"sum":"1a28d369a558be29"}\n'
)


def test_a_line_is_found_by_its_key_and_written_byte_for_byte_the_same(tmp_path: Path) -> None:
    key = CallKey(
        GroupKey(2, "eval", "library", 3, "q/7", draw=1, run="r1"), rollout=4, turn=5, role="rollout", attempt=1
    )
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_bytes(LINE)
    with Journal(old) as journal, Journal(new, clock=lambda: datetime(2026, 1, 2, tzinfo=UTC)) as written:
        entry = journal.get(key.text("0123456789abcdef99"))
        assert entry is not None
        assert entry["payload"] == {"text": "seven"}
        written.append(key.text("0123456789abcdef99"), {"text": "seven"})
    assert new.read_bytes() == LINE


ITEM_IDS = st.text(alphabet="ab/#0 ", max_size=6)
GROUPS = st.builds(
    GroupKey,
    epoch=st.integers(1, 2),
    phase=st.just("eval"),
    arm=st.sampled_from(["group", "library"]),
    batch=st.integers(0, 1),
    item=ITEM_IDS,
    draw=st.integers(0, 1),
)
KEYS = st.builds(
    CallKey,
    group=GROUPS,
    rollout=st.integers(0, 1),
    turn=st.integers(0, 1),
    role=st.sampled_from(["rollout", "judge"]),
    attempt=st.integers(0, 1),
)


@given(KEYS, KEYS)
def test_different_calls_never_share_a_key_text(one: CallKey, other: CallKey) -> None:
    assert (one.text("d") == other.text("d")) == (one == other)


def test_a_reply_survives_reopening(path: Path) -> None:
    def clock() -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC)

    payload = {"text": 'ünï "quoted" \u2028 \ud800 line\nbreak', "usage": {"prompt": 3}}
    with Journal(path, clock=clock) as journal:
        assert journal.get("k") is None
        journal.append("k", payload)
        expected = {"schema": 2, "key": "k", "kind": "reply", "at": "2026-01-02T00:00:00+00:00", "payload": payload}
        assert journal.get("k") == expected
    with Journal(path) as journal:
        assert journal.get("k") == expected
        assert len(journal) == 1
        assert entries(journal) == [expected]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_failure_is_an_entry_of_its_own_kind_and_a_later_reply_counts_more(path: Path) -> None:
    with Journal(path) as journal:
        journal.append_failure("k", "ModelTimeout", "nothing came")
        entry = journal.get("k")
        assert entry is not None
        assert entry["kind"] == "failure"
        assert entry["payload"] == {"error_type": "ModelTimeout", "reason": "nothing came"}
        journal.append("k", {"text": "at last"})
    with Journal(path) as journal:
        latest = journal.get("k")
        assert latest is not None
        assert latest["kind"] == "reply"
        assert len(entries(journal)) == 2


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.text(max_size=40),
    payload=st.dictionaries(
        st.text(max_size=5), st.text() | st.integers() | st.none() | st.floats(allow_nan=False, allow_infinity=False)
    ),
)
def test_any_key_and_any_json_round_trip(tmp_path: Path, key: str, payload: dict[str, object]) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append(key, payload)
    with Journal(tmp_path / "journal.jsonl") as journal:
        entry = journal.get(key)
        assert entry is not None
        assert entry["payload"] == payload


def test_a_long_reply_is_read_whole(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("long", {"text": "x" * 3_000_000})
        journal.append("short", {})
    with Journal(path) as journal:
        entry = journal.get("long")
        assert entry is not None
        assert len(entry["payload"]["text"]) == 3_000_000
        assert journal.get("short") is not None


@pytest.mark.parametrize("payload", [{"x": float("nan")}, {"x": float("inf")}, {"x": object()}])
def test_an_unserialisable_payload_is_refused_and_the_file_unchanged(path: Path, payload: dict[str, object]) -> None:
    with Journal(path) as journal:
        with pytest.raises(RecordRejected, match="journal entry k"):
            journal.append("k", payload)
        assert path.read_bytes() == b""


def test_entries_of_another_writer_are_seen(path: Path) -> None:
    with Journal(path) as mine, Journal(path) as other:
        assert mine.get("k") is None
        other.append("k", {"n": 1})
        entry = mine.get("k")
        assert entry is not None
        assert entry["payload"] == {"n": 1}
        mine.append("m", {})
        other.append("o", {})
        assert len(mine) == 2
        assert mine.get("o") is not None


def test_a_path_that_cannot_be_opened_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be opened"):
        Journal(tmp_path / "file" / "journal.jsonl")


def test_threads_share_one_journal_without_losing_a_line(path: Path) -> None:
    with Journal(path) as journal:

        def work(worker: int) -> None:
            for index in range(50):
                journal.append(f"{worker}/{index}", {"text": "x" * 100})
                assert journal.get(f"{worker}/{index}") is not None

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(journal) == 400
    assert len({entry["key"] for entry in written(path)}) == 400


def _write(path: Path, worker: int) -> None:
    with Journal(path) as journal:
        for index in range(100):
            journal.append(f"{worker}/{index}", {"text": "x" * 5000})


def test_processes_share_one_journal_without_losing_or_tearing_a_line(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(path, worker)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len({entry["key"] for entry in written(path)}) == 300
    with Journal(path) as journal:
        assert (len(journal), journal.damaged) == (300, 0)


def test_after_kill_nine_every_acknowledged_reply_is_there(path: Path) -> None:
    script = f"""
        import itertools, os, sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r})
        from tfgrpo.stores.runs.journal import Journal
        journal = Journal(Path({str(path)!r}))
        for index in itertools.count():
            journal.append(str(index), {{"text": "x" * 20_000}})
            os.write(1, b"%d\\n" % index)
    """
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(200):
                writer.stdout.readline()
            os.kill(writer.pid, signal.SIGKILL)
            acknowledged = 199 + len(writer.stdout.read().splitlines())
        with Journal(path) as journal:
            assert all(journal.get(str(index)) is not None for index in range(acknowledged + 1))
            assert journal.damaged <= 1, "at most the line that was being written"
            journal.append("after", {})
            assert journal.get("after") is not None
        path.unlink()


@pytest.mark.untraced
def test_memory_per_entry_is_small_and_a_hundred_thousand_entries_open(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for index in range(100_000):
            key = f"1/train/0/item-{index}/0/0/rollout/0#0123456789abcdef"
            file.write(f'{{"schema":1,"key":"{key}","kind":"reply","at":"","payload":{{"text":"{"x" * 200}"}}}}\n')
    tracemalloc.start()
    try:
        journal = Journal(path)
        per_entry = tracemalloc.get_traced_memory()[0] / 100_000
    finally:
        tracemalloc.stop()
    with journal:
        assert len(journal) == 100_000
        assert journal.get("1/train/0/item-99999/0/0/rollout/0#0123456789abcdef") is not None
    assert per_entry <= 150


def test_a_forked_child_takes_turns_with_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    script = f"""
        import os, sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r})
        from tfgrpo.stores.runs.journal import Journal
        journal = Journal(Path({str(path)!r}))
        child = os.fork()
        for index in range(200):
            journal.append(f"{{child == 0}}/{{index}}", {{}})
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        journal.get("")
        assert len(journal) == 400
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


def test_closing_may_be_repeated(tmp_path: Path) -> None:
    file = LockedFile(tmp_path / "file")
    with file:
        assert file.append(b"abc") == 0
    assert file.read_at(1, 10) == b"bc"
    assert file.size() == 3
    file.close()
    file.close()


def test_a_failed_lock_blocks_no_other_thread(tmp_path: Path) -> None:
    file = LockedFile(tmp_path / "file")
    file.close()
    for _ in range(2):
        with ThreadPoolExecutor(1) as threads, pytest.raises(ValueError, match="descriptor"):
            threads.submit(file.__enter__).result(10)
