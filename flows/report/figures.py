"""Write the figures of the report for people: each function here is a filter of its templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, get_args

from tfgrpo.flows.console.figures import ARMS, shown_arm
from tfgrpo.flows.report.attempts import PHASES, AttemptView, ItemTally
from tfgrpo.stores.experiences.decisions import Gain
from tfgrpo.stores.outcomes import OutcomeName, RewardScore
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import signed
from tfgrpo.tasks.learning.summarize import frame_label
from tfgrpo.tasks.shapes import Frame

NOTHING: Final = "–"
"""Shown for an unknown figure, which is not zero."""


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


def tokens(known: int, without_usage: int) -> str:
    """Return the tokens of calls, some of which may not have reported theirs."""
    if without_usage:
        return f"{known:,} + unknown" if known else "unknown"
    return f"{known:,}" if known else NOTHING


def dollars(usd: float | None, unknown: int | None) -> str:
    """Return the cost of calls, some of which may have an unknown price."""
    known = "" if usd is None else f"${usd:.4f}"
    if not unknown:
        return known or NOTHING
    return f"{known} + {unknown:,} unknown" if known else "unknown"


def setting(value: object) -> str:
    """Return the value of a setting."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def minute(time: str) -> str:
    """Return a time stamp without its seconds."""
    return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M %Z}".strip()  # a time without a zone ends in a blank


def points(gain: Gain | Mapping[str, Any] | None) -> str:
    """Return a gain in points with its interval, of a decision or of a lesson's effect; a dash for none."""
    known = gain.model_dump() if isinstance(gain, Gain) else gain
    if not known:
        return NOTHING
    mean, low, high = (signed(known[name]) for name in ("mean", "low", "high"))
    return f"{mean} ({low} … {high})"


def reward(attempt: AttemptView) -> str:
    """Return the reward of an attempt, or how it ended without one."""
    return f"no reward: {attempt.outcome}" if attempt.reward is None else f"reward {decimal(attempt.reward)}"


def where(attempt: AttemptView) -> str:
    """Return the epoch, phase and arm of an attempt, and its name in the files."""
    arm = shown_arm(attempt.arm)
    words = (PHASES.get(attempt.phase, attempt.phase), "" if arm == "group" else ARMS.get(arm, arm))
    return ", ".join([f"epoch {attempt.epoch}", *dict.fromkeys(filter(None, words)), attempt.rollout_id])


def score(one: RewardScore) -> str:
    """Return a score with its rewarder and what it is based on."""
    return f"{one.rewarder_id} {one.score:g}: {one.evidence}".removesuffix(": ")


def step(frame: Frame) -> str:
    """Return who made a call, whether it failed, and whether the gateway added lessons to it."""
    error = f": {frame.error}" if frame.error and frame.error not in frame.text else ""
    return f"{frame_label(frame)}{error}{', lessons added' if frame.added else ''}"


def outcomes(tally: ItemTally) -> str:
    """Return how many attempts there are, and how they ended."""
    counts = (f"{tally.outcomes[name]} {name}" for name in get_args(OutcomeName) if tally.outcomes[name])
    return f"{pluralize(tally.outcomes.total(), 'attempt')}: {', '.join(counts)}"


def rewards(tally: ItemTally) -> str:
    """Return the mean reward of each arm."""
    return ", ".join(f"{ARMS.get(arm, arm)} {decimal(mean)}" for arm, mean in tally.rewards.items())
