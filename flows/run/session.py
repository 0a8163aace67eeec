"""What does a run hold open, and what does it write? The files, the runtime and the observers of one run.

The flow is the only writer of the experience store, of ``rollouts.jsonl``, ``groups.jsonl`` and of the metrics.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from filelock import BaseFileLock

from tfgrpo.flows.console.figures import Losses
from tfgrpo.flows.console.observer import EpochEnd, EpochStart, Observer
from tfgrpo.flows.run.champion import most_valuable, short_enough
from tfgrpo.flows.run.records import RunFiles
from tfgrpo.flows.run.timing import Stopwatch
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.curriculum import Difficulty
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.plan.sampling import Cohort
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.inject import merge_experiences
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import BudgetRefused, RunAborted
from tfgrpo.stores.experiences.library import Library, fold
from tfgrpo.stores.experiences.record import ExperienceRecord, Operation
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.outcomes import Failed, Refused, scored_rewards
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.stores.telemetry.names import BATCH, EPOCH, RECORDS, SPAN_OPTIMIZE, SPAN_STORE_WRITE, ExperienceOp
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.telemetry.spans import OpenSpan
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.evaluation import PairedEvidence
from tfgrpo.tasks.gate import GateDecision
from tfgrpo.tasks.learning.curate import CurationInput, curate_batch
from tfgrpo.tasks.runtime.context import RunContext
from tfgrpo.tasks.runtime.host import call_blocking
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText, ReflectionFailure

RunGroups: TypeAlias = Callable[[RunContext, Sequence[GroupSpec]], Generator[GroupResult, None, None]]
"""Runs the groups of a batch somewhere, yielding each as it comes back; closing it gives up on the others."""
_OPERATIONS: Mapping[Operation, ExperienceOp] = {
    "add": "added",
    "modify": "changed",
    "merge": "merged",
    "delete": "deleted",
}


@dataclass(slots=True)
class Session:
    """One open run. Made by ``tfgrpo.flows.run.execution``; used by ``tfgrpo.flows.run.learn``."""

    plan: Plan
    run_id: str
    task: TaskPaths
    paths: RunPaths
    context: RunContext
    runtime: Runtime
    store: ExperienceStore
    manifest: ManifestFile
    files: RunFiles
    observer: Observer
    clock: Clock
    fan_out: RunGroups
    champion: Library
    """The library in force when the run began."""
    library: Library
    """The candidate as it stands."""
    lock: BaseFileLock
    """Held while the run is open: no other process may write it."""
    stopwatch: Stopwatch
    difficulty: Difficulty | None = None
    """What groups of earlier runs showed of the items; None when the curriculum does not ask."""
    replay_of: TaskPaths | None = None
    """Task whose run is replayed; None for a run of its own."""
    voided: Mapping[str, str] = field(default_factory=dict)
    """Groups of this run whose evidence is void by what is on disk, with the reason; see ``records.voided_groups``."""
    evidence: PairedEvidence | None = None
    decision: GateDecision | None = None
    remembered: tuple[str, ...] = ()
    """Texts of rejected proposals, shown to the curator."""
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """Everything curation refused, with the reason."""
    stored: int = 0
    """Records stored by this run."""
    made: int = 0
    """Rollouts that came back, those of a batch that was given up among them."""
    lost: int = 0
    """Those without a reward."""
    learning: Losses = field(default_factory=Losses)
    """Reflections and curations of the epoch under way."""
    epochs: list[EpochEnd] = field(default_factory=list)
    failed_epochs: dict[int, str] = field(default_factory=dict)
    cohorts: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The settings of the run."""
        return self.plan.settings

    @property
    def telemetry(self) -> Telemetry:
        """What this process reports to."""
        return self.runtime.telemetry

    @property
    def domain(self) -> str:
        """The pack's field of knowledge."""
        return self.plan.pack.manifest.domain

    def cohort(self, epoch: int) -> Cohort:
        """Draw the items of an epoch and write the draw into the manifest."""
        cohort = self.plan.cohort(epoch, self._difficulty(epoch))
        self._note_cohort(epoch, cohort.items, dict(cohort.metadata))
        return cohort

    def _difficulty(self, epoch: int) -> Difficulty | None:
        """What groups before an epoch showed, out of what is on disk: the same when the run is resumed or replayed."""
        return None if self.difficulty is None else self.difficulty.with_run(self.paths, before_epoch=epoch)

    def eval_items(self) -> tuple[Item, ...]:
        """The held-out items of the sweep, noted in the manifest."""
        cohort = self.plan.evaluation
        self._note_cohort(self.settings.tfgrpo.epochs, cohort.items, dict(cohort.metadata))
        return cohort.items

    def _note_cohort(self, epoch: int, items: Sequence[Item], sampling: dict[str, Any]) -> None:
        self.cohorts[str(epoch)] = {"items": [item.id for item in items], "sampling": sampling}
        self.manifest.update(cohorts=self.cohorts)

    def pack_text(self, library: Library) -> PackText:
        """Render pack and library once for all groups of a batch; lessons that do not verify are left out and warned of."""
        merged = merge_experiences(self.plan.pack, self._lessons_to_inject(library))
        for experience_id, reason in merged.skipped:
            self.manifest.warn(f"lesson {experience_id} was not injected: {reason}")
            self.telemetry.record_guardrail(rule="injection")
        used = {entry.experience_id: entry for entry in library.entries}
        text = PackText(
            system=merged.text,
            digest=sha256_hex(merged.text),
            pack_id=self.plan.pack.manifest.id,
            stamp=self.plan.pack.manifest.stamp,
            experience_ids=merged.experience_ids,
            experiences=tuple(used[name] for name in merged.experience_ids),
        )
        self.files.prompt(text)
        return text

    def _lessons_to_inject(self, library: Library) -> list[ExperienceRecord]:
        """The lessons that actors get. Too long a lesson, from before the limit was lowered, stays out with a warning."""
        short = short_enough(library, self.plan.pack)
        long = [entry.experience_id for entry in library.entries if entry not in short.entries]
        if long:
            self.manifest.warn(
                f"{pluralize(len(long), 'lesson')} kept out, longer than is allowed now: {', '.join(long)}"
            )
        return most_valuable(short, self.plan.pack.manifest.experience_slots, self.settings.tfgrpo.retrieval)

    def run_groups(self, specs: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
        """Fan groups out and report each as it comes back, in which order they come. Closing it gives up on the rest."""
        injected = sum(len(spec.pack.experience_ids) * spec.size for spec in specs)
        self.telemetry.record_injected(epoch=specs[0].epoch, domain=self.domain, count=injected)
        # The groups carry their own place in the trace: the processes that run them know nothing of epochs.
        context = dataclasses.replace(self.context, carrier=self.telemetry.carrier())
        with closing(self.fan_out(context, specs)) as arriving:
            for result in arriving:
                made = [rollout.outcome for rollout in result.rollouts if not isinstance(rollout.outcome, Refused)]
                self.made += len(made)
                self.lost += len(made) - len(scored_rewards(made))
                self.observer.group_done(result, self.runtime.ledger.totals())
                yield result

    def as_recorded(self, result: GroupResult) -> GroupResult:
        """A group as it was recorded when the run came by here before: what a rewarder missed stays missed."""
        fault = result.rewarder_fault or self.voided.get(result.group_id)
        return result if fault == result.rewarder_fault else dataclasses.replace(result, rewarder_fault=fault)

    def record_groups(self, results: Sequence[GroupResult]) -> None:
        """Write what a batch came to, and make its failures final: a resumed run will find them in the journal."""
        for result in results:
            for rollout in result.rollouts:
                if isinstance(rollout.outcome, Failed):
                    self._final_failure(rollout.outcome)
            for broken in result.broken_calls:
                self._final_failure(broken)
        self.files.groups(results)

    def _final_failure(self, failure: Failed | ReflectionFailure) -> None:
        journal = self.runtime.journal
        if failure.call_key is None or journal is None or self.context.replay or journal.get(failure.call_key):
            return
        journal.append_failure(failure.call_key, failure.error_type, failure.reason)

    def curate(
        self,
        epoch: int,
        batch: int,
        items: Sequence[Item],
        results: Sequence[GroupResult],
        meanwhile: Callable[[], object],
    ) -> Library:
        """Fold what a batch proposed into the library and store it, whole or not at all.

        ``meanwhile`` is called while the model thinks, and before anything is stored. Raises ``BudgetRefused`` or
        ``RunAborted`` when nothing could be decided; the batch is then curated on resume.
        """
        if not any(result.proposals for result in results):
            meanwhile()
            return self.library
        given = CurationInput(
            epoch=epoch,
            batch=batch,
            groups=tuple(results),
            library=self.library.entries,
            answers={item.id: item.answer for item in items},
            rejected_before=self.remembered,
        )
        with self.telemetry.span(SPAN_OPTIMIZE, {EPOCH: epoch, BATCH: batch}):
            curation = call_blocking(self.context, partial(curate_batch, given), meanwhile)
        if curation.fatal:
            raise RunAborted(curation.fatal)
        if curation.budget_refused:
            raise BudgetRefused(curation.budget_refused)
        for broken in curation.broken_calls:
            self._final_failure(broken)
        sentence = curation.failure.sentence if curation.failure else None
        for number in range(curation.asked):
            self.learning.add(sentence if number < curation.lost else None)
        if curation.rule_used:
            reason = curation.failure.reason if curation.failure else "no usable answer"
            self.manifest.warn(f"epoch {epoch}, batch {batch + 1}: the deterministic rule curated ({reason})")
        records = self._verified(curation.records, epoch, batch)
        with self.telemetry.span(SPAN_STORE_WRITE, {EPOCH: epoch, BATCH: batch, RECORDS: len(records)}):
            fresh = self.store.record_batch(records, self.paths.manifest) if records else 0
        if fresh or not records:
            self._count_operations(epoch, records, curation.rejected)
        self.stored += len(records)
        self.remembered = curation.memory
        self.rejected.extend(curation.rejected)
        self.observer.lessons_stored(records, len(curation.rejected))
        self.library = fold(self.library, records)
        self.telemetry.record_library(domain=self.domain, active=len(self.library.entries))
        return self.library

    def _verified(self, records: Sequence[ExperienceRecord], epoch: int, batch: int) -> Sequence[ExperienceRecord]:
        """The records, or none with a warning: a curation is of one pack, so its stamps hold together or not at all."""
        if all(self.store.verify_stamp(record) for record in records):
            return records
        what = f"epoch {epoch}, batch {batch + 1}: {pluralize(len(records), 'lesson')} neither stored nor injected"
        self.manifest.warn(f"{what}: not stamped for the pack in force")
        for _ in records:
            self.telemetry.record_guardrail(rule="stamp")
        return ()

    def _count_operations(
        self, epoch: int, records: Sequence[ExperienceRecord], rejected: Sequence[tuple[str, str]]
    ) -> None:
        for record in records:
            self.telemetry.record_experience_op(epoch=epoch, domain=self.domain, op=_OPERATIONS[record.operation])
        for _, reason in rejected:
            self.telemetry.record_experience_op(epoch=epoch, domain=self.domain, op="rejected", reason=_code(reason))

    def epoch_span(self, start: EpochStart) -> OpenSpan:
        """The span of an epoch, with what it was run with."""
        pack = self.plan.pack.manifest
        return self.telemetry.epoch_span(
            epoch=start.epoch,
            phase=start.phase,
            temperature=start.temperature,
            group_size=self.plan.group_size,
            sample_size=start.groups,
            pack_id=pack.id,
            pack_stamp=pack.stamp,
            seed=self.settings.tfgrpo.seed,
        )

    def epoch_started(self, start: EpochStart) -> None:
        """Tell the observers."""
        self.observer.epoch_started(start)

    def epoch_ended(self, end: EpochEnd, *, solve_rate: float | None, duration_s: float) -> None:
        """Close the books of an epoch: metrics, manifest, telemetry, observers."""
        self.epochs.append(end)
        self.files.close_epoch(self.epochs)
        self.manifest.update(tfgrpo=self.tfgrpo_block())
        if end.lost:
            lost = f"{end.lost} of {pluralize(end.lost + end.scored, 'rollout')} brought no reward and count nowhere"
            self.manifest.warn(f"epoch {end.epoch}: {lost}; most often {end.lost_mostly}")
        if end.learning_loss:
            self.manifest.warn(f"epoch {end.epoch}: {end.learning_loss}")
        self.telemetry.record_epoch(
            epoch=end.epoch,
            phase=end.phase,
            duration_s=duration_s,
            reward_mean=end.mean_reward,
            solve_rate=solve_rate,
        )
        self.telemetry.collect()
        self.observer.epoch_ended(end)

    def decided(self, evidence: PairedEvidence, decision: GateDecision) -> None:
        """The sweep was judged."""
        self.evidence, self.decision = evidence, decision
        self.observer.gate_decided(decision)

    def epoch_failed(self, epoch: int, reason: str) -> None:
        """A rewarder hung: nothing of the epoch is learned from or judged by, and the record says so."""
        self.failed_epochs[epoch] = reason
        self.files.failure(epoch, reason)
        self.manifest.warn(f"epoch {epoch} failed, its evidence is void: {reason}")

    def _epoch_row(self, end: EpochEnd) -> dict[str, Any]:
        """An epoch, also under the specification's literal names."""
        literal = {"tfgrpo_epoch": end.epoch, "group_size": self.plan.group_size, **self.files.epoch_use(end.epoch)}
        return {**dataclasses.asdict(end), **literal}

    def tfgrpo_block(self) -> dict[str, Any]:
        """The ``tfgrpo`` block of the manifest (requirement 68)."""
        return {
            "epochs": [self._epoch_row(end) for end in self.epochs],
            "failed_epochs": {str(epoch): reason for epoch, reason in self.failed_epochs.items()},
            "experiences_written": self.stored,
            "library": [entry.experience_id for entry in self.library.entries],
            "reward_scores": self.files.reward_scores(),
            "calibration": self.files.calibration(),
            "per_tool_metrics": self.files.per_tool(),
            "rejected": [list(pair) for pair in self.rejected],
        }


def _code(reason: str) -> str:
    """The first words of a reason, as a label: what follows are figures and names."""
    return "_".join(re.findall(r"[a-z]+", reason.lower())[:4])
