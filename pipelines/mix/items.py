"""Which items does a learning run draw from a mix, step by step? Those of the stage in force that are not held out.

The step of a learning batch is its running number in the run, from 0, times ``dataset.mix_stride``. Every batch has a
random stream of its own, so that it draws the same however the run came to it. Grading is not its business.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfgrpo.pipelines.datasets.datasets import Dataset, read_source
from tfgrpo.pipelines.datasets.rows import Row
from tfgrpo.pipelines.datasets.source_base import gone
from tfgrpo.pipelines.datasets.stored_items import ids_of, take
from tfgrpo.pipelines.mix.records import unservable
from tfgrpo.pipelines.mix.sampling import MixSampler, sample_id
from tfgrpo.pipelines.mix.shapes import MixConfig
from tfgrpo.pipelines.plan.sampling import Cohort, cohort_of
from tfgrpo.pipelines.plan.split import Split, split_items
from tfgrpo.pipelines.settings.data import DatasetSettings, FieldMap
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.seeds import stream

_INDEX_BITS = 44
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class MixSource:
    """The records of some datasets of a mix as rows, those that cannot be served left out."""

    config: MixConfig
    used: tuple[str, ...]

    @property
    def name(self) -> str:
        """Path of the file that declares the mix."""
        return str(self.config.path)

    def rows(self) -> Iterator[Row | Problem]:
        """Dataset after dataset, in the order of the file."""
        for number, name in enumerate(self.used):
            dataset = self.config.datasets[name]
            for index in dataset.servable:
                values = _values(sample_id(name, index), dataset.records[index])
                yield Row(dataset.records.line(index), values, number << _INDEX_BITS | index)

    def values_at(self, places: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Records by dataset and number."""
        for place in places:
            name, index = self.used[place >> _INDEX_BITS], place & ((1 << _INDEX_BITS) - 1)
            records = self.config.datasets[name].records
            record = records[index]
            if unservable(record):
                raise gone(records.where(index))
            yield _values(sample_id(name, index), record)

    def where(self, place: int, line: int) -> str:
        """File of the dataset and line."""
        return f"{self.config.datasets[self.used[place >> _INDEX_BITS]].path}:{line}"


@dataclass(frozen=True, slots=True)
class LearningMix:
    """A mix as a learning run sees it."""

    config: MixConfig
    stride: int
    """Steps of the mix that one learning batch goes forward."""
    data: Dataset
    """The records of every dataset that any stage draws from."""
    split: Split

    @property
    def learnable(self) -> Mapping[str, range]:
        """Places among the items to learn on that each dataset fills."""
        counts = Counter(name.rpartition(":")[0] for name in ids_of(self.split.learn))
        found: dict[str, range] = {}
        start = 0
        for name in used_datasets(self.config):
            found[name] = range(start, start + counts[name])
            start += counts[name]
        return found

    def draw(self, *, epoch: int, settings: LearningSettings, weights: Sequence[float] | None = None) -> Cohort:
        """The cohort of epoch 1, 2, …: ``sample_size`` draws, with replacement, a batch at each step.

        ``weights``, one for each item to learn on, say how likely it is within its dataset; None: all alike.
        """
        only = self.learnable
        drawn: list[int] = []
        told = []
        for step, size in _steps(epoch, settings, self.stride):
            rng = stream(settings.seed_of("train"), "mix", -1 if self.config.seed is None else self.config.seed, step)
            draws = MixSampler(self.config, rng, only=only, weights=weights).draw(step, size)
            drawn += [place for _, place in draws]
            counts = Counter(name for name, _ in draws)
            stage = self.config.stage_at(step).name
            told.append({"step": step, "stage": stage, "datasets": dict(sorted(counts.items()))})
        items = take(self.split.learn, drawn)
        cohort = cohort_of(items, epoch=epoch, population=len(self.split.learn), settings=settings, purpose="learn")
        mix = {"path": str(self.config.path), "sha256": self.config.digest, "seed": self.config.seed, "draws": told}
        return Cohort(
            cohort.items, cohort.batches, cohort.draws, {**cohort.metadata, "with_replacement": True, "mix": mix}
        )


def learning_mix(config: MixConfig, dataset: DatasetSettings, settings: LearningSettings) -> LearningMix:
    """The mix of a run, split into items to learn on and held-out ones by a stable hash of their ids.

    Raises ``DatasetError`` when a record has an answer or prompt that no item can have, when a side comes out too
    small, and for every dataset that a step of the run may draw from and that has nothing to learn on.
    """
    data = read_source(MixSource(config, used_datasets(config)), FieldMap(), config.path)
    mix = LearningMix(config, dataset.mix_stride, data, split_items(data.items, dataset.held_out))
    empty = {name for name, places in mix.learnable.items() if not places}
    drawn = {
        name
        for step in _all_steps(settings, mix.stride)
        for name, share in config.stage_at(step).shares.items()
        if share > 0.0
    }
    if empty & drawn:
        accepted = "records that can be served and are not held out"
        raise DatasetError(
            [Problem(str(config.datasets[name].path), "none", accepted) for name in sorted(empty & drawn)]
        )
    return mix


def used_datasets(config: MixConfig) -> tuple[str, ...]:
    """Datasets that any stage draws from, in the order of the file."""
    drawn = {name for stage in config.stages for name, share in stage.shares.items() if share > 0.0}
    return tuple(name for name in config.datasets if name in drawn)


def mix_advice(mix: LearningMix, settings: LearningSettings) -> Iterator[str]:
    """What is allowed and probably not meant, as sentences."""
    yield from mix.config.warnings
    steps = list(_all_steps(settings, mix.stride))
    reached = {id(mix.config.stage_at(step)) for step in steps}
    missed = [stage.name for stage in mix.config.stages if id(stage) not in reached]
    if missed:
        yield (
            f"the run goes from step 0 to {steps[-1]} of the {mix.config.total_iterations} of its mix, one batch after "
            f"another: never in force are {', '.join(missed[:_SHOWN])}; dataset.mix_stride makes the steps longer"
        )


def _steps(epoch: int, settings: LearningSettings, stride: int) -> Iterator[tuple[int, int]]:
    """Step and size of each batch of an epoch."""
    starts = range(0, settings.sample_size, settings.batch_size)
    for batch, start in enumerate(starts):
        yield ((epoch - 1) * len(starts) + batch) * stride, min(settings.batch_size, settings.sample_size - start)


def _all_steps(settings: LearningSettings, stride: int) -> Iterator[int]:
    for epoch in range(1, settings.epochs if settings.enabled else 2):
        yield from (step for step, _ in _steps(epoch, settings, stride))


def _values(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """What an item takes from a record. An answer that is neither text nor a number is shown as JSON."""
    answer = record.get("answer")
    if answer is None or answer == "":  # a zero is an answer
        answer = record.get("expected_category")
    if isinstance(answer, dict | list | bool):
        answer = json.dumps(answer, ensure_ascii=False)
    return {
        "id": name,
        "prompt": record["prompt"],
        "answer": answer,
        "system_prompt": record.get("system_prompt"),
        "metadata": record.get("metadata"),
    }
