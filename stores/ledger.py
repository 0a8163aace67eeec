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
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from operator import add, sub
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tfgrpo.stores.errors import BudgetRefused, CorruptFile
from tfgrpo.stores.files.lines import Line, LineFile

NANO = 1_000_000_000
Counters: TypeAlias = dict[str, int]
# Polled: a reservation may be settled by another process, which cannot notify this one.
_POLL_S: Final = 0.02
_LONGEST_POLL_S: Final = 0.2
LEDGER_SCHEMA: Final = 1
NO_PRICE: Final = "no price for"
"""Beginning of the refusal of a call whose price is unknown. Prices stay when a run is resumed."""
# Bytes after which the file starts anew with its last line: some 500 calls, so that the sync costs 10 µs of each.
_LONGEST: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one model per token, in nano-dollars; a fraction where the list price per million needs one."""

    input_nano: int | Fraction
    output_nano: int | Fraction
    cached_nano: int | Fraction | None = None
    """Price of prompt tokens from the endpoint's cache; None: as other prompt tokens."""
    dearer: tuple[tuple[int, Price], ...] = ()
    """Prices of all tokens of a call whose prompt is longer than this many, in ascending order."""

    @classmethod
    def per_million(cls, input_usd: float, output_usd: float, cached_usd: float | None = None) -> Price:
        """Return the price for list prices in USD per million tokens, at their decimal value: 0.1 is one tenth."""
        input_nano, output_nano, cached_nano = (
            Fraction(str(usd)) * (NANO // 1_000_000) for usd in (input_usd, output_usd, cached_usd or 0.0)
        )
        return cls(input_nano, output_nano, None if cached_usd is None else cached_nano)

    def cost(self, prompt: int, completion: int, cached: int = 0) -> int:
        """Return the nano-dollars of one call, rounded up. ``cached`` tokens are part of ``prompt``."""
        # The highest step first.
        for tokens, price in reversed(self.dearer):
            if prompt > tokens:
                return price.cost(prompt, completion, cached)
        hits = min(cached, prompt)
        cached_nano = self.input_nano if self.cached_nano is None else self.cached_nano
        return math.ceil((prompt - hits) * self.input_nano + hits * cached_nano + completion * self.output_nano)


@dataclass(frozen=True, slots=True)
class Budget:
    """Caps on one run, or on a task. None: no cap."""

    max_usd: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    scope: str = ""

    @property
    def max_nano(self) -> int | None:
        """``max_usd`` in nano-dollars, rounded down."""
        return None if self.max_usd is None else int(Fraction(str(self.max_usd)) * NANO)


@dataclass(frozen=True, slots=True)
class Amount:
    """Calls, tokens and nano-dollars of one reservation, or of many."""

    calls: int = 0
    tokens: int = 0
    nano_usd: int = 0
    unpriced: int = 0
    """How many of the calls have no known price; ``nano_usd`` is the bound of the others."""

    def __post_init__(self) -> None:
        if min(self.calls, self.tokens, self.nano_usd, self.unpriced) < 0:
            raise ValueError(f"an amount cannot be negative: {self}")

    def figures(self) -> tuple[int, int, int, int]:
        """Return the figures in order."""
        # `astuple` copies deeply, a quarter of the cost of a step.
        return self.calls, self.tokens, self.nano_usd, self.unpriced

    def __add__(self, other: Amount) -> Amount:
        return Amount(*map(add, self.figures(), other.figures()))

    def __sub__(self, other: Amount) -> Amount:
        return Amount(*map(sub, self.figures(), other.figures()))


_NOTHING: Final = Amount()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of a ledger. Money covers calls of known price; ``unknown_price_calls`` counts the others."""

    calls: int = 0
    """With or without an answer."""
    tokens: int = 0
    nano_usd: int = 0
    at_risk_tokens: int = 0
    """Upper bound of the tokens of calls whose usage was not reported; they count against the cap."""
    at_risk_nano: int = 0
    unknown_price_calls: int = 0
    lost_calls: int = 0
    silent_calls: int = 0
    """Those of them that were answered."""
    overruns: int = 0
    """Calls that used more than was reserved; the excess counts in full."""
    implausible_usage: int = 0
    """Calls with a reported usage far above what the request could use; settled at their upper bound."""
    unmeasured_attempts: int = 0
    """Attempts of agents that call models without the ledger; their usage is unknown and in no other figure."""
    journalled: int = 0
    """Answers in the run's journal, as of the last step of each process: a kill leaves the journal with more, never fewer."""

    @property
    def usd(self) -> float:
        """Known cost in dollars, without what is at risk."""
        return self.nano_usd / NANO

    @property
    def at_risk_usd(self) -> float:
        """Upper bound of the cost of lost calls, in dollars."""
        return self.at_risk_nano / NANO

    @property
    def committed(self) -> Amount:
        """What counts against the caps: settled and at risk."""
        return Amount(self.calls, self.tokens + self.at_risk_tokens, self.nano_usd + self.at_risk_nano)

    def settled(self, held: Amount, tokens: int, nano_usd: int | None, *, believed: bool = True) -> Totals:
        """Return the totals after a call with ``held`` reserved used this much; None: price unknown."""
        unknown = nano_usd is None
        over = tokens > held.tokens or (not held.unpriced and (nano_usd or 0) > held.nano_usd)
        call = Totals(
            calls=held.calls,
            tokens=tokens,
            nano_usd=nano_usd or 0,
            at_risk_nano=held.nano_usd if unknown else 0,
            unknown_price_calls=held.calls if unknown else 0,
            overruns=int(over),
            implausible_usage=0 if believed else held.calls,
        )
        return self.plus(call)

    def lost(self, held: Amount, *, answered: bool = False) -> Totals:
        """Return the totals after a call with ``held`` reserved was sent and reported no usage."""
        call = Totals(
            calls=held.calls,
            at_risk_tokens=held.tokens,
            at_risk_nano=held.nano_usd,
            unknown_price_calls=held.unpriced,
            lost_calls=held.calls,
            silent_calls=held.calls if answered else 0,
        )
        return self.plus(call)

    def to_json(self) -> Counters:
        """Return the figures by name."""
        return {name: getattr(self, name) for name in _FIGURES}

    @classmethod
    def from_json(cls, figures: Counters) -> Totals:
        """Return the totals of ``to_json``; absent names are 0. Raises ``ValueError`` for values that are not counts."""
        counts = {name: figures.get(name, 0) for name in _FIGURES}
        if not all(type(count) is int and count >= 0 for count in counts.values()):
            raise ValueError(f"ledger totals must be integers from 0: {counts}")
        return cls(**counts)

    def plus(self, more: Totals) -> Totals:
        """Return the sum of both."""
        return Totals(*(getattr(self, name) + getattr(more, name) for name in _FIGURES))


_FIGURES: Final = tuple(field.name for field in fields(Totals))


def fits(budget: Budget, totals: Totals, in_flight: Amount, ask: Amount) -> bool:
    """Return whether the sum of committed, in flight and ``ask`` is within every cap.

    Raises ``BudgetRefused`` when it would not be even if all calls in flight used zero, so that waiting is useless.
    """
    committed = totals.committed
    caps = (
        ("max_calls", budget.max_calls, committed.calls, in_flight.calls, ask.calls),
        ("max_tokens", budget.max_tokens, committed.tokens, in_flight.tokens, ask.tokens),
        ("max_usd", budget.max_nano, committed.nano_usd, in_flight.nano_usd, ask.nano_usd),
    )
    for name, cap, spent, _, more in caps:
        if cap is not None and spent + more > cap:
            show = (lambda nano: f"{nano / NANO:.6f}") if name == "max_usd" else str
            raise BudgetRefused(
                f"{budget.scope}{name} {show(cap)} is reached: {show(spent)} spent or at risk, and the next call may need "
                f"{show(more)}; under a higher cap it goes on"
            )
    return all(cap is None or spent + flying + more <= cap for _, cap, spent, flying, more in caps)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one or several model calls used. None: unknown in any part, which is never a zero."""

    calls: int | None = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    cost_usd: float | None = 0.0

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens together."""
        return add_counts([self.prompt_tokens, self.completion_tokens])

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """Return the sum of several usages."""
        usages = list(parts)
        return cls(
            add_counts(part.calls for part in usages),
            add_counts(part.prompt_tokens for part in usages),
            add_counts(part.completion_tokens for part in usages),
            add_costs(part.cost_usd for part in usages),
        )


UNKNOWN_USAGE: Final = Usage(None, None, None, None)
"""Usage of an agent that calls models directly."""


def add_costs(costs: Iterable[float | None]) -> float | None:
    """Return the sum in USD, or None if any part is unknown."""
    values = list(costs)
    return None if None in values else sum(filter(None, values), 0.0)


def add_counts(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if any part is unknown."""
    values = list(counts)
    return None if None in values else sum(filter(None, values))


@dataclass(frozen=True, slots=True)
class _State:
    totals: Totals = field(default_factory=Totals)
    flights: Mapping[str, Amount] = field(default_factory=dict)
    """Amount in flight by process, without the zeros."""

    def in_flight(self) -> Amount:
        return sum(self.flights.values(), _NOTHING)

    def of(self, owner: str) -> Amount:
        return self.flights.get(owner, _NOTHING)

    def flying(self, owner: str, amount: Amount) -> _State:
        others = {token: one for token, one in self.flights.items() if token != owner}
        return _State(self.totals, others | {owner: amount} if amount != _NOTHING else others)

    def with_lost(self, owner: str) -> _State:
        return _State(self.totals.lost(self.of(owner)), self.flights).flying(owner, _NOTHING)


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
        self._fd = os.open(_owner_path(self._ledger, self._token), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def token(self) -> str:
        """Return the name of this process in the state; a forked child gets a new one."""
        if self._pid != os.getpid():
            # The child's copy of its parent's lock: the parent keeps its lock.
            os.close(self._fd)
            self._claim()
        return self._token

    def close(self) -> None:
        self.closed = True
        _owner_path(self._ledger, self._token).unlink(missing_ok=True)
        os.close(self._fd)


def _owner_path(ledger: Path, token: str) -> Path:
    return ledger.with_name(f"{ledger.name}.{token}.owner")


def _is_alive(path: Path) -> bool:
    """Return whether the owner of this file has its lock; remove the file of one that was killed."""
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


class Reservation:
    """Reserved budget of one call or a few. Ends exactly once: ``settle``, ``lose`` or ``release``."""

    __slots__ = ("_held", "_open", "ledgers")

    def __init__(self, ledgers: tuple[Ledger, ...], held: Amount) -> None:
        self.ledgers = ledgers
        self._held = held
        self._open = True

    def settle(self, tokens: int, nano_usd: int | None, *, believed: bool = True) -> None:
        """Settle with the actual usage; with an unknown price (None) the reserved money stays at risk.

        ``believed`` False: the figures are the upper bound, because the reported ones were implausible.
        """
        self._end("settled", lambda totals: totals.settled(self._held, tokens, nano_usd, believed=believed))

    def lose(self, *, answered: bool = False) -> None:
        """Count everything reserved as at risk: the call was sent, perhaps answered, and its usage is unknown."""
        self._end("lost", lambda totals: totals.lost(self._held, answered=answered))

    def release(self) -> None:
        """Give the reservation back: no call was sent. Harmless after it has ended, so that it fits a ``finally``."""
        if self._open:
            self._end("released", lambda totals: totals)

    def _end(self, how: Literal["settled", "lost", "released"], change: Callable[[Totals], Totals]) -> None:
        if not self._open:
            raise RuntimeError(f"a reservation that has ended cannot be {how}")
        self._open = False
        for ledger in self.ledgers:
            ledger.update(change, self._held)


class Ledger:
    """Budget of a run or a task. Safe for coroutines, threads and, with ``shared``, processes of one machine.

    Its state is in this process, or in a file of lines with one small owner file per process next to it. Every change of it
    is one atomic step.
    """

    def __init__(self, budget: Budget, *, shared: Path | None = None, within: Ledger | None = None) -> None:
        """``shared``: file with the state of all processes of a run. ``within``: a wider one, closed with this one."""
        self.budget = budget
        self._within = within
        self._state = _State()
        self._file = None if shared is None else LineFile(shared)
        self._lock: AbstractContextManager[object] = self._file or threading.Lock()
        self._line: Line | None = None
        self._journalled: Callable[[], int] = int
        self._written = 0
        self._owner: _Owner | None = None
        if shared is not None:
            with self._lock:
                self._owner = _Owner(shared)
                # Asking removes the files of killed processes.
                for other in shared.parent.glob(f"{shared.name}.*.owner"):
                    _is_alive(other)

    async def reserve(self, calls: int = 1, tokens: int = 0, nano_usd: int | None = None, *, model: str = "") -> Reservation:
        """Reserve upper bounds of the usage of a call; ``nano_usd`` None when its price is unknown.

        Waits while only calls in flight are in the way, which may settle for less. Raises ``BudgetRefused``, with cap
        and figures, when it would not fit even if all calls in flight used zero, and for an unknown price under a cap on
        money, with the name of the ``model``.
        """
        pause = _POLL_S
        while (reservation := self.try_reserve(calls, tokens, nano_usd, model=model)) is None:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL_S)
        return reservation

    def try_reserve(
        self, calls: int = 1, tokens: int = 0, nano_usd: int | None = None, *, model: str = ""
    ) -> Reservation | None:
        """As ``reserve``, for callers outside an event loop: return None instead of waiting."""
        if nano_usd is None and self.budget.max_usd is not None:
            named, advice = "a call without a model's name", "name a model that has a price"
            if model:
                named, advice = repr(model), f"add model.prices.{model}, or a model with a price for it in actor.gateway.models"
            raise BudgetRefused(f"{NO_PRICE} {named}: an unknown price cannot be capped; in a new run, {advice}")
        ask = Amount(calls, tokens, nano_usd or 0, calls if nano_usd is None else 0)
        outer = None if self._within is None else self._within.try_reserve(calls, tokens, nano_usd, model=model)
        if self._within is not None and outer is None:
            return None
        granted = False
        try:
            granted = self._hold(ask)
        finally:
            if outer is not None and not granted:
                outer.release()
        return Reservation((self, *(outer.ledgers if outer else ())), ask) if granted else None

    def _hold(self, ask: Amount) -> bool:
        """Count ``ask`` as in flight if it fits the budget, and return whether it does. Raises ``BudgetRefused``."""
        with self._lock:
            state = self._load()
            if not fits(self.budget, state.totals, state.in_flight(), ask):
                # Before making anyone wait, look for killed owners.
                state = self._without_killed(state)
                self._save(state)
                if not fits(self.budget, state.totals, state.in_flight(), ask):
                    return False
            owner = self._owner_token()
            self._save(self._counted(state).flying(owner, state.of(owner) + ask))
            return True

    def update(self, change: Callable[[Totals], Totals], landed: Amount = _NOTHING) -> None:
        """Change the totals, and subtract ``landed`` from what this process has in flight."""
        with self._lock:
            state, owner = self._counted(self._load()), self._owner_token()
            self._save(_State(change(state.totals), state.flights).flying(owner, state.of(owner) - landed))

    def read(self) -> tuple[Totals, Amount]:
        """Return the usage so far, and what is reserved and not settled, of all processes."""
        with self._lock:
            state = self._counted(self._without_killed(self._load()))
            self._save(state)
            return state.totals, state.in_flight()

    def _owner_token(self) -> str:
        return "" if self._owner is None else self._owner.token()

    def _load(self) -> _State:
        line = None if self._file is None else self._file.newest()
        if self._file is not None and line is not self._line:
            self._line, self._state = line, _state_of(self._file.path, line)
        return self._state

    def _save(self, state: _State) -> None:
        if self._file is not None and state != self._state:
            flights = {token: amount.figures() for token, amount in state.flights.items()}
            self._file.append([{"schema": LEDGER_SCHEMA, "totals": state.totals.to_json(), "in_flight": flights}])
            if self._file.size() > _LONGEST:
                self._file.keep_newest()
            self._line = self._file.newest()
        self._state = state

    def _without_killed(self, state: _State) -> _State:
        mine = self._owner_token()
        for token in state.flights:
            if self._file is not None and token != mine and not _is_alive(_owner_path(self._file.path, token)):
                state = state.with_lost(token)
        return state

    def _counted(self, state: _State) -> _State:
        """Add the answers of this process that no step has counted."""
        added, self._written = self._journalled() - self._written, self._journalled()
        return _State(state.totals.plus(Totals(journalled=added)), state.flights) if added else state

    def start_from(self, earlier: Totals) -> None:
        """Start with no less money than was spent before this ledger existed, or by other books."""
        _, flying = self.read()
        # Calls of another run that settle while the books are compared would be counted twice.
        if not flying.calls:
            self.update(lambda totals: earlier if totals.committed.nano_usd < earlier.committed.nano_usd else totals)

    def follow(self, journalled: Callable[[], int]) -> None:
        """Write down with each step how many answers this process has added to the journal of the run."""
        self._journalled = journalled

    def start_at_least(self, journalled: Totals) -> None:
        """Start with no less than what the journal of a resumed run accounts for."""

        def raised(totals: Totals) -> Totals:
            spent = {name: max(getattr(totals, name), getattr(journalled, name)) for name in ("calls", "tokens", "nano_usd")}
            return replace(totals, **spent, journalled=journalled.journalled)

        # Counts what killed processes had in flight, which is no part of the journal.
        self.totals()
        self.update(raised)

    def count_unmeasured(self) -> None:
        """Count an attempt that called models without the ledger: its usage is unknown."""
        self.update(lambda totals: totals.plus(Totals(unmeasured_attempts=1)))

    def totals(self) -> Totals:
        """Return the usage so far, of all processes."""
        return self.read()[0]

    def sync(self) -> None:
        """Sync the file of this ledger, if any, to the disk. Raises ``StoreError``."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close; calls of this process still in flight count as lost. Harmless when repeated."""
        if self._file is not None and self._owner is not None and not self._owner.closed:
            with self._lock:
                self._save(self._counted(self._load()).with_lost(self._owner.token()))
            self._owner.close()
            self._file.close()
        if self._within is not None:
            self._within.close()
