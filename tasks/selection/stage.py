"""Decide the curriculum stage of a task from its history: validity first, then behaviour.

A reached stage is left only when the figures fall clearly below the thresholds, so that it does not flicker. Behaviour
is never rewarded without a reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tfgrpo.pipelines.settings.selection import SelectionStage
from tfgrpo.stores.runs.selections import SelectionRound

VALIDITY: Final[SelectionStage] = "VALIDITY_GAP"
BEHAVIOUR: Final[SelectionStage] = "BEHAVIORAL_CONSOLIDATION"
_MARGIN: Final = 0.1
"""Fall below a threshold that ends the stage: ten rounds vary by less."""
Use: TypeAlias = Literal["development", "production", "history"]
"""``development`` stays with validity, ``production`` asks for behaviour; otherwise the history decides."""


@dataclass(frozen=True, slots=True)
class StageThresholds:
    """Thresholds of ``stage: auto`` for advancing to behaviour and falling back. All comparisons are strict."""

    min_reward: float = 0.8
    """Reward that the chosen candidate of a high round, and the mean, must exceed."""
    rounds: int = 10
    """High rounds in a row to advance; also the last rounds that decide about falling back."""
    min_parsed: float = 0.95
    """Share of usable answers that must be exceeded."""


@dataclass(frozen=True, slots=True)
class StageDecision:
    """The stage to work in, and the reason."""

    stage: SelectionStage
    why: str


def decide_stage(
    history: Sequence[SelectionRound],
    *,
    reference: bool,
    use: Use = "history",
    thresholds: StageThresholds = StageThresholds(),
) -> StageDecision:
    """Return the stage of the next round. ``history``: all rounds, oldest first; ``reference``: whether it has one."""
    if use == "production" and reference:
        return StageDecision(BEHAVIOUR, "a reference is there, and it counts")
    if use == "development":
        return StageDecision(VALIDITY, "validity was asked for")
    if not history:
        return StageDecision(VALIDITY, "there is no history yet")
    reached = _reached(history, thresholds)
    if reached.stage == BEHAVIOUR and not reference:
        return StageDecision(VALIDITY, f"there is no reference, although {reached.why}")
    return reached


def _reached(history: Sequence[SelectionRound], limits: StageThresholds) -> StageDecision:
    """Go through the history from its beginning: each stage counts only the rounds since it was reached."""
    reached, since = StageDecision(VALIDITY, f"not good enough to move on, after {len(history)} rounds"), 0
    for end in range(limits.rounds, len(history) + 1):
        rounds = history[since:end]
        if len(rounds) < limits.rounds:
            continue
        if why := (_completed if reached.stage == VALIDITY else _failed)(rounds, limits):
            reached, since = StageDecision(BEHAVIOUR if reached.stage == VALIDITY else VALIDITY, why), end
    return reached


def _completed(rounds: Sequence[SelectionRound], limits: StageThresholds) -> str:
    """Why the stage is complete, from all its rounds; empty when it is not."""
    rewards, (mean, parsed) = [each.reward for each in rounds[-limits.rounds :]], _figures(rounds)
    if any(reward is None or reward <= limits.min_reward for reward in rewards):
        return ""
    if mean is None or parsed is None or mean <= limits.min_reward or parsed <= limits.min_parsed:
        return ""
    return f"{limits.rounds} rounds in a row were above {limits.min_reward:g}, with {parsed:.0%} usable answers"


def _failed(rounds: Sequence[SelectionRound], limits: StageThresholds) -> str:
    """Why the stage is left again, from its last rounds; empty when it is not."""
    mean, parsed = _figures(rounds[-limits.rounds :])
    if mean is not None and mean < limits.min_reward - _MARGIN:
        return f"the mean reward of the last {limits.rounds} rounds fell to {mean:.2f}"
    if parsed is not None and parsed < limits.min_parsed - _MARGIN:
        return f"the share of usable answers of the last {limits.rounds} rounds fell to {parsed:.0%}"
    return ""


def _figures(rounds: Sequence[SelectionRound]) -> tuple[float | None, float | None]:
    """Return the mean reward and the share of usable answers; None without any."""
    rewards = [each.reward for each in rounds if each.reward is not None]
    answered = sum(each.answered for each in rounds)
    parsed = sum(each.valid for each in rounds) / answered if answered else None
    return sum(rewards) / len(rewards) if rewards else None, parsed
