"""Build and close the rewarders of a run, including the graders of its mix, and check their graders and references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.problems import ProblemCollector
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, RewarderSettings, Settings
from tfgrpo.rewarders.base import Rewarder, members_of
from tfgrpo.rewarders.registry import build_rewarder
from tfgrpo.rewarders.scoring import WeightedRewarder
from tfgrpo.stores.errors import PipelineError

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.config import MixConfig
    from tfgrpo.rewarders.graders.base import Grader


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


def item_warnings(rewarders: Iterable[Rewarder], items: Iterable[Item]) -> tuple[str, ...]:
    """Return the ``ReferenceCount.warnings`` of the items, which are read only if a rewarder needs numbers."""
    count = ReferenceCount()
    if any(matches_numbers(grader) for rewarder in rewarders for grader in _graders_of(rewarder)):
        for item in items:
            if item.answer.strip():
                count.add(item.id, item.answer)
    return count.warnings()


class ReferenceCount:
    """Counts references, and those of them that are no single number."""

    def __init__(self) -> None:
        self._total, self._bad, self._first = 0, 0, ""

    def add(self, where: str, reference: object) -> None:
        """Count the reference of the item at ``where``."""
        from tfgrpo.rewarders.graders.builtin.number_match import reference_value  # noqa: PLC0415 - see _graders_of

        self._total += 1
        if reference_value(reference) is None:
            self._bad += 1
            self._first = self._first or f"{where}: {reference!r:.60}"

    def add_record(self, where: str, record: object) -> None:
        """Count the ``answer`` of a record of a data mix."""
        self.add(where, record.get("answer") if isinstance(record, dict) else None)

    def warnings(self) -> tuple[str, ...]:
        """Return one sentence if any reference is no single number."""
        if not self._bad:
            return ()
        bad = f"{self._bad:,} of {self._total:,} references are no single number"
        return (f"{bad}, and number_match leaves their items ungraded; the first: {self._first}",)


def matches_numbers(grader: Grader) -> bool:
    """Return whether a grader needs references that are single numbers."""
    from tfgrpo.rewarders.graders.builtin.number_match import NumberMatch  # noqa: PLC0415 - see _graders_of

    return isinstance(grader, NumberMatch)


def _graders_of(rewarder: Rewarder) -> Iterator[Grader]:
    for member in members_of(rewarder):
        yield from _graders_of(member)
    if hasattr(rewarder, "graders"):
        # Imported for a rewarder that may be one: a run without graders does without their thirty modules.
        from tfgrpo.rewarders.graders.rewarder import GraderRewarder  # noqa: PLC0415

        if isinstance(rewarder, GraderRewarder):
            yield from (each.grader for each in rewarder.graders.members)
