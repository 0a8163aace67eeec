"""Serve a mix without HTTP: describe it, draw samples, grade completions as learning runs do.

``openapi.yaml`` describes the requests, and the replies. Requests are read leniently, as by the server that this one
replaces: ``"12"``, ``12.0`` and ``true`` are whole numbers, and unknown keys are ignored.

Files are read and completions parsed in threads, and graders run in their runner: the event loop only waits.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, Strict, StrictBool

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.mix.sampling import MixSample, MixSampler, locate
from tfgrpo.rewarders.calling import NO_NUMBER
from tfgrpo.rewarders.composite import Composite
from tfgrpo.rewarders.judge.model import JudgeModel
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Verdicts
from tfgrpo.stores.errors import DatasetError
from tfgrpo.stores.outcomes import RewardScore

JudgeOf: TypeAlias = Callable[[str], JudgeModel | None]
"""Returns what the judges of a sample ask, by its id."""


def no_judge(_: str) -> None:
    """Return None: there is no model to ask."""


@dataclass(frozen=True, slots=True)
class ItemGrade:
    """The combined grade of one item."""

    reward: float | None
    """None: ungraded, for the reasons in ``errors``. Otherwise finite, and neither clamped nor rounded."""
    parts: Mapping[str, float]
    """Rewards by name of the grader, neither weighted nor multiplied. A second grader of a name is ``name#2``."""
    errors: Mapping[str, str]
    """Reasons of missing parts, by the same names."""
    broke: bool = False
    """A grader failed, rather than the item, and may not the next time: what is no number stays none."""
    late: bool = False
    """A grader took too long."""

    @property
    def reasons(self) -> str:
        """All errors in one line, with the names of the graders."""
        errors = self.errors.items()
        return "; ".join(why if why.startswith(f"{name}: ") else f"{name}: {why}" for name, why in errors)

    @classmethod
    def of(cls, graders: Composite, verdicts: Verdicts) -> ItemGrade:
        """Return the grade by the verdict of each grader, gates first."""
        gates = len(graders.gates)
        # On the wire the parts of the sum come first.
        ordered = [*verdicts[gates:], *verdicts[:gates]]
        counts: Counter[str] = Counter()
        labelled = []
        for verdict in ordered:
            counts[verdict.rewarder_id] += 1
            number = counts[verdict.rewarder_id]
            labelled.append((verdict.rewarder_id if number == 1 else f"{verdict.rewarder_id}#{number}", verdict))
        parts = {name: verdict.score for name, verdict in labelled if isinstance(verdict, RewardScore)}
        lost = [(name, verdict) for name, verdict in labelled if isinstance(verdict, Abstained)]
        errors = {name: verdict.reason for name, verdict in lost}
        reward = graders.reward(verdicts)
        if reward is None and not errors:
            errors = {"reward": "the combined reward is no finite number"}
        broke = any(each.broke and not each.reason.endswith(NO_NUMBER) for _, each in lost)
        return cls(reward, parts, errors, broke, any(each.late for _, each in lost))


_LOST: Final = ItemGrade(None, {}, {"record": "its line cannot be read, or has changed since the start"})


class SampleRequest(BaseModel):
    """A request for samples."""

    iteration: int
    batch_size: int
    """None for 0 and below."""


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
    """Whether the reply has the reward of every grader."""


class DataService:
    """One mix, its random stream and its graders."""

    def __init__(self, config: MixConfig, runner: ScoreRunner, judge_of: JudgeOf = no_judge) -> None:
        """The runner is shared and closed by the caller. ``judge_of``: returns the model that judges of a sample ask."""
        self.config = config
        self._sampler = MixSampler(config)
        self._runner = runner
        self._judge_of = judge_of

    def meta(self) -> dict[str, Any]:
        """Return the length of the whole mix and its stages."""
        stages = [{"name": stage.name, "until_step": stage.until_step} for stage in self.config.stages]
        return {"total_iterations": self.config.total_iterations, "stages": stages}

    async def sample(self, iteration: int, count: int) -> list[dict[str, Any]]:
        """Return samples as JSON objects. Raise as ``MixSampler.sample`` does."""
        drawn = await asyncio.to_thread(self._sampler.sample, iteration, count)
        return [_as_json(sample) for sample in drawn]

    async def grade(self, items: Sequence[GradeItem]) -> list[ItemGrade]:
        """Return one grade for each item, in their order. Raise ``DatasetError`` for an unknown id.

        The items of one sample are a group.
        """
        places = [locate(self.config, item.sample_id) for item in items]
        groups: dict[tuple[str, int], list[int]] = {}
        for at, place in enumerate(places):
            groups.setdefault(place, []).append(at)
        contexts = await asyncio.to_thread(
            lambda: {place: self._context(items, place, at) for place, at in groups.items()}
        )
        grades = [_LOST] * len(items)  # as those stay whose record cannot be read

        async def grade_dataset(dataset_id: str) -> None:
            own = {place: each for place, each in contexts.items() if place[0] == dataset_id and each is not None}
            graders = self.config.datasets[dataset_id].graders
            graded = await self._runner.rows(graders.members, list(own.values()))
            for place, rows in zip(own, graded, strict=True):
                for at, verdicts in zip(groups[place], rows, strict=True):
                    grades[at] = ItemGrade.of(graders, verdicts)

        await asyncio.gather(*map(grade_dataset, dict.fromkeys(dataset_id for dataset_id, _ in groups)))
        return grades

    def _context(self, items: Sequence[GradeItem], place: tuple[str, int], at: Sequence[int]) -> RewardContext | None:
        """Return the completions of one sample as a group; None for a record that is unreadable."""
        dataset_id, number = place
        try:
            record = self.config.datasets[dataset_id].records[number]
        except (DatasetError, OSError):
            return None
        fields: Mapping[str, Any] = record if isinstance(record, Mapping) else {}
        given, metadata = fields.get("answer"), fields.get("metadata")
        answers: list[Any] = [given]
        if isinstance(given, list) and given and all(isinstance(each, str) for each in given):
            answers = given
        answer, *alternatives = answers
        return RewardContext(
            fixture_path=f"{self.config.datasets[dataset_id].records.path}#{number}",
            item_id=items[at[0]].sample_id,
            prompt=str(fields.get("prompt") or ""),
            answer=answer if isinstance(answer, str) else "" if answer is None else json.dumps(answer),
            outputs=tuple(
                items[each].attempt(f"{items[each].sample_id}#{index}", index) for index, each in enumerate(at)
            ),
            alternatives=tuple(alternatives),
            metadata=metadata if isinstance(metadata, Mapping) else {},
            judge=self._judge_of(items[at[0]].sample_id),
            record=record,
            parse="think",
            completion_indices=tuple(items[each].completion_index for each in at),
        )


def _as_json(sample: MixSample) -> dict[str, Any]:
    """Return a sample with all keys: trainers take their columns from the first one."""
    record = sample.record
    return {
        "sample_id": sample.sample_id,
        "dataset_id": sample.dataset_id,
        "system_prompt": record.get("system_prompt"),
        "prompt": record["prompt"],
        "metadata": record.get("metadata"),
    }
