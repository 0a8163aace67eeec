"""Several processes share one ledger: killed, forked, damaged, full."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tfgrpo.stores.errors import BudgetRefused, CorruptFile, StoreError
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.shared import SharedStore, TwoSlots
from tfgrpo.stores.ledger.state import Amount, Budget, Totals

ROOT = Path(__file__).resolve().parents[3]


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


def test_several_processes_share_one_budget_to_the_last_token(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
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
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ledger.json", "ledger.json.lock"]


def test_calls_in_flight_of_a_killed_process_are_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    script = f"""
        import asyncio, sys, time
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r})
        from tfgrpo.stores.ledger.ledger import Ledger
        from tfgrpo.stores.ledger.state import Budget
        ledger = Ledger(Budget(max_tokens=100), shared=Path({str(path)!r}))
        asyncio.run(ledger.reserve(tokens=60))
        print("held", flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
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


async def test_closing_counts_calls_in_flight_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    ledger = Ledger(Budget(), shared=path)
    await ledger.reserve(tokens=5, nano_usd=2)
    ledger.close()
    ledger.close()
    later = Ledger(Budget(), shared=path)
    assert later.totals() == Totals(calls=1, at_risk_tokens=5, at_risk_nano=2, lost_calls=1)
    later.close()
    Ledger(Budget()).close()


def test_owner_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    (tmp_path / "ledger.json.1-dead.owner").touch()
    living = Ledger(Budget(), shared=path)
    other = Ledger(Budget(), shared=path)
    assert len(list(tmp_path.glob("*.owner"))) == 2
    living.close()
    other.close()


def test_a_flight_whose_owner_file_is_gone_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    TwoSlots(path).write(1, json.dumps({"schema": 1, "totals": {}, "in_flight": {"1-gone": [1, 9, 4, 0]}}))
    ledger = Ledger(Budget(), shared=path)
    assert ledger.totals() == Totals(calls=1, at_risk_tokens=9, at_risk_nano=4, lost_calls=1)
    ledger.close()


def test_a_forked_child_is_a_separate_owner(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    script = f"""
        import os, sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r})
        from tfgrpo.stores.ledger.ledger import Ledger
        from tfgrpo.stores.ledger.state import Budget
        ledger = Ledger(Budget(max_tokens=10), shared=Path({str(path)!r}))
        mine = ledger.try_reserve(tokens=4)
        child = os.fork()
        if child == 0:
            ledger.try_reserve(tokens=5)
            os._exit(0)
        os.waitpid(child, 0)
        totals = ledger.totals()
        assert (totals.lost_calls, totals.at_risk_tokens) == (1, 5), totals
        assert ledger.in_flight().tokens == 4
        mine.settle(4, None)
        ledger.close()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": 2}', '{"schema": 1, "totals": {}, "in_flight": {"x": ["y"]}}']
)
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.json"
    TwoSlots(path).write(1, text)
    ledger = Ledger(Budget(), shared=path)
    with pytest.raises(CorruptFile, match="is not a ledger"):
        ledger.totals()


def test_the_shared_file_is_private_and_a_disk_that_refuses_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.json"
    ledger = Ledger(Budget(), shared=path)
    first, second = ledger.try_reserve(), ledger.try_reserve()
    assert first is not None
    assert second is not None
    first.settle(0, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setattr(os, "pwrite", _no_space)
    with pytest.raises(StoreError, match="No space left"):
        second.settle(0, 0)
    monkeypatch.undo()
    assert ledger.totals() == Totals(calls=1)
    ledger.close()


def _no_space(descriptor: int, data: bytes, offset: int) -> int:
    raise OSError(28, "No space left on device")


def test_a_shared_store_is_a_store(tmp_path: Path) -> None:
    store = SharedStore(tmp_path / "deep" / "ledger.json")
    assert store.read() == (Totals(), Amount())
    store.close()
