"""Give the judges of one group access to the run's model: seeded, journalled and charged like every other call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tfgrpo.rewarders.judge.model import JudgeQuestion, JudgeReply
from tfgrpo.rewarders.scorer import Attempt, RewardContext
from tfgrpo.stores.canonical import derive_seed
from tfgrpo.stores.errors import BudgetRefused, ModelCallError, ModelTimeout
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import Spend
from tfgrpo.tasks.models.base import CUT_OFF, AnswerSchema, ChatRequest, Message
from tfgrpo.tasks.runtime.runtime import FATAL, Runtime, model_key
from tfgrpo.tasks.shapes import GroupSpec

ROLE = "judge"


class GroupJudge:
    """``JudgeModel`` within one group. ``spend`` counts what was used, what failed, and what stopped the run."""

    def __init__(self, spec: GroupSpec, runtime: Runtime) -> None:
        self._spec = spec
        self._runtime = runtime
        self.spend = Spend()

    def context(self, outputs: Sequence[Attempt]) -> RewardContext:
        """Return the context of the rewarders: the group's item and lessons, these attempts, and this judge."""
        item = self._spec.item
        return RewardContext(
            fixture_path=f"{item.source.rpartition(':')[0] or item.source or 'dataset'}#{item.id}",
            item_id=item.id,
            prompt=item.prompt,
            answer=item.answer,
            outputs=tuple(outputs),
            experiences=self._spec.pack.experiences,
            metadata=item.metadata,
            judge=self,
            alternatives=item.alternatives,
            failures=self._spec.failures,
        )

    async def ask(self, question: JudgeQuestion, timeout_s: float | None = None) -> JudgeReply:
        """Answer one question. A cancelled call is recorded as broken, so that a replay loses it too."""
        request, key = self._request(question)
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._runtime.model.complete(request, key)
        except TimeoutError:
            late = ModelTimeout(f"no judgement within the time limit of the group ({timeout_s:.3g} s were left)")
            self.spend.note(late, model_key(key, request))
            raise late from None
        except asyncio.CancelledError:
            self.spend.note(ModelTimeout("the judge was given up on"), model_key(key, request))
            raise
        except (BudgetRefused, *FATAL, ModelCallError) as error:
            self.spend.note(error, model_key(key, request))
            raise
        self.spend.calls.append(reply.used)
        return JudgeReply(
            text=reply.message.content or "",
            cut_off=reply.finish_reason in CUT_OFF,
            tokens=reply.usage.total if reply.usage is not None else None,
            cost_usd=reply.cost_usd,
            model=reply.model,
        )

    def _request(self, question: JudgeQuestion) -> tuple[ChatRequest, CallKey]:
        spec, context = self._spec, self._runtime.context
        rollout, turn, attempt = question.rollout, question.turn, question.attempt
        key = CallKey(spec.key, rollout, turn, ROLE, attempt)
        night_seed = context.settings.tfgrpo.night_seed
        request = ChatRequest(
            model=context.models.judge(question.model),
            messages=tuple(Message(role, text) for role, text in question.messages),
            temperature=question.temperature,
            max_tokens=0 if question.embeds else question.max_tokens or context.models.roles["judge"].max_tokens,
            # Without the arm: in the sweep equal outputs of both sides are judged by the same draw.
            seed=derive_seed(night_seed, ROLE, spec.key.epoch, spec.key.draw_id, rollout, turn, attempt),
            answer_schema=None if question.schema is None else AnswerSchema(question.schema_name, question.schema),
            embeds=question.embeds,
        )
        return request, key
