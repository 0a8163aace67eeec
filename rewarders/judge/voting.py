"""Ask a judge for one vote, again while its answer is unusable, up to a limit of retries and of time.

A lost vote is a value with its reason, never a number. Errors that end the run (no budget, a refused key) pass through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from tfgrpo.rewarders.judge.model import JudgeModel, JudgeQuestion, JudgeReply
from tfgrpo.rewarders.judge.options import AnswerForm, JudgeOptions, messages, shortened
from tfgrpo.rewarders.repairing import corrected
from tfgrpo.rewarders.scorer import Attempt, RewardContext, reference_text
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import ModelCallError, RepairExhausted, RewardError

T = TypeVar("T")

_RECORDED_CHARS: Final = 4_000
"""Longest part of a raw reply in the record of an attempt; the journal has all of it."""


@dataclass(frozen=True, slots=True)
class Vote(Generic[T]):
    """One judgement."""

    read: T | None
    """None: lost."""
    reason: str
    """Why it is lost; empty otherwise."""
    replies: tuple[JudgeReply, ...]
    """All replies of the model, in order."""


class Voter(Generic[T]):
    """The judging model of one group, which is asked one kind of question. Raises ``RewardError`` when there is none."""

    def __init__(
        self,
        rewarder_id: str,
        options: JudgeOptions,
        system: str,
        form: AnswerForm,
        read: Callable[[str], T],
        context: RewardContext,
    ) -> None:
        """``system``: the system message. ``read`` raises ``ValueError`` for a reply that is not usable."""
        if context.judge is None:
            raise RewardError(f"{rewarder_id}: there is no model to ask here")
        self._model: JudgeModel = context.judge
        self._options, self._system, self._form, self._read, self._context = options, system, form, read, context
        limit = context.time_limit_s
        self._deadline = None if limit is None else asyncio.get_running_loop().time() + limit

    async def vote(self, shown: Mapping[str, str], rollout: int, turn: int) -> Vote[T]:
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
                complaint = canonical_json({"error": reason, "schema": dict(question.schema)})
                dialogue = (*question.messages, ("assistant", reply), ("user", complaint))
                again = replace(question, messages=dialogue, attempt=len(refused))
            # Never below zero: the call is made all the same, so that a replay finds it under the same name.
            left = None if self._deadline is None else max(0.0, self._deadline - asyncio.get_running_loop().time())
            replies.append(await self._model.ask(again, left))
            return replies[-1].text

        def usable(text: str) -> T:
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


def quoted(text: str, most: int = 120) -> str:
    """Quote a model's words in one line of evidence: shortened, with control characters escaped."""
    folded = " ".join(text.split())
    return repr(folded if len(folded) <= most else f"{folded[: most - 1]}…")
