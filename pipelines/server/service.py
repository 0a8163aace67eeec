"""What does the data server do, HTTP aside? Says what there is, draws samples, has completions graded.

Grading is that of ``tfgrpo.rewarders.graders``, the same that learning runs use. Files are read and completions taken apart
in threads of its own, graders run where their runner puts them: the event loop only waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.mix.sampling import MixSample, MixSampler, locate
from tfgrpo.pipelines.server.shapes import GradeItem
from tfgrpo.rewarders.graders.base import GraderInput
from tfgrpo.rewarders.graders.combine import GraderSet, ItemGrade, grade_items
from tfgrpo.rewarders.graders.running import GraderRunner
from tfgrpo.stores.errors import DatasetError

_READERS: Final = 4
_T = TypeVar("_T")


class DataService:
    """One mix, its random stream and its graders. Close it at the end."""

    def __init__(self, config: MixConfig, graders: Mapping[str, GraderSet], runner: GraderRunner) -> None:
        """``graders`` by dataset id. The runner is shared and closed by whoever made it."""
        self.config = config
        self._sampler = MixSampler(config)
        self._graders = graders
        self._runner = runner
        self._readers = ThreadPoolExecutor(_READERS, "tfgrpo-records")

    def meta(self) -> dict[str, Any]:
        """Length of the whole mix and its stages."""
        stages = [{"name": stage.name, "until_step": stage.until_step} for stage in self.config.stages]
        return {"total_iterations": self.config.total_iterations, "stages": stages}

    async def sample(self, iteration: int, count: int) -> list[dict[str, Any]]:
        """Samples as they go over the wire. Raises as ``MixSampler.sample`` does."""
        drawn = await self._apart(lambda: self._sampler.sample(iteration, count))
        return [_wire(sample) for sample in drawn]

    async def grade(self, items: Sequence[GradeItem]) -> list[ItemGrade]:
        """One grade for each item, in their order. Raises ``DatasetError`` for an id that no sample can have."""
        places: dict[str, list[tuple[int, int]]] = {}
        for position, item in enumerate(items):
            dataset_id, number = locate(self.config, item.sample_id)
            places.setdefault(dataset_id, []).append((position, number))
        graded = await asyncio.gather(*(self._of_one(name, places[name], items) for name in places))
        by_position = {position: grade for one in graded for position, grade in one.items()}
        return [by_position[position] for position in range(len(items))]

    def close(self) -> None:
        """Let the threads go that read records."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _of_one(
        self, dataset_id: str, places: Sequence[tuple[int, int]], items: Sequence[GradeItem]
    ) -> dict[int, ItemGrade]:
        """The grades of one dataset's items, by their position in the request."""
        inputs, grades = await self._apart(lambda: self._inputs(dataset_id, places, items))
        graded = await grade_items(self._runner, self._graders[dataset_id], list(inputs.values()))
        return grades | dict(zip(inputs, graded, strict=True))

    def _inputs(
        self, dataset_id: str, places: Sequence[tuple[int, int]], items: Sequence[GradeItem]
    ) -> tuple[dict[int, GraderInput], dict[int, ItemGrade]]:
        """What the graders are given, and the grades of those whose record cannot be read any more."""
        records = self.config.datasets[dataset_id].records
        inputs: dict[int, GraderInput] = {}
        lost: dict[int, ItemGrade] = {}
        for position, number in places:
            item = items[position]
            try:
                record = records[number]
            except (DatasetError, OSError):
                lost[position] = ItemGrade(
                    None, {}, {"record": "its line cannot be read, or has changed since the start"}
                )
                continue
            inputs[position] = GraderInput.of(
                item.sample_id,
                record,
                item.completion,
                completion_tokens=item.completion_tokens,
                completion_index=item.completion_index,
            )
        return inputs, lost

    async def _apart(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)


def _wire(sample: MixSample) -> dict[str, Any]:
    """Every sample has the same keys: trainers take their columns from the first one."""
    record = sample.record
    return {
        "sample_id": sample.sample_id,
        "dataset_id": sample.dataset_id,
        "system_prompt": record.get("system_prompt"),
        "prompt": record["prompt"],
        "metadata": record.get("metadata"),
    }
