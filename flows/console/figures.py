"""Write figures for people; what is unknown is a dash, never zero."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from tfgrpo.stores.experiences.decisions import Gain
from tfgrpo.stores.ledger import NANO, Totals
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import signed

ARMS: Final[Mapping[str, str]] = {"group": "in groups", "library": "with lessons", "none": "no lessons", "control": "control"}
"""What people call the arms, in the order in which they are shown."""
NOTHING: Final = "–"
"""Shown for an unknown figure, which is not zero."""


def shown_arm(arm: str) -> str:
    """Return the arm as people see it: both sides of a group are its arm, for each has a random half of the lessons."""
    return "group" if arm in {"one", "other"} else arm


def labelled(names: Collection[str], labels: Mapping[str, str] = ARMS) -> list[tuple[str, str]]:
    """Return names with their labels, in the order of these; what has none comes last, under its name."""
    order = (*labels, *sorted(set(names) - labels.keys()))
    return [(name, labels.get(name, name)) for name in order if name in names]


def usd(nano_usd: int) -> str:
    """Return an amount in dollars, as ``$0.1445``."""
    return f"${nano_usd / 1e9:.4f}"


def plus_unknown(figure: str, totals: Totals) -> str:
    """Return a sum, marked as partial if agents make calls that are not measured."""
    return f"{figure} + unknown" if totals.unmeasured_attempts else figure


def price_unknown(totals: Totals) -> bool:
    """Return whether no call has a known price."""
    return bool(totals.unknown_price_calls) and not totals.nano_usd


def money(totals: Totals) -> str:
    """Return the cost of the calls; unknown prices are named, not counted as free."""
    if price_unknown(totals):
        reported = pluralize(totals.tokens, "token") if totals.tokens else "no usage reported"
        return f"price unknown ({plus_unknown(reported, totals)})"
    priced = plus_unknown(usd(totals.nano_usd), totals)
    unpriced = totals.unknown_price_calls
    return f"{priced} + {pluralize(unpriced, 'call')} of unknown price" if unpriced else priced


def used_shares(totals: Totals, caps: Mapping[str, float | None], task_usd: float | None = None) -> dict[str, float]:
    """Return by cap the share of it that is used, lost calls included; ``task_usd``: of all runs of the task, if known."""
    used = {
        "max_calls": totals.calls,
        "max_tokens": totals.tokens + totals.at_risk_tokens,
        "max_usd": (totals.nano_usd + totals.at_risk_nano) / NANO,
        "task_max_usd": task_usd,
    }
    return {name: share / cap for name, share in used.items() if share is not None and (cap := caps.get(name))}


def price_line(row: Mapping[str, Any]) -> str:
    """Return a model's price and its source."""
    if row["source"] is None:
        return f"{row['model']}: unknown; set model.prices"
    cached = "" if row["cached_input"] is None else f" (cached ${row['cached_input']:g})"
    paid = f"${row['input']:g}{cached} in, ${row['output']:g} out per million tokens"
    return f"{row['model']}: {paid}, by {row['source']}"


def spending(totals: Totals) -> str:
    """Return the cost of a run, and the most that calls of unknown usage may add."""
    at_risk = f", and up to {usd(totals.at_risk_nano)} of unknown usage" if totals.at_risk_nano else ""
    own = pluralize(totals.unmeasured_attempts, "attempt")
    unmeasured = f" ({own} by an agent whose calls are not seen)" if totals.unmeasured_attempts else ""
    return f"{money(totals)}{unmeasured}{at_risk}"


def duration(seconds: float) -> str:
    """Return a time span as ``1h02m``, ``3m05s`` or ``12s``."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def decimal(value: float | None, digits: int = 3) -> str:
    """Return a reward, or another number with decimals."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def whole(value: float | None) -> str:
    """Return a count."""
    return NOTHING if value is None else f"{value:,.0f}"


def percent(share: float | None, of: int | None = None) -> str:
    """Return a share, and how many it is a share of."""
    if share is None:
        return NOTHING
    return f"{100.0 * share:.0f} %" if of is None else f"{100.0 * share:.0f} % of {of:,}"


def seconds(value: float | None, per_second: float = 1.0) -> str:
    """Return a span of time, with as many digits as make sense."""
    if value is None:
        return NOTHING
    span = value / per_second
    return f"{span * 1000:.0f} ms" if span < 1 else f"{span:.1f} s"


def tokens(reported: int, without_usage: int) -> str:
    """Return the tokens of calls, some of which may not have reported theirs."""
    if without_usage:
        return f"{reported:,} + unknown" if reported else "unknown"
    return f"{reported:,}" if reported else NOTHING


def dollars(usd: float | None, unknown: int | None) -> str:
    """Return the cost of calls, some of which may have an unknown price."""
    priced = NOTHING if usd is None else f"${usd:.4f}"
    if not unknown:
        return priced
    return "unknown" if usd is None else f"{priced} + {unknown:,} unknown"


def setting(value: object) -> str:
    """Return the value of a setting."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def minute(time: str) -> str:
    """Return a time stamp without its seconds."""
    # A time without a zone would end in a blank.
    return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M %Z}".strip()


def points(gain: Gain | Mapping[str, Any] | None) -> str:
    """Return a gain in points with its interval, of a decision or of a lesson's effect; a dash for none."""
    if not gain:
        return NOTHING
    figures = gain.model_dump() if isinstance(gain, Gain) else gain
    mean, low, high = (signed(figures[name]) for name in ("mean", "low", "high"))
    return f"{mean} ({low} … {high})"
