"""A batch of experience: groups of rollouts as data, checked as a whole on construction.

It is not a record of a run and computes no advantages (``tfgrpo.rewarders.advantages.batch`` does, from ``arrays()``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal, TypeAlias, get_args

from tfgrpo.stores.batch.checks import check_groups, check_sizes, size_problems
from tfgrpo.stores.batch.lists import (
    ExperienceArrays,
    ExperienceLists,
    FlatExperience,
    arrays_of_groups,
    groups_of_lists,
    lists_of_groups,
)
from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.text import pluralize

RaggedPolicy: TypeAlias = Literal["strict", "pad", "drop_group", "resample"]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rollouts that were excluded, and why."""

    group_id: str
    rollouts: int
    """How many rollouts."""
    reason: str


@dataclass(frozen=True, slots=True)
class ExperienceBatch:
    """Groups of rollouts, in order.

    Raises ``ShapeError``, with every problem of every group, for duplicate or unfitting ids, values that are not numbers,
    NaN and infinity (unless ``allow_nan``), rewards of failed rollouts, and token lists of unequal length.
    """

    groups: tuple[RolloutGroup, ...]
    allow_nan: bool = field(default=False, compare=False)
    """Accept NaN and infinity as rewards and log-probabilities. No function that computes takes such a batch."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        check_groups(self.groups, allow_nan=self.allow_nan)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[RolloutGroup]:
        return iter(self.groups)

    def rollouts(self) -> Iterator[Rollout]:
        """Yield every rollout, state by state."""
        return (rollout for group in self.groups for rollout in group.rollouts)

    def arrays(self) -> ExperienceArrays:
        """Return rewards, log-probabilities and lengths as ``float64[B, Gmax]``, with masks of the values that exist."""
        return arrays_of_groups(self.groups)

    def flat(self) -> FlatExperience:
        """Return one entry per rollout, state by state: the order of reward functions."""
        return FlatExperience.of(self.groups)

    def to_lists(self, *, partial: bool = False) -> ExperienceLists:
        """Return the four parallel lists. Raises ``ShapeError`` for absent rewards or log-probabilities.

        ``partial``: None for them instead.
        """
        return lists_of_groups(self.groups, partial=partial)

    @classmethod
    def from_lists(
        cls,
        states: Sequence[object],
        action_groups: Sequence[object],
        reward_groups: object,
        log_prob_old_groups: object = None,
        *,
        group_size: int | None = None,
        ids: Sequence[str] | None = None,
        allow_nan: bool = False,
        partial: bool = False,
    ) -> ExperienceBatch:
        """Build a batch from four parallel lists: states [B], then actions, rewards and log-probabilities [B][G].

        Rewards and log-probabilities may be nested lists or anything with ``tolist`` (numpy, torch).
        ``group_size``: size of every group; None: groups may differ, but all lists of a group must agree.
        ``log_prob_old_groups`` may be None. ``ids``: names of the groups, by default their position and a digest of
        their content, as ``g0-1f3a9c0b7d2e``, so that groups of two buffers are two groups.
        ``partial``: None is an absent reward or log-probability, as ``to_lists(partial=True)`` writes it.
        Raises ``ShapeError`` with every problem: lists of unequal length, groups of a wrong length, a text instead
        of a list of states, values that are not numbers, NaN or infinity.
        """
        groups, unchecked = groups_of_lists(
            ExperienceLists(states, action_groups, reward_groups, log_prob_old_groups),
            group_size=group_size,
            ids=ids,
            allow_nan=allow_nan,
            partial=partial,
        )
        if unchecked:
            return cls(groups, allow_nan)
        made = object.__new__(cls)  # all that the constructor checks holds
        object.__setattr__(made, "groups", groups)
        object.__setattr__(made, "allow_nan", allow_nan)
        return made

    def merge(self, *others: ExperienceBatch) -> ExperienceBatch:
        """Return the groups of several batches, one after another. Raises ``ShapeError`` for a duplicate group."""
        groups = [group for batch in (self, *others) for group in batch.groups]
        return ExperienceBatch(tuple(groups), any(batch.allow_nan for batch in (self, *others)))

    def filter(
        self, *, min_spread: float | None = None, keep: Callable[[RolloutGroup], bool] | None = None
    ) -> ExperienceBatch:
        """Return the groups with a spread (population standard deviation) of at least ``min_spread``, and that pass ``keep``.

        With ``min_spread``, groups with fewer than two rewards have no spread and are removed, as are flat groups even
        for 0. Raises ``ShapeError`` for a ``min_spread`` that is not a finite number.
        """
        if min_spread is not None and not is_number(min_spread, allow_nan=False):
            raise ShapeError.one("min_spread", "a finite number, or None", repr(min_spread))
        return ExperienceBatch(
            tuple(
                group
                for group in self.groups
                if (min_spread is None or 0.0 < (group.spread or 0.0) >= min_spread) and (keep is None or keep(group))
            ),
            self.allow_nan,
        )

    def split(self, size: int) -> tuple[ExperienceBatch, ...]:
        """Return batches of ``size`` groups, the last one with the rest. Raises ``ShapeError`` for a size below 1."""
        check_sizes(size=size)
        starts = range(0, len(self.groups), size)
        return tuple(ExperienceBatch(self.groups[start : start + size], self.allow_nan) for start in starts)

    def shaped(
        self,
        policy: RaggedPolicy,
        *,
        group_size: int | None = None,
        min_group_size: int = 2,
        rng: random.Random | None = None,
    ) -> tuple[ExperienceBatch, tuple[Exclusion, ...]]:
        """Return the groups under a policy for ragged groups, and what it excluded, with reasons.

        A rollout counts when it has a reward. ``strict``: every group has ``group_size`` of them (default: its own
        target), or ``ShapeError`` names all others. ``pad``: as it is; ``arrays()`` masks missing values.
        ``drop_group``: without the groups that have fewer than ``min_group_size``. ``resample``: exactly
        ``group_size`` each, drawn again with ``rng`` from the group's own rollouts where some are missing; groups
        below ``min_group_size`` are dropped.
        """
        _check_policy(policy, group_size, min_group_size, rng)
        if policy == "strict":
            _check_strict(self.groups, group_size)
        if policy in ("strict", "pad"):
            return self, ()
        groups: list[RolloutGroup] = []
        excluded: list[Exclusion] = []
        surplus: list[Exclusion] = []
        for group in self.groups:
            if (scored := len(group.scored)) < min_group_size:
                reason = f"{pluralize(scored, 'scored rollout')}, fewer than {min_group_size}"
                excluded.append(Exclusion(group.id, len(group.rollouts), reason))
            elif policy == "drop_group" or rng is None:
                groups.append(group)
            else:
                drawn, lost = _resampled(group, group_size or group.target_size, rng)
                groups.append(drawn)
                surplus += lost
        return ExperienceBatch(tuple(groups), self.allow_nan), (*excluded, *surplus)


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
    free = (index for index in count() if index not in taken)
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


def _check_policy(policy: str, group_size: int | None, min_group_size: int, rng: random.Random | None) -> None:
    problems = [] if group_size is None else size_problems(group_size=group_size)
    problems += size_problems(min_group_size=min_group_size)
    if policy not in get_args(RaggedPolicy):
        problems.insert(0, ShapeProblem("policy", " | ".join(get_args(RaggedPolicy)), repr(policy)))
    if policy == "resample" and rng is None:
        problems.append(ShapeProblem("rng", "a random.Random, so that the draw can be repeated", "None"))
    if problems:
        raise ShapeError(problems)
