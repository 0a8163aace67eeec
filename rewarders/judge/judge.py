"""Judges: ``judge`` scores each output by a rubric, with several votes; ``relative`` ranks a group by totals or comparisons.

A lost vote is a value with its reason, never a number. Errors that end the run (no budget, a refused key) pass through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean, median
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from pydantic.dataclasses import dataclass as options_dataclass

from tfgrpo.rewarders.advantages.group import group_advantage, relative_ranks
from tfgrpo.rewarders.judge.model import PAIR_FORM, AnswerForm, JudgeLoad, JudgeOptions, JudgeQuestion, JudgeReply, corrected
from tfgrpo.rewarders.judge.reading import Judgement, Preference, read_checklist, read_preference, read_score, read_verdict
from tfgrpo.rewarders.options import Name, Options, accepts
from tfgrpo.rewarders.scorer import NO_REFERENCE, Abstained, Attempt, RewardContext, Verdict, abstain_on_all, reference_text
from tfgrpo.rewarders.text.rules import shown as shown_text
from tfgrpo.rewarders.threads import all_of
from tfgrpo.stores.errors import ModelCallError, PipelineError, Problem, RepairExhausted, RewardError
from tfgrpo.stores.json_values import canonical_json, frozen, mapping_of
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import shorten_middle

_T = TypeVar("_T")

# Longest part of a raw reply in the record of an attempt; the journal has all of it
_RECORDED_CHARS: Final = 4_000
_QUOTED_CHARS: Final = 120
Variant: TypeAlias = Literal["rank", "centered", "zscore"]
# Call names: room for the votes on one pair in both orders
_TURNS: Final = 100
_ORDERS: Final = ("forward", "backward")
_SWAPPED: Final[Mapping[Preference, Preference]] = {"first": "second", "second": "first", "tie": "tie"}
_HALVES: Final[Mapping[Preference, int]] = {"first": 2, "tie": 1, "second": 0}


def judge(rewarder_id: str = "judge", **options: Any) -> JudgeRewarder:
    """Return the judge of a pipeline file. Raises ``PipelineError`` with every problem of its options."""
    return JudgeRewarder(JudgeOptions(**options), rewarder_id)


@dataclass(frozen=True, slots=True)
class Vote(Generic[_T]):
    """One judgement."""

    read: Judgement[_T] | None
    """None: lost."""
    reason: str
    replies: tuple[JudgeReply, ...]


class Voter(Generic[_T]):
    """The judging model of one group, which is asked one kind of question. Raises ``RewardError`` when there is none."""

    def __init__(
        self, options: JudgeOptions, system: str, form: AnswerForm, read: Callable[[str], Judgement[_T]], context: RewardContext
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
        # One JSON object, so that no text in it can close its own quotation and act as an instruction.
        data = {"task": context.prompt, **{name: shorten_middle(output, options.max_chars) for name, output in shown.items()}}
        with_reference = options.reference or options.preset == "reference"
        if reference := reference_text(context.answer, context.alternatives) if with_reference else "":
            data["reference_answer"] = reference
        question = JudgeQuestion(
            messages=(("system", self._system), ("user", canonical_json(data))),
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


def _reply_rows(replies: Iterable[JudgeReply], **labels: object) -> list[dict[str, Any]]:
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

    It abstains unless more than half of the votes, or of the models, can be used. Equal outputs are judged once.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    rewarder_id: str = "judge"

    asks_model: ClassVar[bool] = True

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
        instructions = options.form.system(options.rubric_text)
        voters = [Voter(seat, instructions, options.form, read, context) for seat in options.seats]
        turns = [(voter, seat * options.votes + turn) for seat, voter in enumerate(voters) for turn in range(options.votes)]

        async def judged(attempt: Attempt) -> Verdict:
            texts = {"output": attempt.output, **shown}
            return self._verdict(await all_of(voter.vote(texts, attempt.index, turn) for voter, turn in turns))

        firsts = distinct(context.outputs)
        verdicts = dict(zip(firsts, await all_of(map(judged, firsts.values())), strict=True))
        return [_shared(verdicts[attempt.output], attempt, firsts[attempt.output]) for attempt in context.outputs]

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of one group: every vote of every model on every output."""
        votes, texts = self.options.votes, 1 + (self.options.preset == "grounded")
        instructions = self.options.form.system(self.options.rubric_text)
        return tuple(
            JudgeLoad(seat, instructions, shown=texts, calls_low=votes, questions=group_size * votes)
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
        scores = [None if vote.read is None else vote.read.value for vote in votes]
        panel: list[dict[str, Any]] = []
        for seat, at in zip(seats, range(0, len(votes), self.options.votes), strict=True):
            own = scores[at : at + self.options.votes]
            usable = [score for score in own if score is not None]
            # A model is lost if half of its votes or more are.
            score = median(usable) if 2 * len(usable) > len(own) else None
            panel.append({"model": seat.model, "score": score, "votes": own})
        medians = [row["score"] for row in panel if row["score"] is not None]
        reads = [vote.read for vote in votes if vote.read is not None]
        lost = [vote.reason for vote in votes if vote.read is None]
        if 2 * len(medians) <= len(seats):
            reason = f"{len(lost)} of {len(votes)} votes cannot be used; the last: {_quoted(lost[-1])}"
            lost_models = f"; {len(seats) - len(medians)} of {len(seats)} models are lost" if seats[1:] else ""
            return Abstained(self.rewarder_id, reason + lost_models)
        score = fmean(medians)
        details = {
            "by": "judge",
            "votes": scores,
            "lost": lost,
            "replies": [row for number, vote in enumerate(votes) for row in _reply_rows(vote.replies, vote=number)],
            **({"panel": panel} if seats[1:] else {}),
        }
        shown = ", ".join(f"{read.value:.3g}" for read in reads) + (f" ({len(lost)} lost)" if lost else "")
        nearest = min(reads, key=lambda read: abs(read.value - score))
        return RewardScore(self.rewarder_id, score, f"{score:.3g} of {shown}: {_quoted(nearest.reason)}", frozen(details))


def _quoted(text: str) -> str:
    return shown_text(" ".join(text.split()), _QUOTED_CHARS)


def _shared(verdict: Verdict, attempt: Attempt, first: Attempt) -> Verdict:
    if attempt is first or isinstance(verdict, Abstained):
        return verdict
    evidence = f"the same output as {first.rollout_id}: {verdict.evidence}"
    return replace(verdict, evidence=evidence, details=frozen({"by": "judge", "same_as": first.rollout_id}))


def relative(rewarder_id: str = "relative", **options: Any) -> RelativeRewarder | PairwiseRewarder:
    """Return the scorer of a pipeline file: by totals, or with ``judge`` by comparisons. Raises ``PipelineError``."""
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


def _relative_values(totals: Sequence[float], variant: Variant) -> tuple[float, ...]:
    if variant == "rank":
        return relative_ranks(totals)
    return group_advantage(totals, "mean_only" if variant == "centered" else "grpo").advantages


@options_dataclass(frozen=True, slots=True)
class RelativeRewarder(Options):
    """Rank of each attempt's total among those of its group; a flat group has 0.5 as ``rank``, else 0.0."""

    variant: Annotated[Variant, accepts(", ".join(get_args(Variant)))] = "rank"
    """``rank``: 1 best to 0 worst, ties share the mean. ``centered``: total minus group mean.
    ``zscore``: the same over the population standard deviation (plus 1e-8)."""
    rewarder_id: Name = "relative"

    ranks: ClassVar[bool] = True

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Rank ``context.prior_scores``. Raises ``RewardError`` when fewer than two attempts have a total."""
        ids = [each.rollout_id for each in context.outputs]
        totals = {name: float(context.prior_scores[name]) for name in ids if name in context.prior_scores}
        if len(totals) < 2:
            raise RewardError(f"{len(totals)} attempt(s) with a total; ranking needs at least two")
        try:
            values = dict(zip(totals, _relative_values([*totals.values()], self.variant), strict=True))
        except ValueError as error:
            raise RewardError(str(error)) from error
        verdicts: list[Verdict] = []
        for name in ids:
            total = totals.get(name)
            if total is None:
                verdicts.append(Abstained(self.rewarder_id, "no total from the other rewarders to rank"))
                continue
            better = sum(other > total for other in totals.values())
            equal = sum(other == total for other in totals.values()) - 1
            evidence = f"total {total:.6g}: {better} of {len(totals)} better, {equal} equal ({self.variant})"
            verdicts.append(RewardScore(self.rewarder_id, values[name], evidence))
        return verdicts


def chosen_pairs(count: int, most: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of ``count`` outputs to compare: all, or about ``most``, evenly distributed."""
    # Neighbours on a ring first, so that every output is compared about equally often; count - 1 pairs connect all.
    wanted = min(count * (count - 1) // 2, max(most, count - 1))
    ring = ((index, (index + distance) % count) for distance in range(1, count // 2 + 1) for index in range(count))
    pairs = dict.fromkeys((min(ends), max(ends)) for ends in ring)
    return tuple(pairs)[:wanted]


# Forward and backward; both name the better output as it is called in the forward order
_BothOrders: TypeAlias = tuple[Vote[Preference], Vote[Preference]]


@dataclass(frozen=True, slots=True)
class PairwiseRewarder:
    """Ranks the outputs of a group by the share of its comparisons that each won, ties as half.

    Each pair is judged in both orders, because models favour a position. Contradicting orders make a tie; an order without a
    usable answer makes no comparison. Equal outputs tie without a call.
    """

    options: JudgeOptions = field(default_factory=JudgeOptions)
    variant: Variant = "rank"
    rewarder_id: str = "relative"

    asks_model: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of one group: every vote on every pair, in both orders; zero when all outputs are equal."""
        questions = 2 * self.options.votes * len(chosen_pairs(group_size, self.options.max_pairs))
        instructions = PAIR_FORM.system(self.options.rubric_text)
        return (JudgeLoad(self.options, instructions, shown=2, calls_low=0, questions=questions),)

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt. Raises ``RewardError`` without a model, and for fewer than two attempts."""
        if len(context.outputs) < 2:
            raise RewardError(f"{len(context.outputs)} attempt(s); comparing needs at least two")
        voter = Voter(self.options, PAIR_FORM.system(self.options.rubric_text), PAIR_FORM, read_preference, context)
        firsts = distinct(context.outputs)
        rivals = tuple(firsts.values())
        chosen = chosen_pairs(len(rivals), self.options.max_pairs)
        votes = await all_of(self._votes(rivals[one], rivals[other], voter) for one, other in chosen)
        pairs = [*zip(chosen, votes, strict=True)]
        # Of each output and each of its pairs: twice the votes that it won, a tie as one half, and the votes with both answers.
        results: list[list[tuple[int, int]]] = [[] for _ in rivals]
        for (one, other), both_orders in pairs:
            if answers := [(ahead.read.value, back.read.value) for ahead, back in both_orders if ahead.read and back.read]:
                won = sum(_HALVES[ahead] if ahead == back else 1 for ahead, back in answers)
                results[one].append((won, len(answers)))
                results[other].append((2 * len(answers) - won, len(answers)))
        shares = [_share(own) if pairs else 0.5 for own in results]
        index_of = {output: index for index, output in enumerate(firsts)}
        ranked = [shares[index_of[attempt.output]] for attempt in context.outputs]
        usable = [share for share in ranked if share is not None]
        values = iter(_relative_values(usable, self.variant) if usable else ())
        verdicts: list[Verdict] = []
        for attempt, share in zip(context.outputs, ranked, strict=True):
            index = index_of[attempt.output]
            if share is None:
                own = [vote for pair, orders in pairs if index in pair for both in orders for vote in both]
                lost = [vote.reason for vote in own if vote.read is None]
                reason = f"no comparison can be used; {len(lost)} answers are missing, the last: {lost[-1]}"
                verdicts.append(Abstained(self.rewarder_id, reason))
                continue
            repeated = attempt is not rivals[index]
            # Each comparison once: with the attempt that comes first.
            rows = [_row(rivals[pair[1]], orders) for pair, orders in pairs if pair[0] == index and not repeated]
            details = {"by": "comparison", "strength": share, "comparisons": rows}
            details |= {"same_as": rivals[index].rollout_id} if repeated else {}
            evidence = "all outputs are the same"
            if pairs:
                margins = [won - times for won, times in results[index]]
                wins, ties, made = sum(margin > 0 for margin in margins), margins.count(0), len(margins)
                counts = f"{wins} won, {ties} tied, {made - wins - ties} lost of {made} comparisons in both orders"
                evidence = f"{counts}: share {share:.3g} ({self.variant})"
            verdicts.append(RewardScore(self.rewarder_id, next(values), evidence, frozen(details)))
        return verdicts

    async def _votes(self, one: Attempt, other: Attempt, voter: Voter[Preference]) -> list[_BothOrders]:
        async def in_both_orders(turn: int) -> _BothOrders:
            forward, backward = await all_of(
                voter.vote({"first": first.output, "second": second.output}, one.index, turn + swapped)
                for swapped, (first, second) in enumerate(((one, other), (other, one)))
            )
            if backward.read is not None:  # about the swapped pair
                backward = replace(backward, read=backward.read._replace(value=_SWAPPED[backward.read.value]))
            return forward, backward

        turn = other.index * _TURNS
        return await all_of(in_both_orders(at) for at in range(turn, turn + 2 * self.options.votes, 2))


def _share(results: Sequence[tuple[int, int]]) -> float | None:
    return sum(won for won, _ in results) / (2 * sum(times for _, times in results)) if results else None


def _row(rival: Attempt, votes: Sequence[_BothOrders]) -> dict[str, Any]:
    """Return a comparison as a row of the record. In either order ``first`` is the attempt of the lower index."""
    named = [[*zip(_ORDERS, both, strict=True)] for both in votes]
    replies = [
        row
        for number, both in enumerate(named)
        for order, vote in both
        for row in _reply_rows(vote.replies, vote=number, order=order)
    ]
    values = [{order: vote.read and vote.read.value for order, vote in both} for both in named]
    return {"with": rival.rollout_id, "votes": values, "replies": replies}
