"""Which samples come at a step of the mix? A dataset by the weights of the stage in force, then one of its records evenly.

Every draw is independent: with replacement, no passes over the data, and the same step asked twice gives other samples.
Only the random stream is advanced. It draws no record that could not be shown to an actor.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tfgrpo.pipelines.mix.records import unservable
from tfgrpo.pipelines.mix.shapes import MixConfig, MixStage
from tfgrpo.stores.errors import DatasetError

_DRAWS = 50
"""Most draws for one sample where records cannot be read."""
_NOT_THERE = "the id of a sample that was drawn, <dataset>:<number of the record>"


@dataclass(frozen=True, slots=True)
class MixSample:
    """One record as it was drawn."""

    sample_id: str
    """``<dataset>:<index>``, the index being the number of the record in its file from 0, blank lines not counted."""
    dataset_id: str
    record: Mapping[str, Any]


class MixSampler:
    """Draws from a mix. Threads share one random stream, so what each of them gets depends on who comes first."""

    def __init__(
        self,
        config: MixConfig,
        rng: random.Random | None = None,
        *,
        only: Mapping[str, Sequence[int]] | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        """Without ``rng`` the stream is that of the config's seed, or one that nobody can repeat when it has none.

        ``only``: what there is to draw of each dataset, as numbers; a dataset that is absent from it has nothing.
        ``weights``: how likely each of those numbers is within its dataset, by number; None: all alike.
        """
        self._config = config
        self._rng = rng or random.Random(config.seed)
        self._turn = threading.Lock()
        self._numbers = {name: dataset.servable for name, dataset in config.datasets.items()} if only is None else only
        self._sums = (
            {}
            if weights is None
            else {
                name: list(accumulate(weights[number] for number in numbers)) for name, numbers in self._numbers.items()
            }
        )

    def stage_at(self, iteration: int) -> MixStage:
        """The stage in force at a step."""
        return self._config.stage_at(iteration)

    def draw(self, iteration: int, n: int) -> list[tuple[str, int]]:
        """``n`` independent draws as (dataset id, number), none when ``n`` is not above 0.

        Raises ``DatasetError`` when the lot falls on a dataset without records.
        """
        entries = self._config.stage_at(iteration).datasets
        names = [entry.dataset_id for entry in entries]
        whole = sum(entry.weight for entry in entries)
        weights = [entry.weight / whole for entry in entries]
        with self._turn:
            return [self._one(self._rng.choices(names, weights, k=1)[0]) for _ in range(n)]

    def sample(self, iteration: int, n: int) -> list[MixSample]:
        """``n`` independent draws with their records. Raises as ``draw`` does, and ``OSError`` when no record can be read.

        A record that is no longer what it was, because its file has been written into, is replaced by another draw.
        """
        return [self._readable(iteration, name, index) for name, index in self.draw(iteration, n)]

    def _readable(self, iteration: int, name: str, index: int) -> MixSample:
        for _ in range(_DRAWS):
            with suppress(DatasetError):
                record = self._config.datasets[name].records[index]
                if not unservable(record):
                    return MixSample(sample_id(name, index), name, record)
            ((name, index),) = self.draw(iteration, 1)
        raise OSError(errno.ESTALE, "its files have changed since the start")

    def _one(self, name: str) -> tuple[str, int]:
        numbers = self._numbers.get(name, ())
        if not numbers:
            raise DatasetError.one(str(self._config.datasets[name].path), f"no record of {name!r} to draw", "a record")
        if name in self._sums:
            return name, self._rng.choices(numbers, cum_weights=self._sums[name], k=1)[0]
        return name, numbers[self._rng.randint(0, len(numbers) - 1)]


def sample_id(dataset_id: str, index: int) -> str:
    """The id of a record of a dataset."""
    return f"{dataset_id}:{index}"


def place_of(config: MixConfig, name: str) -> tuple[str, int]:
    """Dataset id and number of the record of a sample id. Raises ``DatasetError`` for an id that no sample can have.

    The number stands behind the last colon, so that the id of a dataset may hold one.
    """
    dataset_id, colon, index = name.rpartition(":")
    dataset = config.datasets.get(dataset_id)
    if not colon or dataset is None:
        raise DatasetError.one("sample_id", repr(name[:200]), _NOT_THERE)
    try:
        number = int(index)
    except ValueError:
        number = -1
    if not 0 <= number < len(dataset.records):
        raise DatasetError.one("sample_id", repr(name[:200]), _NOT_THERE)
    return dataset_id, number


def record_of(config: MixConfig, name: str) -> tuple[str, Any]:
    """Dataset id and record of a sample id. Raises as ``place_of``, and when the record cannot be read any more."""
    dataset_id, number = place_of(config, name)
    return dataset_id, config.datasets[dataset_id].records[number]
