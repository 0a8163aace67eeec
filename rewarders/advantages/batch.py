"""Compute the advantages of many groups as arrays, under any estimator.

Ragged groups and absent rewards take the same path as whole ones. Refused are NaN, a reward that is absent but
counted by the mask, and a group of one under an estimator that cannot compare it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfgrpo.rewarders.advantages.estimators import Estimator, EstimatorName, estimator_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from tfgrpo.rewarders.advantages.batch_groups import Floats, Groups, RewardRows


def batch_advantages(
    rewards: RewardRows,
    mask: RewardRows | None = None,
    estimator: EstimatorName | Estimator = "grpo",
    *,
    token_lengths: RewardRows | None = None,
    greedy: npt.ArrayLike | None = None,
    fill: float = math.nan,
) -> Floats:
    """Return the advantage of every reward, ``float64[B, Gmax]``, with ``fill`` where there is none.

    ``rewards``: an array ``[B, G]``, or one sequence per group, of any lengths, with None for an absent reward.
    ``mask``: booleans, or 0 and 1, in the shape of the rewards; False marks an absent reward. ``token_lengths``: tokens
    of each completion in the shape of the rewards, for estimators that weigh by them. ``greedy``: ``[B]``, the reward
    of each greedy rollout, for ``remax``. ``fill`` is NaN by default, because an advantage of 0 is a result. A group
    without any reward is all ``fill``.

    Values equal those of ``group_advantage`` group by group, over the rewards that are present. Raises ``ValueError``
    for shapes that do not fit, for NaN and infinity that the mask does not hide, for an unknown estimator or a missing
    input of it, and where no finite advantage exists.
    """
    # Loads numpy.
    import numpy as np  # noqa: PLC0415

    from tfgrpo.rewarders.advantages.batch_groups import groups_of, like_rewards, spreads_of  # noqa: PLC0415
    from tfgrpo.rewarders.advantages.formulas import BatchData, advantages_of_batch  # noqa: PLC0415

    chosen = estimator_of(estimator)
    _check_needs(chosen, token_lengths=token_lengths, greedy=greedy)
    groups = groups_of(rewards, mask)
    if not groups.values.size:
        return groups.values.T
    data = BatchData(
        groups,
        spreads_of(groups),
        like_rewards("token_lengths", token_lengths, groups) if token_lengths is not None else None,
        _greedy(greedy, groups) if greedy is not None else None,
    )
    columns = _with_singletons(chosen, groups, advantages_of_batch(chosen, data))
    finite = np.isfinite(columns) if groups.mask is None else np.isfinite(columns) | ~groups.mask
    if not finite.all():
        group = int(np.argwhere(~finite.T)[0][0])
        raise ValueError(f"{chosen.name}: rewards as large as those of group {group} have no finite advantage")
    return columns.T if groups.mask is None else np.where(groups.mask, columns, fill).T


def multi_reward_advantages(
    parts: Mapping[str, RewardRows],
    weights: Mapping[str, float],
    mask: RewardRows | None = None,
    *,
    epsilon: float = 1e-4,
    fill: float = math.nan,
) -> Floats:
    """Combine several rewards of each rollout: normalise each in its group, add by weight, normalise over the batch.

    ``(z - M(z)) / (S1(z) + epsilon)`` with ``z = sum of weight * (r - m) / (s1 + epsilon)`` over the rewards, so that
    one of a large scale does not hide the others (TRL's ``normalize_then_sum``). ``parts``: rewards by name, all of
    one shape; where one is absent (None), the others of that rollout count alone. A rollout without any is ``fill``.
    Raises ``ValueError`` as ``batch_advantages`` does, and unless parts and weights have the same names.
    """
    import numpy as np  # noqa: PLC0415

    if not parts or set(parts) != set(weights):
        raise ValueError(f"weights: expected one for each of {sorted(parts)}, received {sorted(weights)}")
    bad = sorted(name for name, weight in weights.items() if not math.isfinite(weight))
    if bad:
        raise ValueError(f"weights: expected finite numbers, received {weights[bad[0]]} for {bad[0]!r}")
    each = Estimator("part", "group_std", "(r - m) / (s1 + epsilon)", 1, epsilon)
    scores = {name: batch_advantages(rewards, mask, each) for name, rewards in parts.items()}
    shapes = {name: score.shape for name, score in scores.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"parts: expected one shape, received {shapes}")
    # What overflows here is refused below.
    with np.errstate(over="ignore", invalid="ignore"):
        stacked = np.stack([scores[name] * weights[name] for name in scores])
        sums = np.nansum(stacked, axis=0)
    present = ~np.isnan(stacked).all(axis=0)
    # Every z has a mean of zero in its group already, so centring by group changes nothing.
    whitened = Estimator("sum", "batch_whiten", "(z - M(z)) / (S1(z) + epsilon)", 1, epsilon)
    return batch_advantages(sums, present, whitened, fill=fill)


def _check_needs(estimator: Estimator, *, token_lengths: object, greedy: object) -> None:
    missing = []
    if estimator.weighs_tokens and token_lengths is None:
        missing.append("token_lengths")
    if "greedy" in estimator.needs and greedy is None:
        missing.append("greedy")
    if missing:
        raise ValueError(f"{estimator.name} needs {' and '.join(missing)}: {estimator.formula}")


def _greedy(given: npt.ArrayLike, groups: Groups) -> Floats:
    import numpy as np  # noqa: PLC0415

    try:
        rewards = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"greedy: expected a number for each group, received {given!r:.60}") from None
    if rewards.shape != groups.counts.shape:
        raise ValueError(f"greedy: expected shape {groups.counts.shape}, one for each group, received {rewards.shape}")
    wrong = np.flatnonzero(~np.isfinite(rewards) & (groups.counts > 0))
    if wrong.size:
        raise ValueError(f"greedy: group {wrong[0]} has {rewards[wrong[0]]}; only finite rewards can be compared")
    return rewards


def _with_singletons(estimator: Estimator, groups: Groups, columns: Floats) -> Floats:
    if estimator.singleton == "zero":
        return columns
    import numpy as np  # noqa: PLC0415

    alone = groups.counts == 1
    if not alone.any():
        return columns
    if estimator.singleton == "refuse":
        indices = np.flatnonzero(alone)
        more = f" and {len(indices) - 1} more" if len(indices) > 1 else ""
        raise ValueError(
            f"{estimator.name}: group {indices[0]}{more} has a single reward, which cannot be compared; omit the group"
        )
    scale = 1.0 + estimator.epsilon if estimator.kind == "group_std" else 1.0
    return np.where(alone, groups.values / scale, columns)
