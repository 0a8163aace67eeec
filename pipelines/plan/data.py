"""Which items does a run learn on, and which does it measure on? A dataset split or two datasets paired, or a staged mix.

Everything is read here once, before anything is spent. How a cohort is drawn from it is the business of
``tfgrpo.pipelines.plan.sampling`` and, for a mix, of ``tfgrpo.pipelines.mix.items``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tfgrpo.pipelines.datasets.datasets import Dataset, read_dataset, shipped_dataset, shipped_held_out
from tfgrpo.pipelines.datasets.stored_items import ids_of
from tfgrpo.pipelines.mix.items import LearningMix, learning_mix, mix_advice
from tfgrpo.pipelines.mix.shapes import MixConfig
from tfgrpo.pipelines.parts import Parts
from tfgrpo.pipelines.plan.curriculum import Difficulty
from tfgrpo.pipelines.plan.sampling import Cohort, draw_cohort, draw_cohorts
from tfgrpo.pipelines.plan.split import Split, pair_datasets, split_items
from tfgrpo.pipelines.settings.learning import MAX_GROUPS
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.registry import COMPARING_REWARDERS
from tfgrpo.stores.errors import DatasetError, Problem, SettingsError
from tfgrpo.stores.text import pluralize


@dataclass(frozen=True, slots=True)
class RunData:
    """Both sides of the data of a run."""

    split: Split
    warnings: tuple[str, ...]
    """What is odd about the files."""
    domains: frozenset[str]
    """Fields of knowledge that the items name."""
    mix: LearningMix | None
    """What the items are drawn from step by step; None where they are those of a dataset."""

    def cohort(self, epoch: int, settings: Settings, difficulty: Difficulty | None = None) -> Cohort:
        """The items of a learning epoch. ``difficulty`` counts only when the setting ``tfgrpo.curriculum`` says so."""
        weights, told = self._weights(settings, difficulty)
        if self.mix is not None:
            cohort = self.mix.draw(epoch=epoch, settings=settings.tfgrpo, weights=weights)
        else:
            cohort = draw_cohort(self.split.learn, epoch=epoch, settings=settings.tfgrpo, weights=weights)
        return replace(cohort, metadata={**cohort.metadata, **told})

    def cohorts(self, epochs: int, settings: Settings) -> list[Cohort]:
        """Epochs 1 to ``epochs`` as they are when no group has been seen yet. Raises ``SettingsError`` for too many groups."""
        learning, items = settings.tfgrpo, len(self.split.learn)
        again = learning.with_replacement or self.mix is not None
        groups = epochs * (learning.sample_size if again else min(learning.sample_size, items))
        if groups > MAX_GROUPS:
            given = f"{groups:,} groups in {pluralize(epochs, 'learning epoch')}"
            raise SettingsError.one("tfgrpo.sample_size", given, f"at most {MAX_GROUPS:,} groups in a run")
        if self.mix is not None:
            return [self.cohort(epoch, settings) for epoch in range(1, epochs + 1)]
        weights, _ = self._weights(settings, None)
        return list(draw_cohorts(self.split.learn, epochs=epochs, settings=learning, weights=weights))

    def _weights(self, settings: Settings, difficulty: Difficulty | None) -> tuple[list[float] | None, dict[str, Any]]:
        """How likely each item is, None when all alike, and what the manifest says of it."""
        if settings.tfgrpo.curriculum != "difficulty":
            return None, {}
        ids = ids_of(self.split.learn)
        known = (difficulty or Difficulty()).of(ids)
        return [known.weight(name) for name in ids], {"curriculum": known.as_json()}


def data_of_mix(settings: Settings, config: MixConfig) -> RunData:
    """The data of a run on a staged mix. Raises ``DatasetError`` as ``learning_mix`` does."""
    mix = learning_mix(config, settings.dataset, settings.tfgrpo)
    _refuse_without_answers(settings, [mix.data])
    warnings = (*mix_advice(mix, settings.tfgrpo), *mix.data.warnings)
    return RunData(mix.split, warnings, mix.data.domains, mix)


def data_of_run(settings: Settings) -> RunData:
    """The data of a run on one dataset or two. Raises ``DatasetError`` with everything wrong with both."""
    dataset = settings.dataset
    parts = Parts()
    paths = _paths(settings)
    read = [found for each in paths for found in parts.run(partial(read_dataset, each, dataset.fields))]
    parts.raise_found()
    _refuse_without_answers(settings, read)
    sides = [each.items for each in read]
    split = split_items(sides[0], dataset.held_out) if len(sides) == 1 else pair_datasets(sides[0], sides[1])
    warnings = tuple(warning for each in read for warning in each.warnings)
    return RunData(split, warnings, frozenset().union(*(each.domains for each in read)), None)


def _paths(settings: Settings) -> list[str]:
    """What is learned on and, where that is no part of it, what is measured on."""
    dataset, world = settings.dataset, settings.simulated.world
    if dataset.path is None:
        return [str(path) for path in (shipped_dataset(world), shipped_held_out(world)) if path is not None]
    return [dataset.path] if dataset.eval_path is None else [dataset.path, dataset.eval_path]


def _refuse_without_answers(settings: Settings, read: Sequence[Dataset]) -> None:
    """Comparing with answers that no item has would leave every rollout ungraded, after it was paid for."""
    comparing = [entry.name for entry in settings.rewarders if entry.weight > 0.0 and entry.name in COMPARING_REWARDERS]
    if not comparing:
        return
    name = settings.dataset.fields.answer
    bare = [dataset for dataset in read if not dataset.answers]
    if bare:
        accepted = (
            f"answers in the field {name!r}, another name by dataset.fields.answer, or no {comparing[0]} rewarder"
        )
        raise DatasetError([Problem(str(dataset.path), "no answer in any item", accepted) for dataset in bare])
