"""What a learning run takes from a staged mix: its items, without the held-out ones, and the graders of its datasets.

The step of a learning batch is its number in the run, from 0, times ``dataset.mix_stride``. Every batch has its own
random stream, so that a resumed run draws the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfgrpo.pipelines.datasets.datasets import Dataset, read_source
from tfgrpo.pipelines.datasets.items import ids_of, take
from tfgrpo.pipelines.datasets.sources import JoinedSource, Row, RowSource, row_changed
from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.mix.records import Records, unservable
from tfgrpo.pipelines.mix.sampling import MixSampler, record_of, sample_id
from tfgrpo.pipelines.plan.data import Split, split_items
from tfgrpo.pipelines.plan.sampling import Cohort, cohort_of
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, DatasetSettings, FieldMap
from tfgrpo.rewarders.composite import ByDataset, Composite
from tfgrpo.rewarders.scorer import RewardContext
from tfgrpo.stores.canonical import stream
from tfgrpo.stores.errors import DatasetError, Problem, RewardError

_SHOWN = 5


@dataclass(frozen=True)
class RecordSource(RowSource):
    """The servable records of one dataset of a mix as rows; positions are their numbers."""

    dataset_id: str
    records: Records

    def rows(self) -> Iterator[Row | Problem]:
        """Yield every record, in the order of the file."""
        for index in self.records.servable:
            yield Row(self.records.line(index), self._values(index, self.records[index]), index)

    def values_at(self, positions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Yield records by number."""
        for index in positions:
            record = self.records[index]
            if unservable(record):
                raise row_changed(self.records.where(index))
            yield self._values(index, record)

    def _values(self, index: int, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an item. An answer that is neither text nor a number becomes JSON."""
        answer = record.get("answer")
        if answer is None or answer == "":  # a zero is an answer
            answer = record.get("expected_category")
        if isinstance(answer, dict | list | bool):
            answer = json.dumps(answer, ensure_ascii=False)
        return {
            "id": sample_id(self.dataset_id, index),
            "prompt": record["prompt"],
            "answer": answer,
            "system_prompt": record.get("system_prompt"),
            "metadata": record.get("metadata"),
        }


@dataclass(frozen=True, slots=True)
class LearningMix:
    """A mix for a learning run."""

    config: MixConfig
    stride: int
    """Steps of the mix that one learning batch advances."""
    data: Dataset
    """The records of every dataset that any stage draws from."""
    split: Split

    @property
    def learnable(self) -> Mapping[str, range]:
        """Indices of each dataset among the items to learn on."""
        counts = Counter(name.rpartition(":")[0] for name in ids_of(self.split.learn))
        ranges: dict[str, range] = {}
        start = 0
        for name in used_datasets(self.config):
            ranges[name] = range(start, start + counts[name])
            start += counts[name]
        return ranges

    def draw(self, epoch: int, *, settings: LearningSettings) -> Cohort:
        """Draw the cohort of epoch 1, 2, …: ``sample_size`` draws with replacement, a batch at each step."""
        only = self.learnable
        drawn: list[int] = []
        steps = []
        for step, size in _steps(epoch, settings, self.stride):
            rng = stream(settings.night_seed, "mix", -1 if self.config.seed is None else self.config.seed, step)
            draws = MixSampler(self.config, rng, only=only).draw(step, size)
            drawn += [index for _, index in draws]
            counts = Counter(name for name, _ in draws)
            stage = self.config.stage_at(step).name
            steps.append({"step": step, "stage": stage, "datasets": dict(sorted(counts.items()))})
        items = take(self.split.learn, drawn)
        cohort = cohort_of(items, settings, "learn", population=len(self.split.learn), epoch=epoch)
        mix = {"path": str(self.config.path), "sha256": self.config.digest, "seed": self.config.seed, "draws": steps}
        return replace(cohort, metadata={**cohort.metadata, "with_replacement": True, "mix": mix})


def learning_mix(config: MixConfig, dataset: DatasetSettings, settings: LearningSettings) -> LearningMix:
    """Return the mix of a run, split into items to learn on and held-out ones by a stable hash of their ids.

    Raise ``DatasetError`` for a record with an answer or prompt that no item can have, for a side that is too small,
    and for every dataset in use without items to learn on.
    """
    data = mix_data(config)
    mix = LearningMix(config, dataset.mix_stride, data, split_items(data.items, dataset.held_out))
    empty = {name for name, indices in mix.learnable.items() if not indices}
    drawn = {
        name
        for step in _all_steps(settings, mix.stride)
        for name, share in config.stage_at(step).shares.items()
        if share > 0.0
    }
    if empty & drawn:
        paths = (str(config.datasets[name].records.path) for name in sorted(empty & drawn))
        raise DatasetError([Problem(path, "none", "records that can be served and are not held out") for path in paths])
    return mix


def mix_data(config: MixConfig) -> Dataset:
    """Return the records of every dataset that any stage draws from, as items. Raise ``DatasetError`` as ``learning_mix``."""
    used = {name: config.datasets[name].records for name in used_datasets(config)}
    parts = tuple(RecordSource(str(each.path), FieldMap(), name, each) for name, each in used.items())
    return read_source(JoinedSource(str(config.path), FieldMap(), parts))


def used_datasets(config: MixConfig) -> tuple[str, ...]:
    """Return the datasets that any stage draws from, in the order of the file."""
    drawn = {name for stage in config.stages for name, share in stage.shares.items() if share > 0.0}
    return tuple(name for name in config.datasets if name in drawn)


def mix_advice(mix: LearningMix, settings: LearningSettings) -> Iterator[str]:
    """Yield sentences about what is allowed and probably unintended."""
    yield from mix.config.warnings
    steps = list(_all_steps(settings, mix.stride))
    reached = {id(mix.config.stage_at(step)) for step in steps}
    stages = mix.config.stages
    last = stages[-1]
    missed = [each.name for each in stages if id(each) not in reached and (each.until_step > 0 or each is last)]
    if missed:
        yield (
            f"the run goes from step 0 to {steps[-1]} of the {mix.config.total_iterations} of its mix, one batch after "
            f"another: never in force are {', '.join(missed[:_SHOWN])}; dataset.mix_stride makes the steps longer"
        )


def dataset_graders(config: MixConfig) -> ByDataset:
    """Return the scorer of a run on a mix: an item is scored by the graders of its dataset, as the data server does."""

    def route(context: RewardContext) -> tuple[Composite, RewardContext]:
        try:
            dataset_id, record = record_of(config, context.item_id)
        except (DatasetError, OSError) as error:
            raise RewardError(str(error)) from error
        return config.datasets[dataset_id].graders, replace(context, record=record, parse="think")

    return ByDataset(DATASET_GRADERS, route, tuple(each.graders for each in config.datasets.values()))


def _steps(epoch: int, settings: LearningSettings, stride: int) -> Iterator[tuple[int, int]]:
    """Yield step and size of each batch of an epoch."""
    starts = range(0, settings.sample_size, settings.batch_size)
    for step, start in enumerate(starts, (epoch - 1) * len(starts)):
        yield step * stride, min(settings.batch_size, settings.sample_size - start)


def _all_steps(settings: LearningSettings, stride: int) -> Iterator[int]:
    for epoch in range(1, settings.epochs if settings.enabled else 2):
        yield from (step for step, _ in _steps(epoch, settings, stride))
