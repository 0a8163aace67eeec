"""How does one judgement come about? A question is asked, and asked again while the answer cannot be used; then it is lost.

A lost vote is a value with its reason, never a number. What ends the run (no budget, a refused key) passes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from tfgrpo.rewarders.base import Attempt, RewardContext
from tfgrpo.rewarders.judge.prompt import asked_again
from tfgrpo.rewarders.judge.seam import JudgeModel, JudgeQuestion, JudgeReply
from tfgrpo.rewarders.repairing import corrected
from tfgrpo.stores.errors import ModelCallError, RepairExhausted, RewardError

T = TypeVar("T")

_KEPT_CHARS: Final = 4_000
"""Longest part of a raw reply in the record of an attempt; the journal has all of it."""


@dataclass(frozen=True, slots=True)
class Vote(Generic[T]):
    """One judgement."""

    read: T | None
    """None: lost."""
    reason: str
    """Why it is lost; empty when it is not."""
    replies: tuple[JudgeReply, ...]
    """Everything the model said, in order."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where questions are put: a model, how often again, and until when."""

    model: JudgeModel
    retries: int
    until: float | None
    """On the clock of the event loop. None: no limit."""

    @classmethod
    def of(cls, context: RewardContext, rewarder_id: str, retries: int) -> Bench:
        """Raises ``RewardError`` where there is no model to ask."""
        if context.judge is None:
            raise RewardError(f"{rewarder_id}: there is no model to ask here")
        limit = context.time_limit_s
        return cls(context.judge, retries, None if limit is None else asyncio.get_running_loop().time() + limit)

    async def vote(self, question: JudgeQuestion, read: Callable[[str], T]) -> Vote[T]:
        """Ask until ``read`` does not raise ``ValueError``, which it does for a reply that it cannot use."""
        replies: list[JudgeReply] = []

        async def ask(refused: Sequence[tuple[str, str]]) -> str:
            replies.append(await self.model.ask(_again(question, refused), self._left()))
            return replies[-1].text

        def usable(text: str) -> T:
            if replies[-1].cut_off:
                raise ValueError("the reply was cut off at the token limit")
            return read(text)

        try:
            return Vote(await corrected(usable, ask, self.retries + 1), "", tuple(replies))
        except ModelCallError as error:
            reason = f"{type(error).__name__}: {error}"
        except RepairExhausted as error:
            reason = error.attempts[-1][1]
        return Vote(None, reason, tuple(replies))

    def _left(self) -> float | None:
        """Never below zero: the call is made all the same, so that a replay finds it under the same name."""
        return None if self.until is None else max(0.0, self.until - asyncio.get_running_loop().time())


def _again(question: JudgeQuestion, refused: Sequence[tuple[str, str]]) -> JudgeQuestion:
    """The question behind the answers to it that were refused: with the last of them, and what is wrong with it."""
    if not refused:
        return question
    dialogue = asked_again(question.messages, *refused[-1], question.schema)
    return replace(question, messages=dialogue, attempt=len(refused))


async def all_of(work: Iterable[Awaitable[T]]) -> list[T]:
    """Everything, side by side. When one raises, the others still end first: their answers are paid for."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return [result for result in done if not isinstance(result, BaseException)]


def distinct(outputs: Sequence[Attempt]) -> dict[str, Attempt]:
    """The first attempt with each output: what is the same is judged once, and ties."""
    firsts: dict[str, Attempt] = {}
    for attempt in outputs:
        firsts.setdefault(attempt.output, attempt)
    return firsts


def raw(replies: Iterable[JudgeReply], **where: object) -> list[dict[str, Any]]:
    """Replies as they stand in the record of an attempt; ``where`` says what was asked."""
    return [
        {
            **where,
            "attempt": place,
            "text": reply.text[:_KEPT_CHARS],
            "tokens": reply.tokens,
            "cost_usd": reply.cost_usd,
            "model": reply.model,
        }
        for place, reply in enumerate(replies)
    ]


def quoted(text: str, most: int = 120) -> str:
    """A model's words on one line of evidence: shortened, with quotes around them and control characters escaped."""
    folded = " ".join(text.split())
    return repr(folded if len(folded) <= most else f"{folded[: most - 1]}…")
