"""Build and close the rewarders of a run, including the graders of its mix, and check their graders and references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from tfgrpo.pipelines.problems import ProblemCollector
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, RewarderSettings, Settings
from tfgrpo.rewarders.base import Rewarder, members_of
from tfgrpo.rewarders.gt import MATCH_OF, GroundTruthRewarder, options_for_references
from tfgrpo.rewarders.registry import build_rewarder
from tfgrpo.rewarders.scoring import WeightedRewarder
from tfgrpo.rewarders.text.columns import read_column
from tfgrpo.stores.errors import PipelineError, Problem

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.config import MixConfig
    from tfgrpo.pipelines.plan.data import RunData
    from tfgrpo.rewarders.graders.base import Grader

_EXAMPLES: Final = 3
_COUNTED: Final = 100_000
"""Items whose references are counted: those of a larger dataset would be parsed once more before each run."""


def mix_of(settings: Settings, *, check_records: bool = True) -> MixConfig | None:
    """Return the mix of the settings, None without one. Raise ``PipelineError`` with all its problems."""
    if settings.dataset.mix is None:
        return None
    # Imported here, because only runs with a mix need the modules that load graders.
    from tfgrpo.pipelines.mix.config import load_mix_config  # noqa: PLC0415

    return load_mix_config(settings.dataset.mix, check_records=check_records)


def build_rewarders(settings: Settings, mix: MixConfig | None) -> tuple[WeightedRewarder, ...]:
    """Return every rewarder of the settings, in their order. Raise ``PipelineError`` with all problems."""
    checks = ProblemCollector()
    built = [
        WeightedRewarder(rewarder, entry.weight, entry.timeout_s, entry.score_range)
        for number, entry in enumerate(settings.rewarders)
        for rewarder in checks.run(_rewarder, entry, mix, f"rewarders.{number}")
    ]
    checks.raise_problems()
    return tuple(built)


def rewarders_of(settings: Settings) -> tuple[WeightedRewarder, ...]:
    """Return the rewarders of a planned run; the records of a mix are not checked again."""
    needed = any(entry.name == DATASET_GRADERS for entry in settings.rewarders)
    return build_rewarders(settings, mix_of(settings, check_records=False) if needed else None)


def _rewarder(entry: RewarderSettings, mix: MixConfig | None, source: str) -> Rewarder:
    if entry.name != DATASET_GRADERS:
        return build_rewarder(entry.name, entry.options, source=source)
    if mix is None:
        accepted = "it together with --data-config, whose datasets name their graders"
        raise PipelineError.one(f"{source}: name", repr(entry.name), accepted)
    if entry.options:
        accepted = "no options: the graders are those of the mix"
        raise PipelineError.one(f"{source}: options", ", ".join(sorted(entry.options)), accepted)
    from tfgrpo.pipelines.mix.items import DatasetGraders  # noqa: PLC0415 - as above

    return DatasetGraders(mix)


def close_rewarders(rewarders: Sequence[WeightedRewarder]) -> None:
    """Close threads and connections of the rewarders, ignoring errors: they may be a user's, and every reward is in."""
    for weighted in rewarders:
        close = getattr(weighted.rewarder, "close", None)
        if callable(close):
            with suppress(Exception):
                close()


def try_graders(settings: Settings, rewarders: Sequence[WeightedRewarder]) -> None:
    """Call each of the user's graders once with a made-up item. Raise ``PipelineError`` for those that do not grade."""
    checks = ProblemCollector()
    for number, (entry, weighted) in enumerate(zip(settings.rewarders, rewarders, strict=True)):
        for grader in _graders_of(weighted.rewarder):
            from tfgrpo.rewarders.graders.loading import refuse_no_grader  # noqa: PLC0415 - see _graders_of

            checks.run(refuse_no_grader, grader, f"rewarders.{number}: {entry.name}")
    checks.raise_problems()


@dataclass(frozen=True, slots=True)
class ReferenceReading:
    """Settings and rewarders of a run whose rewarders read references as those of its dataset ask for."""

    settings: Settings
    rewarders: tuple[WeightedRewarder, ...]
    lines: tuple[str, ...] = ()
    """How each rewarder that compares reads the references."""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings, rewarders: tuple[WeightedRewarder, ...], data: RunData) -> ReferenceReading:
        """Decide what only the references can tell. Raise ``PipelineError`` for a rewarder that can use none of them."""
        comparing = any(_comparisons(weighted.rewarder) for weighted in rewarders)
        if data.mix is not None or not comparing:  # a mix names its graders itself, and counts as it is loaded
            return cls(settings, rewarders)
        every = islice(chain(data.split.learn, data.split.held_out), _COUNTED)
        items = [(item.id, item.answer) for item in every if item.answer.strip()]
        answers = [answer for _, answer in items]
        entries = tuple(
            entry.model_copy(update={"options": options_for_references(entry.name, entry.options, answers)})
            for entry in settings.rewarders
        )
        if entries != settings.rewarders:
            settings = settings.model_copy(update={"rewarders": entries})
            rewarders = build_rewarders(settings, None)
        lines = tuple(
            f"{weighted.rewarder.rewarder_id} ({weighted.rewarder.match}): {weighted.rewarder.readings(answers)}"
            for weighted in rewarders
            if isinstance(weighted.rewarder, GroundTruthRewarder) and answers
        )
        return cls(settings, rewarders, lines, _counted(rewarders, items))


def _counted(rewarders: Sequence[WeightedRewarder], items: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return a warning for each rewarder that cannot use some references. Raise ``PipelineError`` for one that can use none."""
    problems: list[Problem] = []
    warnings: list[str] = []
    for weighted in rewarders:
        for name, unusable in _comparisons(weighted.rewarder):
            count = ReferenceCount(unusable)
            for item_id, answer in items:
                count.add(item_id, answer)
            if count.none_usable and weighted.weight > 0.0:
                problems.append(Problem(f"rewarders: {name}", str(count), _fitting([answer for _, answer in items])))
            elif count.unusable:
                warnings.append(f"{name}: {count}; their items are not graded")
    if problems:
        raise PipelineError(problems)
    return tuple(warnings)


def _fitting(answers: Sequence[str]) -> str:
    column = read_column(answers)
    return f"a rewarder that can; for gt `match: {MATCH_OF.get(column.kind, 'auto')}` fits: {column}"


class ReferenceCount:
    """Counts references, and those of them that a scorer cannot use."""

    def __init__(self, unusable: Callable[[Any], str | None]) -> None:
        """``unusable`` returns why a reference cannot be used."""
        self._unusable = unusable
        self.total = self.unusable = 0
        self._examples: list[str] = []

    def add(self, where: str, reference: object) -> None:
        """Count the reference of the item at ``where``."""
        self.total += 1
        reason = self._unusable(reference)
        if reason is not None:
            self.unusable += 1
            if len(self._examples) < _EXAMPLES:
                self._examples.append(f"{where} has {reference!r:.60}: {reason}")

    def add_record(self, where: str, record: object) -> None:
        """Count the ``answer`` of a record of a data mix."""
        self.add(where, record.get("answer") if isinstance(record, dict) else None)

    @property
    def none_usable(self) -> bool:
        """Whether there are references, and none can be used."""
        return 0 < self.total == self.unusable

    def __str__(self) -> str:
        return f"{self.unusable:,} of {self.total:,} references that it cannot use: {'; '.join(self._examples)}"


def _comparisons(rewarder: Rewarder) -> list[tuple[str, Callable[[Any], str | None]]]:
    """Return name and check of every scorer in a rewarder that compares with references."""
    members = [each for member in members_of(rewarder) for each in _comparisons(member)]
    checks = (getattr(scorer, "unusable", None) for scorer in (rewarder, *_graders_of(rewarder)))
    return members + [(rewarder.rewarder_id, check) for check in checks if check is not None]


def _graders_of(rewarder: Rewarder) -> Iterator[Grader]:
    for member in members_of(rewarder):
        yield from _graders_of(member)
    if hasattr(rewarder, "graders"):
        # Imported for a rewarder that may be one: a run without graders does without their thirty modules.
        from tfgrpo.rewarders.graders.rewarder import GraderRewarder  # noqa: PLC0415

        if isinstance(rewarder, GraderRewarder):
            yield from (each.grader for each in rewarder.graders.members)
