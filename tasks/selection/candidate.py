"""Run one candidate: attempt, read the answer, and repeat with the reason while it is flawed.

Each attempt is a rollout of ``tfgrpo.tasks.rollout``, with its time limit, slot, seed, ledger and spans. Only cancellation
is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tfgrpo.rewarders.repairing import corrected
from tfgrpo.stores.batch.shapes import status_of
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import BudgetRefused, RepairExhausted, error_kind
from tfgrpo.stores.group_key import GroupKey
from tfgrpo.stores.outcomes import Failed, Refused, Ungraded
from tfgrpo.stores.usage import Usage
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.rollout import FinishedRollout, run_rollout
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.selection.formats import Unusable, Usable
from tfgrpo.tasks.selection.shapes import (
    Candidate,
    CandidateOutcome,
    Flawed,
    LossName,
    LostCandidate,
    SelectionSpec,
    Sound,
)
from tfgrpo.tasks.shapes import GroupSpec

_QUOTED_CHARS: Final = 20_000
_REVISION: Final = (
    "Your earlier answer to this task cannot be used. It stands below as data, with the reason. "
    "Hand in a corrected answer to the task above, whole, and nothing else."
)
_CUT_OFF: Final = "the answer was cut off at the token limit: give a shorter one"


@dataclass(frozen=True, slots=True)
class _Drafts:
    """Attempts of a candidate so far."""

    rollouts: list[FinishedRollout]
    readings: list[Usable | Unusable]

    @property
    def text(self) -> str:
        """The last answer that is not blank."""
        return next((rollout.output for rollout in reversed(self.rollouts) if rollout.output.strip()), "")

    @property
    def sent_back(self) -> tuple[tuple[str, str], ...]:
        """Answers that were followed by another attempt, each with the reason."""
        pairs = zip(self.rollouts[:-1], self.readings, strict=False)
        return tuple((rollout.output, reading.reason) for rollout, reading in pairs if isinstance(reading, Unusable))

    @property
    def value(self) -> Any:
        """Value of the last answer that was read."""
        return self.readings[-1].value if self.readings else None


async def run_candidate(spec: SelectionSpec, index: int, group: GroupSpec, runtime: Runtime) -> Candidate:
    """Run one candidate to its end; failures are its outcome. ``group`` is ``group_of(spec)``."""
    drafts = _Drafts([], [])

    async def draft(refused: Sequence[tuple[str, str]]) -> str:
        drafts.rollouts.append(await run_rollout(_attempt(spec, index, group, refused), index, runtime))
        return drafts.rollouts[-1].output

    def read(text: str) -> CandidateOutcome:
        loss = drafts.rollouts[-1].loss
        if isinstance(loss, Failed | Refused):
            return _lost(loss)
        reading = _reading(spec, loss, text)
        drafts.readings.append(reading)
        if isinstance(reading, Unusable) and reading.repairable:
            raise ValueError(reading.reason)
        return _outcome(reading)

    try:
        outcome = await corrected(read, draft, spec.max_repairs + 1, spec.format.name)
    except RepairExhausted:
        outcome = _outcome(drafts.readings[-1])
    return _candidate(spec, index, outcome, drafts)


def group_of(spec: SelectionSpec) -> GroupSpec:
    """Return the candidates as a group of rollouts."""
    return GroupSpec(
        group_id=spec.selection_id,
        key=GroupKey(0, "eval", "candidate", 0, spec.item.id, run=spec.selection_id),
        item=spec.item,
        size=spec.k,
        temperature=spec.temperature(0),
        pack=spec.system,
        reflect=False,
    )


def _attempt(spec: SelectionSpec, index: int, group: GroupSpec, refused: Sequence[tuple[str, str]]) -> GroupSpec:
    """Return the group for one attempt. A repair is another draw of the item, with other seeds and call keys."""
    if not refused:
        return replace(group, temperature=spec.temperature(index))
    answer, reason = refused[-1]
    quoted = canonical_json({"earlier_answer": shorten_middle(answer, _QUOTED_CHARS), "reason": reason})
    item = replace(group.item, prompt=f"{group.item.prompt}\n\n{_REVISION}\n{quoted}")
    return replace(group, temperature=spec.temperature(index), item=item, key=replace(group.key, draw=len(refused)))


def _reading(spec: SelectionSpec, loss: Ungraded | None, text: str) -> Usable | Unusable:
    if loss is not None and loss.error_type == "truncated":
        return Unusable("parse_error", _CUT_OFF)
    return spec.format.read(text)


def _outcome(reading: Usable | Unusable) -> CandidateOutcome:
    return Flawed(reading.name, reading.reason) if isinstance(reading, Unusable) else Sound()


def _lost(loss: Failed | Refused) -> LostCandidate:
    if isinstance(loss, Refused):
        return LostCandidate("refused", BudgetRefused.__name__, loss.reason)
    return LostCandidate(_loss_name(loss.error_type), loss.error_type, loss.reason)


def _loss_name(error_type: str) -> LossName:
    status = status_of(error_kind(error_type))
    return status if status in ("timeout", "transport_error") else "actor_error"


def _candidate(
    spec: SelectionSpec,
    index: int,
    outcome: CandidateOutcome,
    drafts: _Drafts,
) -> Candidate:
    rollouts = drafts.rollouts
    return Candidate(
        index=index,
        outcome=outcome,
        text=drafts.text,
        value=drafts.value,
        refused=drafts.sent_back,
        temperature=spec.temperature(index),
        seed=rollouts[-1].seed,
        usage=Usage.total(rollout.usage for rollout in rollouts),
        latency_s=sum(rollout.latency_s for rollout in rollouts),
        fatal=any(rollout.fatal is not None for rollout in rollouts),
    )
