"""Several processes share one ledger: killed, forked, damaged, full."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfgrpo.stores.errors import BudgetRefused, CorruptFile, StoreError
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.stores.ledger import Amount, Budget, Ledger, Totals, totals_in

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "ledger.jsonl"


def _spend(path: Path, seed: int, results: multiprocessing.Queue[tuple[int, int]]) -> None:
    ledger = Ledger(Budget(max_calls=50, max_tokens=3_000), shared=path)
    rng = random.Random(seed)

    async def one() -> tuple[int, int]:
        tokens = rng.randint(1, 100)
        try:
            reservation = await ledger.reserve(tokens=tokens)
        except BudgetRefused:
            return 0, 0
        await asyncio.sleep(0.001)
        used = rng.randint(0, tokens)
        reservation.settle(used, None)
        return 1, used

    async def everyone() -> None:
        done = await asyncio.gather(*(one() for _ in range(30)))
        results.put((sum(calls for calls, _ in done), sum(used for _, used in done)))

    asyncio.run(everyone())
    ledger.close()


def test_several_processes_share_one_budget_to_the_last_token(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_spend, args=(path, seed, results)) for seed in range(3)]
    for worker in workers:
        worker.start()
    spent = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    ledger = Ledger(Budget(), shared=path)
    totals = ledger.totals()
    assert (totals.calls, totals.tokens) == (sum(c for c, _ in spent), sum(t for _, t in spent))
    assert totals.calls <= 50
    assert totals.tokens <= 3_000
    assert ledger.in_flight() == Amount()
    ledger.close()
    assert [file.name for file in path.parent.iterdir()] == ["ledger.jsonl"]


HOLD = """if True:
    import os, sys, time
    from pathlib import Path
    from tfgrpo.stores.ledger import Ledger
    from tfgrpo.stores.ledger import Budget
    ledger = Ledger(Budget(max_tokens=100), shared=Path(sys.argv[1]))
    held = ledger.try_reserve(tokens=60)
"""


def test_calls_in_flight_of_a_killed_process_are_lost(path: Path) -> None:
    command = [sys.executable, "-c", f"{HOLD}    print('held', flush=True); time.sleep(60)", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        ledger = Ledger(Budget(max_tokens=100), shared=path)
        assert ledger.in_flight() == Amount(1, 60, 0, 1)
        assert ledger.try_reserve(tokens=50) is None
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    assert ledger.try_reserve(tokens=40) is not None
    with pytest.raises(BudgetRefused, match="60 spent or at risk"):
        ledger.try_reserve(tokens=50)
    totals = ledger.totals()
    assert (totals.lost_calls, totals.at_risk_tokens, totals.unknown_price_calls) == (1, 60, 1)
    ledger.close()
    Ledger(Budget(), shared=path).close()
    assert [file.name for file in path.parent.iterdir()] == ["ledger.jsonl"], "owner files are removed"


SPEND = f"""{HOLD}
    for number in range(int(sys.argv[2])):
        reservation = ledger.try_reserve(tokens=1)
        reservation.settle(1, None)
        os.write(1, b".")
"""


def test_a_long_ledger_keeps_its_last_state_alone_and_no_process_loses_a_step(path: Path) -> None:
    Ledger(Budget(), shared=path).close()
    path.with_name("ledger.jsonl.new").write_bytes(b"left by a process that was killed before it replaced the file")
    script = SPEND.replace("max_tokens=100", "").replace("held = ledger.try_reserve(tokens=60)", "")
    workers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), calls], stdout=subprocess.PIPE, cwd=ROOT)
        for calls in ("500", "500", "1000000")
    ]
    longest, before = 0, 0
    *ending, endless = workers
    while any(worker.poll() is None for worker in ending):
        calls = totals_in(path).calls
        assert calls >= before
        longest, before = max(longest, path.stat().st_size), calls
        time.sleep(0.01)
    endless.kill()
    acknowledged = [len(worker.communicate()[0]) for worker in workers]
    assert acknowledged[:2] == [500, 500]
    totals = totals_in(path)
    assert sum(acknowledged) <= totals.calls <= sum(acknowledged) + 1
    assert longest < 300_000 < totals.calls * 2 * 160, "so many steps do not fit into one file"


def test_a_disk_that_refuses_the_short_file_keeps_the_long_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ledger = Ledger(Budget(), shared=path)
    for _ in range(1_000):
        reservation = ledger.try_reserve()
        assert reservation is not None
        reservation.settle(0, 0)
    assert path.stat().st_size > 300_000
    assert not path.with_name("ledger.jsonl.new").exists()
    monkeypatch.undo()
    assert ledger.try_reserve() is not None
    assert path.stat().st_size < 1_000
    ledger.close()
    assert totals_in(path).calls == 1_001


def test_a_forked_child_is_a_separate_owner(path: Path) -> None:
    script = f"""{HOLD}
    if not (child := os.fork()):
        ledger.try_reserve(tokens=5)
        os._exit(0)
    os.waitpid(child, 0)
    totals = ledger.totals()
    assert (totals.lost_calls, totals.at_risk_tokens) == (1, 5), totals
    assert ledger.in_flight().tokens == 60
    held.settle(4, None)
    ledger.close()
    """
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60, cwd=ROOT)


def test_closing_counts_calls_in_flight_as_lost(path: Path) -> None:
    ledger = Ledger(Budget(), shared=path)
    assert ledger.try_reserve(tokens=5, nano_usd=2) is not None
    lost = Totals(calls=1, at_risk_tokens=5, at_risk_nano=2, lost_calls=1)
    assert totals_in(path) == lost
    ledger.close()
    ledger.close()
    later = Ledger(Budget(), shared=path)
    assert later.totals() == lost
    later.close()


DAMAGES = {
    "edited": lambda raw: raw.replace(b'"calls":2', b'"calls":0'),
    "zeros": lambda raw: b"\0" * len(raw),
    "zeros at the end": lambda raw: raw[:-40] + b"\0" * 40,
    "of another program": lambda raw: b'{"calls": 0}\n',
}


def test_what_was_spent_is_read_where_nothing_can_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a copy on a medium that is only readable, where `tfgrpo verify` and `runs` look."""
    Ledger(Budget(), shared=path).try_reserve(tokens=5)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"cut off"')
    opened = os.open

    def only_readable(name: str, flags: int, *rest: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(name, flags, *rest)

    monkeypatch.setattr(os, "open", only_readable)
    assert (totals_in(path).lost_calls, totals_in(path).at_risk_tokens) == (1, 5)
    assert path.read_bytes().startswith(whole)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_ledger_is_refused_and_never_begins_anew(path: Path, damage) -> None:
    ledger = Ledger(Budget(), shared=path)
    for _ in range(2):
        reservation = ledger.try_reserve()
        assert reservation is not None
        reservation.settle(3, 4)
    ledger.close()
    path.write_bytes(damage(path.read_bytes()))
    for read in (totals_in, lambda path: Ledger(Budget(), shared=path).try_reserve()):
        with pytest.raises(CorruptFile, match=r"ledger\.jsonl: is damaged"):
            read(path)


@pytest.mark.parametrize(
    "row", [{"a": 1}, {"schema": 9}, {"schema": 1, "totals": {}, "in_flight": {"x": ["y"]}}, {"schema": 1, "totals": 1}]
)
def test_a_line_that_is_no_state_is_refused(path: Path, row: dict[str, object]) -> None:
    LineFile(path).append([row])
    with pytest.raises(CorruptFile, match="is not a ledger"):
        Ledger(Budget(), shared=path).totals()


def test_a_step_that_was_cut_off_or_that_the_disk_refuses_did_not_happen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(Budget(), shared=path)
    first, second = ledger.try_reserve(), ledger.try_reserve()
    assert first is not None
    assert second is not None
    first.settle(0, 0)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    assert ledger.totals() == Totals(calls=1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="No space left"):
        second.settle(0, 0)
    monkeypatch.undo()
    assert ledger.totals() == Totals(calls=1)
    ledger.close()


def test_the_answers_in_the_journal_are_written_with_the_next_step_and_never_too_many(tmp_path):
    path, answers = tmp_path / "ledger.jsonl", 0
    ledger = Ledger(Budget(max_calls=9), shared=path)
    ledger.follow(lambda: answers)
    for made in range(3):
        reservation = ledger.try_reserve(tokens=5)
        assert reservation is not None
        assert totals_in(path).journalled == made
        reservation.settle(5, 0)
        answers += 1
    ledger.close()
    assert totals_in(path).journalled == 3
    again = Ledger(Budget(max_calls=9), shared=path)
    again.start_at_least(Totals(calls=8, tokens=3, nano_usd=7, journalled=2))
    begun = again.totals()
    assert (begun.calls, begun.tokens, begun.nano_usd, begun.journalled) == (8, 15, 7, 2)
    assert (again.try_reserve() is None, again.try_reserve() is None) == (False, True)
    again.close()
