"""Which rewarders does a run have? Those that the settings list, in their order, and the graders of its mix among them.

Plan and processes that grade build them alike. What each rewarder does is known to ``rewarders``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from tfgrpo.pipelines.mix.shapes import MixConfig
from tfgrpo.pipelines.parts import Parts
from tfgrpo.pipelines.settings.rewarding import DATASET_GRADERS, RewarderSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.base import Rewarder
from tfgrpo.rewarders.composite.composite import CompositeRewarder
from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.loading.trial import refuse_no_grader
from tfgrpo.rewarders.graders.rewarder import GraderRewarder, QuickGraderRewarder
from tfgrpo.rewarders.registry import build_rewarder
from tfgrpo.rewarders.scoring import WeightedRewarder
from tfgrpo.stores.errors import PipelineError


def mix_of(settings: Settings, *, check_records: bool = True) -> MixConfig | None:
    """The mix that the settings name, read; None without one. Raises ``PipelineError`` with everything wrong in it."""
    if settings.dataset.mix is None:
        return None
    # Here, because a run without a mix has no use for the loading of graders.
    from tfgrpo.pipelines.mix.config import load_mix_config  # noqa: PLC0415

    return load_mix_config(settings.dataset.mix, check_records=check_records)


def build_rewarders(settings: Settings, mix: MixConfig | None) -> tuple[WeightedRewarder, ...]:
    """Every rewarder of the settings. Raises ``PipelineError`` with everything that cannot be built."""
    parts = Parts()
    built = [
        WeightedRewarder(rewarder, entry.weight, entry.timeout_s, entry.score_range)
        for place, entry in enumerate(settings.rewarders)
        for rewarder in parts.run(partial(_rewarder, entry, mix, f"rewarders.{place}"))
    ]
    parts.raise_found()
    return tuple(built)


def graders_of(rewarder: Rewarder) -> Iterator[Grader]:
    """The graders that a rewarder is made of, those of the parts of a composite included."""
    if isinstance(rewarder, CompositeRewarder):
        for member in rewarder.members:
            yield from graders_of(member)
    elif isinstance(rewarder, GraderRewarder | QuickGraderRewarder):
        yield from (each.grader for each in rewarder.graders.members)


def try_graders(settings: Settings, rewarders: Sequence[WeightedRewarder]) -> None:
    """Call the graders of the user's once with a made-up item. Raises ``PipelineError`` for all that are none."""
    parts = Parts()
    for place, (entry, weighted) in enumerate(zip(settings.rewarders, rewarders, strict=True)):
        for grader in graders_of(weighted.rewarder):
            parts.run(partial(refuse_no_grader, grader, f"rewarders.{place}: {entry.name}"))
    parts.raise_found()


def rewarders_of(settings: Settings) -> tuple[WeightedRewarder, ...]:
    """The rewarders of a run whose plan was checked before: the records of a mix are not looked through again."""
    needed = any(entry.name == DATASET_GRADERS for entry in settings.rewarders)
    return build_rewarders(settings, mix_of(settings, check_records=False) if needed else None)


def close_rewarders(rewarders: Sequence[WeightedRewarder]) -> None:
    """Let go of what rewarders hold open, such as threads and connections. One that cannot be closed is left alone."""
    for weighted in rewarders:
        close = getattr(weighted.rewarder, "close", None)
        if callable(close):
            with suppress(Exception):
                close()


def _rewarder(entry: RewarderSettings, mix: MixConfig | None, source: str) -> Rewarder:
    if entry.name != DATASET_GRADERS:
        return build_rewarder(entry.name, entry.options, source=source)
    if mix is None:
        accepted = "it together with --data-config, whose datasets name their graders"
        raise PipelineError.one(f"{source}: name", repr(entry.name), accepted)
    if entry.options:
        accepted = "no options: the graders are those of the mix"
        raise PipelineError.one(f"{source}: options", ", ".join(sorted(entry.options)), accepted)
    from tfgrpo.pipelines.mix.rewarder import DatasetGraders  # noqa: PLC0415 - as above

    return DatasetGraders(mix)
