"""View a batch as arrays: one row per group, one column per rollout, masks for absent values.

An absent value is NaN and its mask is False, so that no mean includes it unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tfgrpo.stores.batch.lists import complete_logprob
from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ExperienceArrays:
    """A batch of B groups, the largest of which has Gmax rollouts. All arrays are ``[B, Gmax]`` and read-only."""

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


def arrays_of_groups(groups: Sequence[RolloutGroup]) -> ExperienceArrays:
    """Return the arrays of groups, in order."""
    widest = max((len(group.rollouts) for group in groups), default=0)
    shape = (len(groups), widest)
    sizes = np.array([len(group.rollouts) for group in groups], dtype=np.int64)
    present = np.arange(widest)[np.newaxis, :] < sizes[:, np.newaxis]

    def masked(value: Callable[[Rollout], float | None]) -> tuple[Floats, Bools]:
        column = [value(rollout) for group in groups for rollout in group.rollouts]
        values = np.full(shape, np.nan)
        values[present] = [np.nan if number is None else number for number in column]
        mask = np.zeros(shape, dtype=np.bool_)
        mask[present] = [number is not None for number in column]
        return values, mask

    rewards, mask = masked(lambda rollout: rollout.reward)
    logp_old, logp_mask = masked(complete_logprob)
    lengths, _ = masked(lambda rollout: rollout.completion_tokens)
    arrays: tuple[npt.NDArray[Any], ...] = (rewards, mask, logp_old, logp_mask, lengths, present)
    for array in arrays:
        array.setflags(write=False)
    return ExperienceArrays(rewards, mask, logp_old, logp_mask, lengths, present, tuple(group.id for group in groups))
