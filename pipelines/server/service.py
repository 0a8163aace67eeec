"""Serve a mix without HTTP: describe it, draw samples, grade completions as learning runs do.

``openapi.yaml`` describes the requests, and the replies. Requests are read leniently, as by the server that this one
replaces: ``"12"``, ``12.0`` and ``true`` are whole numbers, and unknown keys are ignored.

Files are read and completions parsed in threads, and graders run in their runner: the event loop only waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, StrictBool

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.mix.sampling import MixSample, MixSampler, locate
from tfgrpo.rewarders.graders.base import GraderInput
from tfgrpo.rewarders.graders.combine import ItemGrade, grade_items
from tfgrpo.rewarders.graders.running import GraderRunner
from tfgrpo.stores.errors import DatasetError

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


class GradeRequest(BaseModel):
    """A request to grade completions."""

    iteration: int
    """For the log only."""
    items: list[GradeItem]
    parts: StrictBool = False
    """Whether the reply has the reward of every grader."""


class DataService:
    """One mix, its random stream and its graders."""

    def __init__(self, config: MixConfig, runner: GraderRunner) -> None:
        """The runner is shared and closed by the caller."""
        self.config = config
        self._sampler = MixSampler(config)
        self._runner = runner

    def meta(self) -> dict[str, Any]:
        """Return the length of the whole mix and its stages."""
        stages = [{"name": stage.name, "until_step": stage.until_step} for stage in self.config.stages]
        return {"total_iterations": self.config.total_iterations, "stages": stages}

    async def sample(self, iteration: int, count: int) -> list[dict[str, Any]]:
        """Return samples as JSON objects. Raise as ``MixSampler.sample`` does."""
        drawn = await asyncio.to_thread(self._sampler.sample, iteration, count)
        return [_as_json(sample) for sample in drawn]

    async def grade(self, items: Sequence[GradeItem]) -> list[ItemGrade]:
        """Return one grade for each item, in their order. Raise ``DatasetError`` for an unknown id."""
        places = [locate(self.config, item.sample_id) for item in items]
        inputs = await asyncio.to_thread(lambda: list(map(self._input, items, places)))
        grades = [_LOST] * len(items)  # as those stay whose record cannot be read
        readable: dict[str, dict[int, GraderInput]] = {}
        for at, (given, (dataset_id, _)) in enumerate(zip(inputs, places, strict=True)):
            if given is not None:
                readable.setdefault(dataset_id, {})[at] = given

        async def grade_dataset(dataset_id: str) -> None:
            graders = self.config.datasets[dataset_id].graders
            graded = await grade_items(self._runner, graders, list(readable[dataset_id].values()))
            for at, grade in zip(readable[dataset_id], graded, strict=True):
                grades[at] = grade

        await asyncio.gather(*map(grade_dataset, readable))
        return grades

    def _input(self, item: GradeItem, place: tuple[str, int]) -> GraderInput | None:
        """Return the input of the graders; None for a record that is unreadable."""
        dataset_id, number = place
        try:
            record = self.config.datasets[dataset_id].records[number]
        except (DatasetError, OSError):
            return None
        return GraderInput.of(item.sample_id, record, item.completion, item.completion_tokens, item.completion_index)


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
