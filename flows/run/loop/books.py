"""An open run: its session, its books (manifest, line files and their totals), and what it knows while it learns.

Every line file (rollouts, groups, items, prompts, metrics) is keyed, so that a resumed run, which repeats its batches, adds
only missing lines. Totals are sums: memory does not grow with the number of rollouts.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from filelock import BaseFileLock

from tfgrpo.flows.console.observer import EpochEnd, FirstBatch, Losses, Observer
from tfgrpo.flows.orchestration.request import Measuring
from tfgrpo.flows.report.calibration import CalibrationTally
from tfgrpo.flows.run.lessons import lesson_json
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import Cohort
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.scorer import Abstained, Weighted
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.experiences.credit import CreditFile, CreditLine
from tfgrpo.stores.experiences.decisions import Decision, Library
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import LineFile, lines_of
from tfgrpo.stores.json_values import mapping_of, to_builtins
from tfgrpo.stores.ledger import Ledger, Usage, add_costs
from tfgrpo.stores.metrics import GroupMetrics, HalfMetrics, MetricsStore, ToolUse
from tfgrpo.stores.outcomes import REWARDER_LATE, Phase, Refused, Scored
from tfgrpo.stores.runs import ManifestFile
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.text import pluralize, replace_surrogates
from tfgrpo.tasks.learning.ask import AFTER_SHORTENING
from tfgrpo.tasks.learning.credit import Credit, Memory, credit_of
from tfgrpo.tasks.learning.reflect import BEYOND
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText, RolloutRecord

if TYPE_CHECKING:
    from tfgrpo.flows.run.loop.learn import Swept


def recorded_failures(paths: RunPaths) -> dict[str, dict[str, dict[str, Abstained]]]:
    """Return the verdicts of rewarders that failed, by group, rollout and rewarder.

    A resumed or replayed run keeps them, also where the rewarder has a score now.
    """
    verdicts: dict[str, dict[str, dict[str, Abstained]]] = {}
    for row in (json.loads(line.body) for line in lines_of(paths.rollouts) if line.length):
        if failures := mapping_of(row.get("failures")):
            late = mapping_of(row.get("outcome")).get("error_type") == REWARDER_LATE
            kept = {name: Abstained(name, str(why), broke=not late, late=late) for name, why in failures.items()}
            verdicts.setdefault(str(row["group_id"]), {})[str(row["rollout_id"])] = kept
    return verdicts


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What a run knows of its lessons. Each step of the loop returns a new one."""

    memory: Memory
    credit: Credit
    remembered: Mapping[str, int]
    """Texts of rejected proposals with how often they were rejected, shown to the curator."""

    @classmethod
    def of(cls, memory: Memory, remembered: Mapping[str, int]) -> State:
        """Return the state of a run that knows just this."""
        return cls(memory, credit_of(memory), remembered)


class Books:
    """Manifest, line files and totals of one run. The flow process is the only writer of these files."""

    def __init__(self, paths: RunPaths, run_id: str, credit: Path, state: State, rewarders: Sequence[Weighted] = ()) -> None:
        """``credit``: the file of the task, ``credit.jsonl``. ``state``: what the run begins with."""
        self.state = state
        """As of the last step on record: what a run knows that ends early."""
        self.stored = 0
        self.rejected: list[tuple[str, str]] = []
        self.proposals: Counter[str] = Counter()
        """What became of the proposals: refused before curation, or by it confirmed, contradicted, new, useless."""
        self.credit = CreditFile(credit)
        self.manifest = ManifestFile(paths.manifest)
        self.epochs: list[EpochEnd] = []
        self.attempts = Losses()
        """Completed rollouts and those without a reward, including those of an abandoned batch."""
        self.refused_lessons: Counter[str] = Counter()
        """Proposed lessons that the screening refused, by reason."""
        self.has_first_batch = False
        self.first_batch: FirstBatch | None = None
        """What is wrong with the rewards of the first batch; None for one that can teach something."""
        self.decision: Decision | None = None
        self.swept: Swept | None = None
        self._run_id = run_id
        self._rollouts = LineFile(paths.rollouts, "rollout_id")
        self._groups = LineFile(paths.groups, "group_id")
        self._prompts = LineFile(paths.prompts, "digest")
        self._items = LineFile(paths.items, "item_id")
        self._metrics = MetricsStore(paths.root)
        self._cohorts: dict[str, Any] = {}
        self._scores: dict[str, list[float]] = {}
        self._tools: Sequence[ToolUse] = ()
        self._epoch_use: dict[tuple[int, Phase], _EpochSum] = {}
        self._failures: dict[tuple[int, Phase], dict[str, tuple[int, str]]] = {}
        self.judges = CalibrationTally(rewarders)

    @property
    def damage(self) -> Iterator[str]:
        """Warnings that name the damaged lines of these files that were moved away; what the run knows it wrote again."""
        own = (self._rollouts, self._groups, self._prompts, self._items, self._metrics.lines)
        return (file.warning for file in (*own, self.credit.lines) if file.warning is not None)

    def cohort(self, epoch: int, cohort: Cohort) -> None:
        """Write the items of an epoch into the manifest."""
        items = [item.id for item in cohort.items]
        self._cohorts[str(epoch)] = {"items": items, "sampling": dict(cohort.metadata)}
        self.manifest.update(cohorts=self._cohorts)

    def learned(
        self,
        state: State,
        lines: Sequence[CreditLine],
        records: Sequence[ExperienceRecord] = (),
        remembered: Mapping[str, int] | None = None,
    ) -> State:
        """Write lines of credit, and return the state with them and with records that have been stored."""
        self.credit.append(lines)
        self.stored += len(records)
        remembered = state.remembered if remembered is None else remembered
        self.state = State.of(state.memory.plus(records, lines), remembered)
        return self.state

    def prompts(self, packs: Iterable[PackText]) -> None:
        """Write system texts as sent, once each."""
        self._prompts.add(
            {
                "digest": pack.digest,
                "pack_id": pack.pack_id,
                "stamp": pack.stamp,
                "experience_ids": list(pack.experience_ids),
                "library_id": Library(pack.experiences).library_id,
                "system": replace_surrogates(pack.system),
            }
            for pack in packs
        )

    def items(self, items: Iterable[Item]) -> None:
        """Write the items, once each, so that the run can be exported without its dataset."""
        fields = ("prompt", "answer", "system_prompt", "domain")
        self._items.add(
            # No line of UTF-8 can contain half a surrogate pair.
            {"item_id": item.id, **{name: replace_surrogates(getattr(item, name)) for name in fields}}
            | {"alternatives": [*map(replace_surrogates, item.alternatives)]}
            for item in items
        )

    def groups(self, results: Sequence[GroupResult]) -> None:
        """Write a batch of groups: rollouts, groups and metrics."""
        rollouts = [rollout for result in results for rollout in result.rollouts]
        self._rollouts.add([rollout_row(rollout) for rollout in rollouts])
        self._groups.add([_group_row(result) for result in results])
        metrics = [self._group_metrics(result) for result in results]
        self._metrics.append_groups(metrics)
        self._tools = ToolUse.by_tool((*self._tools, *(tool for group in metrics for tool in group.tools)))
        for group in metrics:
            self._epoch_use.setdefault((group.tfgrpo_epoch, group.phase), _EpochSum()).add(group)
        for rollout in rollouts:
            for score in rollout.scores:
                self._score(score.rewarder_id, score.score)
            if isinstance(rollout.outcome, Scored):
                self._score("total", rollout.outcome.reward)
            for name, why in rollout.failures.items():
                failures = self._failures.setdefault((rollout.key.epoch, rollout.key.phase), {})
                failures[name] = failures.get(name, (0, ""))[0] + 1, why
        for result in results:
            self.judges.add(result)
            reasons = (reason.removesuffix(AFTER_SHORTENING).partition(":")[0] for _, reason in result.rejected)
            self.refused_lessons.update(reason for reason in reasons if not reason.startswith(BEYOND))

    def count(self, result: GroupResult) -> None:
        """Count the rollouts of a completed group."""
        for rollout in result.rollouts:
            if not isinstance(rollout.outcome, Refused):
                self.attempts.attempt(rollout.outcome)

    def epoch_ended(self, end: EpochEnd) -> None:
        """Write the summary of an epoch into metrics and manifest, with warnings for its losses."""
        self.epochs.append(end)
        if failures := self._failures.get((end.epoch, end.phase)):
            # Requirement 63: a rewarder that does not answer is on record as a failure, whatever it cost.
            reason = "; ".join(
                f"{name} failed on {pluralize(count, 'attempt')} ({why})" for name, (count, why) in failures.items()
            )
            self._metrics.append_failure(self._run_id, end.epoch, reason)
            self.manifest.warn(f"epoch {end.epoch}: {reason}")
        self._metrics.write_per_epoch(
            {
                each.epoch: {"asked": each.learning_asked, "lost": each.learning_lost, "lost_mostly": each.learning_lost_mostly}
                for each in self.epochs
            }
        )
        self.manifest.update(tfgrpo=self.tfgrpo_block())
        for warning in end.warnings:
            self.manifest.warn(warning)

    def tfgrpo_block(self) -> dict[str, Any]:
        """Return the ``tfgrpo`` block of the manifest (requirement 68). An unknown cost is None."""
        credit = self.state.credit
        return {
            "epochs": [
                {
                    **dataclasses.asdict(end),
                    # The specification's own names for two fields.
                    "tfgrpo_epoch": end.epoch,
                    **to_builtins(self._epoch_use.get((end.epoch, end.phase), _EpochSum())),
                }
                for end in self.epochs
            ],
            "lost": {"rollouts": self.attempts.lost, "of": self.attempts.asked, "mostly": self.attempts.mostly},
            "experiences_written": self.stored,
            "on_trial": [entry.experience_id for entry in credit.on_trial],
            "lessons": {name: lesson_json(lesson, credit, self.in_force) for name, lesson in credit.known.items()},
            "proposals": dict(self.proposals),
            "screened": dict(self.refused_lessons),
            "remembered": dict(self.state.remembered),
            "reward_scores": {
                name: {"mean": total / count, "count": count} for name, (total, count) in sorted(self._scores.items())
            },
            "calibration": self.judges.as_json(),
            "per_tool_metrics": [{**to_builtins(tool), "tool_cost_usd": tool.cost_usd} for tool in self._tools],
            "rejected": [list(pair) for pair in self.rejected],
        }

    @property
    def in_force(self) -> Sequence[str]:
        """What is in force by the run's decision; before it, what was when the run began."""
        return self.state.memory.in_force if self.decision is None else self.decision.experience_ids

    def _score(self, name: str, value: float) -> None:
        total = self._scores.setdefault(name, [0.0, 0])
        total[0] += value
        total[1] += 1

    def _group_metrics(self, result: GroupResult) -> GroupMetrics:
        return GroupMetrics(
            run_id=self._run_id,
            tfgrpo_epoch=result.key.epoch,
            group_id=result.group_id,
            group_size=len(result.rollouts),
            phase=result.key.phase,
            arm=result.key.arm,
            signal=result.signal,
            reward_mean=result.mean_reward,
            reward_spread=result.spread,
            outcomes=_outcomes(result.rollouts),
            rollout_latency_ms=_latencies(result.rollouts),
            tools=ToolUse.by_tool(event.use for rollout in result.rollouts for event in rollout.tools),
            measured=all(rollout.usage.calls is not None for rollout in result.rollouts),
            halves=tuple(
                HalfMetrics(half.arm, half.signal, half.mean_reward, half.spread, _outcomes(own), _latencies(own))
                for half in result.halves
                for own in [[rollout for rollout in result.rollouts if rollout.key.arm == half.arm]]
            ),
        )


def _outcomes(rollouts: Iterable[RolloutRecord]) -> dict[str, int]:
    return dict(Counter(rollout.outcome.name for rollout in rollouts))


def _latencies(rollouts: Iterable[RolloutRecord]) -> tuple[float, ...]:
    return tuple(1000.0 * rollout.latency_s for rollout in rollouts)


@dataclasses.dataclass(slots=True)
class _EpochSum:
    group_size: int = 0
    tool_cost_usd: float | None = 0.0
    latency_ms: float = 0.0

    def add(self, group: GroupMetrics) -> None:
        self.group_size = max(self.group_size, group.group_size)
        self.tool_cost_usd = add_costs([self.tool_cost_usd, group.tool_cost_usd])
        self.latency_ms += sum(group.rollout_latency_ms)


def rollout_row(rollout: RolloutRecord) -> dict[str, Any]:
    """Return the line of a rollout in ``rollouts.jsonl``."""
    key = rollout.key
    group = {"item_id": key.item, "epoch": key.epoch, "phase": key.phase, "arm": key.arm}
    return _flat(rollout, key=group, usage=to_builtins(rollout.usage))


def _group_row(result: GroupResult) -> dict[str, Any]:
    key = result.key
    row = _flat(
        dataclasses.replace(result, rollouts=()),
        key={"item_id": key.item, "epoch": key.epoch, "phase": key.phase, "arm": key.arm, "batch": key.batch},
        rollouts={"rollouts": [rollout.rollout_id for rollout in result.rollouts]},
        learning=_usage("learning", result.learning),
        judging=_usage("judge", result.judging),
        **({} if result.halves else {"halves": {}}),
    )
    return {**row, "draw": key.draw}


def _usage(name: str, usage: Usage) -> dict[str, Any]:
    return {f"{name}_calls": usage.calls, f"{name}_tokens": usage.tokens, f"{name}_cost_usd": usage.cost_usd}


def _flat(value: RolloutRecord | GroupResult, **replaced: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, field in to_builtins(value).items():
        row |= replaced.get(name, {name: field})
    return row


def stopwatch(ledger: Ledger) -> Callable[[], dict[str, float]]:
    """Return a function that measures the flow process from now on: time, calls, peak memory, for manifest and ``--json``.

    CPU seconds are those of all threads of this process; workers of Dask or Ray count their own.
    """
    wall_s, cpu_s, calls = time.perf_counter(), time.process_time(), ledger.totals().calls
    # Darwin counts in bytes, every other system in kibibytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return lambda: {
        "wall_s": time.perf_counter() - wall_s,
        "cpu_s": time.process_time() - cpu_s,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "calls": ledger.totals().calls - calls,
    }


RunGroups: TypeAlias = Callable[[RunContext, Sequence[GroupSpec]], Generator[GroupResult, None, None]]
"""Run the groups of a batch and yield each as it completes; closing the generator abandons the others."""


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """One open run, made by ``tfgrpo.flows.run.execution``."""

    plan: Plan
    run_id: str
    task: TaskPaths
    runtime: Runtime
    store: ExperienceStore
    books: Books
    observer: Observer
    in_force: Library
    conditions: str
    """Digest of model, actor, pack and rewarders, under which rows are measured."""
    measures: Measuring | None
    """What is measured in place of learning; None in a run that learns."""
    fan_out: RunGroups
    clock: Clock
    lock: BaseFileLock
    """Held while the run is open, so that no other process writes its files."""
    timing: Callable[[], dict[str, float]]
    """Seconds of this part of the run, so far."""
    waits: bool = False
    """Whether an endpoint did not answer when the run was prepared."""
    finished_before: bool = False
    """Whether the run had finished when it was resumed."""
    replay_of: TaskPaths | None = None
    """Task of the replayed run; None for an original run."""
    failures: Mapping[str, Mapping[str, Mapping[str, Abstained]]] = dataclasses.field(default_factory=dict)
    """Recorded verdicts of rewarders that failed, by group; see ``books.recorded_failures``."""
    warnings: Sequence[str] = ()
    """What there is to say when it begins."""

    @property
    def telemetry(self) -> Telemetry:
        """Spans and metrics of the run."""
        return self.runtime.telemetry

    @property
    def domain(self) -> str:
        """Domain of the pack, as the metrics name it."""
        return self.plan.pack.manifest.domain

    @property
    def context(self) -> RunContext:
        """The run as each of its processes needs it."""
        return self.runtime.context

    @property
    def paths(self) -> RunPaths:
        """Files of the run."""
        return self.context.paths

    @property
    def settings(self) -> Settings:
        """Settings of the run."""
        return self.plan.settings

    @property
    def night(self) -> int:
        """Nights of the task that had begun before this run."""
        return self.settings.tfgrpo.night or 0
