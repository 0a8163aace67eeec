"""The ``judge`` rewarder: a language model scores each output by a rubric, with several votes and their median.

The output is sent as data. A judge without usable answers abstains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from tfgrpo.rewarders.calling import all_of
from tfgrpo.rewarders.judge.model import JudgeLoad
from tfgrpo.rewarders.judge.options import SCORE_FORM, JudgeOptions
from tfgrpo.rewarders.judge.reading import ReadScore, read_score
from tfgrpo.rewarders.judge.voting import Vote, Voter, distinct, quoted, reply_rows
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Verdict
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.outcomes import RewardScore


@dataclass(frozen=True, slots=True)
class JudgeRewarder:
    """Scores each output from 0 to 1 by the median of a judging model's votes.

    An output is scored when more than half of its votes are usable, and abstained on otherwise. Equal outputs are judged
    once.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    rewarder_id: str = "judge"
    instructions: str = field(init=False, repr=False)
    """The system message of every call."""

    def __post_init__(self) -> None:
        instructions = SCORE_FORM.system(self.options.rubric_text, self.options.scale)
        object.__setattr__(self, "instructions", instructions)

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt. Raises ``RewardError`` without a model."""
        read = partial(read_score, scale=self.options.scale)
        voter = Voter(self.rewarder_id, self.options, self.instructions, SCORE_FORM, read, context)
        firsts = distinct(context.outputs)
        judged = await all_of(self._judged(attempt, voter) for attempt in firsts.values())
        verdicts = dict(zip(firsts, judged, strict=True))
        return [_shared(verdicts[attempt.output], attempt, firsts[attempt.output]) for attempt in context.outputs]

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of one group: every vote on every output."""
        votes = self.options.votes
        return (JudgeLoad(self.options, self.instructions, shown=1, calls_low=votes, questions=group_size * votes),)

    async def _judged(self, attempt: Attempt, voter: Voter[ReadScore]) -> Verdict:
        votes = (voter.vote({"output": attempt.output}, attempt.index, turn) for turn in range(self.options.votes))
        return self._verdict(await all_of(votes))

    def _verdict(self, votes: Sequence[Vote[ReadScore]]) -> Verdict:
        usable = [vote.read for vote in votes if vote.read is not None]
        lost = [vote.reason for vote in votes if vote.read is None]
        if 2 * len(usable) <= len(votes):
            reason = f"{len(lost)} of {len(votes)} votes cannot be used; the last: {quoted(lost[-1])}"
            return Abstained(self.rewarder_id, reason)
        score = median(read.score for read in usable)
        details = {
            "by": "judge",
            "votes": [None if vote.read is None else vote.read.score for vote in votes],
            "lost": lost,
            "replies": [row for number, vote in enumerate(votes) for row in reply_rows(vote.replies, vote=number)],
        }
        return RewardScore(self.rewarder_id, score, _evidence(score, usable, len(lost)), frozen(details))


def _evidence(score: float, usable: Sequence[ReadScore], lost: int) -> str:
    votes = ", ".join(f"{read.score:.3g}" for read in usable)
    nearest = min(usable, key=lambda read: abs(read.score - score))
    lost_votes = f" ({lost} lost)" if lost else ""
    return f"{score:.3g} of {votes}{lost_votes}: {quoted(nearest.reason)}"


def _shared(verdict: Verdict, attempt: Attempt, first: Attempt) -> Verdict:
    """Return the verdict on an attempt whose output may equal that of an earlier one."""
    if attempt is first or isinstance(verdict, Abstained):
        return verdict
    evidence = f"the same output as {first.rollout_id}: {verdict.evidence}"
    return RewardScore(
        verdict.rewarder_id, verdict.score, evidence, frozen({"by": "judge", "same_as": first.rollout_id})
    )
