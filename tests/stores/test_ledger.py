"""Caps hold, whatever runs at once; money is never invented and never forgotten, and prices are exact."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.records import writers
from tfgrpo.stores.errors import BudgetRefused, CorruptFile, StoreError
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.stores.ledger import Amount, Budget, Ledger, Price, Totals, totals_in


@pytest.fixture(params=["alone", "shared"])
def where(request, tmp_path):
    return tmp_path / "ledger.jsonl" if request.param == "shared" else None


ENDINGS = {
    "settled": ({"tokens": 100, "nano_usd": 5_000}, (60, 3_000), Totals(calls=1, tokens=60, nano_usd=3_000)),
    "lost": ({"tokens": 100, "nano_usd": 7}, None, Totals(calls=1, at_risk_tokens=100, at_risk_nano=7, lost_calls=1)),
    "of unknown price": ({"tokens": 10}, (5, None), Totals(calls=1, tokens=5, unknown_price_calls=1)),
    "of unknown price, lost": ({"tokens": 10}, None, Totals(calls=1, at_risk_tokens=10, unknown_price_calls=1, lost_calls=1)),
    "of a price that got unknown": (
        {"tokens": 10, "nano_usd": 50},
        (5, None),
        Totals(calls=1, tokens=5, at_risk_nano=50, unknown_price_calls=1),
    ),
    "more tokens than reserved": ({"tokens": 50, "nano_usd": 10}, (80, 5), Totals(1, 80, 5, overruns=1)),
    "more money than reserved": ({"tokens": 20, "nano_usd": 10}, (20, 11), Totals(1, 20, 11, overruns=1)),
    "of a price that got known": ({"tokens": 0}, (0, 99), Totals(calls=1, nano_usd=99)),
}


@pytest.mark.parametrize(("ask", "usage", "after"), ENDINGS.values(), ids=ENDINGS)
async def test_a_call_counts_as_what_it_used_or_may_have_used(where, ask, usage, after):
    ledger = Ledger(Budget(), shared=where)
    reservation = await ledger.reserve(**ask)
    in_flight = Amount(1, ask["tokens"], ask.get("nano_usd", 0), 0 if "nano_usd" in ask else 1)
    assert (ledger.totals(), ledger.read()[1]) == (Totals(), in_flight)
    if usage is None:
        reservation.lose()
    else:
        reservation.settle(*usage)
    assert (ledger.totals(), ledger.read()[1]) == (after, Amount())
    for again in (reservation.lose, lambda: reservation.settle(1, 1)):
        with pytest.raises(RuntimeError, match="has ended"):
            again()
    reservation.release()
    assert ledger.totals() == after
    ledger.close()


async def test_what_is_lost_counts_against_the_caps_and_what_is_released_does_not(where):
    ledger = Ledger(Budget(max_tokens=150, max_usd=0.000001), shared=where)
    (await ledger.reserve(tokens=150, nano_usd=1_000)).release()
    (await ledger.reserve(tokens=100, nano_usd=600)).lose()
    with pytest.raises(BudgetRefused, match="max_tokens 150 is reached: 100 spent or at risk"):
        await ledger.reserve(tokens=51, nano_usd=0)
    with pytest.raises(BudgetRefused, match=r"max_usd 0.000001 is reached: 0.000001 spent or at risk"):
        await ledger.reserve(tokens=1, nano_usd=401)
    (await ledger.reserve(tokens=50, nano_usd=400)).release()
    ledger.close()


async def test_an_unknown_price_is_refused_under_a_cap_on_money_its_own_or_of_the_ledger_around_it():
    for ledger in (Ledger(Budget(max_usd=1.0)), Ledger(Budget(max_calls=9), within=Ledger(Budget(max_usd=1.0)))):
        with pytest.raises(BudgetRefused, match=r"no price for 'x/y': .*; in a new run, add model\.prices\.x/y"):
            await ledger.reserve(tokens=5, model="x/y")
        with pytest.raises(BudgetRefused, match=r"^no price for a call without a model's name: .*; in a new run, name a"):
            await ledger.reserve(tokens=5)
        assert ledger.try_reserve(tokens=5, nano_usd=0) is not None


async def test_a_refusal_names_the_cap_and_the_figures():
    with pytest.raises(BudgetRefused, match="max_calls 1 is reached: 0 spent or at risk, and the next call may need 2"):
        await Ledger(Budget(max_calls=1)).reserve(calls=2)


async def test_a_call_waits_while_a_running_one_may_leave_room_and_is_refused_once_that_is_useless(where):
    ledger = Ledger(Budget(max_tokens=100), shared=where)
    first = await ledger.reserve(tokens=80)
    second = asyncio.create_task(ledger.reserve(tokens=50))
    await asyncio.sleep(0.05)
    assert not second.done()
    first.settle(10, None)
    running = await second
    late = asyncio.create_task(ledger.reserve(tokens=50))
    await asyncio.sleep(0.03)
    running.settle(50, None)
    with pytest.raises(BudgetRefused):
        await late
    assert ledger.totals().tokens == 60
    ledger.close()


BUDGETS = st.builds(
    Budget,
    max_usd=st.none() | st.floats(1e-7, 1e-5),
    max_tokens=st.none() | st.integers(1, 5000),
    max_calls=st.none() | st.integers(1, 100),
)


@settings(max_examples=20, deadline=None)
@given(budget=BUDGETS, seed=st.integers(0, 10_000), shared=st.booleans())
def test_no_cap_is_ever_exceeded_by_threads(tmp_path_factory, budget, seed, shared):
    ledger = Ledger(budget, shared=tmp_path_factory.mktemp("ledger") / "ledger.jsonl" if shared else None)
    seen: list[Amount] = []

    def work(rng: random.Random) -> None:
        for _ in range(8):
            tokens, nano = rng.randint(0, 400), rng.choice([None, rng.randint(0, 1000)])
            try:
                reservation = ledger.try_reserve(tokens=tokens, nano_usd=nano)
            except BudgetRefused:
                return
            totals, flying = ledger.read()
            seen.append(totals.committed + flying)
            match reservation and rng.randint(0, 3):
                case None:
                    continue
                case 0:
                    reservation.lose()
                case 1:
                    reservation.release()
                case _:
                    reservation.settle(rng.randint(0, tokens), None if nano is None else rng.randint(0, nano))

    threads = [threading.Thread(target=work, args=(random.Random(seed + number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    caps = (budget.max_calls, budget.max_tokens, budget.max_nano)
    for amount in seen:
        assert all(cap is None or used <= cap for cap, used in zip(caps, amount.figures(), strict=False)), amount
    assert ledger.read()[1] == Amount()
    ledger.close()


def test_list_prices_and_caps_are_taken_at_their_decimal_value_and_costs_are_those_by_hand():
    assert Price.per_million(0.15, 0.6, 0.075) == Price(150, 600, 75)
    assert Price.per_million(0.0375, 0.1).input_nano == Fraction(75, 2)
    assert [Budget(max_usd=usd).max_nano for usd in (0.1, 0.29)] == [100_000_000, 290_000_000]
    price = Price.per_million(2.5, 10.0, 1.25)
    assert price.cost(1000, 200) == 1000 * 2500 + 200 * 10_000
    assert price.cost(1000, 200, cached=400) == 600 * 2500 + 400 * 1250 + 200 * 10_000
    assert Price.per_million(0.0375, 0.0).cost(1, 0) == 38, "37.5 nano-dollars, rounded up"
    assert Price(3, 5).cost(10, 0, cached=4) == 30, "cached tokens cost like others unless priced"
    assert Price(3, 5, 1).cost(10, 0, cached=99) == 10, "and are never more than the prompt"


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "ledger.jsonl"


def test_several_processes_share_one_budget_to_the_last_token(path):
    results = writers.SPAWN.Queue()
    writers.all_at_once(writers.spend, [(path, seed, results) for seed in range(2)])
    spent = [results.get(timeout=60) for _ in range(2)]
    ledger = Ledger(Budget(), shared=path)
    totals = ledger.totals()
    assert (totals.calls, totals.tokens) == (sum(c for c, _ in spent), sum(t for _, t in spent))
    assert totals.calls <= 50
    assert totals.tokens <= 3_000
    assert ledger.read()[1] == Amount()
    ledger.close()
    assert [file.name for file in path.parent.iterdir()] == ["ledger.jsonl"]


HOLD = """if True:
    import os, sys, time
    from pathlib import Path
    from tfgrpo.stores.ledger import Budget, Ledger
    ledger = Ledger(Budget(max_tokens=100), shared=Path(sys.argv[1]))
    held = ledger.try_reserve(tokens=60)
"""


def test_calls_in_flight_of_a_killed_process_are_lost(path):
    command = [sys.executable, "-c", f"{HOLD}    print('held', flush=True); time.sleep(60)", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        ledger = Ledger(Budget(max_tokens=100), shared=path)
        assert ledger.read()[1] == Amount(1, 60, 0, 1)
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


def test_a_long_ledger_keeps_its_last_state_alone_and_no_process_loses_a_step(path):
    Ledger(Budget(), shared=path).close()
    path.with_name("ledger.jsonl.new").write_bytes(b"left by a process that was killed before it replaced the file")
    script = SPEND.replace("max_tokens=100", "").replace("held = ledger.try_reserve(tokens=60)", "")
    workers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), calls], stdout=subprocess.PIPE, cwd=ROOT)
        for calls in ("400", "600", "1000000")
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
    assert acknowledged[:2] == [400, 600]
    totals = totals_in(path)
    assert sum(acknowledged) <= totals.calls <= sum(acknowledged) + 1
    assert longest < 300_000 < totals.calls * 2 * 160, "so many steps do not fit into one file"


def test_a_disk_that_refuses_the_short_file_keeps_the_long_one(path, monkeypatch):
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


def test_a_forked_child_is_a_separate_owner(path):
    script = f"""{HOLD}
    if not (child := os.fork()):
        ledger.try_reserve(tokens=5)
        os._exit(0)
    os.waitpid(child, 0)
    totals = ledger.totals()
    assert (totals.lost_calls, totals.at_risk_tokens) == (1, 5), totals
    assert ledger.read()[1].tokens == 60
    held.settle(4, None)
    ledger.close()
    """
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60, cwd=ROOT)


def test_closing_counts_calls_in_flight_as_lost(path):
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


def test_what_was_spent_is_read_where_nothing_can_be_written(path, monkeypatch):
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
def test_a_damaged_ledger_is_refused_and_never_begins_anew(path, damage):
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
def test_a_line_that_is_no_state_is_refused(path, row):
    LineFile(path).append([row])
    with pytest.raises(CorruptFile, match="is not a ledger"):
        Ledger(Budget(), shared=path).totals()


def test_a_step_that_was_cut_off_or_that_the_disk_refuses_did_not_happen(path, monkeypatch):
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
