"""Four policies for groups that lost rollouts; each reports what it excluded.

A rollout counts when it has a reward. No data are invented: a resampled rollout is a marked copy.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, get_args

from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.numeric import is_count
from tfgrpo.stores.text import pluralize

RaggedPolicy: TypeAlias = Literal["strict", "pad", "drop_group", "resample"]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rollouts that were excluded, and why."""

    group_id: str
    rollouts: int
    """How many rollouts."""
    reason: str


class Shaped(NamedTuple):
    """Groups after a policy."""

    groups: tuple[RolloutGroup, ...]
    dropped: tuple[Exclusion, ...] = ()


def shape_groups(
    groups: Sequence[RolloutGroup],
    policy: RaggedPolicy,
    *,
    group_size: int | None = None,
    min_group_size: int = 2,
    rng: random.Random | None = None,
) -> Shaped:
    """Apply a policy, as ``ExperienceBatch.shaped`` describes. Raises ``ShapeError``."""
    _check(policy, group_size, min_group_size, rng)
    if policy == "strict":
        _check_strict(groups, group_size)
    if policy in ("strict", "pad"):
        return Shaped(tuple(groups))
    large = [group for group in groups if len(group.scored) >= min_group_size]
    dropped = [
        Exclusion(
            group.id,
            len(group.rollouts),
            f"{pluralize(len(group.scored), 'scored rollout')}, fewer than {min_group_size}",
        )
        for group in groups
        if len(group.scored) < min_group_size
    ]
    if policy == "drop_group" or rng is None:
        return Shaped(tuple(large), tuple(dropped))
    drawn = [_resampled(group, group_size or group.target_size, rng) for group in large]
    surplus = [lost for _, losses in drawn for lost in losses]
    return Shaped(tuple(group for group, _ in drawn), (*dropped, *surplus))


def _check_strict(groups: Sequence[RolloutGroup], group_size: int | None) -> None:
    """Raise ``ShapeError`` with every group that has another number of scored rollouts than wanted."""
    problems = [
        ShapeProblem(
            "rollouts with a reward", str(wanted), str(len(group.scored)), f"group index {number}, id {group.id!r}"
        )
        for number, group in enumerate(groups)
        if len(group.scored) != (wanted := group.target_size if group_size is None else group_size)
        or len(group.rollouts) != wanted
    ]
    if problems:
        raise ShapeError(problems)


def _resampled(group: RolloutGroup, size: int, rng: random.Random) -> tuple[RolloutGroup, list[Exclusion]]:
    kept = list(group.scored[:size])
    excess = len(group.rollouts) - len(kept)
    dropped = [Exclusion(group.id, excess, f"not scored, or beyond the {size} wanted")] if excess else []
    missing = size - len(kept)
    # Without repetition while possible, so that no rollout counts more often than its peers by more than one.
    copies: list[Rollout] = []
    while len(copies) < missing:
        copies.extend(rng.sample(kept, min(len(kept), missing - len(copies))))
    taken = {rollout.index for rollout in kept}
    free = (index for index in range(len(taken) + missing + max(taken)) if index not in taken)
    again = [
        replace(
            rollout,
            id=f"{rollout.id}+{number}",
            index=next(free),
            metadata={**rollout.metadata, "resampled_from": rollout.id},
        )
        for number, rollout in enumerate(copies, start=1)
    ]
    return replace(group, rollouts=(*kept, *again), target_size=size), dropped


def _check(policy: str, group_size: int | None, min_group_size: int, rng: random.Random | None) -> None:
    problems = []
    if policy not in get_args(RaggedPolicy):
        problems.append(ShapeProblem("policy", " | ".join(get_args(RaggedPolicy)), repr(policy)))
    if group_size is not None and (not is_count(group_size) or group_size < 1):
        problems.append(ShapeProblem("group_size", "a whole number of at least 1", repr(group_size)))
    if not is_count(min_group_size) or min_group_size < 1:
        problems.append(ShapeProblem("min_group_size", "a whole number of at least 1", repr(min_group_size)))
    if policy == "resample" and rng is None:
        problems.append(ShapeProblem("rng", "a random.Random, so that the draw can be repeated", "None"))
    if problems:
        raise ShapeError(problems)
