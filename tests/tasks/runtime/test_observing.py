from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, replace

import pytest

from tests.support.agents import agents
from tests.support.agents.steps import lessons, reply, runtime, spec, weighted
from tests.support.records.watched import Watched
from tfgrpo.stores.errors import ModelServerFault
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.tasks.actors.registry import ToolActor
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.models.base import ToolCall
from tfgrpo.tasks.tools.schema import tool_from_function


def script(_, key):
    if key.role != "rollout":
        return lessons()
    if key.rollout == 2:
        return ModelServerFault("503")
    if key.turn == 0:
        call = ToolCall("c", "add", '{"left": 1}' if key.rollout else "{oops")
        return reply(None, finish="tool_calls", calls=(call,))
    return f"Answer: {7 + key.rollout}"


def observed(script, tmp_path, **more):
    """A runtime whose spans and metrics stay in memory, and these."""
    watched = Watched()
    return watched, replace(runtime(script, tmp_path, **more), telemetry=watched.telemetry)


@dataclass
class Slow:
    rewarder_id: str = "slow"

    def score(self, context):
        time.sleep(0.2)
        return [RewardScore("slow", 0.5, "half") for _ in context.outputs]


async def test_the_span_of_an_attempt_has_its_outcome_and_ends_with_the_attempt(tmp_path):
    rewarders = (weighted("gt"), weighted(Slow()))
    actor = ToolActor([tool_from_function(agents.add)], max_turns=3)
    watched, made = observed(script, tmp_path, actor=actor, rewarders=rewarders)
    await run_group(spec(3), made)
    told = {span.attributes["tfgrpo.rollout.index"]: span for span in watched.spans("invoke_agent chat")}
    assert [told[index].attributes["tfgrpo.outcome"] for index in range(3)] == ["scored", "scored", "failed"]
    assert (told[0].attributes["tfgrpo.reward"], told[0].attributes["tfgrpo.relative_rank"]) == (0.75, 1.0)
    assert told[2].attributes["error.type"] == "ModelServerFault"
    assert told[2].events == ()
    labels = [event.attributes.get("gen_ai.evaluation.score.label") for event in told[0].events]
    assert labels == ["pass", None]
    for span in told.values():
        assert (span.end_time - span.start_time) / 1e6 == pytest.approx(span.attributes["latency_ms"], abs=100)


@dataclass
class OutOfTen:
    rewarder_id: str = "ten"
    score_range: tuple[float, float] = (0.0, 10.0)

    def score(self, context):
        return [RewardScore("ten", points, "points") for points, _ in zip((10.0, 0.0, 1.0), context.outputs, strict=True)]


async def test_labels_are_the_ends_of_the_declared_range(tmp_path):
    watched, made = observed(lambda *_: "Answer: 7", tmp_path, rewarders=(weighted(OutOfTen()),))
    await run_group(spec(3), made)
    spans = sorted(watched.spans("invoke_agent chat"), key=lambda span: span.attributes["tfgrpo.rollout.index"])
    labels = [event.attributes.get("gen_ai.evaluation.score.label") for span in spans for event in span.events]
    assert labels == ["pass", "fail", None]


async def test_cancelling_a_group_during_grading_ends_the_spans_of_its_attempts(tmp_path):
    grading = threading.Event()

    class Begun(Slow):
        def score(self, context):
            grading.set()
            return super().score(context)

    watched, made = observed(lambda *_: "Answer: 7", tmp_path, rewarders=(weighted(Begun()),))
    work = asyncio.ensure_future(run_group(spec(2), made))
    assert await asyncio.to_thread(grading.wait, 30)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    attempts = watched.spans("invoke_agent chat")
    assert len(attempts) == 2
    assert all("tfgrpo.outcome" not in span.attributes for span in attempts)


async def test_a_group_is_reported_as_spans_and_metrics(tmp_path):
    watched, made = observed(script, tmp_path, actor=ToolActor([tool_from_function(agents.add)], max_turns=3))
    result = await run_group(spec(3), made)
    assert result.signal == "mixed"

    finished = {span.context.span_id: span for span in watched.spans()}
    parents = {(span.name, finished[span.parent.span_id].name if span.parent else None) for span in finished.values()}
    assert ("tfgrpo.group", None) in parents
    assert ("invoke_agent chat", "tfgrpo.group") in parents
    assert ("execute_tool add", "invoke_agent chat") in parents
    assert sum(name == "execute_tool add" for name in (span.name for span in finished.values())) == 2

    assert sum(point.value for point in watched.points("tfgrpo.tool.calls")) == 2
    assert sum(point.value for point in watched.points("tfgrpo.rollouts")) == 3
    assert sum(point.count for point in watched.points("tfgrpo.reward")) == 2
    assert sum(point.value for point in watched.points("tfgrpo.groups")) == 1
