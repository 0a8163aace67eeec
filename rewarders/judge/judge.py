"""The ``judge`` rewarder: a language model scores each output by a rubric, with several votes and their median.

The output is sent as data. A judge without usable answers abstains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median
from typing import Any, ClassVar

from tfgrpo.rewarders.calling import all_of
from tfgrpo.rewarders.judge.model import JudgeLoad
from tfgrpo.rewarders.judge.options import JudgeOptions, judge_options
from tfgrpo.rewarders.judge.reading import ReadScore, read_checklist, read_score, read_verdict
from tfgrpo.rewarders.judge.voting import Vote, Voter, distinct, quoted, reply_rows
from tfgrpo.rewarders.scorer import NO_REFERENCE, Abstained, Attempt, RewardContext, Verdict, abstain_on_all
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.frozen_json import frozen, mapping_of
from tfgrpo.stores.outcomes import RewardScore


def judge(rewarder_id: str = "judge", **options: Any) -> JudgeRewarder:
    """Return the judge of a pipeline file. Raises ``PipelineError`` with every problem of its options."""
    return JudgeRewarder(judge_options(options), rewarder_id)


@dataclass(frozen=True, slots=True)
class JudgeRewarder:
    """Scores each output from 0 to 1 by the median of a judging model's votes, or by those of several models.

    An output is scored when more than half of its votes are usable, of a panel when more than half of its models have such a
    score, and abstained on otherwise. Equal outputs are judged once.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    rewarder_id: str = "judge"
    instructions: str = field(init=False, repr=False)
    """The system message of every call."""

    def __post_init__(self) -> None:
        instructions = self.options.form.system(self.options.rubric_text, self.options.scale)
        object.__setattr__(self, "instructions", instructions)

    asks_model: ClassVar[bool] = True

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt. Raises ``RewardError`` without a model."""
        shown = self._shown(context.answer, context.metadata)
        if isinstance(shown, str):
            return abstain_on_all(self.rewarder_id, context, shown)
        form, read, system = self.options.form, self._reader(), self.instructions
        voters = [Voter(self.rewarder_id, seat, system, form, read, context) for seat in self.options.seats]
        firsts = distinct(context.outputs)
        judged = await all_of(self._judged(attempt, voters, shown) for attempt in firsts.values())
        verdicts = dict(zip(firsts, judged, strict=True))
        return [_shared(verdicts[attempt.output], attempt, firsts[attempt.output]) for attempt in context.outputs]

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of one group: every vote of every model on every output."""
        votes, texts = self.options.votes, 1 + (self.options.preset == "grounded")
        return tuple(
            JudgeLoad(seat, self.instructions, shown=texts, calls_low=votes, questions=group_size * votes)
            for seat in self.options.seats
        )

    def unusable(self, record: Mapping[str, Any]) -> str | None:
        """Return why no output can be judged beside a record; None if it can."""
        shown = self._shown(str(record.get("answer") or ""), mapping_of(record.get("metadata")))
        return shown if isinstance(shown, str) else None

    def _shown(self, answer: str, metadata: Mapping[str, Any]) -> Mapping[str, str] | str:
        """Return what is shown beside each output, or why nothing can be judged."""
        if self.options.preset == "reference" and not answer.strip():
            return NO_REFERENCE
        if self.options.preset != "grounded":
            return {}
        source, most = metadata.get(self.options.source), self.options.max_chars
        text = source if isinstance(source, str) else "" if source is None else canonical_json(source)
        if not text.strip():
            return f"the metadata of the item has no {self.options.source!r}"
        if len(text) > most:  # without its middle, what is in there would count as not supported
            return f"the source has {len(text):,} characters, more than max_chars of {most:,}"
        return {"source": text}

    def _reader(self) -> Callable[[str], ReadScore]:
        if self.options.preset == "reference":
            return read_verdict
        if self.options.checklist is not None:
            return partial(read_checklist, points=self.options.checklist)
        return partial(read_score, scale=self.options.scale)

    async def _judged(self, attempt: Attempt, voters: Sequence[Voter[ReadScore]], shown: Mapping[str, str]) -> Verdict:
        turns, texts = range(self.options.votes), {"output": attempt.output, **shown}
        asked = [(voter, seat * len(turns) + turn) for seat, voter in enumerate(voters) for turn in turns]
        votes = await all_of(voter.vote(texts, attempt.index, turn) for voter, turn in asked)
        return self._verdict(votes)

    def _verdict(self, votes: Sequence[Vote[ReadScore]]) -> Verdict:
        each, seats = self.options.votes, self.options.seats
        parts = [votes[at * each : (at + 1) * each] for at in range(len(seats))]
        scores = [_median(part) for part in parts]
        known = [score for score in scores if score is not None]
        usable = [vote.read for vote in votes if vote.read is not None]
        lost = [vote.reason for vote in votes if vote.read is None]
        if 2 * len(known) <= len(seats):
            reason = f"{len(lost)} of {len(votes)} votes cannot be used; the last: {quoted(lost[-1])}"
            lost_models = f"; {len(seats) - len(known)} of {len(seats)} models are lost" if seats[1:] else ""
            return Abstained(self.rewarder_id, reason + lost_models)
        score = fmean(known)
        if self.options.panel == "majority":
            most = sum(score >= 0.5 for score in known) - len(known) / 2
            score = 0.5 if not most else float(most > 0)
        given = [None if vote.read is None else vote.read.score for vote in votes]
        panel = [
            {"model": seat.model, "score": scores[at], "votes": given[at * each : (at + 1) * each]}
            for at, seat in enumerate(seats)
        ]
        details = {
            "by": "judge",
            "votes": given,
            "lost": lost,
            "replies": [row for number, vote in enumerate(votes) for row in reply_rows(vote.replies, vote=number)],
            **({"panel": panel} if seats[1:] else {}),
        }
        return RewardScore(self.rewarder_id, score, _evidence(score, usable, len(lost)), frozen(details))


def _median(votes: Sequence[Vote[ReadScore]]) -> float | None:
    """Return the score of one model; None if half of its votes or more are lost."""
    usable = [vote.read.score for vote in votes if vote.read is not None]
    return median(usable) if 2 * len(usable) > len(votes) else None


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
