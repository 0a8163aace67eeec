"""Serve a mix without HTTP: describe it, draw samples, grade completions as learning runs do.

Requests are read leniently, as by the server that this one replaces: ``"12"``, ``12.0`` and ``true`` are whole numbers, and
unknown keys are ignored. Graders run in their runner.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, Strict, StrictBool

from tfgrpo.pipelines.mix.config import MixConfig, MixSampler
from tfgrpo.rewarders.calling import NO_NUMBER
from tfgrpo.rewarders.composite import Composite
from tfgrpo.rewarders.judge.model import JudgeModel
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Verdicts
from tfgrpo.stores.json_values import mapping_of
from tfgrpo.stores.outcomes import RewardScore

JudgeOf: TypeAlias = Callable[[str], JudgeModel | None]
"""Returns what the judges of a sample ask, by its id."""
# Removes secrets from a text.
_Scrub: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class ItemGrade:
    """The combined grade of one item."""

    reward: float | None
    """None: ungraded, for the reasons in ``errors``. Otherwise finite, and neither clamped nor rounded."""
    parts: Mapping[str, float]
    """Rewards by name of the grader, neither weighted nor multiplied. A second grader of a name is ``name#2``."""
    errors: Mapping[str, str]
    broke: bool = False
    """A grader failed, rather than the item, and may not the next time: what is no number stays none."""
    late: bool = False

    @property
    def reasons(self) -> str:
        """All errors in one line, with the names of the graders."""
        errors = self.errors.items()
        return "; ".join(why if why.startswith(f"{name}: ") else f"{name}: {why}" for name, why in errors)

    @classmethod
    def of(cls, graders: Composite, verdicts: Verdicts, scrub: _Scrub = str) -> ItemGrade:
        """Return the grade by the verdict of each grader, gates first."""
        gates = len(graders.gates)
        # On the wire the parts of the sum come first.
        ordered = [*verdicts[gates:], *verdicts[:gates]]
        counts: Counter[str] = Counter()
        labelled = []
        for verdict in ordered:
            counts[name := verdict.rewarder_id] += 1
            labelled.append((name if counts[name] == 1 else f"{name}#{counts[name]}", verdict))
        parts = {name: verdict.score for name, verdict in labelled if isinstance(verdict, RewardScore)}
        lost = [(name, verdict) for name, verdict in labelled if isinstance(verdict, Abstained)]
        errors = {name: scrub(verdict.reason) for name, verdict in lost}
        reward = graders.reward(verdicts)
        if reward is None and not errors:
            errors = {"reward": "the combined reward is no finite number"}
        broke = any(each.broke and not each.reason.endswith(NO_NUMBER) for _, each in lost)
        return cls(reward, parts, errors, broke, any(each.late for _, each in lost))


class SampleRequest(BaseModel):
    """A request for samples."""

    iteration: int
    batch_size: int


class GradeItem(BaseModel):
    """One completion of a sample."""

    sample_id: str
    completion: str
    completion_tokens: int | None = None
    completion_index: int | None = None
    tool_calls: list[dict[str, Any]] | None = None
    cost_usd: Annotated[float, Strict()] | None = None
    latency_s: Annotated[float, Strict()] | None = None

    def attempt(self, name: str, index: int) -> Attempt:
        """Return the completion as scorers see it."""
        facts = {"tool_calls": self.tool_calls, "cost_usd": self.cost_usd, "latency_s": self.latency_s}
        return Attempt(name, index, self.completion, self.completion_tokens, facts)


class GradeRequest(BaseModel):
    """A request to grade completions."""

    iteration: int
    """For the log only."""
    items: list[GradeItem]
    parts: StrictBool = False


class DataService:
    """One mix, its random stream and its graders."""

    def __init__(self, config: MixConfig, runner: ScoreRunner, judge_of: JudgeOf = lambda _: None, scrub: _Scrub = str) -> None:
        """The runner is shared and closed by the caller. ``judge_of``: returns the model that judges of a sample ask."""
        self.config = config
        self._sampler = MixSampler(config)
        self._runner = runner
        self._judge_of = judge_of
        self._scrub = scrub

    def meta(self) -> dict[str, Any]:
        """Return the length of the whole mix and its stages."""
        stages = [{"name": stage.name, "until_step": stage.until_step} for stage in self.config.stages]
        return {"total_iterations": self.config.total_iterations, "stages": stages}

    async def sample(self, iteration: int, count: int) -> list[dict[str, Any]]:
        """Return samples as JSON objects, all with the same keys. Raise as ``MixSampler.draw`` does."""

        def drawn() -> list[dict[str, Any]]:
            samples = []
            for name, number in self._sampler.draw(iteration, count):
                record = self.config.datasets[name].records[number]
                served = {key: record.get(key) for key in ("system_prompt", "prompt", "metadata")}
                samples.append({"sample_id": f"{name}:{number}", "dataset_id": name, **served})
            return samples

        return await asyncio.to_thread(drawn)

    async def grade(self, items: Sequence[GradeItem]) -> list[ItemGrade]:
        """Return one grade for each item, in their order. Raise ``DatasetError`` for an unknown id.

        The items of one sample are a group.
        """
        groups: dict[str, dict[int, list[int]]] = {}
        for index, item in enumerate(items):
            dataset_id, number = self.config.locate(item.sample_id)
            groups.setdefault(dataset_id, {}).setdefault(number, []).append(index)
        grades: dict[int, ItemGrade] = {}

        async def grade_dataset(dataset_id: str, own: Mapping[int, Sequence[int]]) -> None:
            graders = self.config.datasets[dataset_id].graders
            contexts = await asyncio.to_thread(
                lambda: [
                    self._context(dataset_id, number, [items[each] for each in indices]) for number, indices in own.items()
                ]
            )
            verdicts = await self._runner.rows(graders.members, contexts)
            for indices, rows in zip(own.values(), verdicts, strict=True):
                grades.update(
                    (index, ItemGrade.of(graders, row, self._scrub)) for index, row in zip(indices, rows, strict=True)
                )

        await asyncio.gather(*(grade_dataset(dataset_id, own) for dataset_id, own in groups.items()))
        return [grades[index] for index in range(len(items))]

    def _context(self, dataset_id: str, number: int, items: Sequence[GradeItem]) -> RewardContext:
        records, sample_id = self.config.datasets[dataset_id].records, items[0].sample_id
        record = records[number]
        fields = mapping_of(record)
        answer, alternatives = fields.get("answer"), list[str]()
        if isinstance(answer, list) and answer and all(isinstance(each, str) for each in answer):
            answer, *alternatives = answer
        return RewardContext(
            fixture_path=f"{records.path}#{number}",
            item_id=sample_id,
            prompt=str(fields.get("prompt") or ""),
            answer=answer if isinstance(answer, str) else "" if answer is None else json.dumps(answer),
            outputs=tuple(each.attempt(f"{each.sample_id}#{index}", index) for index, each in enumerate(items)),
            alternatives=tuple(alternatives),
            metadata=mapping_of(fields.get("metadata")),
            judge=self._judge_of(sample_id),
            record=record,
            parse="think",
            completion_indices=tuple(each.completion_index for each in items),
        )
