"""Read a staged data mix from a file of the ``rl_data_config.yaml`` form, with its datasets and graders.

All problems of the file, its data and its graders are reported at once. In addition to the keys of the form there is
``seed``, which makes the draws repeatable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tfgrpo.pipelines.mix.checking import Checker, read_document
from tfgrpo.pipelines.mix.graders import GraderTable
from tfgrpo.pipelines.mix.records import index_records
from tfgrpo.pipelines.mix.shapes import MixConfig, MixDataset, MixEntry, MixGrader, MixStage
from tfgrpo.pipelines.plan.rewarders import ReferenceCount, matches_numbers
from tfgrpo.pipelines.problems import did_you_mean, shown
from tfgrpo.stores.errors import DatasetError

__all__ = ["MixConfig", "MixDataset", "MixEntry", "MixGrader", "MixStage", "load_mix_config"]

_KEYS = ("paths", "datasets", "stages", "external_graders", "python_graders", "seed")


def load_mix_config(path: str | Path, *, check_records: bool = True, build_graders: bool = True) -> MixConfig:
    """Read a mix with all that it names. Raise one ``PipelineError`` with all problems.

    ``~`` in ``path`` is expanded; ``paths.data_root`` and graders' files are relative to the file's folder, datasets to
    that root. Each dataset has an index of 20 bytes a record, and an open file descriptor.

    The user's graders are called once with a made-up item. ``check_records=False`` skips that and the parsing of the
    datasets, after an earlier check. ``build_graders=False`` neither builds graders nor imports their code.
    """
    file = Path(path).expanduser().resolve()
    document = read_document(file)
    checker = Checker(str(file))
    checker.problems += document.repeated_keys
    top = checker.mapping(document.content, "", _KEYS) or {}
    graders = GraderTable(checker, file.parent, build=build_graders, trial=check_records)
    reader = _Reader(checker, file, graders, check_records=check_records)
    seed = reader.seed(top.get("seed"))
    graders.declare(top.get("external_graders"), top.get("python_graders"))
    datasets = reader.datasets(top.get("datasets"), reader.data_root(top.get("paths")))
    stages = reader.stages(top.get("stages"))
    checker.raise_problems()
    return MixConfig(file, seed, stages, datasets, graders.built, graders.timeouts_s, document.digest)


class _Reader:
    """Reads the sections of one file, each as far as it is valid."""

    def __init__(self, checker: Checker, file: Path, graders: GraderTable, *, check_records: bool) -> None:
        self._checker = checker
        self._folder = file.parent
        self._graders = graders
        self._check_records = check_records
        self._dataset_ids: frozenset[str] = frozenset()

    def seed(self, value: object) -> int | None:
        """Return the seed of the draws; None for unrepeatable draws."""
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        self._checker.refuse("seed", shown(value), "a whole number of at least 0, or no seed")
        return None

    def data_root(self, value: object) -> Path | None:
        """Return the folder that datasets' paths are relative to."""
        paths = self._checker.mapping(value, "paths", ("data_root",))
        if paths is None:
            return None
        root = self._checker.text(paths.get("data_root"), "paths.data_root")
        return self._folder / root if root is not None else None

    def datasets(self, value: object, root: Path | None) -> Mapping[str, MixDataset]:
        """Return the valid datasets."""
        entries = self._checker.mapping(value, "datasets") or {}
        self._dataset_ids = frozenset(entries)
        read = {name: self._dataset(name, entry, root) for name, entry in entries.items()}
        return {name: dataset for name, dataset in read.items() if dataset is not None}

    def _dataset(self, name: str, value: object, root: Path | None) -> MixDataset | None:
        key = f"datasets.{name}"
        entry = self._checker.mapping(value, key, ("path", "graders", "grader_weights", "multiplicative_graders"))
        if entry is None:
            return None
        graders = self._weighted(entry, key)
        gates = self._gates(entry.get("multiplicative_graders"), f"{key}.multiplicative_graders")
        written = self._checker.text(entry.get("path"), f"{key}.path")
        if written is None or (root is None and not Path(written).is_absolute()):
            return None
        path = Path(written) if root is None else root / written
        names = {*gates, *(each.name for each in graders)}
        # References are counted while the lines are checked: reading the records again would parse each twice.
        references = ReferenceCount()
        numbers = any(matches_numbers(self._graders.built.get(each)) for each in names)
        visit = references.add_record if numbers else None
        try:
            indexed = index_records(path, check=self._check_records, visit=visit)
        except DatasetError as error:
            for problem in error.problems:
                if problem.source == str(path):
                    self._checker.refuse(f"{key}.path", f"{str(path)!r}: {problem.given}", problem.accepted)
                else:
                    self._checker.problems.append(problem)
            return None
        return MixDataset(name, path, graders, gates, indexed.records, indexed.malformed, references.warnings())

    def _weighted(self, entry: Mapping[str, Any], key: str) -> tuple[MixGrader, ...]:
        """Return the graders whose rewards are added, with their weights."""
        names = self._checker.sequence(entry.get("graders"), f"{key}.graders")
        weights = self._checker.sequence(entry.get("grader_weights"), f"{key}.grader_weights")
        if len(names) != len(weights):
            given = f"weights: {len(weights)}, graders: {len(names)}"
            self._checker.refuse(f"{key}.grader_weights", given, "a weight for every grader")
        for at, name in enumerate(names):
            self._graders.use(name, f"{key}.graders.{at}")
        numbers = [self._checker.number(weight, f"{key}.grader_weights.{at}") for at, weight in enumerate(weights)]
        if not math.isfinite(sum(number or 0.0 for number in numbers)):
            self._checker.refuse(f"{key}.grader_weights", "weights that sum to infinity", "smaller weights")
        return tuple(
            MixGrader(name, weight) for name, weight in zip(names, numbers, strict=False) if weight is not None
        )

    def _gates(self, value: object, key: str) -> tuple[str, ...]:
        """Return the graders whose rewards multiply the sum; any empty value is none."""
        names = self._checker.sequence(value or None, key)
        for at, name in enumerate(names):
            self._graders.use(name, f"{key}.{at}")
        return tuple(str(name) for name in names)

    def stages(self, value: object) -> tuple[MixStage, ...]:
        """Return the stages in the order of the file; their boundaries must increase."""
        entries = self._checker.sequence(value, "stages")
        if isinstance(value, list | None) and not entries:
            self._checker.refuse("stages", "no stage", "at least one stage")
        read = [self._stage(entry, f"stages.{at}") for at, entry in enumerate(entries)]
        valid = [each for each in read if each is not None]
        for (_, before), (key, stage) in pairwise(valid):
            if stage.until_step <= before.until_step:
                given = f"{stage.until_step} after {before.until_step}"
                self._checker.refuse(f"{key}.until_step", given, "a step above that of the stage before")
        return tuple(stage for _, stage in valid)

    def _stage(self, value: object, key: str) -> tuple[str, MixStage] | None:
        entry = self._checker.mapping(value, key, ("name", "until_step", "datasets"))
        if entry is None:
            return None
        name = entry.get("name")
        if name is None or isinstance(name, dict | list):
            self._checker.refuse(f"{key}.name", "nothing" if name is None else shown(name), "the name of the stage")
        until = self._checker.whole(entry.get("until_step"), f"{key}.until_step")
        mixed = self._mixed(entry.get("datasets"), f"{key}.datasets")
        return (key, MixStage(str(name), until, mixed)) if until is not None else None

    def _mixed(self, value: object, key: str) -> tuple[MixEntry, ...]:
        mixed: list[MixEntry] = []
        before = len(self._checker.problems)
        for at, part in enumerate(self._checker.sequence(value, key)):
            entry = self._checker.mapping(part, f"{key}.{at}", ("id", "weight"))
            if entry is None:
                continue
            name = self._dataset_id(entry.get("id"), f"{key}.{at}.id")
            weight = self._checker.number(entry.get("weight"), f"{key}.{at}.weight")
            if name is not None and weight is not None:
                mixed.append(MixEntry(name, weight))
        whole = sum(entry.weight for entry in mixed)
        if len(self._checker.problems) == before and not 0.0 < whole < math.inf:
            self._checker.refuse(key, f"weights that sum to {whole:g}", "weights that sum to a finite number above 0")
        return tuple(mixed)

    def _dataset_id(self, value: object, key: str) -> str | None:
        name = self._checker.text(value, key)
        if name is not None and name not in self._dataset_ids:
            accepted = did_you_mean(name, self._dataset_ids) if self._dataset_ids else "a dataset"
            self._checker.refuse(key, repr(name), accepted)
            return None
        return name
