"""``tfgrpo grade``: grade completions by the graders of a data mix as its server does, or by the rewarders of a pipeline.

Nothing is graded before everything is checked: configuration, lines, and ids. A judge asks the model of its pipeline, within
the pipeline's budget; its answers are in no journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from pydantic import ValidationError

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_output_file
from tfgrpo.flows.console.figures import decimal, spending
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.trial import check_judges, graded_group, judge_of, judges_among, open_judges, plan_judges
from tfgrpo.pipelines.datasets.datasets import open_source
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.mix.config import MixConfig, is_mix, load_mix_config
from tfgrpo.pipelines.plan.data import read_every
from tfgrpo.pipelines.plan.plan import BasePlan, ReferenceReading, checked_scorers, mix_of, pack_for
from tfgrpo.pipelines.server.service import DataService, GradeItem, ItemGrade
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.pipelines.settings.tree import ActorSettings, FieldMap
from tfgrpo.rewarders.runner import TIMEOUT_S, ScoreRunner
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores import errors
from tfgrpo.stores.errors import DatasetError, Problem, SettingsError
from tfgrpo.stores.experiences.credit import outside_range
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.json_values import to_builtins
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import pluralize, quoted_names
from tfgrpo.tasks.group import GroupJudge
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.runtime.runtime import Runtime

BATCH: Final = 1_024
"""Completions that are graded together, as a trainer's request would have them."""
_REASONS: Final = 20
# What reasons of ``gt`` quote of a completion: ``'2 or 3' names several``.
_QUOTED: Final = re.compile(r"\A(\w+: )'(?:[^'\\\n]|\\.)*'|(?<=clearly the answer: ).*")
_STOPPED: Final = 3
# Those of ``rollouts.jsonl`` are among them; of several in a line the first counts.
_IDS: Final = ("sample_id", "item_id", "id")
_TEXTS: Final = ("completion", "output")
_FACTS: Final = {
    "completion_tokens": "a whole number",
    "completion_index": "a whole number",
    "cost_usd": "a number",
    "latency_s": "a number",
    "tool_calls": "a list of objects with name and arguments",
}
_EMPTY: Final = ItemGrade(None, {}, {"completion": "empty: an attempt of a run without any output is not graded either"})


class Graded(NamedTuple):
    """A completion with its grade."""

    item: GradeItem
    grade: ItemGrade
    dataset: str
    evidence: Mapping[str, str] = {}
    """What each part rests on; empty for the graders of a mix, which do not say."""


def read_completions(path: Path, unknown: Callable[[str], str] | None) -> list[GradeItem]:
    """Return the completions of a file. Raise ``DatasetError`` with every line that is none, and every ``unknown`` id."""
    problems, items = errors.CappedProblems(), list[GradeItem]()
    source = open_source(str(path), FieldMap())
    for row in source.rows:
        if isinstance(row, Problem):
            problems.add(row)
            continue
        try:
            item = _completion(row.values, row.source)
            if unknown is not None and (accepted := unknown(item.sample_id)):
                raise DatasetError.one(row.source, f"the unknown id {item.sample_id[:200]!r}", accepted)
        except DatasetError as error:
            for problem in error.problems:
                problems.add(problem)
        else:
            items.append(item)
    if not items and not problems.total:
        problems.add(Problem(str(path), "no completions", "at least one line"))
    problems.raise_problems(DatasetError, str(path))
    return items


def _completion(values: Mapping[str, object], where: str) -> GradeItem:
    name, text = (next((key for key in keys if values.get(key) is not None), None) for keys in (_IDS, _TEXTS))
    if name is None or text is None:
        lacking = _IDS if name is None else _TEXTS
        accepted = f'{" or ".join(lacking)}, as in {{"{_IDS[0]}": …, "{_TEXTS[0]}": …}}'
        raise DatasetError.one(where, f"no {lacking[0]!r} among the fields {quoted_names(values)}", accepted)
    sample_id = values[name]
    if isinstance(sample_id, int) and not isinstance(sample_id, bool):
        sample_id = str(sample_id)  # as datasets read ids
    facts = {key: values.get(key) for key in _FACTS}
    try:
        return GradeItem.model_validate({"sample_id": sample_id, "completion": values[text], **facts})
    except ValidationError as error:
        names = {"sample_id": name, "completion": text}
        problems = []
        for field in dict.fromkeys(str(each["loc"][0]) for each in error.errors()):
            key, accepted = names.get(field, field), "text" if field in names else f"{_FACTS[field]} or null"
            problems.append(Problem(where, f"{errors.shown_value(values.get(key))} in {key!r}", accepted))
        raise DatasetError(problems) from None


@dataclass
class _Spending:
    """What a grading warns of, and what its judges spend."""

    warnings: tuple[str, ...]
    simulated: bool
    """Whether judges ask the simulated model."""
    spent: Totals | None = field(default=None, init=False)
    over_budget: str | None = field(default=None, init=False)


@dataclass
class MixGrading(_Spending):
    """The graders of a data mix, as ``tfgrpo serve-data`` runs them."""

    config: MixConfig
    timeout_s: float
    plan: BasePlan | None

    @classmethod
    def load(cls, path: Path, timeout_s: float, resolved: Resolved | None) -> MixGrading:
        """Read a mix, whose judges ask the model of the settings. Raise ``ConfigError`` with all its problems."""
        config = load_mix_config(path)
        plan = plan_judges(config, resolved)
        return cls(config.warnings, plan is not None and plan.simulated, config, timeout_s, plan)

    def unknown(self, sample_id: str) -> str:
        """Return what ids are accepted; empty if this is one."""
        try:
            self.config.locate(sample_id)
        except DatasetError:
            sizes = (f"{name}:0 to {len(each.records) - 1}" for name, each in self.config.datasets.items() if each.records)
            return f"<dataset>:<number of the record>: {', '.join(sizes)}"
        return ""

    def dataset_of(self, sample_id: str) -> str:
        """Return the dataset of an item."""
        return self.config.locate(sample_id)[0]

    def parts_of(self, dataset: str) -> Sequence[str]:
        """Return the names of the graders of a dataset."""
        graders = self.config.datasets[dataset].graders
        return [*(part.scorer.rewarder_id for part in graders.parts), *(gate.rewarder_id for gate in graders.gates)]

    async def grade(self, items: Sequence[GradeItem]) -> list[Graded]:
        """Return the grade of each completion."""
        judges, graded = list[GroupJudge](), list[Graded]()
        async with AsyncExitStack() as resources:
            runner = resources.enter_context(ScoreRunner(timeout_s=self.timeout_s))
            service = DataService(self.config, runner)
            if self.plan is not None:
                runtime, warnings = await resources.enter_async_context(open_judges(self.plan, "grade"))
                self.warnings += warnings

                def judge(item_id: str) -> GroupJudge:
                    judges.append(judge_of(runtime)(item_id))
                    return judges[-1]

                service = DataService(self.config, runner, judge)
            for batch in batched(items, BATCH):
                grades = await service.grade(batch)
                self.over_budget = _stopped(judges) or self.over_budget
                judges.clear()
                graded += [Graded(*pair, self.dataset_of(pair[0].sample_id)) for pair in zip(batch, grades, strict=True)]
            self.spent = runtime.ledger.totals() if self.plan is not None else None
        return graded


@dataclass
class PipelineGrading(_Spending):
    """The rewarders of a pipeline, on the items of its datasets."""

    plan: BasePlan
    judges: bool
    """Whether any rewarder asks a model."""
    items: Mapping[str, tuple[str, Item]]
    """Items by id, with the names of their datasets."""

    @classmethod
    def load(cls, resolved: Resolved) -> PipelineGrading:
        """Check and load what the settings name for grading. Raise ``ConfigError`` with all problems."""
        # No actor attempts anything: what the settings say of one is not started.
        settings = resolved.settings.model_copy(update={"actor": ActorSettings()})
        checks = errors.ProblemCollector()
        mixes = checks.run(mix_of, settings)
        built = checks.run(checked_scorers, settings, mixes[0], group_size=2) if mixes else []
        data = checks.run(read_every, settings, mixes[0]) if mixes else []
        packs = checks.run(pack_for, settings, settings.pack)
        if judges := judges_among(each.scorer for rewarders in built for each in rewarders):
            checks.run(check_judges, resolved, judges)
        checks.raise_problems()
        every = chain.from_iterable(each.items for each in data[0])
        named = resolved.sources["rewarders"] != "default"
        reading = ReferenceReading.of(settings, built[0], () if mixes[0] is not None else every, named=named)
        plan = BasePlan(reading.settings, choose_models(settings), packs[0], reading.rewarders, ())
        warnings = (*(warning for each in data[0] for warning in each.warnings), *reading.warnings)
        asks = any(each.scorer.asks_model for each in plan.rewarders)
        # Of a mix the ids begin with the names of its datasets.
        is_mix = settings.dataset.mix is not None
        items = {
            item.id: (item.id.rpartition(":")[0] if is_mix else each.name, item) for each in data[0] for item in each.items
        }
        return cls(warnings, asks and plan.simulated, plan, asks, items)

    def unknown(self, sample_id: str) -> str:
        """Return what ids are accepted; empty if this is one."""
        if sample_id in self.items:
            return ""
        names = dict.fromkeys(name for name, _ in self.items.values())
        return f"the id of an item of {', '.join(names)}"

    def dataset_of(self, sample_id: str) -> str:
        """Return the dataset of an item."""
        return self.items[sample_id][0]

    def parts_of(self, dataset: str) -> Sequence[str]:  # noqa: ARG002 - the same for all
        """Return the names of the rewarders."""
        return [each.scorer.rewarder_id for each in self.plan.rewarders]

    async def grade(self, items: Sequence[GradeItem]) -> list[Graded]:
        """Return the grade of each completion; those of one item are a group."""
        groups: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(item.sample_id, []).append(index)
        graded: dict[int, Graded] = {}
        at_once = max(1, BATCH // max(map(len, groups.values()), default=1))
        async with open_judges(self.plan, "grade", asked=self.judges) as (runtime, warnings):
            self.warnings += warnings
            for batch in batched([*groups.values()], at_once):
                groups_graded = await asyncio.gather(*(self._group([items[at] for at in group], runtime) for group in batch))
                graded |= zip(chain(*batch), chain(*groups_graded), strict=True)
            self.spent = runtime.ledger.totals() if self.judges else None
        return [graded[index] for index in range(len(items))]

    async def _group(self, completions: Sequence[GradeItem], runtime: Runtime) -> list[Graded]:
        item_id = completions[0].sample_id
        group = graded_group(self.items[item_id][1], len(completions), runtime)
        judge, dataset = GroupJudge(group, runtime), self.dataset_of(item_id)
        attempts = [each.attempt(str(at), at) for at, each in enumerate(completions) if each.completion.strip()]
        scores = scrubbed(await runtime.scorers.score_group(runtime.rewarders, judge.context(attempts)), runtime.scrub)
        self.over_budget = _stopped([judge]) or self.over_budget
        verdicts_of = dict(zip((each.rollout_id for each in attempts), scores.verdicts, strict=True))
        graded = []
        for at, completion in enumerate(completions):
            if (verdicts := verdicts_of.get(str(at))) is None:
                graded.append(Graded(completion, _EMPTY, dataset))
                continue
            parts = {each.rewarder_id: each for each in verdicts if isinstance(each, RewardScore)}
            pairs = zip(runtime.rewarders, verdicts, strict=True)
            silent = {each.rewarder_id: each.reason for of, each in pairs if isinstance(each, Abstained) and of.weight > 0}
            grade = ItemGrade(scores.totals.get(str(at)), {name: each.score for name, each in parts.items()}, silent)
            graded.append(Graded(completion, grade, dataset, {name: each.evidence for name, each in parts.items()}))
        return graded


def _stopped(judges: Sequence[GroupJudge]) -> str | None:
    """Return why the budget refused a judge; None if it did not. Raise ``RunAborted`` if none can be asked any more."""
    if fatal := next((each.spend.fatal for each in judges if each.spend.fatal), None):
        raise errors.RunAborted(fatal)
    return next((each.spend.budget_refused for each in judges if each.spend.budget_refused), None)


_T = TypeVar("_T")


def batched(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Yield the items in lists of at most this size."""
    return (items[at : at + size] for at in range(0, len(items), size))


Grading: TypeAlias = MixGrading | PipelineGrading


def grade(  # noqa: PLR0913 - its options
    *,
    config: str,
    completions: str,
    to: str | None,
    force: bool,
    grader_timeout: float | None,
    pipeline: str | None,
    settings: Mapping[str, str],
    console: Console,
    checks: errors.ProblemCollector,
) -> int:
    """Check everything, grade, print. Return 1 if nothing could be graded, 3 if the budget was spent before all was."""
    mix, target = is_mix(Path(config)), None if to is None else Path(to)
    if target is not None and target.resolve() == Path(completions).resolve():
        checks.refuse([Problem("--to", str(target), "a file other than the one that is read")])
    elif target is not None:
        accepted = "an existing one with --force"
        checks.run(check_output_file, target, lambda _: force, accepted, option="--to", endings=(".jsonl",))
    checks.run(_check_options, settings, pipeline, grader_timeout, mix=mix)
    loaded = checks.run(_grading, config, settings, pipeline, grader_timeout, mix=mix)
    read = checks.run(read_completions, Path(completions), loaded[0].unknown if loaded else None)
    checks.raise_problems()
    grading: Grading = loaded[0]
    graded = asyncio.run(grading.grade(read[0]))
    rewards = (each.grade.reward for each in graded if each.grade.reward is not None)
    outside = outside_range(rewards, grading.plan.score_range) if isinstance(grading, PipelineGrading) else ""
    for warning in (*grading.warnings, *filter(None, [outside])):
        console.say(f"warning: {warning}", style="yellow")
    if target is not None:
        rows = (
            {
                "sample_id": each.item.sample_id,
                "completion_index": each.item.completion_index,
                **{name: to_builtins(getattr(each.grade, name)) for name in ("reward", "parts", "errors")},
                "evidence": dict(each.evidence),
            }
            for each in graded
        )
        replace_text(target, "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows))
    result = _result(graded, grading, target)
    if console.as_json:
        console.result(result)
    else:
        _print(result, console)
    if grading.spent is not None:
        simulated = " (SIMULATED)" if grading.simulated else ""
        console.say(f"judging took {pluralize(grading.spent.calls, 'call')}, {spending(grading.spent)}{simulated}")
    if target is not None:
        console.say(f"a line for each completion is in {target}", wrap=False)
    if grading.over_budget:
        console.say(f"tfgrpo: stopped: {grading.over_budget}", style="bold red")
        return _STOPPED
    return 0 if result["reward"]["graded"] else 1


def _check_options(settings: Mapping[str, str], pipeline: str | None, grader_timeout: float | None, *, mix: bool) -> None:
    if mix and pipeline is None and settings:
        accepted = "it with a pipeline, or for judges of the mix together with --pipeline"
        raise SettingsError([Problem(f"--set {key}", "a setting with a data mix", accepted) for key in sorted(settings)])
    if not mix and pipeline is not None:
        raise SettingsError.one("--pipeline", "a pipeline beside another one", "it with a data mix, whose judges ask its model")
    if not mix and grader_timeout is not None:
        accepted = "it with a data mix; with a pipeline timeout_s of each rewarder"
        raise SettingsError.one("--grader-timeout", f"{grader_timeout:g} with a pipeline", accepted)


def _grading(
    config: str, settings: Mapping[str, str], pipeline: str | None, grader_timeout: float | None, *, mix: bool
) -> Grading:
    if mix:
        resolved = None
        if pipeline is not None:
            resolved = RunRequest(pipeline=pipeline, settings=dict(settings)).resolved(os.environ)
        return MixGrading.load(Path(config), grader_timeout or TIMEOUT_S, resolved)
    try:
        find_pipeline(config)
    except errors.PipelineError as error:
        raise errors.PipelineError([replace(each, source="CONFIG") for each in error.problems]) from None
    request = RunRequest(pipeline=config, settings=dict(settings))
    return PipelineGrading.load(request.resolved(os.environ))


def _figures(rewards: Sequence[float], made: int) -> dict[str, Any]:
    return {
        "graded": len(rewards),
        "ungraded": made - len(rewards),
        "mean": fmean(rewards) if rewards else None,
        "lowest": min(rewards, default=None),
        "highest": max(rewards, default=None),
    }


def _block(rows: Sequence[Graded], parts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the figures of each part over the completions whose dataset has it, and of the reward."""
    figures = {}
    for part in dict.fromkeys(part for row in rows for part in parts[row.dataset]):
        own = [row for row in rows if part in parts[row.dataset]]
        figures[part] = _figures([row.grade.parts[part] for row in own if part in row.grade.parts], len(own))
    rewards = [row.grade.reward for row in rows if row.grade.reward is not None]
    return {"parts": figures, "reward": _figures(rewards, len(rows))}


def _result(graded: Sequence[Graded], grading: Grading, target: Path | None) -> dict[str, Any]:
    of_dataset: dict[str, list[Graded]] = {}
    for each in graded:
        of_dataset.setdefault(each.dataset, []).append(each)
    # A grader that is listed twice is in the parts as ``name#2``.
    parts = {
        name: list(dict.fromkeys((*grading.parts_of(name), *(part for row in rows for part in row.grade.parts))))
        for name, rows in of_dataset.items()
    }
    lost = (each.grade.errors.items() for each in graded if each.grade.reward is None)
    reasons = Counter(f"{part}: {why.removeprefix(f'{part}: ')}" for parts in lost for part, why in parts)
    spent = grading.spent
    return {
        "completions": len(graded),
        **_block(graded, parts),
        "datasets": {name: _block(rows, parts) for name, rows in of_dataset.items()},
        "reasons": dict(reasons.most_common()),
        "simulated": grading.simulated,
        "spent": None if spent is None else {"calls": spent.calls, "tokens": spent.tokens, "usd": spent.usd},
        "stopped": grading.over_budget,
        "file": None if target is None else str(target),
    }


def _print(result: Mapping[str, Any], console: Console) -> None:
    datasets = result["datasets"]
    columns = ("dataset", "part", "graded", "ungraded", "mean", "lowest", "highest")
    rows = []
    for name, block in (("all", result), *(datasets.items() if len(datasets) > 1 else ())):
        for part, of in (*block["parts"].items(), ("reward", block["reward"])):
            rows.append((name, part, f"{of['graded']:,}", f"{of['ungraded']:,}", *(decimal(of[each]) for each in columns[-3:])))
    first = 0 if len(datasets) > 1 else 1  # the column of datasets
    console.table(columns[first:], (row[first:] for row in rows))
    if ungraded := result["reward"]["ungraded"]:
        reasons: dict[str, tuple[int, str]] = {}  # those that differ in what they quote are one
        for why, count in result["reasons"].items():
            before, first = reasons.get(kind := _QUOTED.sub(r"\1…", why), (0, why))
            reasons[kind] = before + count, first
        console.text(f"\n{pluralize(ungraded, 'completion')} ungraded, for:")
        for count, why in sorted(reasons.values(), key=lambda each: -each[0])[:_REASONS]:
            console.line(f"{count:>8,}  {why}")
        if (more := len(reasons) - _REASONS) > 0:
            console.text(f"          and {pluralize(more, 'more reason')}; --json has them all")
