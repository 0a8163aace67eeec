"""Define the data of a staged mix: stages with their weights, datasets with their graders."""

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
    """The datasets that are drawn from until a step."""

    name: str
    until_step: int
    """First step after the stage."""
    datasets: tuple[MixEntry, ...]

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of each dataset in the draws, in sum 1. A dataset named twice has the sum of its weights."""
        whole = math.fsum(entry.weight for entry in self.datasets)
        shares: dict[str, float] = {}
        for entry in self.datasets:
            shares[entry.dataset_id] = shares.get(entry.dataset_id, 0.0) + entry.weight / whole
        return shares


@dataclass(frozen=True, slots=True)
class MixGrader:
    """A grader of a dataset, with its weight; the format grader has weight 1."""

    name: str
    weight: float


@dataclass(frozen=True, slots=True)
class MixDataset:
    """One dataset: its records and the names of its graders."""

    id: str
    path: Path
    graders: tuple[MixGrader, ...]
    multiplicative: tuple[str, ...]
    """Names of graders whose rewards multiply the weighted sum."""
    records: Records
    malformed: Mapping[int, str]
    """Records that can be graded but not served, with the reason; they are never drawn."""
    warnings: tuple[str, ...] = ()
    """Warnings about its references."""

    @property
    def servable(self) -> range | tuple[int, ...]:
        """Numbers of the records that can be drawn."""
        if not self.malformed:
            return range(len(self.records))
        return tuple(index for index in range(len(self.records)) if index not in self.malformed)


@dataclass(frozen=True, slots=True)
class MixConfig:
    """A checked mix with its datasets indexed and its graders built."""

    path: Path
    """Resolved."""
    seed: int | None
    """None: draws are unrepeatable."""
    stages: tuple[MixStage, ...]
    """Their boundaries increase."""
    datasets: Mapping[str, MixDataset]
    """Every dataset of the file, whether a stage draws from it or not."""
    graders: Mapping[str, Grader]
    """Every declared or used grader by name."""
    timeouts_s: Mapping[str, float]
    """Total time limit of a batch, for graders with a limit."""
    digest: str
    """SHA-256 of the file's text."""

    @property
    def total_iterations(self) -> int:
        """The last boundary; the last stage continues after it."""
        return self.stages[-1].until_step

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the data, as sentences."""
        warnings = []
        for dataset in self.datasets.values():
            if dataset.malformed:
                first, reason = next(iter(dataset.malformed.items()))
                warnings.append(
                    f"dataset {dataset.id!r}: {len(dataset.malformed)} of {len(dataset.records)} records can be graded "
                    f"but not served; the first: {dataset.records.where(first)}: {reason}"
                )
            warnings += [f"dataset {dataset.id!r}: {warning}" for warning in dataset.warnings]
        return tuple(warnings)

    def stage_at(self, iteration: int) -> MixStage:
        """Return the first stage whose boundary is above ``iteration``, else the last one."""
        return next((stage for stage in self.stages if iteration < stage.until_step), self.stages[-1])
