"""Build the plan of a run: check and load all that the settings name, rewarders included, before any spending or writing.

Run, doctor and estimate all call ``build_plan``. It reads files and imports rewarders, but opens no connection.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tfgrpo.pipelines.datasets.items import Item, RecordCounts
from tfgrpo.pipelines.plan.data import Cohort, RunData, draw_evaluation, read_data, sealed_cohort
from tfgrpo.pipelines.plan.forecast import Forecast, VisibleGain, forecast
from tfgrpo.pipelines.plan.proposal import proposed_rewards
from tfgrpo.pipelines.settings.guardrails import guard_warnings, task_id_problems, validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model_choice import ModelChoice, choose_models
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, RewarderSettings, Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import load_prompt_pack
from tfgrpo.rewarders.composite import AnyScorer, check_scorers, judge_loads, scorers_within, total_range, unisolated
from tfgrpo.rewarders.gt import GroundTruth, options_for_references
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import refuse_no_scorer
from tfgrpo.rewarders.scorer import GraderInput, Range, Scorer, Weighted
from tfgrpo.rewarders.statistics.credit import attempt_variance, differences_of
from tfgrpo.stores.errors import PipelineError, Problem, ProblemCollector, SettingsError, StoreError
from tfgrpo.stores.experiences.credit import CreditLine, Row, read_credit
from tfgrpo.stores.experiences.decisions import WAY_OUT, read_state
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.ledger import Totals, totals_in
from tfgrpo.stores.numeric import two_digits
from tfgrpo.stores.runs import ManifestFile, expected_shape

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.items import LearningMix


# Items whose references are counted: those of a larger dataset would be parsed once more before each run.
_COUNTED: Final = 100_000
ExtraCheck: TypeAlias = Callable[[Settings], Sequence[Problem]]


def mix_of(settings: Settings, *, try_graders: bool = True) -> LearningMix | None:
    """Return the mix of the settings, None without one. Raise ``PipelineError`` with all its problems."""
    if settings.dataset.mix is None:
        return None
    from tfgrpo.pipelines.mix import config, items  # noqa: PLC0415 - 25 ms, and few runs have a mix

    return items.LearningMix(config.load_mix_config(settings.dataset.mix, try_graders=try_graders))


def build_scorers(settings: Settings, mix: LearningMix | None) -> tuple[Weighted, ...]:
    """Return every rewarder of the settings, in their order. Raise ``PipelineError`` with all problems."""
    checks = ProblemCollector()
    built = [
        Weighted(scorer, entry.weight, entry.timeout_s, entry.score_range)
        for number, entry in enumerate(settings.rewarders)
        for scorer in checks.run(_scorer, entry, mix, f"rewarders.{number}")
    ]
    checks.raise_problems()
    return tuple(built)


def scorers_of(settings: Settings) -> tuple[Weighted, ...]:
    """Return the rewarders of a planned run; the records of a mix are not checked again."""
    needed = any(entry.name == DATASET_GRADERS for entry in settings.rewarders)
    return build_scorers(settings, mix_of(settings, try_graders=False) if needed else None)


def _scorer(entry: RewarderSettings, mix: LearningMix | None, source: str) -> AnyScorer:
    if entry.name != DATASET_GRADERS:
        made = build_scorer(entry.name, entry.options, source=source)
        return made if entry.isolate else unisolated(made)
    if mix is None:
        accepted = "it together with --data-config, whose datasets name their graders"
        raise PipelineError.one(f"{source}: name", repr(entry.name), accepted)
    if entry.options:
        accepted = "no options: the graders are those of the mix"
        raise PipelineError.one(f"{source}: options", ", ".join(sorted(entry.options)), accepted)
    if not entry.isolate:
        raise PipelineError.one(f"{source}: isolate", "false", "it at a grader of the mix, in python_graders")
    return mix.graders()


async def close_scorers(scorers: Iterable[AnyScorer]) -> None:
    """Close the connections and objects of scorers, ignoring errors: they may be a user's, and every reward is in."""
    for scorer in scorers:
        for _, each in scorers_within(scorer):
            close = each.close if isinstance(each, Scorer) else None
            if close is not None:
                with suppress(Exception):
                    closed = close()
                    if inspect.isawaitable(closed):
                        await closed


def checked_scorers(settings: Settings, mix: LearningMix | None, *, group_size: int) -> tuple[Weighted, ...]:
    """Return the rewarders for groups of at least this size, after asking each of the user's graders about a made-up attempt.

    Raise ``PipelineError`` for those that do not grade, and for rewarders without a total.
    """
    built, checks = build_scorers(settings, mix), ProblemCollector()
    for number, (entry, weighted) in enumerate(zip(settings.rewarders, built, strict=True)):
        for _, each in scorers_within(weighted.scorer):
            if isinstance(each, Scorer) and entry.name != DATASET_GRADERS:
                checks.run(refuse_no_scorer, each, f"rewarders.{number}: {entry.name}")
    checks.run(check_scorers, built, group_size=group_size)
    checks.raise_problems()
    return built


@dataclass(frozen=True, slots=True)
class ReferenceReading:
    """Settings and rewarders of a run, as the references of its dataset ask for."""

    settings: Settings
    rewarders: tuple[Weighted, ...]
    lines: tuple[str, ...] = ()
    """How each rewarder that compares reads the references."""
    warnings: tuple[str, ...] = ()
    chosen: str = ""
    """What was seen where the rewarders were chosen by it; empty where they were named."""

    @classmethod
    def of(cls, settings: Settings, rewarders: tuple[Weighted, ...], items: Iterable[Item], *, named: bool) -> ReferenceReading:
        """Decide what only the references of items can tell. Raise ``PipelineError`` for a rewarder that can use none.

        ``named``: the rewarders are those that the settings name; others are chosen. No items: those of a mix, which names
        its graders itself, and counts as it is loaded.
        """
        to_check = [*islice(items, _COUNTED)]
        answers = [answer for item in to_check for answer in item.accepted]
        proposal = None if named or not to_check else proposed_rewards(to_check)
        entries = settings.rewarders
        if proposal is not None:
            entries = proposal.entries
        elif answers:
            options = (options_for_references(entry.name, entry.options, answers) for entry in entries)
            entries = tuple(entry.model_copy(update={"options": each}) for entry, each in zip(entries, options, strict=True))
        if entries != settings.rewarders:
            settings = settings.model_copy(update={"rewarders": entries})
            rewarders = build_scorers(settings, None)
        counts = RecordCounts(weighted.scorer for weighted in rewarders)
        for item in to_check if counts else ():
            counts.add(item.id, item.as_record())
        counting = {
            each.rewarder_id for weighted in rewarders if weighted.weight > 0.0 for _, each in scorers_within(weighted.scorer)
        }
        counts.refuse_useless(counting, answers)
        comparing = [gt for each in rewarders if answers and isinstance(gt := each.scorer.made_from, GroundTruth)]
        records = [GraderInput.of(item.id, item.as_record(), "") for item in to_check if item.accepted]
        lines = tuple(f"{gt.rewarder_id} ({gt.match}): {gt.readings(records)}" for gt in comparing)
        missing = [f"{gt.rewarder_id}: {text}" for gt in comparing if (text := gt.missing(answers))]
        chosen = "" if proposal is None else f"{entries[0].name}, chosen by what the dataset holds: {proposal.reason}"
        return cls(settings, rewarders, lines, (*missing, *counts.warnings), chosen)


@dataclass(frozen=True, slots=True)
class BasePlan:
    """What the plans of runs and selections have in common: valid settings, and the pack and rewarders they name."""

    settings: Settings
    models: ModelChoice
    pack: LoadedPack
    rewarders: tuple[Weighted, ...]
    warnings: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        """Whether the figures are those of the simulated model."""
        return self.models.simulated

    @property
    def score_range(self) -> Range:
        """Range of the total reward that the rewarders declare."""
        return total_range(self.rewarders)


@dataclass(frozen=True, slots=True, repr=False)
class Plan(BasePlan):
    """A run that can start: valid settings and all that they name, loaded.

    Examples:
        >>> plan = tfgrpo.plan("items.jsonl", dry_run=True)
        >>> len(plan.learn_items), plan.forecast.calls.high, plan.warnings
    """

    sources: Mapping[str, str]
    data: RunData
    evaluation: Cohort
    """The sweep: the held-out items, at most ``sample_size`` of them."""
    forecast: Forecast
    measured_groups: int
    """Groups of a run that only measures lessons; 0 of any other."""
    paths: TaskPaths
    references: tuple[str, ...] = ()
    chosen_rewards: str = ""
    opens_sealed: bool = False
    """Whether the run learns nothing and compares the lessons in force with none, on the sealed items."""

    def __repr__(self) -> str:
        items = f"{len(self.learn_items):,} items to learn on, {len(self.eval_items):,} held out to compare on"
        return f"Plan of {self.settings.task_id}: {items}; forecast: {self.forecast}"

    @property
    def learn_items(self) -> Sequence[Item]:
        """Items that learning epochs draw from."""
        return self.data.split.learn

    @property
    def eval_items(self) -> tuple[Item, ...]:
        """Items of the sweep."""
        return self.evaluation.items

    @property
    def learns(self) -> bool:
        """Whether lessons are learned; False with the feature flag off."""
        return self.settings.tfgrpo.enabled

    @property
    def group_size(self) -> int:
        """Actors per item of a learning epoch, or of the only one."""
        return self.settings.tfgrpo.actors_per_item

    @property
    def sweep_size(self) -> int:
        """Actors per held-out item and side."""
        return self.settings.gate.group_size

    def groups_at_once(self, parts: int) -> int:
        """Return how many groups make a part, so that the run has at most ``parts``: no part is of two batches."""
        learning = self.settings.tfgrpo
        learned = (learning.epochs - 1) * learning.sample_size
        batches = (learning.epochs - 1) * -(-learning.sample_size // learning.batch_size) + 1
        groups = learned + 2 * len(self.eval_items) + self.measured_groups
        # Each batch may end with a part that is not full; with more batches than parts, each is one.
        return -(-groups // (parts - batches)) if batches < parts else learning.batch_size

    def cohort(self, epoch: int) -> Cohort:
        """Return the items of a learning epoch."""
        return self.data.cohort(epoch, self.settings)


def build_plan(
    resolved: Resolved,
    env: Mapping[str, str],
    *,
    extra_checks: Sequence[ExtraCheck] = (),
    measuring: int | None = None,
    saturated: bool = False,
    sealed: bool = False,
) -> Plan:
    """Check and load all that the settings name.

    ``extra_checks`` are those of higher floors; ``measuring``: attempts of a run that measures lessons and does nothing else;
    ``saturated``: the sweep takes half of its items; ``sealed``: it has the sealed ones instead, and nothing is learned.

    Raise one ``ConfigError`` with all problems, of the class of the first check that failed.
    """
    settings = resolved.settings
    checks = ProblemCollector()
    checks.run(validate_tfgrpo_config, settings, sources=resolved.sources)
    for check in extra_checks:
        checks.refuse(check(settings))
    task = checks.run(_task_files, settings) if not any(task_id_problems(settings)) else []
    pack = checks.run(pack_for, settings, settings.pack)
    mix = checks.run(mix_of, settings)
    smallest = min(settings.tfgrpo.group_size, settings.gate.group_size) if settings.tfgrpo.enabled else 1
    rewarders = checks.run(checked_scorers, settings, mix[0], group_size=smallest) if mix else []
    data = checks.run(read_data, settings, mix[0]) if mix else []
    checks.raise_problems()
    paths, credit = task[0]
    every = chain(data[0].split.learn, data[0].split.held_out) if data[0].mix is None else ()
    reading = ReferenceReading.of(settings, rewarders[0], every, named=resolved.sources["rewarders"] != "default")
    settings = reading.settings
    guards = guard_warnings(settings, env, resolved.sources)
    base = BasePlan(settings, choose_models(settings), pack[0], reading.rewarders, ())
    learning, actors = settings.tfgrpo, settings.gate.group_size
    if sealed:
        evaluation = sealed_cohort(data[0].sealed, settings=learning, actors=actors)
    else:
        evaluation = draw_evaluation(data[0].split.held_out, settings=learning, actors=actors, saturated=saturated)
    groups = 0 if measuring is None else max(1, measuring // learning.measuring_size)
    ahead = _ahead(base, data[0], evaluation, groups=groups, saturated=saturated, sealed=sealed)
    if measuring is None and not sealed:
        ahead = _corrected(ahead, paths, credit, base.models)
    return Plan(
        settings=settings,
        sources=resolved.sources,
        models=base.models,
        pack=base.pack,
        rewarders=base.rewarders,
        data=data[0],
        evaluation=evaluation,
        forecast=ahead,
        measured_groups=groups,
        warnings=(*guards, *data[0].warnings, *reading.warnings, *_advice(base, data[0], ahead, paths)),
        references=reading.lines,
        chosen_rewards=reading.chosen,
        paths=paths,
        opens_sealed=sealed,
    )


def _ahead(base: BasePlan, data: RunData, evaluation: Cohort, *, groups: int, saturated: bool, sealed: bool) -> Forecast:
    # `groups`: of a run that measures lessons.
    settings, learning = base.settings, base.settings.tfgrpo
    # With the feature flag off one epoch is measured, and there is no sweep.
    cohorts = data.cohorts(learning.epochs - 1 if learning.enabled else 1, settings)
    sweeps = (learning.enabled or sealed) and not groups
    return forecast(
        settings,
        models=base.models,
        pack=base.pack,
        cohorts=() if groups or sealed else cohorts,
        evaluation=evaluation.items if sweeps else (),
        judges=lambda size: [load for each in base.rewarders for load in judge_loads(each.scorer, size)],
        measured=list(islice(cycle(cohorts[0].items), groups)),
        saturated=saturated,
    )


def _task_files(settings: Settings) -> tuple[TaskPaths, list[CreditLine]]:
    # Absolute: an agent that is a function may change the working directory of the process.
    paths = TaskPaths.of(Path(settings.out).absolute(), settings.task_id)
    for path in (Path(settings.out), paths.root):
        if path.exists() and not path.is_dir():
            accepted = "a directory, or a path for a new one"
            raise SettingsError.one("out", f"{str(path)!r}, which is no directory", accepted)
    try:
        # No night could start with credit of which a line cannot be read.
        return paths, read_credit(paths.credit)
    except StoreError as error:
        raise SettingsError.one("the task's credit", str(error), WAY_OUT) from error


def pack_for(settings: Settings, name: str) -> LoadedPack:
    """Load a pack, with the limit that the settings put on lessons. Raises ``ConfigError``."""
    root = Path(settings.packs_root).absolute() if settings.packs_root is not None else None
    return load_prompt_pack(name, root, settings.tfgrpo.experience_max_words)


def _corrected(ahead: Forecast, task: TaskPaths, credit: Sequence[CreditLine], models: ModelChoice) -> Forecast:
    """Return a forecast with the likely figures of the last decided run with the same model, and the noise of its attempts."""
    # A forecast needs no history: a run that was killed lacks some of it.
    with suppress(StoreError, OSError), expected_shape(task.root):
        run_id = (read_state(task.state) or {}).get("last_run") or ""  # None after an import that made the task
        last = ManifestFile(task.run(run_id).manifest).read()
        if (last["model"], last["simulated"]) == (models.name, models.simulated):
            ahead = ahead.after(last)
            variance = _variance(credit, run_id)
            if ahead.gain is not None and variance is not None:
                ahead = replace(ahead, gain=VisibleGain.of(ahead.gain.planned, (variance, variance)))
    return ahead


def _variance(lines: Iterable[CreditLine], run_id: str) -> float | None:
    """Return the variance of one attempt in a run and in the night before it; None if it is unknown."""
    rows = [line for line in lines if isinstance(line, Row)]
    last = next((row for row in reversed(rows) if row.run_id == run_id), None)
    if last is None:
        return None
    recent = [row for row in rows if row.conditions == last.conditions and last.night - 1 <= row.night <= last.night]
    compared = any(row.difference is not None for row in recent)
    return attempt_variance(differences_of(row.sides for row in recent).values()) if compared else None


def _advice(base: BasePlan, data: RunData, ahead: Forecast, task: TaskPaths) -> Iterator[str]:
    budget, pack = base.settings.budget, base.pack.manifest
    others = sorted(data.domains - {"", pack.domain})
    if others and pack.domain != "general":
        yield f"the pack {pack.id!r} is for the domain {pack.domain!r}; items are of {', '.join(others[:5])}"
    left = budget.task_max_usd
    if left is not None:
        try:
            spent = spent_on_task(task, simulated=base.simulated)
            left = max(0.0, left - spent.usd - spent.at_risk_usd)
        except StoreError:
            # Which the run will tell.
            left = None
    usd = [ahead.usd] if ahead.usd is not None else []
    caps = (
        ("budget.max_calls is", budget.max_calls, [ahead.calls]),
        ("budget.max_tokens is", budget.max_tokens, [ahead.prompt_tokens, ahead.completion_tokens]),
        ("budget.max_usd is", budget.max_usd, usd),
        ("budget.task_max_usd leaves", left, usd),
    )
    for name, cap, parts in caps:
        needed = sum(part.likely for part in parts)
        if cap is not None and needed > cap:
            # An agent of the user's own may call no model, or one that is not seen.
            counted = "" if any(part.low for part in parts) else ", if each attempt makes a call that is counted"
            likely = f"the run is likely to need {two_digits(needed)}{counted}"
            yield f"{name} {cap:,.4g} and {likely}: it would stop early, with its work saved"


def spent_on_task(task: TaskPaths, *, simulated: bool) -> Totals:
    """Return what a task has spent by its ledger, or by those of its runs if these say more. Raises ``StoreError``."""
    total, own = Totals(), task.ledger(simulated=simulated)
    for path in task.root.glob("runs/*/manifest.json"):
        run = RunPaths(path.parent)
        if run.ledger.is_file() and ManifestFile(path).read().get("simulated") == simulated:
            total = total.plus(totals_in(run.ledger))
    books = (replace(total, journalled=0), totals_in(own) if own.exists() else Totals())
    return max(books, key=lambda one: one.committed.nano_usd)
