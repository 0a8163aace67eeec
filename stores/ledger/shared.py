"""State of a ledger, in this process or in a file shared by several processes.

In the shared file each process has an entry for its calls in flight, and keeps a lock on a small owner file, so that
the others notice when it was killed and count its calls in flight as lost.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.locked_file import LockedFile
from tfgrpo.stores.files.two_slots import TwoSlots
from tfgrpo.stores.ledger.state import Amount, Totals, Verdict

SCHEMA_VERSION = 1
Judge: TypeAlias = Callable[[Totals, Amount], Verdict]
Change: TypeAlias = Callable[[Totals], Totals]


class LedgerStore(Protocol):
    """State of a ledger, one user at a time."""

    def hold(self, ask: Amount, judge: Judge) -> Verdict:
        """Ask the judge, and put ``ask`` in flight when it grants."""
        ...

    def update(self, change: Change, landed: Amount) -> None:
        """Change the totals, and take ``landed`` out of what is in flight."""
        ...

    def read(self) -> tuple[Totals, Amount]:
        """Totals and everything in flight."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


@dataclass(slots=True)
class MemoryStore:
    """The state of a ledger that one process has to itself."""

    turn: threading.Lock
    """Guards both figures: a reservation reads and writes them in one step."""
    totals: Totals = field(default_factory=Totals)
    in_flight: Amount = field(default_factory=Amount)

    def hold(self, ask: Amount, judge: Judge) -> Verdict:
        """Ask the judge, and put ``ask`` in flight when it grants."""
        with self.turn:
            verdict = judge(self.totals, self.in_flight)
            if verdict.granted:
                self.in_flight += ask
            return verdict

    def update(self, change: Change, landed: Amount) -> None:
        """Change the totals, and take ``landed`` out of what is in flight."""
        with self.turn:
            self.totals = change(self.totals)
            self.in_flight -= landed

    def read(self) -> tuple[Totals, Amount]:
        """Totals and everything in flight."""
        with self.turn:
            return self.totals, self.in_flight

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class _State:
    totals: Totals = field(default_factory=Totals)
    flights: Mapping[str, Amount] = field(default_factory=dict)
    """What each process has in flight; those that have nothing are left out."""

    def in_flight(self) -> Amount:
        return sum(self.flights.values(), Amount())

    def of(self, owner: str) -> Amount:
        return self.flights.get(owner, Amount())

    def flying(self, owner: str, amount: Amount) -> _State:
        """After the owner has this much in flight."""
        others = {token: one for token, one in self.flights.items() if token != owner}
        return _State(self.totals, others | {owner: amount} if amount != Amount() else others)


class SharedStore:
    """The state of a ledger in a file, with a lock file and one small owner file per process beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = LockedFile(path.with_name(path.name + ".lock"))
        self._file = TwoSlots(path)
        self._number = 0
        self._known = _State()
        with self._lock.locked():
            self._owner = _Owner(path)
            for other in path.parent.glob(f"{path.name}.*.owner"):
                _is_alive(path, other.name.removeprefix(f"{path.name}.").removesuffix(".owner"))

    def hold(self, ask: Amount, judge: Judge) -> Verdict:
        """Ask the judge, and put ``ask`` in flight when it grants. Before making anyone wait, look for dead owners."""
        with self._lock.locked():
            state = self._caught_up()
            verdict = judge(state.totals, state.in_flight())
            if not verdict.granted and verdict.refusal is None:
                state = self._without_the_dead(state)
                verdict = judge(state.totals, state.in_flight())
            if verdict.granted:
                mine = self._owner.token()
                state = state.flying(mine, state.of(mine) + ask)
            self._keep(state)
            return verdict

    def update(self, change: Change, landed: Amount) -> None:
        """Change the totals, and take ``landed`` out of what this process has in flight."""
        with self._lock.locked():
            state, mine = self._caught_up(), self._owner.token()
            self._keep(_State(change(state.totals), state.flights).flying(mine, state.of(mine) - landed))

    def read(self) -> tuple[Totals, Amount]:
        """Totals and everything in flight, of the living."""
        with self._lock.locked():
            state = self._without_the_dead(self._caught_up())
            self._keep(state)
            return state.totals, state.in_flight()

    def close(self) -> None:
        """Count what is in flight here as lost and let go of the files."""
        if self._owner.closed:
            return
        with self._lock.locked():
            self._keep(_with_lost(self._caught_up(), self._owner.token()))
        self._owner.close()
        self._file.close()
        self._lock.close()

    def _without_the_dead(self, state: _State) -> _State:
        mine = self._owner.token()
        for token in state.flights:
            if token != mine and not _is_alive(self._path, token):
                state = _with_lost(state, token)
        return state

    def _keep(self, state: _State) -> None:
        """Under the lock."""
        if state != self._known:
            self._file.write(self._number + 1, _encode(state))
            self._number += 1
            self._known = state

    def _caught_up(self) -> _State:
        """The state as the last writer left it. Under the lock."""
        if not self._file.unchanged_since(self._number):
            number, text = self._file.read()
            try:
                self._known = _decode(text) if number else _State()
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CorruptFile(f"{self._path}: is no ledger: {error}") from error
            self._number = number
        return self._known


def spent_in(path: Path) -> Totals:
    """What the ledger in a file says, with everything in flight counted as lost. Raises ``CorruptFile``, ``StoreError``."""
    file = TwoSlots(path)
    try:
        number, text = file.read()
        state = _decode(text) if number else _State()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"{path}: is no ledger: {error}") from error
    finally:
        file.close()
    return state.totals.lost(state.in_flight())


def _with_lost(state: _State, owner: str) -> _State:
    """What the owner has in flight will never be settled."""
    left = state.of(owner)
    return _State(state.totals.lost(left), state.flights).flying(owner, Amount()) if left != Amount() else state


def _encode(state: _State) -> str:
    # Not ``astuple``: it copies deeply, a quarter of what a turn costs.
    flights = {token: (one.calls, one.tokens, one.nano_usd, one.unpriced) for token, one in state.flights.items()}
    return json.dumps({"schema": SCHEMA_VERSION, "totals": state.totals.to_json(), "in_flight": flights})


def _decode(text: str) -> _State:
    raw: Any = json.loads(text)
    if raw["schema"] != SCHEMA_VERSION:
        raise ValueError(f"schema {raw['schema']}")
    flights = {token: Amount(*amount) for token, amount in raw["in_flight"].items()}
    return _State(Totals.from_json(raw["totals"]), flights)


class _Owner:
    """Proof that a process lives: a lock on a file of its own, which the system drops when the process ends.

    Files of owners are made, probed and removed under the ledger's lock only; else a new one could be taken for dead.
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
        """Names this process in the state; a forked child gets a name of its own."""
        if self._pid != os.getpid():
            os.close(self._fd)  # the child's copy of its parent's lock: the parent keeps its own
            self._claim()
        return self._token

    def close(self) -> None:
        """Give the name up."""
        self.closed = True
        with suppress(FileNotFoundError):
            _owner_path(self._ledger, self._token).unlink()
        os.close(self._fd)


def _owner_path(ledger: Path, token: str) -> Path:
    return ledger.with_name(f"{ledger.name}.{token}.owner")


def _is_alive(ledger: Path, token: str) -> bool:
    """Whether the owner still holds its lock; the file of a dead one is removed."""
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
