"""Options of a collector, and the check of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, get_args

from tfgrpo.stores.batch.batch import RaggedPolicy
from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.errors import ShapeProblem
from tfgrpo.stores.numeric import is_count, is_number

GroupSink: TypeAlias = Callable[[RolloutGroup], None]


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """Options of a collector."""

    ragged: RaggedPolicy = "strict"
    """Treatment of groups that lost rollouts. ``strict``: ``ShapeError``. ``pad``: kept, with masks.
    ``drop_group``: dropped with fewer than ``min_group_size`` rewards. ``resample``: missing rollouts are requested
    again, ``rounds`` times; then as ``drop_group``."""
    min_group_size: int = 2
    rounds: int = 2
    concurrency: int = 64
    """Calls of the policy and of the reward model in flight at once."""
    timeout_s: float | None = None
    """Seconds one call may take; None: no limit here."""
    fuse_rewards: bool = False
    """Score the whole batch with one call; otherwise each group when it is complete."""
    allow_nan: bool = False
    on_group: GroupSink | None = None
    """Called with every scored group, also when the collection fails later, so that paid results are kept."""

    def problems(self) -> list[ShapeProblem]:
        """Return what is wrong with these options."""
        problems = []
        if self.ragged not in get_args(RaggedPolicy):
            problems.append(ShapeProblem("ragged", " | ".join(get_args(RaggedPolicy)), repr(self.ragged)))
        for name, least in (("min_group_size", 1), ("rounds", 0), ("concurrency", 1)):
            value = getattr(self, name)
            if not is_count(value) or value < least:
                problems.append(ShapeProblem(name, f"a whole number of at least {least}", repr(value)))
        if self.fuse_rewards and self.ragged == "resample":
            problems.append(ShapeProblem("fuse_rewards", "False with ragged='resample', which scores by group", "True"))
        if self.timeout_s is not None and not (is_number(self.timeout_s, allow_nan=True) and self.timeout_s > 0):
            problems.append(ShapeProblem("timeout_s", "more than 0, or None", repr(self.timeout_s)))
        sink: object = self.on_group
        if sink is not None and not callable(sink):
            problems.append(ShapeProblem("on_group", "a function (group), or None", repr(sink)))
        return problems
