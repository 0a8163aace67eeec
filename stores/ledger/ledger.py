"""Reserve calls, tokens and money before a call, and settle with the actual usage after it.

One ledger serves rollouts, judges, reflection and curation, so that a cap holds under concurrency; with a ``shared``
file it serves several processes. It never refuses while a running call may still leave room: then it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from tfgrpo.stores.ledger.shared import MemoryStore, SharedStore
from tfgrpo.stores.ledger.state import Amount, Budget, Totals

# Polled: a reservation may be settled by another process, which cannot notify this one.
_POLL_S = 0.02
_LONGEST_POLL_S = 0.2


class Reservation:
    """Reserved budget of one call or a few. Ends exactly once: ``settle``, ``lose`` or ``release``."""

    __slots__ = ("_held", "_open", "stores")

    def __init__(self, stores: tuple[MemoryStore, ...], held: Amount) -> None:
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
        self._store = MemoryStore() if shared is None else SharedStore(shared)

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
