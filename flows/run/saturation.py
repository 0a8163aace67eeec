"""Tell that a task is saturated: several nights left what is in force as it was, and would have put nothing else.

The next nights sweep half as many items, until something changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tfgrpo.flows.console.figures import plus_unknown
from tfgrpo.stores.experiences.decisions import nights_unchanged, read_decisions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.ledger.state import Totals

if TYPE_CHECKING:
    from tfgrpo.flows.run.loop.session import Session

_NIGHTS: Final = 3


def unchanged_nights(task: TaskPaths, *, simulated: bool) -> int:
    """Return how many nights in a row changed nothing, up to the last one of this kind of model. Raises ``CorruptFile``."""
    return nights_unchanged(one for one in read_decisions(task.promotions) if one.simulated == simulated)


def is_saturated(task: TaskPaths, *, simulated: bool) -> bool:
    """Return whether the next night sweeps half as many items. Raises ``CorruptFile``."""
    return unchanged_nights(task, simulated=simulated) >= _NIGHTS


def saturation(session: Session, totals: Totals) -> dict[str, Any] | None:
    """Return nights without a change, calls of this night and a sentence about them; None for a task that may change."""
    if session.books.decision is None:
        return None
    nights = unchanged_nights(session.task, simulated=session.plan.simulated)
    if nights < _NIGHTS:
        return None
    calls = plus_unknown(f"{totals.calls:,}", totals)
    return {
        "nights": nights,
        "calls": None if totals.unmeasured_attempts else totals.calls,
        "explanation": f"saturated: nothing has changed in {nights} nights; a night like this one takes {calls} calls, which a "
        "pause would save; the next one sweeps half as many items",
    }
