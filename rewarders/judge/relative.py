"""The ``relative`` rewarder: rank the attempts of a group by the totals of the other rewarders, or by a judge's comparisons.

Each pair is judged in both orders, because models favour a position. Contradicting orders make a tie; an order without a
usable answer makes no comparison. A tie is half a win for each side; an output without comparisons has no score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.advantages.group import group_advantage, relative_ranks
from tfgrpo.rewarders.calling import all_of
from tfgrpo.rewarders.judge.judge import Vote, Voter, distinct, reply_rows
from tfgrpo.rewarders.judge.model import PAIR_FORM, JudgeLoad, JudgeOptions
from tfgrpo.rewarders.judge.reading import Preference, read_preference
from tfgrpo.rewarders.options import Name, Options, accepts
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Verdict
from tfgrpo.stores.errors import PipelineError, Problem, RewardError
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.outcomes import RewardScore

Variant: TypeAlias = Literal["rank", "centered", "zscore"]
_TURNS: Final = 100
"""Call names: room for the votes on one pair in both orders."""
_ORDERS: Final = ("forward", "backward")
_SWAPPED: Final[Mapping[Preference, Preference]] = {"first": "second", "second": "first", "tie": "tie"}
_HALVES: Final[Mapping[Preference, int]] = {"first": 2, "tie": 1, "second": 0}


def relative(rewarder_id: str = "relative", **options: Any) -> RelativeRewarder | PairwiseRewarder:
    """Return the scorer of a pipeline file: by totals, or by comparisons when there is an option ``judge``.

    Raises ``PipelineError`` with every problem of the options.
    """
    variant, judge = options.pop("variant", "rank"), options.pop("judge", None)
    problems = [Problem(each, repr(options[each]), "judge, rewarder_id, variant") for each in sorted(options)]
    try:
        by_totals = RelativeRewarder(variant, rewarder_id)
    except PipelineError as error:
        problems += error.problems
    if isinstance(judge, Mapping):
        try:
            made = JudgeOptions(**{str(key): value for key, value in judge.items()})
            accepted = "the rewarder judge: presets and panels do not compare"
            unfit = [each for each in ("preset", "models") if getattr(made, each) is not None]
            problems += [Problem(f"judge.{each}", repr(getattr(made, each)), accepted) for each in unfit]
        except PipelineError as error:
            problems += [Problem(f"judge.{each.source}", each.given, each.accepted) for each in error.problems]
    elif judge is not None:
        problems.append(Problem("judge", repr(judge), "options of a judge, or {} for all defaults"))
    if problems:
        raise PipelineError(problems)
    return by_totals if judge is None else PairwiseRewarder(made, variant, rewarder_id)


def relative_values(totals: Sequence[float], variant: Variant) -> tuple[float, ...]:
    """Return the totals of one group relative to each other. Raises ``ValueError`` for none, and for what is no score."""
    if variant == "rank":
        return relative_ranks(totals)
    return group_advantage(totals, "mean_only" if variant == "centered" else "grpo").advantages


@dataclass(frozen=True, slots=True)
class RelativeRewarder(Options):
    """Rank of each attempt's total among the attempts of its group. Outputs are not looked at.

    A flat group gets 0.5 throughout under ``rank``, and 0.0 under the two others. It abstains on attempts without a total,
    which are not ranked.
    """

    variant: Annotated[Variant, accepts(", ".join(get_args(Variant)))] = "rank"
    """``rank``: 1 best to 0 worst, ties share the mean. ``centered``: total minus group mean.
    ``zscore``: the same over the population standard deviation (plus 1e-8)."""
    rewarder_id: Name = "relative"

    ranks: ClassVar[bool] = True

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Rank ``context.prior_scores``. Raises ``RewardError`` when fewer than two attempts have a total."""
        known = context.prior_scores
        totals = {
            each.rollout_id: float(known[each.rollout_id]) for each in context.outputs if each.rollout_id in known
        }
        if len(totals) < 2:
            raise RewardError(f"{len(totals)} attempt(s) with a total; ranking needs at least two")
        try:
            values = dict(zip(totals, relative_values([*totals.values()], self.variant), strict=True))
        except ValueError as error:
            raise RewardError(str(error)) from error
        verdicts: list[Verdict] = []
        for each in context.outputs:
            total = totals.get(each.rollout_id)
            if total is None:
                verdicts.append(Abstained(self.rewarder_id, "no total from the other rewarders to rank"))
                continue
            better = sum(other > total for other in totals.values())
            equal = sum(other == total for other in totals.values()) - 1
            evidence = f"total {total:.6g}: {better} of {len(totals)} better, {equal} equal ({self.variant})"
            verdicts.append(RewardScore(self.rewarder_id, values[each.rollout_id], evidence))
        return verdicts


def chosen_pairs(count: int, most: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of ``count`` outputs to compare: all, or about ``most``, evenly distributed.

    Neighbours on a ring first, then those at distance two, and so on, so that every output is compared about equally
    often. At least ``count - 1`` pairs, which connect all outputs.
    """
    wanted = min(count * (count - 1) // 2, max(most, count - 1))
    ring = ((index, (index + distance) % count) for distance in range(1, count // 2 + 1) for index in range(count))
    pairs = dict.fromkeys((min(ends), max(ends)) for ends in ring)
    return tuple(pairs)[:wanted]


class _Pair(NamedTuple):
    """Two outputs by index, with the votes on them in both orders."""

    one: int
    other: int
    votes: tuple[tuple[Vote[Preference], Vote[Preference]], ...]
    """Forward and backward; both name the better output as it is called in the forward order."""

    def halves_of(self, index: int) -> tuple[int, int]:
        """Return twice the votes that an output won, a tie counting as one half, and the votes with both answers."""
        read = [(forward.read, backward.read) for forward, backward in self.votes]
        answers = [(one.value, other.value) for one, other in read if one is not None and other is not None]
        won = sum(_HALVES[one] if one == other else 1 for one, other in answers)
        return won if index == self.one else 2 * len(answers) - won, len(answers)

    def row(self, rivals: Sequence[Attempt]) -> dict[str, Any]:
        """Return the comparison as a row of the record. In either order ``first`` is the attempt of the lower index."""
        votes = [
            {order: vote.read and vote.read.value for order, vote in zip(_ORDERS, both, strict=True)}
            for both in self.votes
        ]
        replies = [
            row
            for number, both in enumerate(self.votes)
            for order, vote in zip(_ORDERS, both, strict=True)
            for row in reply_rows(vote.replies, vote=number, order=order)
        ]
        return {"with": rivals[self.other].rollout_id, "votes": votes, "replies": replies}


@plain_dataclass(frozen=True, slots=True)
class PairwiseRewarder:
    """Ranks the outputs of a group by the share of its comparisons that each won, ties as half.

    Equal outputs tie without a call. An output without any usable comparison is abstained on.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    variant: Variant = "rank"
    """Scale of the scores, as for ranking by totals: ``rank``, ``centered`` or ``zscore``."""
    rewarder_id: str = "relative"

    asks_model: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    @property
    def instructions(self) -> str:
        """The system message of every call."""
        return PAIR_FORM.system(self.options.rubric_text)

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of one group: every vote on every pair, in both orders; zero when all outputs are equal."""
        questions = 2 * self.options.votes * len(chosen_pairs(group_size, self.options.max_pairs))
        return (JudgeLoad(self.options, self.instructions, shown=2, calls_low=0, questions=questions),)

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt. Raises ``RewardError`` without a model, and for fewer than two attempts."""
        if len(context.outputs) < 2:
            raise RewardError(f"{len(context.outputs)} attempt(s); comparing needs at least two")
        voter = Voter(self.options, self.instructions, PAIR_FORM, read_preference, context)
        firsts = distinct(context.outputs)
        rivals = tuple(firsts.values())
        chosen = chosen_pairs(len(rivals), self.options.max_pairs)
        pairs = await all_of(self._pair(one, other, rivals, voter) for one, other in chosen)
        places = {output: index for index, output in enumerate(firsts)}
        shares = [self._share(index, pairs) for index in range(len(rivals))]
        ranked = [shares[places[attempt.output]] for attempt in context.outputs]
        known = [share for share in ranked if share is not None]
        values = iter(relative_values(known, self.variant) if known else ())
        verdicts: list[Verdict] = []
        for attempt, share in zip(context.outputs, ranked, strict=True):
            index = places[attempt.output]
            own = [pair for pair in pairs if index in (pair.one, pair.other)]
            if share is None:
                lost = [vote.reason for pair in own for both in pair.votes for vote in both if vote.read is None]
                reason = f"no comparison can be used; {len(lost)} answers are missing, the last: {lost[-1]}"
                verdicts.append(Abstained(self.rewarder_id, reason))
                continue
            repeated = attempt is not rivals[index]
            # Each comparison once: with the attempt that comes first.
            rows = [] if repeated else [pair.row(rivals) for pair in own if pair.one == index]
            details = {"by": "comparison", "strength": share, "comparisons": rows}
            details |= {"same_as": rivals[index].rollout_id} if repeated else {}
            evidence = self._evidence(share, index, own) if pairs else "all outputs are the same"
            verdicts.append(RewardScore(self.rewarder_id, next(values), evidence, frozen(details)))
        return verdicts

    def _share(self, index: int, pairs: Sequence[_Pair]) -> float | None:
        if not pairs:
            return 0.5  # all outputs are equal
        halves = [pair.halves_of(index) for pair in pairs if index in (pair.one, pair.other)]
        made = sum(times for _, times in halves)
        return sum(won for won, _ in halves) / (2 * made) if made else None

    async def _pair(self, one: int, other: int, rivals: Sequence[Attempt], voter: Voter[Preference]) -> _Pair:
        async def in_both_orders(turn: int) -> tuple[Vote[Preference], Vote[Preference]]:
            orders = ((rivals[one], rivals[other]), (rivals[other], rivals[one]))
            forward, backward = await all_of(
                voter.vote({"first": first.output, "second": second.output}, rivals[one].index, turn + swapped)
                for swapped, (first, second) in enumerate(orders)
            )
            if backward.read is not None:  # about the swapped pair
                backward = replace(backward, read=backward.read._replace(value=_SWAPPED[backward.read.value]))
            return forward, backward

        turn = rivals[other].index * _TURNS
        votes = await all_of(in_both_orders(at) for at in range(turn, turn + 2 * self.options.votes, 2))
        return _Pair(one, other, tuple(votes))

    def _evidence(self, share: float, index: int, own: Sequence[_Pair]) -> str:
        margins = [won - times for won, times in (pair.halves_of(index) for pair in own) if times]
        wins, ties = sum(margin > 0 for margin in margins), margins.count(0)
        counts = (
            f"{wins} won, {ties} tied, {len(margins) - wins - ties} lost of {len(margins)} comparisons in both orders"
        )
        return f"{counts}: share {share:.3g} ({self.variant})"
