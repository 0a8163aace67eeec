"""Strengths of outputs from comparisons of pairs, and the choice of pairs.

A tie is half a win for each side; an output without comparisons has no strength.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

_DECIMALS: Final = 9
"""Decimals of a fitted strength, so that outputs with mirrored results tie."""
_PRECISION: Final = 1e-11
_ROUNDS: Final = 100
_STRIDE: Final = 1.0
"""Longest step of the fit: a longer one may overshoot."""


class Duel(NamedTuple):
    """Result of one or several comparisons of two outputs, by index."""

    one: int
    other: int
    halves: int
    """Twice the wins of ``one``, a tie counting as one half."""
    times: int
    """Comparisons made; at least one."""


def chosen_pairs(count: int, most: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of ``count`` outputs to compare: all, or about ``most``, evenly distributed.

    Neighbours on a ring first, then those at distance two, and so on, so that every output is compared about equally
    often. At least ``count - 1`` pairs, which connect all outputs.
    """
    wanted = min(count * (count - 1) // 2, max(most, count - 1))
    pairs: dict[tuple[int, int], None] = {}
    for distance in range(1, count // 2 + 1):
        for index in range(count):
            if len(pairs) == wanted:
                return tuple(pairs)
            ends = (index, (index + distance) % count)
            pairs[min(ends), max(ends)] = None
    return tuple(pairs)


def win_shares(count: int, duels: Sequence[Duel]) -> list[float | None]:
    """Return the share of its comparisons that each output won, ties as half; None for one without comparisons."""
    halves, times = _sums(count, duels)
    return [won / (2 * made) if made else None for won, made in zip(halves, times, strict=True)]


def bradley_terry(count: int, duels: Sequence[Duel]) -> list[float | None]:
    """Return the probability of each output to beat an average one, by the Bradley-Terry model; None as in ``win_shares``.

    ``P(i beats j) = 1 / (1 + exp(t_j - t_i))`` (Bradley and Terry 1952, Biometrika 39, 324-345), fitted by Newton's
    method. One virtual tie of each output with one of strength ``t = 0`` keeps the strength of an undefeated output
    finite, and fixes the scale.
    """
    halves, times = _sums(count, duels)
    met = np.zeros((count, count))
    for duel in duels:
        met[duel.one, duel.other] += duel.times
        met[duel.other, duel.one] += duel.times
    strength = np.zeros(count)
    for _ in range(_ROUNDS):
        chance = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
        alone = 1.0 / (1.0 + np.exp(-strength))
        slope = (np.array(halves) + 1) / 2 - (met * chance).sum(axis=1) - alone
        bend = met * chance * (1.0 - chance)
        curve = np.diag(bend.sum(axis=1) + alone * (1.0 - alone)) - bend
        step = np.clip(np.linalg.solve(curve, slope), -_STRIDE, _STRIDE)
        strength = strength + step
        if not step.size or float(np.abs(step).max()) < _PRECISION:
            break
    fitted = 1.0 / (1.0 + np.exp(-strength))
    return [round(float(own), _DECIMALS) if made else None for own, made in zip(fitted, times, strict=True)]


def _sums(count: int, duels: Sequence[Duel]) -> tuple[list[int], list[int]]:
    """Return twice the wins, and the comparisons, of each output."""
    halves, times = [0] * count, [0] * count
    for duel in duels:
        for index, won in ((duel.one, duel.halves), (duel.other, 2 * duel.times - duel.halves)):
            halves[index] += won
            times[index] += duel.times
    return halves, times
