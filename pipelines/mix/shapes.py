"""What does a staged data mix say? Stages with their weights, datasets with their graders; the shapes and nothing else.

Reading them from a file is ``tfgrpo.pipelines.mix.config``, drawing from them ``tfgrpo.pipelines.mix.sampling``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfgrpo.pipelines.mix.records import Records

if TYPE_CHECKING:
    from tfgrpo.rewarders.graders.base import Grader


@dataclass(frozen=True, slots=True)
class MixEntry:
    """One dataset of a stage."""

    dataset_id: str
    weight: float
    """As written: relative to the other weights of the stage."""


@dataclass(frozen=True, slots=True)
class MixStage:
    """What is drawn from until a step."""

    name: str
    until_step: int
    """First step that the stage is no longer in force at."""
    datasets: tuple[MixEntry, ...]

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of each dataset in the draws; they sum to 1. A dataset named twice has the sum of its weights."""
        whole = math.fsum(entry.weight for entry in self.datasets)
        shares: dict[str, float] = {}
        for entry in self.datasets:
            shares[entry.dataset_id] = shares.get(entry.dataset_id, 0.0) + entry.weight / whole
        return shares


@dataclass(frozen=True, slots=True)
class MixGrader:
    """A grader that a dataset names, with its weight beside the others and the format grader's 1."""

    name: str
    weight: float


@dataclass(frozen=True, slots=True)
class MixDataset:
    """One dataset: its records, and the names of what grades completions for them."""

    id: str
    path: Path
    graders: tuple[MixGrader, ...]
    multiplicative: tuple[str, ...]
    """Names of graders whose rewards the weighted sum is multiplied by."""
    records: Records
    malformed: Mapping[int, str]
    """Records that can be graded but not served, with the reason; they are never drawn."""
    warnings: tuple[str, ...] = ()
    """What is odd about its references."""

    @property
    def servable(self) -> range | tuple[int, ...]:
        """Numbers of the records that can be drawn."""
        if not self.malformed:
            return range(len(self.records))
        return tuple(index for index in range(len(self.records)) if index not in self.malformed)


@dataclass(frozen=True, slots=True)
class MixConfig:
    """A whole file, checked, with its datasets indexed and its graders built."""

    path: Path
    """Resolved."""
    seed: int | None
    """None: draws cannot be repeated."""
    stages: tuple[MixStage, ...]
    """Their boundaries increase."""
    datasets: Mapping[str, MixDataset]
    """Every dataset of the file, whether a stage draws from it or not."""
    graders: Mapping[str, Grader]
    """Every grader that is declared or that a dataset names, by name."""
    timeouts_s: Mapping[str, float]
    """Total time limit of a batch, of the graders that have one of their own."""
    digest: str
    """SHA-256 of the file's text."""

    @property
    def total_iterations(self) -> int:
        """The last boundary; the last stage stays in force behind it."""
        return self.stages[-1].until_step

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about the data, as sentences."""
        found = []
        for dataset in self.datasets.values():
            if dataset.malformed:
                first, reason = next(iter(dataset.malformed.items()))
                found.append(
                    f"dataset {dataset.id!r}: {len(dataset.malformed)} of {len(dataset.records)} records can be graded "
                    f"but not served; the first: {dataset.records.where(first)}: {reason}"
                )
            found += [f"dataset {dataset.id!r}: {warning}" for warning in dataset.warnings]
        return tuple(found)

    def stage_at(self, iteration: int) -> MixStage:
        """The first stage whose boundary lies above ``iteration``; behind all of them the last one, for ever."""
        return next((stage for stage in self.stages if iteration < stage.until_step), self.stages[-1])
