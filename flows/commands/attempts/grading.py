"""Grade completions without a run: by the graders of a data mix as its server does, or by the rewarders of a pipeline.

Nothing is graded before everything is checked: configuration, lines, and ids. A judge asks the model of its pipeline, within
the pipeline's budget; its answers are in no journal.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from pydantic import ValidationError

from tfgrpo.flows.run.judging import check_judges, graded_group, judge_of, judges_among, open_judges, plan_judges
from tfgrpo.pipelines.datasets.datasets import Dataset
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.datasets.sources import open_source
from tfgrpo.pipelines.mix.config import MixConfig, load_mix_config
from tfgrpo.pipelines.mix.sampling import locate, record_of
from tfgrpo.pipelines.plan.data import read_every
from tfgrpo.pipelines.plan.plan import BasePlan, load_pack
from tfgrpo.pipelines.plan.rewarders import ReferenceReading, build_scorers, mix_of, try_scorers
from tfgrpo.pipelines.problems import CappedProblems, ProblemCollector, shown
from tfgrpo.pipelines.server.service import DataService, GradeItem, ItemGrade
from tfgrpo.pipelines.settings.actor import ActorSettings
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.rewarders.composite import AnyScorer, check_scorers, judge_loads
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import DatasetError, Problem, RunAborted
from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.ledger.state import Totals
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import quoted_names
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.runtime.judging import GroupJudge
from tfgrpo.tasks.runtime.runtime import Runtime

BATCH: Final = 1_024
"""Completions that are graded together, as a trainer's request would have them."""
_IDS: Final = ("sample_id", "item_id", "id")
_TEXTS: Final = ("completion", "output")
"""Names of these fields, in the order in which they count. Those of ``rollouts.jsonl`` are among them."""
_FACTS: Final = {
    **dict.fromkeys(("completion_tokens", "completion_index"), "a whole number"),
    **dict.fromkeys(("cost_usd", "latency_s"), "a number"),
    "tool_calls": "a list of objects with name and arguments",
}
"""What a line may also have, and as what."""
_EMPTY: Final = ItemGrade(
    None, {}, {"completion": "empty: an attempt of a run without any output is not graded either"}
)


class Graded(NamedTuple):
    """A completion with its grade."""

    item: GradeItem
    dataset: str
    grade: ItemGrade
    evidence: Mapping[str, str] = {}
    """What each part rests on; empty for the graders of a mix, which do not say."""


def read_completions(path: Path, unknown: Callable[[str], str] | None) -> list[GradeItem]:
    """Return the completions of a file. Raise ``DatasetError`` with every line that is none, and every unknown id.

    ``unknown`` is that of the grading; None: the ids cannot be checked.
    """
    problems, items = CappedProblems(), list[GradeItem]()
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
        places = dict.fromkeys(str(each["loc"][0]) for each in error.errors())
        found = [(key, values.get(key)) for key in (names.get(place, place) for place in places)]
        raise DatasetError(
            [
                Problem(
                    where, f"{shown(value)} in {key!r}", "text" if key in names.values() else f"{_FACTS[key]} or null"
                )
                for key, value in found
            ]
        ) from None


@dataclass
class MixGrading:
    """The graders of a data mix, as ``tfgrpo serve-data`` runs them."""

    config: MixConfig
    timeout_s: float
    """For a grader and a batch."""
    plan: BasePlan | None
    """Of its judges; None without any."""
    warnings: tuple[str, ...]
    spent: Totals | None = None
    over_budget: str | None = None

    @classmethod
    def load(cls, path: Path, timeout_s: float, resolved: Resolved | None) -> MixGrading:
        """Read a mix; its judges ask the model of the settings. Raise ``ConfigError`` with all its problems."""
        config = load_mix_config(path)
        return cls(config, timeout_s, plan_judges(config, resolved), config.warnings)

    @property
    def simulated(self) -> bool:
        """Whether judges ask the simulated model."""
        return self.plan is not None and self.plan.simulated

    def unknown(self, sample_id: str) -> str:
        """Return what ids are accepted; empty if this is one."""
        try:
            locate(self.config, sample_id)
        except DatasetError:
            sizes = (
                f"{name}:0 to {len(each.records) - 1}" for name, each in self.config.datasets.items() if each.records
            )
            return f"<dataset>:<number of the record>: {', '.join(sizes)}"
        return ""

    def dataset_of(self, sample_id: str) -> str:
        """Return the dataset of an item."""
        return locate(self.config, sample_id)[0]

    def judge_calls(self, items: Sequence[GradeItem]) -> tuple[int, int]:
        """Return the fewest and the most calls of judges for these completions."""
        return _calls(items, lambda sample_id: [self.config.datasets[self.dataset_of(sample_id)].graders])

    def reference_of(self, sample_id: str) -> str:
        """Return the reference answer of an item; empty without one."""
        _, record = record_of(self.config, sample_id)
        answer = mapping_of(record).get("answer", mapping_of(record).get("expected_category"))
        return "" if answer is None else answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    def parts_of(self, dataset: str) -> Sequence[str]:
        """Return the names of the graders of a dataset."""
        graders = self.config.datasets[dataset].graders
        return [*(part.scorer.rewarder_id for part in graders.parts), *(gate.rewarder_id for gate in graders.gates)]

    async def grade(self, items: Sequence[GradeItem]) -> AsyncGenerator[Sequence[Graded], None]:
        """Yield the grades batch by batch, in the order of the completions."""
        async with AsyncExitStack() as resources:
            runner = resources.enter_context(ScoreRunner(timeout_s=self.timeout_s))
            judges: list[GroupJudge] = []
            service = DataService(self.config, runner)
            if self.plan is not None:
                runtime, warnings = await resources.enter_async_context(open_judges(self.plan, "grade"))
                self.warnings += warnings
                service = DataService(self.config, runner, lambda item_id: _kept(judge_of(runtime)(item_id), judges))
            for batch in batched(items, BATCH):
                grades = await service.grade(batch)
                self.over_budget = _stopped(judges) or self.over_budget
                judges.clear()
                yield [
                    Graded(item, self.dataset_of(item.sample_id), grade)
                    for item, grade in zip(batch, grades, strict=True)
                ]
            self.spent = runtime.ledger.totals() if self.plan is not None else None


@dataclass
class PipelineGrading:
    """The rewarders of a pipeline, on the items of its datasets."""

    plan: BasePlan
    data: tuple[Dataset, ...]
    warnings: tuple[str, ...]
    spent: Totals | None = None
    over_budget: str | None = None

    def __post_init__(self) -> None:
        self._places = {
            item.id: (number, index) for number, data in enumerate(self.data) for index, item in enumerate(data.items)
        }
        self._is_mix = self.plan.settings.dataset.mix is not None

    @classmethod
    def load(cls, resolved: Resolved) -> PipelineGrading:
        """Check and load what the settings name for grading. Raise ``ConfigError`` with all problems."""
        # No actor attempts anything: what the settings say of one is not started.
        settings = resolved.settings.model_copy(update={"actor": ActorSettings()})
        checks = ProblemCollector()
        mixes = checks.run(mix_of, settings)
        built = checks.run(build_scorers, settings, mixes[0]) if mixes else []
        data = checks.run(read_every, settings, mixes[0]) if mixes else []
        packs = checks.run(load_pack, settings, settings.pack)
        if rewarders := [weighted for each in built for weighted in each]:
            checks.run(try_scorers, settings, rewarders)
            checks.run(check_scorers, rewarders)
            if any(each.scorer.asks_model for each in rewarders):
                checks.run(check_judges, resolved, judges_among(each.scorer for each in rewarders))
        checks.raise_problems()
        every = chain.from_iterable(each.items for each in data[0])
        named = resolved.sources["rewarders"] != "default"
        reading = ReferenceReading.of(settings, built[0], () if mixes[0] is not None else every, named=named)
        plan = BasePlan(reading.settings, choose_models(settings), packs[0], reading.rewarders, ())
        return cls(plan, data[0], (*(warning for each in data[0] for warning in each.warnings), *reading.warnings))

    @property
    def simulated(self) -> bool:
        """Whether judges ask the simulated model."""
        return self.judges and self.plan.simulated

    @property
    def judges(self) -> bool:
        """Whether any rewarder asks a model."""
        return any(each.scorer.asks_model for each in self.plan.rewarders)

    def unknown(self, sample_id: str) -> str:
        """Return what ids are accepted; empty if this is one."""
        return "" if sample_id in self._places else f"the id of an item of {', '.join(each.name for each in self.data)}"

    def dataset_of(self, sample_id: str) -> str:
        """Return the dataset of an item."""
        return sample_id.rpartition(":")[0] if self._is_mix else self.data[self._places[sample_id][0]].name

    def judge_calls(self, items: Sequence[GradeItem]) -> tuple[int, int]:
        """Return the fewest and the most calls of judges for these completions."""
        return _calls(items, lambda _: [each.scorer for each in self.plan.rewarders])

    def reference_of(self, sample_id: str) -> str:
        """Return the reference answer of an item; empty without one."""
        return self._item(sample_id).answer

    def parts_of(self, dataset: str) -> Sequence[str]:  # noqa: ARG002 - the same for all
        """Return the names of the rewarders."""
        return [each.scorer.rewarder_id for each in self.plan.rewarders]

    async def grade(self, items: Sequence[GradeItem]) -> AsyncGenerator[Sequence[Graded], None]:
        """Yield the grades batch by batch, in the order of the completions; those of one item are a group."""
        async with open_judges(self.plan, "grade", asked=self.judges) as (runtime, warnings):
            self.warnings += warnings
            for batch in _whole_groups(items):
                groups: dict[str, list[int]] = {}
                for at, item in enumerate(batch):
                    groups.setdefault(item.sample_id, []).append(at)
                grades = [_EMPTY] * len(batch)
                evidence: list[Mapping[str, str]] = [{}] * len(batch)
                asked = [self._group(name, [batch[at] for at in places], runtime) for name, places in groups.items()]
                for places, found in zip(groups.values(), await asyncio.gather(*asked), strict=True):
                    for at, (grade, why) in zip(places, found, strict=True):
                        grades[at], evidence[at] = grade, why
                yield [
                    Graded(item, self.dataset_of(item.sample_id), grade, why)
                    for item, grade, why in zip(batch, grades, evidence, strict=True)
                ]
            self.spent = runtime.ledger.totals() if self.judges else None

    def _item(self, item_id: str) -> Item:
        number, index = self._places[item_id]
        return self.data[number].items[index]

    async def _group(
        self, item_id: str, completions: Sequence[GradeItem], runtime: Runtime
    ) -> list[tuple[ItemGrade, Mapping[str, str]]]:
        judge = GroupJudge(graded_group(self._item(item_id), len(completions), runtime), runtime)
        attempts = [each.attempt(str(at), at) for at, each in enumerate(completions) if each.completion.strip()]
        scores = scrubbed(await runtime.scorers.score_group(runtime.rewarders, judge.context(attempts)), runtime.scrub)
        self.over_budget = _stopped([judge]) or self.over_budget
        known = dict(zip((each.rollout_id for each in attempts), scores.verdicts, strict=True))
        graded: list[tuple[ItemGrade, Mapping[str, str]]] = []
        for at in range(len(completions)):
            verdicts = known.get(str(at))
            if verdicts is None:
                graded.append((_EMPTY, {}))
                continue
            given = [each for each in verdicts if isinstance(each, RewardScore)]
            pairs = zip(runtime.rewarders, verdicts, strict=True)
            silent = {
                each.rewarder_id: each.reason for of, each in pairs if isinstance(each, Abstained) and of.weight > 0
            }
            parts = {each.rewarder_id: each.score for each in given}
            reward = scores.totals.get(str(at))
            graded.append((ItemGrade(reward, parts, silent), {each.rewarder_id: each.evidence for each in given}))
        return graded


def _calls(items: Sequence[GradeItem], scorers_of: Callable[[str], Sequence[AnyScorer]]) -> tuple[int, int]:
    """Return the fewest and the most calls of the judges among the scorers of each item."""
    sizes = Counter(item.sample_id for item in items).items()
    loads = [load for name, size in sizes for each in scorers_of(name) for load in judge_loads(each, size)]
    return sum(load.calls_low for load in loads), sum(load.calls_high for load in loads)


def _kept(judge: GroupJudge, judges: list[GroupJudge]) -> GroupJudge:
    judges.append(judge)
    return judge


def _stopped(judges: Sequence[GroupJudge]) -> str | None:
    """Return why the budget refused a judge; None if it did not. Raise ``RunAborted`` if none can be asked any more."""
    if fatal := next((each.spend.fatal for each in judges if each.spend.fatal), None):
        raise RunAborted(fatal)
    return next((each.spend.budget_refused for each in judges if each.spend.budget_refused), None)


def _whole_groups(items: Sequence[GradeItem]) -> Iterator[list[GradeItem]]:
    """Yield batches in which all completions of an item are together, in the order in which items come first."""
    groups: dict[str, list[GradeItem]] = {}
    for item in items:
        groups.setdefault(item.sample_id, []).append(item)
    batch: list[GradeItem] = []
    for group in groups.values():
        batch += group
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def batched(items: Sequence[GradeItem], size: int) -> Iterator[list[GradeItem]]:
    """Yield the items in lists of at most this size."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch


Grading: TypeAlias = MixGrading | PipelineGrading


async def grade_all(grading: Grading, items: Sequence[GradeItem], done: Callable[[int], None]) -> list[Graded]:
    """Return the grade of every completion, in their order. ``done`` gets how many are graded after each batch but the last."""
    places: dict[int, Graded] = {}
    order = {id(item): at for at, item in enumerate(items)}
    async with aclosing(grading.grade(items)) as batches:
        async for batch in batches:
            places |= {order[id(each.item)]: each for each in batch}
            if len(places) < len(items):
                done(len(places))
    return [places[at] for at in range(len(items))]
