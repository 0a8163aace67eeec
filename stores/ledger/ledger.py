"""Reserve calls, tokens and money before a call, and settle with the actual usage after it.

One ledger serves rollouts, judges, reflection and curation, so that a cap holds under concurrency; with a ``shared`` file it
serves several processes. It never refuses while a running call may still leave room: then it waits. Each line of the file is
the whole state after one step, so that only the last is read, and a long file is replaced by its last line. Each process has an
entry for its calls in flight, and keeps a lock on a small owner file, so that the others notice when it was killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.lines import Line, LineFile
from tfgrpo.stores.ledger.state import Amount, Budget, Totals, fits

# Polled: a reservation may be settled by another process, which cannot notify this one.
_POLL_S: Final = 0.02
_LONGEST_POLL_S: Final = 0.2
LEDGER_SCHEMA: Final = 1
_LONGEST: Final = 1 << 18
"""Bytes after which the file starts anew with its last line: some 500 calls, so that the sync costs 10 µs of each."""


@dataclass(frozen=True, slots=True)
class _State:
    totals: Totals = field(default_factory=Totals)
    flights: Mapping[str, Amount] = field(default_factory=dict)
    """Amount in flight by process, without the zeros."""

    def in_flight(self) -> Amount:
        return sum(self.flights.values(), Amount())

    def of(self, owner: str) -> Amount:
        return self.flights.get(owner, Amount())

    def flying(self, owner: str, amount: Amount) -> _State:
        """The state with this amount in flight for the owner."""
        others = {token: one for token, one in self.flights.items() if token != owner}
        return _State(self.totals, others | {owner: amount} if amount != Amount() else others)

    def with_lost(self, owner: str) -> _State:
        """The state when the calls of the owner will never be settled."""
        left = self.of(owner)
        return _State(self.totals.lost(left), self.flights).flying(owner, Amount()) if left != Amount() else self


class _Store:
    """State of a ledger: in this process, or in a file of lines with one small owner file per process next to it.

    Every method is one atomic step.
    """

    def __init__(self, path: Path | None) -> None:
        self._state = _State()
        self._file = None if path is None else LineFile(path)
        self._lock: AbstractContextManager[object] = self._file or threading.Lock()
        self._read: Line | None = None
        self.journalled: Callable[[], int] = int
        self._written = 0
        self._owner: _Owner | None = None
        if path is not None:
            with self._lock:
                self._owner = _Owner(path)
                # Asking removes the files of killed processes.
                for other in path.parent.glob(f"{path.name}.*.owner"):
                    _is_alive(path, other.name.removeprefix(f"{path.name}.").removesuffix(".owner"))

    def hold(self, ask: Amount, budget: Budget) -> bool:
        """Count ``ask`` as in flight if it fits the budget, and return whether it does. Raises ``BudgetRefused``."""
        with self._lock:
            state = self._load()
            if not fits(budget, state.totals, state.in_flight(), ask):
                # Before making anyone wait, look for killed owners.
                state = self._without_killed(state)
                self._save(state)
                if not fits(budget, state.totals, state.in_flight(), ask):
                    return False
            owner = self._owner_token()
            self._save(self._counted(state).flying(owner, state.of(owner) + ask))
            return True

    def update(self, change: Callable[[Totals], Totals], landed: Amount) -> None:
        """Change the totals, and subtract ``landed`` from what this process has in flight."""
        with self._lock:
            state, owner = self._counted(self._load()), self._owner_token()
            self._save(_State(change(state.totals), state.flights).flying(owner, state.of(owner) - landed))

    def read(self) -> tuple[Totals, Amount]:
        """Return the totals and everything in flight."""
        with self._lock:
            state = self._counted(self._without_killed(self._load()))
            self._save(state)
            return state.totals, state.in_flight()

    def sync(self) -> None:
        """Sync the file, if any."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Count what this process has in flight as lost and release the files, if any. Harmless when repeated."""
        if self._file is None or self._owner is None or self._owner.closed:
            return
        with self._lock:
            self._save(self._counted(self._load()).with_lost(self._owner_token()))
        self._owner.close()
        self._file.close()

    def _owner_token(self) -> str:
        return "" if self._owner is None else self._owner.token()

    def _load(self) -> _State:
        line = None if self._file is None else self._file.newest()
        if self._file is not None and line is not self._read:
            self._read, self._state = line, _state_of(self._file.path, line)
        return self._state

    def _save(self, state: _State) -> None:
        if self._file is not None and state != self._state:
            flights = {token: amount.figures() for token, amount in state.flights.items()}
            self._file.append([{"schema": LEDGER_SCHEMA, "totals": state.totals.to_json(), "in_flight": flights}])
            if self._file.size() > _LONGEST:
                self._file.keep_newest()
            self._read = self._file.newest()
        self._state = state

    def _without_killed(self, state: _State) -> _State:
        mine = self._owner_token()
        for token in state.flights:
            if self._file is not None and token != mine and not _is_alive(self._file.path, token):
                state = state.with_lost(token)
        return state

    def _counted(self, state: _State) -> _State:
        """Return the state with the answers of this process that no step has counted."""
        added, self._written = self.journalled() - self._written, self.journalled()
        return _State(state.totals.plus(Totals(journalled=added)), state.flights) if added else state


def totals_in(path: Path) -> Totals:
    """Return the totals of a ledger file, with everything in flight as lost. Raises ``CorruptFile``, ``StoreError``."""
    with LineFile(path, reads=True) as file:
        state = _state_of(path, file.newest())
    return state.totals.lost(state.in_flight())


def _state_of(path: Path, line: Line | None) -> _State:
    if line is None:
        return _State()
    try:
        raw: Any = json.loads(line.body)
        if raw["schema"] != LEDGER_SCHEMA:
            raise ValueError(f"schema {raw['schema']}")
        flights = {token: Amount(*amount) for token, amount in raw["in_flight"].items()}
        return _State(Totals.from_json(raw["totals"]), flights)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"{path}: is not a ledger: {error}") from error


class _Owner:
    """Proof that a process is alive: a lock on a file, which the system releases when the process ends.

    Owner files are made, probed and removed under the ledger's lock only; else a new one could be taken for dead.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self.closed = False
        self._claim()

    def _claim(self) -> None:
        self._pid = os.getpid()
        self._token = f"{self._pid}-{uuid.uuid4().hex[:12]}"
        path = _owner_path(self._ledger, self._token)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def token(self) -> str:
        """Return the name of this process in the state; a forked child gets a new one."""
        if self._pid != os.getpid():
            os.close(self._fd)  # the child's copy of its parent's lock: the parent keeps its lock
            self._claim()
        return self._token

    def close(self) -> None:
        self.closed = True
        with suppress(FileNotFoundError):
            _owner_path(self._ledger, self._token).unlink()
        os.close(self._fd)


def _owner_path(ledger: Path, token: str) -> Path:
    return ledger.with_name(f"{ledger.name}.{token}.owner")


def _is_alive(ledger: Path, token: str) -> bool:
    """Return whether the owner has its lock; remove the file of one that was killed."""
    path = _owner_path(ledger, token)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink()
        return False
    finally:
        os.close(descriptor)


class Reservation:
    """Reserved budget of one call or a few. Ends exactly once: ``settle``, ``lose`` or ``release``."""

    __slots__ = ("_held", "_open", "stores")

    def __init__(self, stores: tuple[_Store, ...], held: Amount) -> None:
        self.stores = stores
        self._held = held
        self._open = True

    def settle(self, tokens: int, nano_usd: int | None, *, believed: bool = True) -> None:
        """Settle with the actual usage; with an unknown price (None) the reserved money stays at risk.

        ``believed`` False: the figures are the upper bound, because the reported ones were implausible.
        """
        self._end("settled", lambda totals: totals.settled(self._held, tokens, nano_usd, believed=believed))

    def lose(self) -> None:
        """Count everything reserved as at risk: the call was sent and its usage is unknown."""
        self._end("lost", lambda totals: totals.lost(self._held))

    def release(self) -> None:
        """Give the reservation back: no call was sent. Harmless after it has ended, so that it fits a ``finally``."""
        if self._open:
            self._end("released", lambda totals: totals)

    def _end(self, how: Literal["settled", "lost", "released"], change: Callable[[Totals], Totals]) -> None:
        if not self._open:
            raise RuntimeError(f"a reservation that has ended cannot be {how}")
        self._open = False
        for store in self.stores:
            store.update(change, self._held)


class Ledger:
    """Budget of a run or a task. Safe for coroutines, threads and, with ``shared``, processes of one machine."""

    def __init__(
        self,
        budget: Budget,
        *,
        shared: Path | None = None,
        within: Ledger | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``shared``: file with the state of all processes of a run, created when absent.

        ``within``: a wider ledger, closed with this one, in which every reservation must fit as well.
        """
        self.budget = budget
        self._within = within
        self._sleep = sleep
        self._store = _Store(shared)

    async def reserve(self, calls: int = 1, tokens: int = 0, nano_usd: int | None = None) -> Reservation:
        """Reserve upper bounds of the usage of a call; ``nano_usd`` None when its price is unknown.

        Waits while only calls in flight are in the way, which may settle for less. Raises ``BudgetRefused``, with cap
        and figures, when it would not fit even if all calls in flight used zero.
        """
        pause = _POLL_S
        while True:
            reservation = self.try_reserve(calls, tokens, nano_usd)
            if reservation is not None:
                return reservation
            await self._sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL_S)

    def try_reserve(self, calls: int = 1, tokens: int = 0, nano_usd: int | None = None) -> Reservation | None:
        """As ``reserve``, for callers outside an event loop: return None instead of waiting."""
        ask = Amount(calls, tokens, nano_usd or 0, calls if nano_usd is None else 0)
        outer = None if self._within is None else self._within.try_reserve(calls, tokens, nano_usd)
        if self._within is not None and outer is None:
            return None
        granted = False
        try:
            granted = self._store.hold(ask, self.budget)
        finally:
            if outer is not None and not granted:
                outer.release()
        return Reservation((self._store, *(outer.stores if outer else ())), ask) if granted else None

    def start_from(self, earlier: Callable[[], Totals]) -> None:
        """Add the totals from before this ledger existed, unless it was used already."""
        if self.totals() == Totals():
            before = earlier()
            self._store.update(lambda totals: before if totals == Totals() else totals, Amount())

    def follow(self, journalled: Callable[[], int]) -> None:
        """Write down with each step how many answers this process has added to the journal of the run."""
        self._store.journalled = journalled

    def start_at_least(self, known: Totals) -> None:
        """Start with no less than what the journal of a resumed run accounts for."""
        self.totals()  # counts what killed processes had in flight, which is no part of the journal
        self._store.update(lambda totals: totals.at_least(known), Amount())

    def count_unmeasured(self) -> None:
        """Count an attempt that called models without the ledger: its usage is unknown."""
        self._store.update(lambda totals: totals.plus(Totals(unmeasured_attempts=1)), Amount())

    def totals(self) -> Totals:
        """Return the usage so far, of all processes."""
        return self._store.read()[0]

    def in_flight(self) -> Amount:
        """Return what is reserved and not settled, of all processes."""
        return self._store.read()[1]

    def sync(self) -> None:
        """Sync the file of this ledger, if any, to the disk. Raises ``StoreError``."""
        self._store.sync()

    def close(self) -> None:
        """Close; calls of this process still in flight count as lost. Harmless when repeated."""
        self._store.close()
        if self._within is not None:
            self._within.close()
