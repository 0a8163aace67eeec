"""Fake judge model that answers by a function of the question and records the questions."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.rewards.scoring import group
from tfgrpo.rewarders.judge.model import JudgeQuestion, JudgeReply
from tfgrpo.rewarders.scorer import RewardContext

Answers = Callable[[JudgeQuestion], Any]

CALIBRATION = {
    "truth": "gt",
    "rewarders": {
        "judge": {
            "attempts": 10, "abstained": 0, "concordant": 6, "discordant": 1, "tied_by_judge": 1,
            "agreement": 0.8125, "tau": None, "swaps": 4, "swap_consistency": 0.75,
            "vote_difference": None,
        }
    },
}  # fmt: skip
"""How far a judge can be believed, as a manifest has it."""


def material(question: JudgeQuestion) -> dict[str, Any]:
    """Return the data in a question to the judge."""
    shown: dict[str, Any] = json.loads(question.messages[1][1])
    return shown


class FakeJudge:
    """``JudgeModel``: text or JSON values are answers, exceptions are raised, coroutines awaited."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[JudgeQuestion] = []
        self.limits: list[float | None] = []

    async def ask(self, question: JudgeQuestion, timeout_s: float | None = None) -> JudgeReply:
        self.asked.append(question)
        self.limits.append(timeout_s)
        answer = self.answers(question)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, JudgeReply):
            return answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return JudgeReply(text, tokens=20, cost_usd=0.001, model="wise")


def judged(outputs: Sequence[str], judge: Any, answer: str = "42", **more: Any) -> RewardContext:
    return group(*outputs, answer=answer, judge=judge, **more)


def by_order(ranked: str) -> Answers:
    """Return answers that prefer the output earlier in ``ranked``, shown first or second."""

    def answer(question: JudgeQuestion) -> Any:
        first, second = (ranked.index(material(question)[position]) for position in ("first", "second"))
        return {"reason": "seen", "better": "first" if first < second else "second"}

    return answer
