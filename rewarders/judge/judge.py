"""Language models as judges: the ``judge`` rewarder scores each output by a rubric, with several votes and their median.

The output is sent as data. A lost vote is a value with its reason, never a number, and a judge without usable answers
abstains. Errors that end the run (no budget, a refused key) pass through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean, median
from typing import Any, ClassVar, Final, Generic, TypeVar

from tfgrpo.rewarders.calling import all_of
from tfgrpo.rewarders.judge.model import (
    AnswerForm,
    JudgeLoad,
    JudgeOptions,
    JudgeQuestion,
    JudgeReply,
    messages,
    shortened,
)
from tfgrpo.rewarders.judge.reading import Judgement, read_checklist, read_score, read_verdict
from tfgrpo.rewarders.repairing import corrected
from tfgrpo.rewarders.scorer import (
    NO_REFERENCE,
    Abstained,
    Attempt,
    RewardContext,
    Verdict,
    abstain_on_all,
    reference_text,
)
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import ModelCallError, RepairExhausted, RewardError
from tfgrpo.stores.frozen_json import frozen, mapping_of
from tfgrpo.stores.outcomes import RewardScore

_T = TypeVar("_T")

_RECORDED_CHARS: Final = 4_000
"""Longest part of a raw reply in the record of an attempt; the journal has all of it."""
_QUOTED_CHARS: Final = 120


def judge(rewarder_id: str = "judge", **options: Any) -> JudgeRewarder:
    """Return the judge of a pipeline file. Raises ``PipelineError`` with every problem of its options."""
    return JudgeRewarder(JudgeOptions(**options), rewarder_id)


@dataclass(frozen=True, slots=True)
class Vote(Generic[_T]):
    """One judgement."""

    read: Judgement[_T] | None
    """None: lost."""
    reason: str
    """Why it is lost; empty otherwise."""
    replies: tuple[JudgeReply, ...]
    """All replies of the model, in order."""


class Voter(Generic[_T]):
    """The judging model of one group, which is asked one kind of question. Raises ``RewardError`` when there is none."""

    def __init__(
        self,
        options: JudgeOptions,
        system: str,
        form: AnswerForm,
        read: Callable[[str], Judgement[_T]],
        context: RewardContext,
    ) -> None:
        """``system``: the system message. ``read`` raises ``ValueError`` for a reply that is not usable."""
        if context.judge is None:
            raise RewardError("there is no model to ask here")
        self._model = context.judge
        self._options, self._system, self._form, self._read, self._context = options, system, form, read, context
        limit = context.time_limit_s
        self._deadline = None if limit is None else asyncio.get_running_loop().time() + limit

    async def vote(self, shown: Mapping[str, str], rollout: int, turn: int) -> Vote[_T]:
        """Ask about outputs by name until a reply is usable; ``rollout`` and ``turn`` name the call."""
        options, context = self._options, self._context
        texts = {name: shortened(output, options.max_chars) for name, output in shown.items()}
        with_reference = options.reference or options.preset == "reference"
        reference = reference_text(context.answer, context.alternatives) if with_reference else None
        question = JudgeQuestion(
            messages=messages(self._system, context.prompt, reference, texts),
            schema_name=self._form.name,
            schema=self._form.schema,
            rollout=rollout,
            turn=turn,
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            model=options.model,
        )
        replies: list[JudgeReply] = []

        async def ask(refused: Sequence[tuple[str, str]]) -> str:
            again = question
            if refused:
                reply, reason = refused[-1]
                complaint = canonical_json({"error": reason, "schema": dict(self._form.schema)})
                dialogue = (*question.messages, ("assistant", reply), ("user", complaint))
                again = replace(question, messages=dialogue, attempt=len(refused))
            # Never below zero: the call is made all the same, so that a replay finds it under the same name.
            left = None if self._deadline is None else max(0.0, self._deadline - asyncio.get_running_loop().time())
            replies.append(await self._model.ask(again, left))
            return replies[-1].text

        def usable(text: str) -> Judgement[_T]:
            if replies[-1].cut_off:
                raise ValueError("the reply was cut off at the token limit")
            return self._read(text)

        try:
            return Vote(await corrected(usable, ask, options.retries + 1), "", tuple(replies))
        except ModelCallError as error:
            reason = f"{type(error).__name__}: {error}"
        except RepairExhausted as error:
            reason = error.attempts[-1][1]
        return Vote(None, reason, tuple(replies))


def distinct(outputs: Sequence[Attempt]) -> dict[str, Attempt]:
    """Return the first attempt with each output: equal outputs are judged once."""
    firsts: dict[str, Attempt] = {}
    for attempt in outputs:
        firsts.setdefault(attempt.output, attempt)
    return firsts


def reply_rows(replies: Iterable[JudgeReply], **labels: object) -> list[dict[str, Any]]:
    """Return replies as rows of the record of an attempt, each with the labels of its question."""
    return [
        {
            **labels,
            "attempt": number,
            "text": reply.text[:_RECORDED_CHARS],
            "tokens": reply.tokens,
            "cost_usd": reply.cost_usd,
            "model": reply.model,
        }
        for number, reply in enumerate(replies)
    ]


@dataclass(frozen=True, slots=True)
class JudgeRewarder:
    """Scores each output from 0 to 1 by the median of a judging model's votes, or by the mean of those of several models.

    An output is scored when more than half of its votes are usable, of a panel when more than half of its models have such a
    score, and abstained on otherwise. Equal outputs are judged once.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    rewarder_id: str = "judge"

    asks_model: ClassVar[bool] = True

    @property
    def instructions(self) -> str:
        """The system message of every call."""
        return self.options.form.system(self.options.rubric_text)

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt. Raises ``RewardError`` without a model."""
        shown = self._shown(context.answer, context.metadata)
        if isinstance(shown, str):
            return abstain_on_all(self.rewarder_id, context, shown)
        options, read = self.options, read_score
        if options.preset == "reference":
            read = read_verdict
        elif options.checklist is not None:
            read = partial(read_checklist, points=options.checklist)
        voters = [Voter(seat, self.instructions, options.form, read, context) for seat in options.seats]
        asked = [
            (voter, seat * options.votes + turn) for seat, voter in enumerate(voters) for turn in range(options.votes)
        ]

        async def judged(attempt: Attempt) -> Verdict:
            texts = {"output": attempt.output, **shown}
            return self._verdict(await all_of(voter.vote(texts, attempt.index, turn) for voter, turn in asked))

        firsts = distinct(context.outputs)
        verdicts = dict(zip(firsts, await all_of(map(judged, firsts.values())), strict=True))
        return [_shared(verdicts[attempt.output], attempt, firsts[attempt.output]) for attempt in context.outputs]

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of one group: every vote of every model on every output."""
        votes, texts = self.options.votes, 1 + (self.options.preset == "grounded")
        return tuple(
            JudgeLoad(seat, self.instructions, shown=texts, calls_low=votes, questions=group_size * votes)
            for seat in self.options.seats
        )

    def unusable(self, record: Mapping[str, Any]) -> str | None:
        """Return why no output can be judged with a record; None if it can."""
        shown = self._shown(str(record.get("answer") or ""), mapping_of(record.get("metadata")))
        return shown if isinstance(shown, str) else None

    def _shown(self, answer: str, metadata: Mapping[str, Any]) -> Mapping[str, str] | str:
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

    def _verdict(self, votes: Sequence[Vote[float]]) -> Verdict:
        seats = self.options.seats
        given = [None if vote.read is None else vote.read.value for vote in votes]
        panel: list[dict[str, Any]] = []
        for seat, at in zip(seats, range(0, len(votes), self.options.votes), strict=True):
            own = given[at : at + self.options.votes]
            usable = [score for score in own if score is not None]
            # A model is lost if half of its votes or more are.
            score = median(usable) if 2 * len(usable) > len(own) else None
            panel.append({"model": seat.model, "score": score, "votes": own})
        known = [row["score"] for row in panel if row["score"] is not None]
        reads = [vote.read for vote in votes if vote.read is not None]
        lost = [vote.reason for vote in votes if vote.read is None]
        if 2 * len(known) <= len(seats):
            reason = f"{len(lost)} of {len(votes)} votes cannot be used; the last: {_quoted(lost[-1])}"
            lost_models = f"; {len(seats) - len(known)} of {len(seats)} models are lost" if seats[1:] else ""
            return Abstained(self.rewarder_id, reason + lost_models)
        score = fmean(known)
        details = {
            "by": "judge",
            "votes": given,
            "lost": lost,
            "replies": [row for number, vote in enumerate(votes) for row in reply_rows(vote.replies, vote=number)],
            **({"panel": panel} if seats[1:] else {}),
        }
        shown = ", ".join(f"{read.value:.3g}" for read in reads) + (f" ({len(lost)} lost)" if lost else "")
        nearest = min(reads, key=lambda read: abs(read.value - score))
        evidence = f"{score:.3g} of {shown}: {_quoted(nearest.reason)}"
        return RewardScore(self.rewarder_id, score, evidence, frozen(details))


def _quoted(text: str) -> str:
    """Quote a model's words in one line of evidence: shortened, with control characters escaped."""
    folded = " ".join(text.split())
    return repr(folded if len(folded) <= _QUOTED_CHARS else f"{folded[: _QUOTED_CHARS - 1]}…")


def _shared(verdict: Verdict, attempt: Attempt, first: Attempt) -> Verdict:
    if attempt is first or isinstance(verdict, Abstained):
        return verdict
    evidence = f"the same output as {first.rollout_id}: {verdict.evidence}"
    return replace(verdict, evidence=evidence, details=frozen({"by": "judge", "same_as": first.rollout_id}))
