"""Which of two outputs is better, for every two of a group? The ``relative`` rewarder when a judge compares.

Each pair is judged in both orders, because models favour a place. Orders that contradict each other make a tie; an order
without a usable answer makes no comparison at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, get_args

from tfgrpo.rewarders.base import Abstained, Attempt, RewardContext, Rewarder, Verdict
from tfgrpo.rewarders.judge.options import JudgeOptions, judge_options
from tfgrpo.rewarders.judge.pair_strength import Duel, bradley_terry, chosen_pairs, win_shares
from tfgrpo.rewarders.judge.prompt import PAIR_NAME, messages, pair_instructions, pair_schema, shortened
from tfgrpo.rewarders.judge.reading import Preference, ReadPreference, read_preference
from tfgrpo.rewarders.judge.seam import JudgeLoad, JudgeQuestion
from tfgrpo.rewarders.judge.votes import Bench, Vote, all_of, distinct, raw
from tfgrpo.rewarders.options import taken_id
from tfgrpo.rewarders.relative import RelativeRewarder, Variant, relative_values
from tfgrpo.stores.errors import PipelineError, Problem, RewardError
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.outcomes import RewardScore

_STRENGTHS: Final[Mapping[str, Callable[[int, Sequence[Duel]], list[float | None]]]] = {
    "wins": win_shares,
    "bradley_terry": bradley_terry,
}
_TURNS: Final = 100
"""Call names: room for the votes on one pair in both orders."""
_SWAPPED: Final[Mapping[Preference, Preference]] = {"first": "second", "second": "first", "tie": "tie"}
_HALVES: Final[Mapping[Preference, int]] = {"first": 2, "tie": 1, "second": 0}


@dataclass(frozen=True, slots=True)
class _Meeting:
    """One judgement of a pair in both orders; ``backward`` is told as if it had been asked like ``forward``."""

    forward: Vote[ReadPreference]
    backward: Vote[ReadPreference]

    @property
    def halves(self) -> int | None:
        """Twice the win of the first output; None without an answer in each order."""
        one, other = self.forward.read, self.backward.read
        if one is None or other is None:
            return None
        return _HALVES[one.better] if one.better == other.better else 1


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two outputs by their positions, with everything that was asked of them."""

    one: int
    other: int
    meetings: tuple[_Meeting, ...]

    @property
    def duel(self) -> Duel | None:
        """What it comes to; None when nothing can be used."""
        halves = [meeting.halves for meeting in self.meetings if meeting.halves is not None]
        return Duel(self.one, self.other, sum(halves), len(halves)) if halves else None


@dataclass(frozen=True, slots=True)
class PairwiseRewarder:
    """Ranks the outputs of a group by a judge's comparisons.

    Outputs that are the same, character by character, tie without being asked about. An output of which no comparison
    can be used is abstained on.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    variant: Variant = "rank"
    """What is made of the strengths, as for ranking by totals: ``rank``, ``centered`` or ``zscore``."""
    rewarder_id: str = "relative"
    instructions: str = field(init=False, repr=False)
    """The system message of every call."""

    asks_model: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    """Has nothing to say of a group of one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "instructions", pair_instructions(self.options.rubric_text))

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt.

        Raises ``RewardError`` when there is no model to ask, and when there are fewer than two attempts to compare.
        """
        if len(context.outputs) < 2:
            raise RewardError(f"{self.rewarder_id}: {len(context.outputs)} attempt(s); comparing needs at least two")
        bench = Bench.of(context, self.rewarder_id, self.options.retries)
        firsts = distinct(context.outputs)
        rivals = tuple(firsts.values())
        chosen = chosen_pairs(len(rivals), self.options.max_pairs)
        pairs = await all_of(self._pair(one, other, rivals, context, bench) for one, other in chosen)
        strengths = dict(zip(firsts, self._strengths(rivals, pairs), strict=True))
        return self._verdicts(context.outputs, firsts, strengths, pairs)

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """What one group takes: every vote on every pair, in both orders; nothing when all outputs are the same."""
        options = self.options
        asked = 2 * options.votes * len(chosen_pairs(group_size, options.max_pairs))
        return (
            JudgeLoad(
                model=options.model,
                calls_low=0,
                calls_high=asked * (1 + options.retries),
                instructions=self.instructions,
                shown=2,
                max_chars=options.max_chars,
                max_tokens=options.max_tokens,
                retries=options.retries,
            ),
        )

    async def _pair(
        self, one: int, other: int, rivals: Sequence[Attempt], context: RewardContext, bench: Bench
    ) -> _Pair:
        asked = (self._meeting(rivals[one], rivals[other], vote, context, bench) for vote in range(self.options.votes))
        return _Pair(one, other, tuple(await all_of(asked)))

    async def _meeting(self, one: Attempt, other: Attempt, vote: int, context: RewardContext, bench: Bench) -> _Meeting:
        turn = other.index * _TURNS + 2 * vote
        asked = (
            self._question(one, other, (one.index, turn), context),
            self._question(other, one, (one.index, turn + 1), context),
        )
        forward, backward = await all_of(bench.vote(question, read_preference) for question in asked)
        return _Meeting(forward, _turned(backward))

    def _question(
        self, first: Attempt, second: Attempt, name: tuple[int, int], context: RewardContext
    ) -> JudgeQuestion:
        options = self.options
        shown = {
            "first": shortened(first.output, options.max_chars),
            "second": shortened(second.output, options.max_chars),
        }
        return JudgeQuestion(
            messages=messages(self.instructions, context.prompt, context.answer if options.reference else None, shown),
            schema_name=PAIR_NAME,
            schema=pair_schema(),
            rollout=name[0],
            turn=name[1],
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            model=options.model,
        )

    def _strengths(self, rivals: Sequence[Attempt], pairs: Sequence[_Pair]) -> list[float | None]:
        if len(rivals) == 1:
            return [0.5]
        duels = [pair.duel for pair in pairs if pair.duel is not None]
        return _STRENGTHS[self.options.strength](len(rivals), duels)

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
        places = {output: place for place, output in enumerate(firsts)}
        rivals = tuple(firsts.values())
        verdicts: list[Verdict] = []
        for attempt, strength in zip(outputs, ranked, strict=True):
            place = places[attempt.output]
            if strength is None:
                verdicts.append(Abstained(self.rewarder_id, _why(place, pairs)))
                continue
            repeated = attempt is not firsts[attempt.output]
            details = {
                "by": "comparison",
                "strength": strength,
                **({"same_as": rivals[place].rollout_id} if repeated else {}),
                # Each comparison once: with the attempt that comes first.
                "comparisons": [] if repeated else _comparison_rows(place, rivals, pairs),
            }
            evidence = _evidence(strength, place, pairs, self)
            verdicts.append(RewardScore(self.rewarder_id, next(values), evidence, frozen(details)))
        return verdicts


def build_relative(options: Mapping[str, Any], where: str) -> Rewarder:
    """The ``relative`` rewarder of a pipeline file: by totals, or by comparison when it has an option ``judge``.

    Raises ``PipelineError`` with every problem; ``where`` names the place.
    """
    rest, name = taken_id(options, "relative", where)
    variant = rest.pop("variant", "rank")
    compared = rest.pop("judge", None)
    problems = [
        Problem(f"{where}: options.{key}", repr(rest[key]), "judge, rewarder_id, variant") for key in sorted(rest)
    ]
    chosen = None
    if isinstance(compared, Mapping):
        try:
            chosen = judge_options(compared, f"{where}: options.judge")
        except PipelineError as error:
            problems += error.problems
    elif compared is not None:
        problems.append(
            Problem(f"{where}: options.judge", repr(compared), "options of a judge, or {} for all defaults")
        )
    if variant not in get_args(Variant):
        problems.append(Problem(f"{where}: options.variant", repr(variant), ", ".join(get_args(Variant))))
    if problems:
        raise PipelineError(problems)
    return RelativeRewarder(variant, name) if chosen is None else PairwiseRewarder(chosen, variant, name)


def _turned(vote: Vote[ReadPreference]) -> Vote[ReadPreference]:
    """A vote on the swapped pair, as a vote on the pair."""
    if vote.read is None:
        return vote
    return Vote(ReadPreference(_SWAPPED[vote.read.better], vote.read.reason), vote.reason, vote.replies)


def _why(place: int, pairs: Sequence[_Pair]) -> str:
    lost = [
        vote.reason
        for pair in pairs
        if place in (pair.one, pair.other)
        for meeting in pair.meetings
        for vote in (meeting.forward, meeting.backward)
        if vote.read is None
    ]
    return f"no comparison can be used; {len(lost)} answers are missing, the last: {lost[-1]}"


def _comparison_rows(place: int, rivals: Sequence[Attempt], pairs: Sequence[_Pair]) -> list[dict[str, Any]]:
    return [
        {
            "with": rivals[pair.other].rollout_id,
            "votes": [
                {"forward": _better(meeting.forward), "backward": _better(meeting.backward)}
                for meeting in pair.meetings
            ],
            "replies": [
                said
                for number, meeting in enumerate(pair.meetings)
                for order, vote in (("forward", meeting.forward), ("backward", meeting.backward))
                for said in raw(vote.replies, vote=number, order=order)
            ],
        }
        for pair in pairs
        if pair.one == place
    ]


def _better(vote: Vote[ReadPreference]) -> str | None:
    """Who is better, the attempt that comes first (``first``) or the other, whichever was shown first."""
    return None if vote.read is None else vote.read.better


def _evidence(strength: float, place: int, pairs: Sequence[_Pair], rewarder: PairwiseRewarder) -> str:
    if not pairs:
        return "all outputs are the same"
    duels = [pair.duel for pair in pairs if pair.duel is not None and place in (pair.one, pair.other)]
    wins = ties = 0
    for duel in duels:
        margin = duel.halves - duel.times
        wins += margin > 0 if duel.one == place else margin < 0
        ties += margin == 0
    standing = f"{wins} won, {ties} tied, {len(duels) - wins - ties} lost of {len(duels)} comparisons in both orders"
    return f"{standing}: strength {strength:.3g} ({rewarder.options.strength}, {rewarder.variant})"
