"""Tell that a library is saturated: several nights have left it as it was, and nothing under test speaks for a change."""

from __future__ import annotations

from typing import Any, Final

from tfgrpo.flows.console.figures import plus_unknown
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.library import nights_unchanged, promotions
from tfgrpo.stores.ledger.state import Totals

_NIGHTS: Final = 3


def saturation(session: Session, totals: Totals) -> dict[str, Any] | None:
    """Return nights without a change, calls of this night and a sentence about them; None for a library that may change.

    A candidate that is kept because the evidence so far speaks for it is such a change. ``calls`` is None when unknown.
    """
    if session.books.gate is None:
        return None
    decisions = [one for one in promotions(session.task.promotions) if one.simulated == session.plan.simulated]
    nights = nights_unchanged(decisions)
    if nights < _NIGHTS:
        return None
    last = decisions[-1]
    if last.decision == "undecided" and last.capital and Capital(last.capital).log_value > 0:
        return None
    calls = plus_unknown(f"{totals.calls:,}", totals)
    return {
        "nights": nights,
        "calls": None if totals.unmeasured_attempts else totals.calls,
        "explanation": f"saturated: the library has not changed in {nights} nights; a night like this one takes {calls} "
        "calls, which a pause would save",
    }
