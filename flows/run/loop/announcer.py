"""Report the progress of a run to its observers and to telemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from tfgrpo.flows.console.observer import EpochEnd, EpochStart, Observer
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.record import ExperienceRecord, Operation
from tfgrpo.stores.ledger.state import Totals
from tfgrpo.stores.telemetry.names import ExperienceOp
from tfgrpo.stores.telemetry.setup import OpenSpan, Telemetry
from tfgrpo.tasks.gate import GateDecision
from tfgrpo.tasks.shapes import GroupResult, GroupSpec

_OPERATIONS: Final[Mapping[Operation, ExperienceOp]] = {
    "add": "added",
    "modify": "changed",
    "merge": "merged",
    "delete": "deleted",
}


class Announcer:
    """Observers and telemetry of one run."""

    def __init__(self, observer: Observer, telemetry: Telemetry, plan: Plan) -> None:
        self.observer = observer
        self.telemetry = telemetry
        self._plan = plan
        self._domain = plan.pack.manifest.domain

    def epoch_started(self, start: EpochStart) -> None:
        """Report the start of an epoch to the observers."""
        self.observer.epoch_started(start)

    def epoch_span(self, start: EpochStart) -> OpenSpan:
        """Open the span of an epoch, with the settings it runs under."""
        pack = self._plan.pack.manifest
        return self.telemetry.epoch_span(
            epoch=start.epoch,
            phase=start.phase,
            temperature=start.temperature,
            group_size=self._plan.group_size,
            sample_size=start.groups,
            pack_id=pack.id,
            pack_stamp=pack.stamp,
            seed=self._plan.settings.tfgrpo.seed,
        )

    def groups_started(self, specs: Sequence[GroupSpec]) -> None:
        """Report how many lessons the prompts of these groups hold."""
        injected = sum(len(spec.pack.experience_ids) * spec.size for spec in specs)
        self.telemetry.record("injected", epoch=specs[0].key.epoch, domain=self._domain, count=injected)

    def group_done(self, result: GroupResult, totals: Totals) -> None:
        """Report a completed group to the observers."""
        self.observer.group_done(result, totals)

    def violation(self, rule: str, times: int = 1) -> None:
        """Report that a guardrail kept lessons out."""
        for _ in range(times):
            self.telemetry.record("guardrail", rule=rule)

    def operations(self, epoch: int, records: Sequence[ExperienceRecord], rejected: Sequence[tuple[str, str]]) -> None:
        """Report stored and rejected operations on the library."""
        for record in records:
            self.telemetry.record("experience", epoch=epoch, domain=self._domain, op=_OPERATIONS[record.operation])
        for _, reason in rejected:
            label = reason_label(reason)
            self.telemetry.record("experience", epoch=epoch, domain=self._domain, op="rejected", reason=label)

    def curated(self, records: Sequence[ExperienceRecord], rejected: int, library: Library) -> None:
        """Report the curation of a batch and the size of the library."""
        self.observer.lessons_stored(records, rejected)
        self.telemetry.record("library", domain=self._domain, active=len(library.entries))

    def epoch_ended(self, end: EpochEnd, *, solve_rate: float | None, duration_s: float) -> None:
        """Report the end of an epoch, and send the metrics collected so far."""
        self.telemetry.record(
            "epoch",
            epoch=end.epoch,
            phase=end.phase,
            duration_s=duration_s,
            reward_mean=end.mean_reward,
            solve_rate=solve_rate,
        )
        self.telemetry.collect()
        self.observer.epoch_ended(end)

    def gate_decided(self, decision: GateDecision) -> None:
        """Report the decision of the gate to the observers."""
        self.observer.gate_decided(decision)


def reason_label(reason: str) -> str:
    """Return the first four words of a reason as a metric label, without figures and names."""
    return "_".join(re.findall(r"[a-z]+", reason.lower())[:4])
