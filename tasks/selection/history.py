"""History of a task's best-of-K rounds, ``selections.jsonl``, and the curriculum stage that follows from it.

The file is append-only, without prompts and answers. Validity is rewarded first, then behaviour, which never is without a
reference. A reached stage is left only when the figures fall clearly below the thresholds, so that it does not flicker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from tfgrpo.pipelines.settings.tree import SelectionStage
from tfgrpo.stores.experiences.store import Strict, read_lines_as
from tfgrpo.stores.files.lines import LineFile, read_bodies

VALIDITY: Final[SelectionStage] = "VALIDITY_GAP"
BEHAVIOUR: Final[SelectionStage] = "BEHAVIORAL_CONSOLIDATION"
_ROUNDS: Final = 10
"""High rounds in a row to advance; also the last rounds that decide about falling back."""
_MIN_REWARD: Final = 0.8
"""Reward that the chosen candidate of a high round, and the mean of the stage, must exceed."""
_MIN_VALID: Final = 0.95
"""Share of usable answers that must be exceeded."""
_MARGIN: Final = 0.1
"""Fall below a threshold that ends the stage: ten rounds vary by less."""


class SelectionRound(Strict):
    """One round."""

    schema_version: Literal[1] = 1
    selection_id: str
    at: datetime
    item_id: str
    model: str
    simulated: bool
    stage: str
    """Stage of the rewards; empty when rewarders were named."""
    measure: str
    """Names of the rewarders that counted."""
    format: str
    k: int = Field(ge=1)
    outcomes: Mapping[str, int]
    """Candidates by outcome."""
    answered: int = Field(ge=0)
    """Candidates with an answer."""
    valid: int = Field(ge=0)
    """The usable ones of those, repaired ones too."""
    chosen: int | None
    """Index of the chosen candidate; None when there was none."""
    reward: float | None
    """Reward of the chosen candidate; None when it has none."""
    mean_reward: float | None
    """Over the graded candidates."""
    calls: int | None = Field(ge=0)
    """None when an agent called models without the ledger; likewise ``tokens``."""
    tokens: int | None = Field(ge=0)
    cost_usd: float | None
    """None when the price of any call is unknown."""
    duration_s: float = Field(ge=0.0)


def record_round(path: Path, entry: SelectionRound) -> bool:
    """Append a round, and return whether it was not there yet. Raises ``StoreError`` when the disk refuses."""
    return LineFile(path, "selection_id").add([entry.model_dump(mode="json")]) > 0


def recorded_rounds(path: Path, *, simulated: bool) -> Iterator[SelectionRound]:
    """Yield the rounds with the simulated or with real models, oldest first; none without a file.

    Raises ``CorruptFile`` for any other line.
    """
    rounds = read_lines_as(SelectionRound.model_validate_json, path, read_bodies(path), "a selection")
    return (entry for entry in rounds if entry.simulated is simulated)


@dataclass(frozen=True, slots=True)
class StageDecision:
    """The stage to work in, and the reason."""

    stage: SelectionStage
    why: str


def decide_stage(
    history: Sequence[SelectionRound] | None, *, reference: bool, asked: SelectionStage | Literal["auto"] = "auto"
) -> StageDecision:
    """Return the stage of the next round.

    ``history``: all rounds, oldest first; None without a task, where a reference counts at once. ``reference``: whether it has
    one.
    """
    if asked == VALIDITY:
        return StageDecision(VALIDITY, "validity was asked for")
    if reference and (history is None or asked == BEHAVIOUR):
        return StageDecision(BEHAVIOUR, "a reference is there, and it counts")
    if not history:
        return StageDecision(VALIDITY, "there is no history yet")
    reached, since = StageDecision(VALIDITY, f"not good enough to move on, after {len(history)} rounds"), 0
    for end in range(_ROUNDS, len(history) + 1):
        rounds = history[since:end]  # a stage counts only the rounds since it was reached
        validity = reached.stage == VALIDITY
        if len(rounds) >= _ROUNDS and (why := _completed(rounds) if validity else _failed(rounds[-_ROUNDS:])):
            reached, since = StageDecision(BEHAVIOUR if validity else VALIDITY, why), end
    if reached.stage == BEHAVIOUR and not reference:
        return StageDecision(VALIDITY, f"there is no reference, although {reached.why}")
    return reached


def _completed(rounds: Sequence[SelectionRound]) -> str:
    """Why validity is complete, from all its rounds; empty when it is not."""
    mean, valid = _figures(rounds)
    high = all(each.reward is not None and each.reward > _MIN_REWARD for each in rounds[-_ROUNDS:])
    if not high or mean is None or mean <= _MIN_REWARD or valid is None or valid <= _MIN_VALID:
        return ""
    return f"{_ROUNDS} rounds in a row were above {_MIN_REWARD:g}, with {valid:.0%} usable answers"


def _failed(rounds: Sequence[SelectionRound]) -> str:
    """Why behaviour is left again, from its last rounds; empty when it is not."""
    mean, valid = _figures(rounds)
    if mean is not None and mean < _MIN_REWARD - _MARGIN:
        return f"the mean reward of the last {_ROUNDS} rounds fell to {mean:.2f}"
    if valid is not None and valid < _MIN_VALID - _MARGIN:
        return f"the share of usable answers of the last {_ROUNDS} rounds fell to {valid:.0%}"
    return ""


def _figures(rounds: Sequence[SelectionRound]) -> tuple[float | None, float | None]:
    """Return the mean reward and the share of usable answers; None without any."""
    rewards = [each.reward for each in rounds if each.reward is not None]
    answered = sum(each.answered for each in rounds)
    valid = sum(each.valid for each in rounds) / answered if answered else None
    return sum(rewards) / len(rewards) if rewards else None, valid
