"""Read a staged data mix from a file of the ``rl_data_config.yaml`` form, with its datasets and graders.

All problems of the file, its data and its graders are reported at once. In addition to the keys of the form there is
``seed``, which makes the draws repeatable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tfgrpo.pipelines.mix.forms import MixEntry, MixForm, MixStage, Reading
from tfgrpo.pipelines.mix.records import Records
from tfgrpo.pipelines.problems import shown
from tfgrpo.pipelines.settings.pipeline_file import read_yaml
from tfgrpo.rewarders.composite import Composite
from tfgrpo.stores.errors import PipelineError, Problem

__all__ = ["MixConfig", "MixDataset", "MixEntry", "MixStage", "load_mix_config"]


@dataclass(frozen=True, slots=True)
class MixDataset:
    """One dataset: its records and their graders."""

    id: str
    graders: Composite
    records: Records
    reference_warnings: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about its data, as sentences."""
        lines = list(self.reference_warnings)
        if malformed := self.records.malformed:
            first, reason = next(iter(malformed.items()))
            some = f"{len(malformed)} of {len(self.records)} records can be graded but not served"
            lines.insert(0, f"{some}; the first: {self.records.where(first)}: {reason}")
        return tuple(f"dataset {self.id!r}: {line}" for line in lines)


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
    digest: str
    """SHA-256 of the file's text."""

    @property
    def total_iterations(self) -> int:
        """The last boundary; the last stage continues after it."""
        return self.stages[-1].until_step

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the data and the stages, as sentences."""
        never = [repr(stage.name) for stage in self.stages[:-1] if stage.until_step <= 0]
        idle = [f"never in force, because until_step is not above 0: {', '.join(never)}"] if never else []
        return (*idle, *(warning for dataset in self.datasets.values() for warning in dataset.warnings))

    def undrawable(self) -> Iterator[Problem]:
        """Yield a problem for every dataset that a stage draws from and that has no record to draw."""
        for name, dataset in self.datasets.items():
            stage = next((stage.name for stage in self.stages if stage.shares.get(name, 0.0) > 0.0), None)
            if stage is not None and not dataset.records.servable:
                given = f"no record that can be served, although the stage {stage!r} draws from it"
                accepted = "at least one record with a prompt, or a weight of 0 in every stage"
                yield Problem(f"{self.path}: datasets.{name}.path", given, accepted)

    def stage_at(self, iteration: int) -> MixStage:
        """Return the first stage whose boundary is above ``iteration``, else the last one."""
        return next((stage for stage in self.stages if iteration < stage.until_step), self.stages[-1])


def load_mix_config(path: str | Path, *, check_records: bool = True) -> MixConfig:
    """Read a mix with all that it names. Raise one ``PipelineError`` with all problems.

    ``~`` in ``path`` is expanded; ``paths.data_root`` and graders' files are relative to the file's folder, datasets to
    that root. Each dataset has an index of 28 bytes a record, and an open file descriptor.

    The user's graders are called once with a made-up item. ``check_records=False`` skips that and the parsing of the
    datasets, after an earlier check.
    """
    file = Path(path).expanduser().resolve()
    raw, (content, repeated) = read_yaml(file, _load, label=str(file), line=":", accepted="YAML")
    twice = [Problem(f"{file}:{line}", f"a second {name!r}", "every key once") for line, name in repeated]
    sections: dict[str, Any] = content if isinstance(content, dict) else {}
    reading = Reading(file, sections, check_records=check_records)
    invalid: list[Problem] = []
    try:
        form = MixForm.model_validate(content, context=reading)
    except ValidationError as error:
        invalid += _problems(error, file)
    unpaired = _unpaired(sections.get("datasets"), file)
    if problems := [*twice, *unpaired, *reading.problems, *invalid]:
        raise PipelineError(tuple(dict.fromkeys(problems)))
    datasets = {}
    for name, each in form.datasets.items():
        graders = reading.grader_set(zip(each.graders, each.grader_weights, strict=True), each.multiplicative_graders)
        if each.path is not None:
            datasets[name] = MixDataset(name, graders, *each.path)
    return MixConfig(file, form.seed, form.stages, datasets, hashlib.sha256(raw).hexdigest())


def is_mix(path: Path) -> bool:
    """Return whether a file has the form of a mix rather than of a pipeline: it has ``datasets``."""
    try:
        _, (content, _repeated) = read_yaml(path.expanduser(), _load, label=str(path), line=":", accepted="YAML")
    except PipelineError:
        return False
    return isinstance(content, dict) and "datasets" in content


def _unpaired(datasets: object, file: Path) -> Iterator[Problem]:
    """Yield a problem for every dataset that has not a weight for every grader."""
    for name, entry in datasets.items() if isinstance(datasets, dict) else ():
        lists = [entry.get(key) for key in ("graders", "grader_weights")] if isinstance(entry, dict) else [None] * 2
        graders, weights = (len(each) if isinstance(each, list) else 0 for each in lists)
        if graders != weights:
            given = f"weights: {weights}, graders: {graders}"
            yield Problem(f"{file}: datasets.{name}.grader_weights", given, "a weight for every grader")


def _problems(error: ValidationError, file: Path) -> Iterator[Problem]:
    for each in error.errors(include_url=False):
        key = ".".join(map(str, each["loc"]))
        given = each["ctx"].get("given") or ("nothing" if each["input"] is None else shown(each["input"]))
        yield Problem(f"{file}: {key}" if key else str(file), given, each["msg"])


def _load(text: str) -> tuple[object, list[tuple[int, str]]]:
    """Return what ``yaml.safe_load`` does, and the repeated keys with their lines: YAML silently keeps the last."""
    loader = _Loader(text)
    return loader.get_single_data(), loader.repeated


class _Loader(yaml.SafeLoader):
    """A SafeLoader that records repeated keys of mappings with their lines."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[tuple[int, str]] = []
        self._seen: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check the keys as written, once, before merge keys add more."""
        if id(node) not in self._seen:
            self._seen.add(id(node))
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            names = [key.value for key in keys]
            self.repeated += [
                (key.start_mark.line + 1, key.value) for at, key in enumerate(keys) if key.value in names[:at]
            ]
        super().flatten_mapping(node)
