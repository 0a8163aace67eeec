"""What a learning run takes from a staged mix: its items, the draws of each epoch, and the graders of its datasets.

The step of a learning batch is its number in the run, from 0. Every batch has its own random stream, so that a resumed run
draws the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tfgrpo.pipelines.datasets.datasets import Dataset, read_rows
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.datasets.text_forms import DatasetRow
from tfgrpo.pipelines.mix.config import MixConfig, MixSampler
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, FieldMap, LearningSettings
from tfgrpo.rewarders.composite import ByDataset, Composite
from tfgrpo.rewarders.scorer import RewardContext
from tfgrpo.stores.errors import DatasetError, Problem, RewardError
from tfgrpo.stores.json_values import stream

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class LearningMix:
    """A mix for a learning run."""

    config: MixConfig
    items: Sequence[Item] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """The datasets that any stage draws from, in the order of the file."""
        drawn = {name for stage in self.config.stages for name, share in stage.shares.items() if share > 0.0}
        return tuple(name for name in self.config.datasets if name in drawn)

    def data(self) -> Dataset:
        """Return the servable records of every dataset that is used, as items.

        Raise ``DatasetError`` for a record with an answer or prompt that no item can have.
        """
        rows = (
            DatasetRow(records.where(index), _values(f"{name}:{index}", records[index]))
            for name in self.used
            for records in [self.config.datasets[name].records]
            for index in records.servable
        )
        return read_rows(rows, str(self.config.path), FieldMap())

    def graders(self) -> ByDataset:
        """Return the scorer of a run: an item is scored by the graders of its dataset, as the data server does."""

        def route(context: RewardContext) -> tuple[Composite, RewardContext]:
            try:
                dataset_id, number = self.config.locate(context.item_id)
            except DatasetError as error:
                raise RewardError(str(error)) from error
            dataset = self.config.datasets[dataset_id]
            return dataset.graders, replace(context, record=dataset.records[number], parse="think")

        return ByDataset(DATASET_GRADERS, route, tuple(each.graders for each in self.config.datasets.values()))

    @property
    def learnable(self) -> Mapping[str, range]:
        """Indices of each dataset among the items."""
        counts = Counter(item.id.rpartition(":")[0] for item in self.items)
        ranges: dict[str, range] = {}
        start = 0
        for name in self.used:
            ranges[name] = range(start, start + counts[name])
            start += counts[name]
        return ranges

    def draw(self, epoch: int, settings: LearningSettings) -> tuple[list[Item], dict[str, Any]]:
        """Draw the items of epoch 1, 2, … with replacement, a batch at each step; return them with a record of the draws."""
        only = self.learnable
        drawn: list[Item] = []
        steps = []
        for step, size in _steps(epoch, settings):
            rng = stream(settings.night_seed, "mix", -1 if self.config.seed is None else self.config.seed, step)
            draws = MixSampler(self.config, rng, only=only).draw(step, size)
            drawn += [self.items[index] for _, index in draws]
            counts = Counter(name for name, _ in draws)
            stage = self.config.stage_at(step).name
            steps.append({"step": step, "stage": stage, "datasets": dict(sorted(counts.items()))})
        config = self.config
        return drawn, {"path": str(config.path), "sha256": config.digest, "seed": config.seed, "draws": steps}

    def refuse_empty(self, settings: LearningSettings) -> None:
        """Raise ``DatasetError`` for every dataset that a step of the run draws from and that has no items to learn on."""
        drawn = {
            name for step in _all_steps(settings) for name, share in self.config.stage_at(step).shares.items() if share > 0.0
        }
        empty = sorted(drawn & {name for name, indices in self.learnable.items() if not indices})
        accepted = "records that can be served and are not held out"
        if empty:
            raise DatasetError([Problem(str(self.config.datasets[each].records.path), "none", accepted) for each in empty])

    def advice(self, settings: LearningSettings) -> Iterator[str]:
        """Yield sentences about what is allowed and probably unintended."""
        yield from self.config.warnings
        steps = list(_all_steps(settings))
        reached = {id(self.config.stage_at(step)) for step in steps}
        stages = self.config.stages
        last = stages[-1]
        missed = [each.name for each in stages if id(each) not in reached and (each.until_step > 0 or each is last)]
        if missed:
            yield (
                f"the run goes from step 0 to {steps[-1]} of the {self.config.total_iterations} of its mix, one batch after "
                f"another: never in force are {', '.join(missed[:_SHOWN])}"
            )


def _values(item_id: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Make an answer that is neither text nor a number JSON."""
    answer = record.get("answer")
    if answer is None or answer == "":  # a zero is an answer
        answer = record.get("expected_category")
    if isinstance(answer, dict | list | bool):
        answer = json.dumps(answer, ensure_ascii=False)
    served = {name: record.get(name) for name in ("prompt", "system_prompt", "metadata")}
    return {"id": item_id, "answer": answer, **served}


def _steps(epoch: int, settings: LearningSettings) -> Iterator[tuple[int, int]]:
    starts = range(0, settings.sample_size, settings.batch_size)
    for step, start in enumerate(starts, (epoch - 1) * len(starts)):
        yield step, min(settings.batch_size, settings.sample_size - start)


def _all_steps(settings: LearningSettings) -> Iterator[int]:
    for epoch in range(1, settings.epochs if settings.enabled else 2):
        yield from (step for step, _ in _steps(epoch, settings))
