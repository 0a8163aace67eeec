"""Build and close the rewarders of a run, including the graders of its mix, and check their graders and references."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.datasets.unusable import RecordCounts
from tfgrpo.pipelines.plan.proposal import proposed_rewards
from tfgrpo.pipelines.problems import ProblemCollector
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, RewarderSettings, Settings
from tfgrpo.rewarders.composite import AnyScorer, scorers_within, unisolated
from tfgrpo.rewarders.gt import GroundTruth, options_for_references
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import refuse_no_scorer
from tfgrpo.rewarders.scorer import GraderInput, Scorer, Weighted
from tfgrpo.stores.errors import PipelineError

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.items import LearningMix

_COUNTED: Final = 100_000
"""Items whose references are counted: those of a larger dataset would be parsed once more before each run."""


def mix_of(settings: Settings, *, try_graders: bool = True) -> LearningMix | None:
    """Return the mix of the settings, None without one. Raise ``PipelineError`` with all its problems."""
    if settings.dataset.mix is None:
        return None
    from tfgrpo.pipelines.mix import config, items  # noqa: PLC0415 - 25 ms, and few runs have a mix

    return items.LearningMix(config.load_mix_config(settings.dataset.mix, try_graders=try_graders))


def build_scorers(settings: Settings, mix: LearningMix | None) -> tuple[Weighted, ...]:
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
    return build_scorers(settings, mix_of(settings, try_graders=False) if needed else None)


def _scorer(entry: RewarderSettings, mix: LearningMix | None, source: str) -> AnyScorer:
    if entry.name != DATASET_GRADERS:
        made = build_scorer(entry.name, entry.options, source=source)
        return made if entry.isolate else unisolated(made)
    if mix is None:
        accepted = "it together with --data-config, whose datasets name their graders"
        raise PipelineError.one(f"{source}: name", repr(entry.name), accepted)
    if entry.options:
        accepted = "no options: the graders are those of the mix"
        raise PipelineError.one(f"{source}: options", ", ".join(sorted(entry.options)), accepted)
    if not entry.isolate:
        raise PipelineError.one(f"{source}: isolate", "false", "it at a grader of the mix, in python_graders")
    return mix.graders()


async def close_scorers(scorers: Iterable[AnyScorer]) -> None:
    """Close the connections and objects of scorers, ignoring errors: they may be a user's, and every reward is in."""
    for scorer in scorers:
        for _, each in scorers_within(scorer):
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
        for _, each in scorers_within(weighted.scorer):
            if isinstance(each, Scorer) and entry.name != DATASET_GRADERS:
                checks.run(refuse_no_scorer, each, f"rewarders.{number}: {entry.name}")
    checks.raise_problems()


@dataclass(frozen=True, slots=True)
class ReferenceReading:
    """Settings and rewarders of a run, as the references of its dataset ask for."""

    settings: Settings
    rewarders: tuple[Weighted, ...]
    lines: tuple[str, ...] = ()
    """How each rewarder that compares reads the references."""
    warnings: tuple[str, ...] = ()
    chosen: str = ""
    """What was seen where the rewarders were chosen by it; empty where they were named."""

    @classmethod
    def of(
        cls, settings: Settings, rewarders: tuple[Weighted, ...], items: Iterable[Item], *, named: bool
    ) -> ReferenceReading:
        """Decide what only the references of items can tell. Raise ``PipelineError`` for a rewarder that can use none.

        ``named``: the rewarders are those that the settings name; others are chosen. No items: those of a mix, which names
        its graders itself, and counts as it is loaded.
        """
        known = [*islice(items, _COUNTED)]
        answers = [answer for item in known for answer in item.accepted]
        proposal = None if named or not known else proposed_rewards(known)
        entries = settings.rewarders
        if proposal is not None:
            entries = proposal.entries
        elif answers:
            options = (options_for_references(entry.name, entry.options, answers) for entry in entries)
            entries = tuple(
                entry.model_copy(update={"options": each}) for entry, each in zip(entries, options, strict=True)
            )
        if entries != settings.rewarders:
            settings = settings.model_copy(update={"rewarders": entries})
            rewarders = build_scorers(settings, None)
        counts = RecordCounts(weighted.scorer for weighted in rewarders)
        for item in known if counts else ():
            counts.add(item.id, item.as_record())
        counting = {
            each.rewarder_id
            for weighted in rewarders
            if weighted.weight > 0.0
            for _, each in scorers_within(weighted.scorer)
        }
        counts.refuse_useless(counting, answers)
        comparing = [gt for each in rewarders if answers and isinstance(gt := each.scorer.made_from, GroundTruth)]
        records = [GraderInput.of(item.id, item.as_record(), "") for item in known if item.accepted]
        lines = tuple(f"{gt.rewarder_id} ({gt.match}): {gt.readings(records)}" for gt in comparing)
        missing = [f"{gt.rewarder_id}: {text}" for gt in comparing if (text := gt.missing(answers))]
        chosen = "" if proposal is None else f"{entries[0].name}, chosen by what the dataset holds: {proposal.reason}"
        return cls(settings, rewarders, lines, (*missing, *counts.warnings), chosen)
