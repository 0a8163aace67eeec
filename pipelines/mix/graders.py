"""Build the graders that a mix names, and score a group by those of an item's dataset, as the data server does.

Of one name, a python grader comes before an external one, and that before a built-in one.

The format grader is added to every dataset and cannot be named.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfgrpo.pipelines.mix.checking import Checker, shown_or_nothing
from tfgrpo.pipelines.mix.sampling import record_of
from tfgrpo.pipelines.mix.shapes import MixConfig
from tfgrpo.pipelines.problems import did_you_mean, shown
from tfgrpo.pipelines.settings.rewarding import DATASET_GRADERS
from tfgrpo.rewarders.base import Abstained, RewardContext, Verdict
from tfgrpo.rewarders.graders.base import Grader, GraderInput
from tfgrpo.rewarders.graders.combine import GraderSet, ItemGrade, NamedGrader, grade_items
from tfgrpo.rewarders.graders.loading import BUILT_IN, build_grader, load_python_grader, refuse_no_grader
from tfgrpo.rewarders.graders.remote import RemoteGrader
from tfgrpo.rewarders.graders.running import TIMEOUT_S, GraderRunner
from tfgrpo.stores.errors import DatasetError, PipelineError, RewardError
from tfgrpo.stores.outcomes import RewardScore

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.shapes import MixConfig

_AUTOMATIC = "reasoning_format"
_REMOTE = "remote_http"
_TIMEOUT_S = 60.0
_ANY_URL = "http://127.0.0.1/"
_GRACE_S = 1.0
"""Added to a grader's own time limit, so that it can report the timeout itself."""


def grader_sets(config: MixConfig) -> Mapping[str, GraderSet]:
    """Return the graders of each dataset by its id. The grader objects are shared."""

    def named(name: str, weight: float = 1.0) -> NamedGrader:
        limit_s = config.timeouts_s.get(name)
        return NamedGrader(name, config.graders[name], weight, None if limit_s is None else limit_s + _GRACE_S)

    return {
        name: GraderSet(
            additive=tuple(named(each.name, each.weight) for each in dataset.graders),
            multiplicative=tuple(map(named, dataset.multiplicative)),
        )
        for name, dataset in config.datasets.items()
    }


class GraderTable:
    """The graders of one file by name. One that cannot be built is recorded as a problem once."""

    def __init__(self, checker: Checker, folder: Path, *, build: bool = True, trial: bool = True) -> None:
        """``build=False``: build and refuse none, as if no grader were named. ``trial=False``: call none."""
        self.built: dict[str, Grader] = {}
        self.timeouts_s: dict[str, float] = {}
        self._checker = checker
        self._folder = folder
        self._build, self._trial = build, trial
        self._declared: set[str] = set()

    def declare(self, external: object, python: object) -> None:
        """Build the graders of the sections ``external_graders`` and ``python_graders``."""
        if not self._build:
            return
        for section, value, build in (
            ("external_graders", external, self._external),
            ("python_graders", python, self._python),
        ):
            entries = self._checker.mapping(value, section) if value is not None else None
            for name, entry in (entries or {}).items():
                self._declared.add(name)
                build(name, entry, f"{section}.{name}")

    def use(self, name: object, key: str) -> None:
        """Check the name of a grader in a dataset, and build it if it is a built-in."""
        if not isinstance(name, str):
            self._checker.refuse(key, shown(name), "the name of a grader")
        elif self._build and name not in self._declared and name not in self.built:
            self._build_in(name, key)

    def _build_in(self, name: str, key: str) -> None:
        if name == _AUTOMATIC:
            self._checker.refuse(key, repr(name), "no mention of it: the format grader is added to every dataset")
        elif name not in BUILT_IN:
            known = (BUILT_IN.keys() - {_AUTOMATIC}) | self._declared
            accepted = f"{did_you_mean(name, known)}, or a grader declared under python_graders or external_graders"
            self._checker.refuse(key, repr(name), accepted)
        else:
            try:
                self.built[name] = build_grader(name)
            except PipelineError as error:
                given, accepted = error.problems[0].given, error.problems[0].accepted
                options = inspect.signature(BUILT_IN[name]).parameters.values()
                if any(option.default is option.empty for option in options):
                    given = "no options"
                    accepted = f"it with its options: an entry of python_graders with builtin: {name} and init_kwargs"
                self._checker.refuse(key, f"{name!r} with {given}", accepted)

    def _external(self, name: str, value: object, key: str) -> None:
        entry = self._checker.mapping(value, key, ("type", "url", "timeout_s", "retries", "token_env"))
        if entry is None:
            return
        before = len(self._checker.problems)
        if entry.get("type") != _REMOTE:
            self._checker.refuse(f"{key}.type", shown_or_nothing(entry.get("type")), _REMOTE)
        url = self._checker.text(entry.get("url"), f"{key}.url")
        timeout_s = self._checker.number(entry.get("timeout_s", _TIMEOUT_S), f"{key}.timeout_s", positive=True)
        more = {option: entry[option] for option in ("retries", "token_env") if entry.get(option) is not None}
        try:
            # Built even from partly invalid values, so that the other problems are reported too.
            built = RemoteGrader(url or _ANY_URL, timeout_s=timeout_s or _TIMEOUT_S, **more)
        except PipelineError as error:
            for problem in error.problems:
                self._checker.refuse(f"{key}.{problem.source}", problem.given, problem.accepted)
            return
        if timeout_s is not None and len(self._checker.problems) == before:
            self.built[name] = built
            self.timeouts_s[name] = timeout_s

    def _python(self, name: str, value: object, key: str) -> None:
        entry = self._checker.mapping(value, key, ("import", "path", "builtin", "init_kwargs"))
        if entry is None:
            return
        source = f"{self._checker.label}: {key}"
        try:
            built = load_python_grader(entry, name=name, folder=self._folder, source=source)
            if self._trial:
                named = next(f"{kind}: {entry[kind]}" for kind in ("import", "path", "builtin") if entry.get(kind))
                refuse_no_grader(built, f"{source}.{named}")
            self.built[name] = built
            self.timeouts_s.pop(name, None)  # it replaces an external one of that name
        except PipelineError as error:
            self._checker.problems += error.problems


class DatasetGraders:
    """The rewarder of a run on a mix."""

    rewarder_id = DATASET_GRADERS
    limits_itself = True
    """A timeout of a grader costs only the attempt that it was grading."""

    def __init__(self, config: MixConfig) -> None:
        self._config = config
        self._sets = grader_sets(config)
        self._runner = GraderRunner()

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Return one verdict for each attempt. Raise ``RewardError`` for an item of no dataset of the mix."""
        try:
            dataset_id, record = record_of(self._config, context.item_id)
        except (DatasetError, OSError) as error:
            raise RewardError(f"{self.rewarder_id}: {error}") from error
        inputs = [
            GraderInput.of(
                context.item_id,
                record,
                attempt.output,
                completion_tokens=attempt.tokens,
                completion_index=attempt.index,
            )
            for attempt in context.outputs
        ]
        limit_s = context.time_limit_s or TIMEOUT_S
        grades = await grade_items(self._runner, self._sets[dataset_id], inputs, limit_s)
        return tuple(self._verdict(grade) for grade in grades)

    def close(self) -> None:
        """Close the graders' threads and connections."""
        self._runner.close()

    def _verdict(self, grade: ItemGrade) -> Verdict:
        parts = ", ".join(f"{name} {reward:g}" for name, reward in grade.parts.items())
        if grade.reward is None:
            return Abstained(self.rewarder_id, grade.reasons, grade.broke)
        return RewardScore(self.rewarder_id, grade.reward, parts)
