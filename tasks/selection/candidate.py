"""Run one candidate: attempt, read the answer, and repeat with the reason while it is flawed.

Each attempt is a rollout of ``tfgrpo.tasks.rollout``, with its time limit, slot, seed, ledger and spans. Only cancellation
is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tfgrpo.rewarders.repairing import corrected
from tfgrpo.stores.batch.shapes import status_of
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import BudgetRefused, RepairExhausted, error_kind
from tfgrpo.stores.outcomes import Failed, GroupKey, Refused, Ungraded
from tfgrpo.stores.usage import Usage
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.rollout import FinishedRollout, run_rollout
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.selection.formats import Flawed, Reading
from tfgrpo.tasks.selection.shapes import Candidate, CandidateOutcome, LossName, LostCandidate, SelectionSpec
from tfgrpo.tasks.shapes import GroupSpec

_QUOTED_CHARS: Final = 20_000
_REVISION: Final = (
    "Your earlier answer to this task cannot be used. It stands below as data, with the reason. "
    "Hand in a corrected answer to the task above, whole, and nothing else."
)
_CUT_OFF: Final = "the answer was cut off at the token limit: give a shorter one"


async def run_candidate(spec: SelectionSpec, index: int, group: GroupSpec, runtime: Runtime) -> Candidate:
    """Run one candidate to its end; failures are its outcome. ``group`` is ``group_of(spec)``."""
    rollouts: list[FinishedRollout] = []
    readings: list[Reading] = []

    async def draft(refused: Sequence[tuple[str, str]]) -> str:
        rollouts.append(await run_rollout(_attempt(spec, index, group, refused), index, runtime))
        return rollouts[-1].output

    def read(text: str) -> CandidateOutcome:
        loss = rollouts[-1].loss
        if isinstance(loss, Failed | Refused):
            return _lost(loss)
        reading = _reading(spec, loss, text)
        readings.append(reading)
        if isinstance(reading, Flawed) and reading.repairable:
            raise ValueError(reading.reason)
        return reading

    try:
        outcome = await corrected(read, draft, spec.max_repairs + 1, spec.format.name)
    except RepairExhausted:
        outcome = readings[-1]
    sent_back = zip(rollouts[:-1], readings, strict=False)
    return Candidate(
        index=index,
        outcome=outcome,
        text=next((rollout.output for rollout in reversed(rollouts) if rollout.output.strip()), ""),
        value=readings[-1].value if readings else None,
        refused=tuple(
            (rollout.output, reading.reason) for rollout, reading in sent_back if isinstance(reading, Flawed)
        ),
        temperature=spec.temperature(index),
        seed=rollouts[-1].seed,
        usage=Usage.total(rollout.usage for rollout in rollouts),
        latency_s=sum(rollout.latency_s for rollout in rollouts),
    )


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


def _reading(spec: SelectionSpec, loss: Ungraded | None, text: str) -> Reading:
    if loss is not None and loss.error_type == "truncated":
        return Flawed("parse_error", _CUT_OFF)
    return spec.format.read(text)


def _lost(loss: Failed | Refused) -> LostCandidate:
    if isinstance(loss, Refused):
        return LostCandidate("refused", BudgetRefused.__name__, loss.reason)
    status = status_of(error_kind(loss.error_type))
    name: LossName = status if status in ("timeout", "transport_error") else "actor_error"
    return LostCandidate(name, loss.error_type, loss.reason)
