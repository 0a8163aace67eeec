"""How good does a model find each output? The ``judge`` rewarder: a rubric, several votes, and their median.

The output goes out as data. A judge that cannot be understood abstains; it never gives a number for "could not tell".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, ClassVar

from tfgrpo.rewarders.base import Abstained, Attempt, RewardContext, Verdict
from tfgrpo.rewarders.judge.options import JudgeOptions, judge_options
from tfgrpo.rewarders.judge.prompt import SCORE_NAME, messages, score_instructions, score_schema, shortened
from tfgrpo.rewarders.judge.reading import ReadScore, read_score
from tfgrpo.rewarders.judge.seam import JudgeLoad, JudgeQuestion
from tfgrpo.rewarders.judge.votes import Bench, Vote, all_of, distinct, quoted, raw
from tfgrpo.rewarders.options import taken_id
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.outcomes import RewardScore


@dataclass(frozen=True, slots=True)
class JudgeRewarder:
    """Scores each output from 0 to 1 by the median of a judging model's votes.

    An output is scored when more than half of its votes can be used, and abstained on otherwise. Outputs that are the
    same, character by character, are judged once.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    rewarder_id: str = "judge"
    instructions: str = field(init=False, repr=False)
    """The system message of every call."""

    asks_model: ClassVar[bool] = True

    def __post_init__(self) -> None:
        instructions = score_instructions(self.options.rubric_text, self.options.scale)
        object.__setattr__(self, "instructions", instructions)

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt. Raises ``RewardError`` when there is no model to ask."""
        bench = Bench.of(context, self.rewarder_id, self.options.retries)
        firsts = distinct(context.outputs)
        judged = await all_of(self._judged(attempt, context, bench) for attempt in firsts.values())
        verdicts = dict(zip(firsts, judged, strict=True))
        return [_shared(verdicts[attempt.output], attempt, firsts[attempt.output]) for attempt in context.outputs]

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """What one group takes: every vote on every output."""
        options = self.options
        return (
            JudgeLoad(
                model=options.model,
                calls_low=options.votes,
                calls_high=group_size * options.votes * (1 + options.retries),
                instructions=self.instructions,
                shown=1,
                max_chars=options.max_chars,
                max_tokens=options.max_tokens,
                retries=options.retries,
            ),
        )

    async def _judged(self, attempt: Attempt, context: RewardContext, bench: Bench) -> Verdict:
        read = partial(read_score, scale=self.options.scale)
        questions = (self._question(attempt, context, vote) for vote in range(self.options.votes))
        return self._verdict(await all_of(bench.vote(question, read) for question in questions))

    def _question(self, attempt: Attempt, context: RewardContext, vote: int) -> JudgeQuestion:
        options = self.options
        reference = context.answer if options.reference else None
        shown = {"output": shortened(attempt.output, options.max_chars)}
        return JudgeQuestion(
            messages=messages(self.instructions, context.prompt, reference, shown),
            schema_name=SCORE_NAME,
            schema=score_schema(),
            rollout=attempt.index,
            turn=vote,
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            model=options.model,
        )

    def _verdict(self, votes: Sequence[Vote[ReadScore]]) -> Verdict:
        given = [vote.read for vote in votes if vote.read is not None]
        lost = [vote.reason for vote in votes if vote.read is None]
        if 2 * len(given) <= len(votes):
            reason = f"{len(lost)} of {len(votes)} votes cannot be used; the last: {quoted(lost[-1])}"
            return Abstained(self.rewarder_id, reason)
        score = median(read.score for read in given)
        details = {
            "by": "judge",
            "votes": [None if vote.read is None else vote.read.score for vote in votes],
            "lost": lost,
            "replies": [said for place, vote in enumerate(votes) for said in raw(vote.replies, vote=place)],
        }
        return RewardScore(self.rewarder_id, score, _evidence(score, given, len(lost)), frozen(details))


def build_judge(options: Mapping[str, Any], where: str) -> JudgeRewarder:
    """The judge that a pipeline file describes. Raises ``PipelineError`` with every problem; ``where`` names the place."""
    rest, name = taken_id(options, "judge", where)
    return JudgeRewarder(judge_options(rest, f"{where}: options"), name)


def _evidence(score: float, given: Sequence[ReadScore], lost: int) -> str:
    votes = ", ".join(f"{read.score:.3g}" for read in given)
    nearest = min(given, key=lambda read: abs(read.score - score))
    beside = f" ({lost} lost)" if lost else ""
    return f"{score:.3g} of {votes}{beside}: {quoted(nearest.reason)}"


def _shared(verdict: Verdict, attempt: Attempt, first: Attempt) -> Verdict:
    """The verdict on an attempt whose output may be that of an earlier one."""
    if attempt is first or isinstance(verdict, Abstained):
        return verdict
    evidence = f"the same output as {first.rollout_id}: {verdict.evidence}"
    return RewardScore(
        verdict.rewarder_id, verdict.score, evidence, frozen({"by": "judge", "same_as": first.rollout_id})
    )
