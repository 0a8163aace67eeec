"""A batch of experience: groups of rollouts as data, checked as a whole on construction.

It is not a record of a run and computes no advantages (``tfgrpo.rewarders.advantages.batch`` does, from ``arrays()``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tfgrpo.stores.batch.lists import ExperienceLists, groups_of_lists
from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup, check_groups, check_sizes, more, size_problems
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import Json, to_builtins
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.text import pluralize

RaggedPolicy: TypeAlias = Literal["strict", "pad", "drop_group", "resample"]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rollouts that were excluded, and why."""

    group_id: str
    rollouts: int
    """How many rollouts."""
    reason: str


class FlatExperience(NamedTuple):
    """One entry per rollout, state by state."""

    states: tuple[Json, ...]
    """The state of each rollout: repeated for every rollout of its group."""
    completions: tuple[Json, ...]
    rewards: tuple[float | None, ...]
    logprobs: tuple[float | None, ...]
    """Sum over the completion; None where it is not complete."""
    group_indexes: tuple[int, ...]
    rollout_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ExperienceArrays:
    """A batch of B groups, the largest of which has Gmax rollouts. All arrays are ``[B, Gmax]`` and read-only.

    An absent value is NaN and its mask is False, so that no mean includes it unnoticed.
    """

    rewards: Floats
    """NaN where ``mask`` is False."""
    mask: Bools
    """Whether the rollout has a reward."""
    logp_old: Floats
    """Log-probability of the whole completion; NaN where ``logp_mask`` is False."""
    logp_mask: Bools
    token_lengths: Floats
    """Tokens of the completion; NaN where they are not known."""
    present: Bools
    """Whether there is a rollout, graded or not."""
    group_ids: tuple[str, ...]


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
        sizes = np.array([len(group.rollouts) for group in self.groups], dtype=np.int64)
        present = np.arange(sizes.max(initial=0))[np.newaxis, :] < sizes[:, np.newaxis]

        def masked(value: Callable[[Rollout], float | None]) -> tuple[Floats, Bools]:
            column = [value(rollout) for rollout in self.rollouts()]
            values, mask = np.full(present.shape, np.nan), np.zeros(present.shape, dtype=np.bool_)
            values[present] = [np.nan if number is None else number for number in column]
            mask[present] = [number is not None for number in column]
            return values, mask

        rewards, logprobs = masked(lambda rollout: rollout.reward), masked(lambda rollout: rollout.complete_logprob)
        arrays = *rewards, *logprobs, masked(lambda rollout: rollout.completion_tokens)[0], present
        for array in arrays:
            array.setflags(write=False)
        return ExperienceArrays(*arrays, tuple(group.id for group in self.groups))

    def flat(self) -> FlatExperience:
        """Return one entry per rollout, state by state: the order of reward functions."""
        pairs = [(number, group, rollout) for number, group in enumerate(self.groups) for rollout in group.rollouts]
        return FlatExperience(
            states=tuple(group.state for _, group, _ in pairs),
            completions=tuple(rollout.completion for _, _, rollout in pairs),
            rewards=tuple(rollout.reward for _, _, rollout in pairs),
            logprobs=tuple(rollout.complete_logprob for _, _, rollout in pairs),
            group_indexes=tuple(number for number, _, _ in pairs),
            rollout_ids=tuple(rollout.id for _, _, rollout in pairs),
        )

    def to_lists(self, *, partial: bool = False) -> ExperienceLists:
        """Return the four parallel lists. Raises ``ShapeError`` for absent rewards or log-probabilities.

        ``partial``: None for them instead.
        """
        rewards = [list(group.rewards) for group in self.groups]
        logprobs = [[rollout.complete_logprob for rollout in group.rollouts] for group in self.groups]
        problems = []
        for name, rows in (("rewards", rewards), ("log_probs_old", logprobs)):
            places = [
                (number, index) for number, row in enumerate(rows) for index, each in enumerate(row) if each is None
            ]
            if places and not partial:
                number, index = places[0]
                where = f"first: group index {number}, rollout {self.groups[number].rollouts[index].id!r}"
                problems.append(ShapeProblem(name, "a number for every rollout", "None", where + more(len(places) - 1)))
        if problems:
            raise ShapeError(problems)
        actions = [[to_builtins(rollout.completion) for rollout in group.rollouts] for group in self.groups]
        return ExperienceLists([to_builtins(group.state) for group in self.groups], actions, rewards, logprobs)

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
        lists = ExperienceLists(states, action_groups, reward_groups, log_prob_old_groups)
        return cls(
            groups_of_lists(lists, group_size=group_size, ids=ids, allow_nan=allow_nan, absent=partial), allow_nan
        )

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
        spread_out = (group for group in self.groups if min_spread is None or 0.0 < (group.spread or 0.0) >= min_spread)
        return ExperienceBatch(tuple(filter(keep or bool, spread_out)), self.allow_nan)

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
        problems = size_problems(
            min_group_size=min_group_size, **({} if group_size is None else {"group_size": group_size})
        )
        if policy not in get_args(RaggedPolicy):
            problems.append(ShapeProblem("policy", " | ".join(get_args(RaggedPolicy)), repr(policy)))
        if policy == "resample" and rng is None:
            problems.append(ShapeProblem("rng", "a random.Random, so that the draw can be repeated", "None"))
        groups: list[RolloutGroup] = []
        excluded: list[Exclusion] = []
        for number, group in enumerate(() if problems else self.groups):
            wanted, scored = group_size or group.target_size, len(group.scored)
            if policy == "strict" and not scored == wanted == len(group.rollouts):
                where = f"group index {number}, id {group.id!r}"
                problems.append(ShapeProblem("rollouts with a reward", str(wanted), str(scored), where))
            if policy in ("drop_group", "resample") and scored < min_group_size:
                reason = f"{pluralize(scored, 'scored rollout')}, fewer than {min_group_size}"
                excluded.append(Exclusion(group.id, len(group.rollouts), reason))
            elif policy == "resample" and rng is not None:
                groups.append(_resampled(group, wanted, rng))
                if excess := len(group.rollouts) - min(scored, wanted):
                    excluded.append(Exclusion(group.id, excess, f"not scored, or beyond the {wanted} wanted"))
            else:
                groups.append(group)
        if problems:
            raise ShapeError(problems)
        return replace(self, groups=tuple(groups)), tuple(excluded)


def _resampled(group: RolloutGroup, size: int, rng: random.Random) -> RolloutGroup:
    """Return the group with its first scored rollouts, and marked copies of them where some are missing."""
    kept = list(group.scored[:size])
    # Without repetition while possible, so that no rollout counts more often than its peers by more than one.
    copies: list[Rollout] = []
    while len(copies) < size - len(kept):
        copies.extend(rng.sample(kept, min(len(kept), size - len(kept) - len(copies))))
    taken = {rollout.index for rollout in kept}
    free = (index for index in count() if index not in taken)
    again = (
        replace(
            rollout,
            id=f"{rollout.id}+{number}",
            index=next(free),
            metadata={**rollout.metadata, "resampled_from": rollout.id},
        )
        for number, rollout in enumerate(copies, start=1)
    )
    return replace(group, rollouts=(*kept, *again), target_size=size)
