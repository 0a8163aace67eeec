"""Draw samples at a step of the mix: a dataset by the weights of the stage, then one of its records.

Draws are independent, with replacement: the same step gives other samples every time. Only servable records are drawn.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.stores.errors import DatasetError


class MixSampler:
    """Draws from a mix. Threads share one random stream, so their samples depend on their order."""

    def __init__(
        self,
        config: MixConfig,
        rng: random.Random | None = None,
        *,
        only: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Without ``rng``, draw by the config's seed, or unrepeatably without one.

        ``only``: the numbers to draw from, by dataset; an absent dataset has none.
        """
        self._config = config
        self._rng = rng or random.Random(config.seed)
        self._turn = threading.Lock()
        self._numbers = (
            {name: dataset.records.servable for name, dataset in config.datasets.items()} if only is None else only
        )

    def draw(self, iteration: int, n: int) -> list[tuple[str, int]]:
        """Return ``n`` independent draws as (dataset id, number), none if ``n`` is not above 0.

        Raise ``DatasetError`` if a drawn dataset has no records.
        """
        entries = self._config.stage_at(iteration).datasets
        names = [entry.id for entry in entries]
        whole = sum(entry.weight for entry in entries)
        weights = [entry.weight / whole for entry in entries]
        with self._turn:
            return [self._one(self._rng.choices(names, weights, k=1)[0]) for _ in range(n)]

    def _one(self, name: str) -> tuple[str, int]:
        numbers = self._numbers.get(name, ())
        if not numbers:
            source = str(self._config.datasets[name].records.path)
            raise DatasetError.one(source, f"no record of {name!r} to draw", "a record")
        return name, numbers[self._rng.randint(0, len(numbers) - 1)]  # as samplers of this form have always drawn


def sample_id(dataset_id: str, index: int) -> str:
    """Return the sample id of a record: its dataset, and its number in the file from 0, without blank lines."""
    return f"{dataset_id}:{index}"


def locate(config: MixConfig, name: str) -> tuple[str, int]:
    """Return dataset id and record number of a sample id. Raise ``DatasetError`` for an unknown id.

    The number follows the last colon, because a dataset id may contain one.
    """
    dataset_id, colon, index = name.rpartition(":")
    dataset = config.datasets.get(dataset_id)
    with suppress(ValueError):
        if colon and dataset is not None and 0 <= (number := int(index)) < len(dataset.records):
            return dataset_id, number
    accepted = "the id of a sample that was drawn, <dataset>:<number of the record>"
    raise DatasetError.one("sample_id", repr(name[:200]), accepted)


def record_of(config: MixConfig, name: str) -> tuple[str, Any]:
    """Return dataset id and record of a sample id. Raise as ``locate`` does."""
    dataset_id, number = locate(config, name)
    return dataset_id, config.datasets[dataset_id].records[number]
