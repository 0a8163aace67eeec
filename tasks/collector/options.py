"""How does a collector go about it? Its options, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, get_args

from tfgrpo.stores.batch.ragged import RaggedPolicy
from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.errors import ShapeProblem
from tfgrpo.stores.numeric import is_count, is_number

GroupSink: TypeAlias = Callable[[RolloutGroup], None]


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """How a collector goes about it."""

    ragged: RaggedPolicy = "strict"
    """What becomes of groups that lost rollouts. ``strict``: ``ShapeError``. ``pad``: they stay, behind masks.
    ``drop_group``: those with fewer than ``min_group_size`` rewards go. ``resample``: what is missing is asked for
    again, ``rounds`` times; a group that is too small even then goes as under ``drop_group``."""
    min_group_size: int = 2
    rounds: int = 2
    concurrency: int = 64
    """Calls of the policy and of the reward model in flight at once."""
    timeout_s: float | None = None
    """Seconds one call may take; None: as long as the model itself allows."""
    fuse_rewards: bool = False
    """Score the whole batch with one call; otherwise each group as soon as it is complete."""
    allow_nan: bool = False
    on_group: GroupSink | None = None
    """Is given every group once it is scored, also those of a collection that then fails: what was paid for is kept."""

    def problems(self) -> list[ShapeProblem]:
        """What is wrong with these options."""
        found = []
        if self.ragged not in get_args(RaggedPolicy):
            found.append(ShapeProblem("ragged", " | ".join(get_args(RaggedPolicy)), repr(self.ragged)))
        for name, least in (("min_group_size", 1), ("rounds", 0), ("concurrency", 1)):
            value = getattr(self, name)
            if not is_count(value) or value < least:
                found.append(ShapeProblem(name, f"a whole number of at least {least}", repr(value)))
        if self.fuse_rewards and self.ragged == "resample":
            found.append(ShapeProblem("fuse_rewards", "False with ragged='resample', which scores by group", "True"))
        if self.timeout_s is not None and not (is_number(self.timeout_s, allow_nan=True) and self.timeout_s > 0):
            found.append(ShapeProblem("timeout_s", "more than 0, or None", repr(self.timeout_s)))
        sink: object = self.on_group
        if sink is not None and not callable(sink):
            found.append(ShapeProblem("on_group", "a function (group), or None", repr(sink)))
        return found
