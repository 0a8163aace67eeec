"""Build and close the rewarders of a run, including the graders of its mix, and check their graders and references."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.problems import ProblemCollector
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, RewarderSettings, Settings
from tfgrpo.rewarders.composite import AnyScorer, unisolated, walk
from tfgrpo.rewarders.gt import MATCH_OF, GroundTruth, options_for_references
from tfgrpo.rewarders.registry import build_scorer, refuse_no_scorer
from tfgrpo.rewarders.scorer import Scorer, Weighted
from tfgrpo.rewarders.text.columns import read_column
from tfgrpo.stores.errors import PipelineError, Problem

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.config import MixConfig

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


def build_scorers(settings: Settings, mix: MixConfig | None) -> tuple[Weighted, ...]:
    """Return every rewarder of the settings, in their order. Raise ``PipelineError`` with all problems."""
    checks = ProblemCollector()
    built = [
        Weighted(scorer, entry.weight, entry.timeout_s, entry.score_range)
        for number, entry in enumerate(settings.rewarders)
        for scorer in checks.run(_scorer, entry, mix, f"rewarders.{number}")
    ]
    checks.raise_problems()
    return tuple(built)


def scorers_of(settings: Settings) -> tuple[Weighted, ...]:
    """Return the rewarders of a planned run; the records of a mix are not checked again."""
    needed = any(entry.name == DATASET_GRADERS for entry in settings.rewarders)
    return build_scorers(settings, mix_of(settings, check_records=False) if needed else None)


def _scorer(entry: RewarderSettings, mix: MixConfig | None, source: str) -> AnyScorer:
    if entry.name != DATASET_GRADERS:
        made = build_scorer(entry.name, entry.options, source=source)
        return made if entry.isolate else unisolated(made)
    if mix is None:
        accepted = "it together with --data-config, whose datasets name their graders"
        raise PipelineError.one(f"{source}: name", repr(entry.name), accepted)
    if entry.options:
        accepted = "no options: the graders are those of the mix"
        raise PipelineError.one(f"{source}: options", ", ".join(sorted(entry.options)), accepted)
    from tfgrpo.pipelines.mix.items import dataset_graders  # noqa: PLC0415 - as above

    return dataset_graders(mix)


async def close_scorers(scorers: Iterable[AnyScorer]) -> None:
    """Close the connections and objects of scorers, ignoring errors: they may be a user's, and every reward is in."""
    for scorer in scorers:
        for _, each in walk(scorer):
            close = each.close if isinstance(each, Scorer) else None
            if close is not None:
                with suppress(Exception):
                    closed = close()
                    if inspect.isawaitable(closed):
                        await closed


def try_scorers(settings: Settings, scorers: Sequence[Weighted]) -> None:
    """Ask each of the user's graders once about a made-up attempt. Raise ``PipelineError`` for those that do not grade."""
    checks = ProblemCollector()
    for number, (entry, weighted) in enumerate(zip(settings.rewarders, scorers, strict=True)):
        for _, each in walk(weighted.scorer):
            if isinstance(each, Scorer) and entry.name != DATASET_GRADERS:
                checks.run(refuse_no_scorer, each, f"rewarders.{number}: {entry.name}")
    checks.raise_problems()


@dataclass(frozen=True, slots=True)
class ReferenceReading:
    """Settings and rewarders of a run whose rewarders read references as those of its dataset ask for."""

    settings: Settings
    rewarders: tuple[Weighted, ...]
    lines: tuple[str, ...] = ()
    """How each rewarder that compares reads the references."""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings, rewarders: tuple[Weighted, ...], items: Iterable[Item]) -> ReferenceReading:
        """Decide what only the references of items can tell. Raise ``PipelineError`` for a rewarder that can use none.

        No items: those of a mix, which names its graders itself, and counts as it is loaded.
        """
        if not any(_comparisons(weighted.scorer) for weighted in rewarders):
            return cls(settings, rewarders)
        known = [(item.id, item.accepted) for item in islice(items, _COUNTED) if item.accepted]
        if not known:
            return cls(settings, rewarders)
        answers = [answer for _, accepted in known for answer in accepted]
        entries = tuple(
            entry.model_copy(update={"options": options_for_references(entry.name, entry.options, answers)})
            for entry in settings.rewarders
        )
        if entries != settings.rewarders:
            settings = settings.model_copy(update={"rewarders": entries})
            rewarders = build_scorers(settings, None)
        lines = tuple(
            f"{weighted.scorer.rewarder_id} ({gt.match}): {gt.readings(answers)}"
            for weighted in rewarders
            if isinstance(gt := weighted.scorer.made_from, GroundTruth)
        )
        return cls(settings, rewarders, lines, _counted(rewarders, known))


def _counted(rewarders: Sequence[Weighted], items: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return a warning for each rewarder that cannot use some references. Raise ``PipelineError`` for one that can use none."""
    problems: list[Problem] = []
    warnings: list[str] = []
    for weighted in rewarders:
        for name, unusable in _comparisons(weighted.scorer):
            count = ReferenceCount(unusable)
            for item_id, accepted in items:
                count.add(item_id, accepted)
            if count.none_usable and weighted.weight > 0.0:
                problems.append(Problem(f"rewarders: {name}", str(count), _fitting([each for _, each in items])))
            elif count.unusable:
                warnings.append(f"{name}: {count}; their items are not graded")
    if problems:
        raise PipelineError(problems)
    return tuple(warnings)


def _fitting(answers: Sequence[tuple[str, ...]]) -> str:
    column = read_column([accepted[0] for accepted in answers])
    return f"a rewarder that can; for gt `match: {MATCH_OF.get(column.kind, 'auto')}` fits: {column}"


class ReferenceCount:
    """Counts references, and those of them that a scorer cannot use."""

    def __init__(self, unusable: Callable[[Any], str | None]) -> None:
        """``unusable`` returns why a reference cannot be used."""
        self._unusable = unusable
        self.total = self.unusable = 0
        self._examples: list[str] = []

    def add(self, where: str, accepted: Sequence[object]) -> None:
        """Count the item at ``where`` by its accepted answers, one of which suffices."""
        self.total += 1
        reasons = [self._unusable(reference) for reference in accepted]
        if all(reason is not None for reason in reasons):
            self.unusable += 1
            if len(self._examples) < _EXAMPLES:
                self._examples.append(f"{where} has {accepted[0]!r:.60}: {reasons[0]}")

    def add_record(self, where: str, record: object) -> None:
        """Count the ``answer`` of a record of a data mix."""
        answer = record.get("answer") if isinstance(record, dict) else None
        self.add(where, answer if isinstance(answer, list) and answer else [answer])

    @property
    def none_usable(self) -> bool:
        """Whether there are references, and none can be used."""
        return 0 < self.total == self.unusable

    def __str__(self) -> str:
        return f"{self.unusable:,} of {self.total:,} references that it cannot use: {'; '.join(self._examples)}"


def _comparisons(scorer: AnyScorer) -> list[tuple[str, Callable[[Any], str | None]]]:
    """Return name and check of every scorer in this one that compares with references."""
    checks = ((each.rewarder_id, each.unusable) for _, each in walk(scorer) if isinstance(each, Scorer))
    return [(name, check) for name, check in checks if check is not None]
