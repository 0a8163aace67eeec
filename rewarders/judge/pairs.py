"""The ``relative`` rewarder with a judge: rank the outputs of a group by comparisons of pairs.

Each pair is judged in both orders, because models favour a position. Contradicting orders make a tie; an order without a
usable answer makes no comparison. A tie is half a win for each side; an output without comparisons has no strength.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfgrpo.rewarders.calling import all_of
from tfgrpo.rewarders.judge.judge import Vote, Voter, distinct, reply_rows
from tfgrpo.rewarders.judge.model import JudgeLoad
from tfgrpo.rewarders.judge.options import PAIR_FORM, JudgeOptions
from tfgrpo.rewarders.judge.reading import Preference, ReadPreference, read_preference
from tfgrpo.rewarders.relative import Variant, relative_values
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Verdict
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.outcomes import RewardScore

_DECIMALS: Final = 9
"""Decimals of a fitted strength, so that outputs with mirrored results tie."""
_PRECISION: Final = 1e-11
_ROUNDS: Final = 100
_STRIDE: Final = 1.0
"""Longest step of the fit: a longer one may overshoot."""
_TURNS: Final = 100
"""Call names: room for the votes on one pair in both orders."""
_ORDERS: Final = ("forward", "backward")
_SWAPPED: Final[Mapping[Preference, Preference]] = {"first": "second", "second": "first", "tie": "tie"}
_HALVES: Final[Mapping[Preference, int]] = {"first": 2, "tie": 1, "second": 0}


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
    ring = ((index, (index + distance) % count) for distance in range(1, count // 2 + 1) for index in range(count))
    pairs = dict.fromkeys((min(ends), max(ends)) for ends in ring)
    return tuple(pairs)[:wanted]


def win_shares(count: int, duels: Sequence[Duel]) -> list[float | None]:
    """Return the share of its comparisons that each output won, ties as half; None for one without comparisons."""
    halves, met = _tables(count, duels)
    return [float(won / (2 * made)) if made else None for won, made in zip(halves, met.sum(axis=1), strict=True)]


def bradley_terry(count: int, duels: Sequence[Duel]) -> list[float | None]:
    """Return the probability of each output to beat an average one, by the Bradley-Terry model; None as in ``win_shares``.

    ``P(i beats j) = 1 / (1 + exp(t_j - t_i))`` (Bradley and Terry 1952, Biometrika 39, 324-345), fitted by Newton's
    method. One virtual tie of each output with one of strength ``t = 0`` keeps the strength of an undefeated output
    finite, and fixes the scale.
    """
    halves, met = _tables(count, duels)
    strength = np.zeros(count)
    for _ in range(_ROUNDS):
        chance = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
        alone = 1.0 / (1.0 + np.exp(-strength))
        slope = (halves + 1) / 2 - (met * chance).sum(axis=1) - alone
        bend = met * chance * (1.0 - chance)
        curve = np.diag(bend.sum(axis=1) + alone * (1.0 - alone)) - bend
        step = np.clip(np.linalg.solve(curve, slope), -_STRIDE, _STRIDE)
        strength = strength + step
        if not step.size or float(np.abs(step).max()) < _PRECISION:
            break
    fitted = 1.0 / (1.0 + np.exp(-strength))
    return [round(float(own), _DECIMALS) if made else None for own, made in zip(fitted, met.sum(axis=1), strict=True)]


def _tables(count: int, duels: Sequence[Duel]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return twice the wins of each output, and the comparisons of each pair."""
    halves, met = np.zeros(count), np.zeros((count, count))
    for duel in duels:
        halves[duel.one] += duel.halves
        halves[duel.other] += 2 * duel.times - duel.halves
        met[duel.one, duel.other] += duel.times
        met[duel.other, duel.one] += duel.times
    return halves, met


_STRENGTHS: Final[Mapping[str, Callable[[int, Sequence[Duel]], list[float | None]]]] = {
    "wins": win_shares,
    "bradley_terry": bradley_terry,
}


_PairVote: TypeAlias = tuple[Vote[ReadPreference], Vote[ReadPreference]]


class _Pair(NamedTuple):
    """Two outputs by index, with the votes on them in both orders."""

    one: int
    other: int
    votes: tuple[_PairVote, ...]
    """Forward and backward; both name the better output as it is called in the forward order."""

    @property
    def duel(self) -> Duel | None:
        """Sum of the votes with an answer in each order; None without any."""
        read = [(forward.read, backward.read) for forward, backward in self.votes]
        answers = [(one.better, other.better) for one, other in read if one is not None and other is not None]
        halves = [_HALVES[one] if one == other else 1 for one, other in answers]
        return Duel(self.one, self.other, sum(halves), len(halves)) if halves else None


@dataclass(frozen=True, slots=True)
class PairwiseRewarder:
    """Ranks the outputs of a group by a judge's comparisons.

    Equal outputs tie without a call. An output without any usable comparison is abstained on.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    variant: Variant = "rank"
    """Scale of the scores, as for ranking by totals: ``rank``, ``centered`` or ``zscore``."""
    rewarder_id: str = "relative"
    instructions: str = field(init=False, repr=False)
    """The system message of every call."""

    asks_model: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "instructions", PAIR_FORM.system(self.options.rubric_text))

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt. Raises ``RewardError`` without a model, and for fewer than two attempts."""
        if len(context.outputs) < 2:
            raise RewardError(f"{self.rewarder_id}: {len(context.outputs)} attempt(s); comparing needs at least two")
        voter = Voter(self.options, self.instructions, PAIR_FORM, read_preference, context)
        firsts = distinct(context.outputs)
        rivals = tuple(firsts.values())
        chosen = chosen_pairs(len(rivals), self.options.max_pairs)
        pairs = await all_of(self._pair(one, other, rivals, voter) for one, other in chosen)
        duels = [pair.duel for pair in pairs if pair.duel is not None]
        # No pairs: all outputs are equal, and one is left.
        strengths = _STRENGTHS[self.options.strength](len(rivals), duels) if pairs else [0.5]
        return self._verdicts(context.outputs, firsts, dict(zip(firsts, strengths, strict=True)), pairs)

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of one group: every vote on every pair, in both orders; zero when all outputs are equal."""
        questions = 2 * self.options.votes * len(chosen_pairs(group_size, self.options.max_pairs))
        return (JudgeLoad(self.options, self.instructions, shown=2, calls_low=0, questions=questions),)

    async def _pair(self, one: int, other: int, rivals: Sequence[Attempt], voter: Voter[ReadPreference]) -> _Pair:
        turn = rivals[other].index * _TURNS
        turns = range(turn, turn + 2 * self.options.votes, 2)
        return _Pair(
            one, other, tuple(await all_of(_in_both_orders(rivals[one], rivals[other], at, voter) for at in turns))
        )

    def _verdicts(
        self,
        outputs: Sequence[Attempt],
        firsts: Mapping[str, Attempt],
        strengths: Mapping[str, float | None],
        pairs: Sequence[_Pair],
    ) -> list[Verdict]:
        ranked = [strengths[attempt.output] for attempt in outputs]
        known = [strength for strength in ranked if strength is not None]
        values = iter(relative_values(known, self.variant) if known else ())
        indices = {output: index for index, output in enumerate(firsts)}
        rivals = tuple(firsts.values())
        verdicts: list[Verdict] = []
        for attempt, strength in zip(outputs, ranked, strict=True):
            index = indices[attempt.output]
            if strength is None:
                verdicts.append(Abstained(self.rewarder_id, _missing_reason(index, pairs)))
                continue
            repeated = attempt is not firsts[attempt.output]
            details = {
                "by": "comparison",
                "strength": strength,
                **({"same_as": rivals[index].rollout_id} if repeated else {}),
                # Each comparison once: with the attempt that comes first.
                "comparisons": [] if repeated else _comparison_rows(index, rivals, pairs),
            }
            evidence = _evidence(strength, index, pairs, self)
            verdicts.append(RewardScore(self.rewarder_id, next(values), evidence, frozen(details)))
        return verdicts


async def _in_both_orders(one: Attempt, other: Attempt, turn: int, voter: Voter[ReadPreference]) -> _PairVote:
    forward, backward = await all_of(
        voter.vote({"first": first.output, "second": second.output}, one.index, turn + swapped)
        for swapped, (first, second) in enumerate(((one, other), (other, one)))
    )
    if backward.read is not None:  # about the swapped pair
        backward = replace(backward, read=replace(backward.read, better=_SWAPPED[backward.read.better]))
    return forward, backward


def _missing_reason(index: int, pairs: Sequence[_Pair]) -> str:
    lost = [
        vote.reason
        for pair in pairs
        if index in (pair.one, pair.other)
        for both in pair.votes
        for vote in both
        if vote.read is None
    ]
    return f"no comparison can be used; {len(lost)} answers are missing, the last: {lost[-1]}"


def _comparison_rows(index: int, rivals: Sequence[Attempt], pairs: Sequence[_Pair]) -> list[dict[str, Any]]:
    return [
        {
            "with": rivals[pair.other].rollout_id,
            # In either order ``first`` is the attempt of the lower index.
            "votes": [
                {
                    order: None if vote.read is None else vote.read.better
                    for order, vote in zip(_ORDERS, both, strict=True)
                }
                for both in pair.votes
            ],
            "replies": [
                row
                for number, both in enumerate(pair.votes)
                for order, vote in zip(_ORDERS, both, strict=True)
                for row in reply_rows(vote.replies, vote=number, order=order)
            ],
        }
        for pair in pairs
        if pair.one == index
    ]


def _evidence(strength: float, index: int, pairs: Sequence[_Pair], rewarder: PairwiseRewarder) -> str:
    if not pairs:
        return "all outputs are the same"
    duels = [pair.duel for pair in pairs if pair.duel is not None and index in (pair.one, pair.other)]
    wins = ties = 0
    for duel in duels:
        margin = duel.halves - duel.times
        wins += margin > 0 if duel.one == index else margin < 0
        ties += margin == 0
    counts = f"{wins} won, {ties} tied, {len(duels) - wins - ties} lost of {len(duels)} comparisons in both orders"
    return f"{counts}: strength {strength:.3g} ({rewarder.options.strength}, {rewarder.variant})"
