"""What the checks of one mix file share: the names in it, its graders, and its problems with a place of their own.

Of one name, a python grader comes before an external one, and that before a built-in one. The format grader is added to
every dataset and cannot be named.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tfgrpo.pipelines.mix.records import Records, index_records
from tfgrpo.pipelines.plan.rewarders import ReferenceCount, matches_numbers
from tfgrpo.pipelines.problems import did_you_mean, shown
from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.combine import GraderSet, NamedGrader
from tfgrpo.rewarders.graders.loading import BUILT_IN, build_grader, load_python_grader, refuse_no_grader
from tfgrpo.rewarders.options import refusal
from tfgrpo.stores.errors import DatasetError, PipelineError, Problem

_AUTOMATIC = "reasoning_format"
_GRACE_S = 1.0
"""Added to a grader's own time limit, so that it can report the timeout itself."""


class Data(NamedTuple):
    """The records of a dataset, and warnings about their references."""

    records: Records
    warnings: tuple[str, ...]


class Reading:
    """The context in which the forms of one file are validated. Its methods raise the errors of pydantic validators."""

    def __init__(self, file: Path, content: Mapping[str, Any], *, check_records: bool, build_graders: bool) -> None:
        self.problems: list[Problem] = []
        """Problems with a place of their own, such as a line of a dataset."""
        self.last_step: int | None = None
        """Boundary of the stage before."""
        self.dataset_ids = _names(content.get("datasets"))
        self._declared = _names(content.get("external_graders")) | _names(content.get("python_graders"))
        self._file, self._check, self._build = file, check_records, build_graders
        root = content["paths"].get("data_root") if isinstance(content.get("paths"), dict) else None
        self._root = file.parent / root if isinstance(root, str) and root.strip() else None
        self._graders: dict[str, NamedGrader] = {}

    def add(self, name: str, grader: Grader, timeout_s: float | None = None) -> None:
        """Add a grader, in the place of another of its name. ``timeout_s``: its own time limit."""
        self._graders[name] = NamedGrader(name, grader, timeout_s=None if timeout_s is None else timeout_s + _GRACE_S)

    def load(self, name: str, entry: object) -> None:
        """Add the grader of an entry of ``python_graders``, or its problems."""
        source = f"{self._file}: python_graders.{name}"
        try:
            if not isinstance(entry, dict):
                raise PipelineError.one(source, "nothing" if entry is None else shown(entry), "a mapping")
            built = load_python_grader(entry, name=name, folder=self._file.parent, source=source)
            if self._check:
                named = next(f"{kind}: {entry[kind]}" for kind in ("import", "path", "builtin") if entry.get(kind))
                refuse_no_grader(built, f"{source}.{named}")
            self.add(name, built)
        except PipelineError as error:
            self.problems += error.problems

    def use(self, name: str) -> str:
        """Build a grader that a dataset names, if it is a built-in one."""
        if not self._build or name in self._declared or name in self._graders:
            return name
        if name == _AUTOMATIC:
            raise refusal("no mention of it: the format grader is added to every dataset")
        if name not in BUILT_IN:
            known = did_you_mean(name, (BUILT_IN.keys() - {_AUTOMATIC}) | self._declared)
            raise refusal(f"{known}, or a grader declared under python_graders or external_graders")
        if any(option.default is option.empty for option in inspect.signature(BUILT_IN[name]).parameters.values()):
            accepted = f"it with its options: an entry of python_graders with builtin: {name} and init_kwargs"
            raise refusal(accepted, f"{name!r} with no options")
        try:
            self.add(name, build_grader(name))
        except PipelineError as error:  # its library is not installed
            raise refusal(error.problems[0].accepted, f"{name!r} with {error.problems[0].given}") from None
        return name

    def grader_set(self, weights: Iterable[tuple[str, float]], gates: Iterable[str]) -> GraderSet:
        """Return the graders of a dataset; the format grader alone when none are built."""
        if not self._build:
            return GraderSet()
        additive = tuple(replace(self._graders[name], weight=weight) for name, weight in weights)
        return GraderSet(additive, tuple(self._graders[name] for name in gates))

    def index(self, written: str, graders: Iterable[str]) -> Data | None:
        """Index the file at a path; None for a relative one without a root, and for one with bad lines."""
        if self._root is None and not Path(written).is_absolute():
            return None
        path = Path(written) if self._root is None else self._root / written
        # References are counted while the lines are checked: reading the records again would parse each twice.
        references = ReferenceCount()
        numbers = any(name in self._graders and matches_numbers(self._graders[name].grader) for name in graders)
        try:
            records = index_records(path, check=self._check, visit=references.add_record if numbers else None)
        except DatasetError as error:
            own = [problem for problem in error.problems if problem.source == str(path)]
            self.problems += [problem for problem in error.problems if problem not in own]
            if own:
                raise refusal(own[0].accepted, f"{str(path)!r}: {own[0].given}") from None
            return None
        return Data(records, references.warnings())


def _names(section: object) -> frozenset[str]:
    return frozenset(name for name in section if isinstance(name, str)) if isinstance(section, dict) else frozenset()
