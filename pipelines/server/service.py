"""Serve a mix without HTTP: describe it, draw samples, grade completions as learning runs do.

Files are read and completions parsed in threads, and graders run in their runner: the event loop only waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.mix.sampling import MixSample, MixSampler, locate
from tfgrpo.pipelines.server.shapes import GradeItem
from tfgrpo.rewarders.graders.base import GraderInput
from tfgrpo.rewarders.graders.combine import ItemGrade, grade_items
from tfgrpo.rewarders.graders.running import GraderRunner
from tfgrpo.stores.errors import DatasetError

_READERS: Final = 4
_T = TypeVar("_T")


class DataService:
    """One mix, its random stream and its graders. Close it at the end."""

    def __init__(self, config: MixConfig, runner: GraderRunner) -> None:
        """The runner is shared and closed by the caller."""
        self.config = config
        self._sampler = MixSampler(config)
        self._runner = runner
        self._readers = ThreadPoolExecutor(_READERS, "tfgrpo-records")

    def meta(self) -> dict[str, Any]:
        """Return the length of the whole mix and its stages."""
        stages = [{"name": stage.name, "until_step": stage.until_step} for stage in self.config.stages]
        return {"total_iterations": self.config.total_iterations, "stages": stages}

    async def sample(self, iteration: int, count: int) -> list[dict[str, Any]]:
        """Return samples as JSON objects. Raise as ``MixSampler.sample`` does."""
        drawn = await self._in_thread(lambda: self._sampler.sample(iteration, count))
        return [_as_json(sample) for sample in drawn]

    async def grade(self, items: Sequence[GradeItem]) -> list[ItemGrade]:
        """Return one grade for each item, in their order. Raise ``DatasetError`` for an unknown id."""
        records: dict[str, list[tuple[int, int]]] = {}
        for position, item in enumerate(items):
            dataset_id, number = locate(self.config, item.sample_id)
            records.setdefault(dataset_id, []).append((position, number))
        graded = await asyncio.gather(*(self._of_one(name, records[name], items) for name in records))
        by_position = {position: grade for one in graded for position, grade in one.items()}
        return [by_position[position] for position in range(len(items))]

    def close(self) -> None:
        """End the threads that read records."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _of_one(
        self, dataset_id: str, numbers: Sequence[tuple[int, int]], items: Sequence[GradeItem]
    ) -> dict[int, ItemGrade]:
        """Return the grades of one dataset's items, by their position in the request."""
        inputs, grades = await self._in_thread(lambda: self._inputs(dataset_id, numbers, items))
        graded = await grade_items(self._runner, self.config.datasets[dataset_id].graders, list(inputs.values()))
        return grades | dict(zip(inputs, graded, strict=True))

    def _inputs(
        self, dataset_id: str, numbers: Sequence[tuple[int, int]], items: Sequence[GradeItem]
    ) -> tuple[dict[int, GraderInput], dict[int, ItemGrade]]:
        """Return the inputs of the graders, and the grades of items whose record is unreadable."""
        records = self.config.datasets[dataset_id].records
        inputs: dict[int, GraderInput] = {}
        lost: dict[int, ItemGrade] = {}
        for position, number in numbers:
            item = items[position]
            try:
                record = records[number]
            except (DatasetError, OSError):
                reason = "its line cannot be read, or has changed since the start"
                lost[position] = ItemGrade(None, {}, {"record": reason})
                continue
            inputs[position] = GraderInput.of(
                item.sample_id,
                record,
                item.completion,
                completion_tokens=item.completion_tokens,
                completion_index=item.completion_index,
            )
        return inputs, lost

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)


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
