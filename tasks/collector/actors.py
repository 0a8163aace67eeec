"""Collect groups from the project's own actors and rewarders, as in a learning run but without reflection.

Calls go through the run's journal, ledger and slots, so that collecting again repeats no call.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final

from tfgrpo.stores.batch.batch import ExperienceBatch, RaggedPolicy
from tfgrpo.stores.batch.shapes import (
    LogProbKind,
    LogProbs,
    Rollout,
    RolloutGroup,
    RolloutUsage,
    Sampling,
)
from tfgrpo.stores.errors import RunAborted, ShapeError
from tfgrpo.stores.frozen_json import Json
from tfgrpo.stores.outcomes import Failed, Scored, Ungraded, status_of_outcome
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.collector.collector import Collected, GroupSink
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message
from tfgrpo.tasks.models.wire import called
from tfgrpo.tasks.runtime.containment import gathered
from tfgrpo.tasks.runtime.runtime import AttemptContext, Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, RolloutRecord, Trajectory

_OPENING: Final = 2
"""Messages at the start of every conversation: system text and item."""


@dataclass(frozen=True, slots=True)
class ActorCollector:
    """Collects groups from a runtime: its actor attempts, its rewarders score.

    ``ragged``: as in ``CollectorOptions``, without ``resample``: an answered call is never repeated. ``on_group`` is
    called with every complete group. Raises ``ShapeError`` for any other ``ragged``.
    """

    runtime: Runtime
    _: KW_ONLY
    ragged: RaggedPolicy = "pad"
    min_group_size: int = 2
    logprob_kind: LogProbKind = "unknown"
    on_group: GroupSink | None = None

    def __post_init__(self) -> None:
        if self.ragged not in ("strict", "pad", "drop_group"):
            raise ShapeError.one("ragged", "strict | pad | drop_group", repr(self.ragged))

    async def collect(self, specs: Sequence[GroupSpec]) -> Collected:
        """Return one group for each spec, in order.

        Raise ``RunAborted`` when no further call can succeed (the endpoint refuses the key), and ``ShapeError`` for
        specs that share a group id, before any call, and for short groups under ``strict``.
        """
        repeated = sorted(name for name, count in Counter(spec.group_id for spec in specs).items() if count > 1)
        if repeated or not specs:
            raise ShapeError.one(
                "specs", "at least one, each with a group id of its own", ", ".join(repeated) or "none"
            )
        groups = await gathered([self._group(spec) for spec in specs])
        return Collected(*ExperienceBatch(tuple(groups)).shaped(self.ragged, min_group_size=self.min_group_size))

    async def _group(self, spec: GroupSpec) -> RolloutGroup:
        recorded = _Recorded(self.runtime)
        runtime = replace(self.runtime, model=recorded, actor=recorded)
        result = await run_group(replace(spec, reflect=False), runtime)
        if result.fatal is not None:
            raise RunAborted(result.fatal)
        group = self._group_of(spec, result, recorded)
        if self.on_group is not None:
            self.on_group(group)
        return group

    def _group_of(self, spec: GroupSpec, result: GroupResult, recorded: _Recorded) -> RolloutGroup:
        item = spec.item
        user = Message("user", "\n\n".join(text for text in (item.system_prompt, item.prompt) if text))
        return RolloutGroup(
            id=spec.group_id,
            state=list(map(_encoded, recorded.opening() or (Message("system", spec.pack.system), user))),
            rollouts=tuple(self._rollout(record, spec, recorded) for record in result.rollouts),
            target_size=spec.size,
            bare_state=[_encoded(user)],
            policy_version=self.runtime.context.models.name,
            experience_version=f"{spec.pack.pack_id}:{spec.pack.digest}",
            metadata={
                "item_id": item.id,
                "answer": item.answer,
                **({"alternatives": list(item.alternatives)} if item.alternatives else {}),
                "domain": item.domain,
                "run_id": self.runtime.context.run_id,
                "epoch": spec.key.epoch,
                "phase": spec.key.phase,
                "arm": spec.key.arm,
                "experience_ids": list(spec.pack.experience_ids),
                "item": dict(item.metadata),
            },
        )

    def _rollout(self, record: RolloutRecord, spec: GroupSpec, recorded: _Recorded) -> Rollout:
        calls = recorded.calls[record.index]
        replies = [reply for _, reply in calls]
        trajectory = recorded.trajectories.get(record.index)
        outcome, context = record.outcome, self.runtime.context
        error_type = outcome.error_type if isinstance(outcome, Failed | Ungraded) else ""
        finish = trajectory.finish_reason if trajectory is not None else None
        return Rollout(
            id=record.rollout_id,
            group_id=spec.group_id,
            index=record.index,
            completion=None if trajectory is None else _completion(trajectory, calls),
            status=status_of_outcome(outcome.name, error_type, finish),
            reward=outcome.reward if isinstance(outcome, Scored) else None,
            reward_parts={score.rewarder_id: score.score for score in record.scores},
            logprob=_logprobs(replies, self.logprob_kind) if trajectory is not None else None,
            sampling=Sampling(
                model=replies[-1].model if replies else context.models.name,
                temperature=spec.temperature,
                seed=record.seed,
                max_tokens=context.models.roles["actor"].max_tokens,
                finish_reason=finish,
            ),
            usage=_usage(record, replies),
            latency_s=record.latency_s,
            error=None if isinstance(outcome, Scored) else outcome.reason,
        )


class _Recorded:
    """Model and actor of a run that keep calls and whole trajectories of one group, by rollout index."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.calls: defaultdict[int, list[tuple[ChatRequest, ChatReply]]] = defaultdict(list)
        self.trajectories: dict[int, Trajectory] = {}

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        reply = await self._runtime.model.complete(request, key)
        if key.role == "rollout":
            self.calls[key.rollout].append((request, reply))
        return reply

    async def attempt(self, attempt: AttemptContext) -> Trajectory:
        trajectory = await self._runtime.actor.attempt(attempt)
        if isinstance(trajectory, Trajectory):
            self.trajectories[attempt.key("rollout", 0).rollout] = trajectory
        return trajectory

    def opening(self) -> tuple[Message, ...]:
        """Return the opening as it was first sent; empty when no model was called."""
        return next((calls[0][0].messages[:_OPENING] for calls in self.calls.values() if calls), ())


def _completion(trajectory: Trajectory, calls: Sequence[tuple[ChatRequest, ChatReply]]) -> Json:
    """Return the final text, or all turns after the opening if there are several and they end in that text."""
    if len(calls) < 2 or calls[-1][1].message.content != trajectory.output:
        return trajectory.output
    request, reply = calls[-1]
    return [_encoded(message) for message in (*request.messages[_OPENING:], reply.message)]


def _encoded(message: Message) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["tool_calls"] = [called(call.id, call.name, call.arguments) for call in message.tool_calls]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn


def _logprobs(replies: Sequence[ChatReply], kind: LogProbKind) -> LogProbs | None:
    """Return those of all tokens that the policy wrote, turn by turn; tool results have none."""
    known = [reply.token_logprobs for reply in replies if reply.token_logprobs is not None]
    if not known:
        return None
    tokens = [value for values in known for value in values]
    complete = all(
        reply.token_logprobs is not None
        and reply.usage is not None
        and len(reply.token_logprobs) >= reply.usage.completion
        for reply in replies
    )
    if not complete:
        return LogProbs(count=len(tokens), kind=kind)
    return LogProbs(tuple(tokens), total=math.fsum(tokens), count=len(tokens), kind=kind, complete=True)


def _usage(record: RolloutRecord, replies: Sequence[ChatReply]) -> RolloutUsage:
    known = all(reply.usage is not None for reply in replies)
    usage = record.usage
    if not usage.calls or not known:
        return RolloutUsage(cost_usd=usage.cost_usd)
    reasoning = sum(reply.usage.reasoning for reply in replies if reply.usage is not None)
    return RolloutUsage(usage.prompt_tokens, usage.completion_tokens, reasoning, usage.cost_usd)
