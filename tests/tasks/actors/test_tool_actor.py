"""The tools actor: every call is answered, once, and none when the attempt is over."""

from __future__ import annotations

import asyncio

from tests.support.agents import agents
from tests.support.agents.steps import ScriptedModel, attempt, calling, in_turn, runtime, spec
from tfgrpo.stores.errors import ActorError, ReplayMiss, StoreError, ToolUnavailable
from tfgrpo.stores.outcomes import Failed
from tfgrpo.tasks.actors.callable import CallableActor
from tfgrpo.tasks.actors.registry import ChatActor, ToolActor
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.tools.schema import tool_from_function

ADDER = ToolActor([tool_from_function(agents.add), tool_from_function(agents.breaks)], max_turns=3)


async def test_parallel_tool_calls_are_all_answered_and_each_is_one_event(tmp_path):
    model = ScriptedModel(in_turn(calling(("add", '{"left":1,"right":2}'), ("add", '{"left":5}')), "Answer: 9"))
    rollout = await attempt(ADDER, model, tmp_path)
    second = model.requests[1][0].messages
    assert [(m.role, m.content, m.tool_call_id) for m in second[-2:]] == [("tool", "3", "c0"), ("tool", "6", "c1")]
    assert rollout.output == "Answer: 9"
    assert [(event.tool, event.ok, event.cost_usd, event.epoch) for event in rollout.tools] == [
        ("add", True, 0.002, 1)
    ] * 2
    assert [frame.kind for frame in rollout.frames] == ["model", "tool", "tool", "model"]


async def test_a_user_may_answer_in_turns_of_its_own(tmp_path):
    turns = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "second"},
        {"role": "user", "content": "third"},
    ]

    async def agent(chat):
        return await chat(turns)

    model = ScriptedModel(lambda *_: "done")
    await attempt(CallableActor(agent), model, tmp_path)
    assert [message.role for message in model.requests[0][0].messages] == ["system", "user", "assistant", "user"]


async def test_errors_of_tools_and_bad_arguments_go_back_to_the_model(tmp_path):
    model = ScriptedModel(
        in_turn(calling(("breaks", '{"text":"x"}'), ("add", "{oops"), ("nothing", "{}")), "Answer: 1")
    )
    rollout = await attempt(ADDER, model, tmp_path)
    told = [message.content for message in model.requests[1][0].messages[-3:]]
    assert "LookupError" in told[0]
    assert "not JSON" in told[1]
    assert "no tool named 'nothing'" in told[2]
    assert [event.ok for event in rollout.tools] == [False, False]
    assert rollout.loss is None


async def test_an_attempt_whose_tool_cannot_be_reached_fails_and_nothing_is_told_to_the_model(tmp_path):
    async def lookup(text: str) -> str:
        raise ToolUnavailable("the server 's' (ended during a call: Connection closed)")

    model = ScriptedModel(in_turn(calling(("lookup", '{"text":"x"}')), "Answer: 1"))
    rollout = await attempt(ToolActor([tool_from_function(lookup)], max_turns=3), model, tmp_path)
    assert isinstance(rollout.loss, Failed)
    assert (rollout.loss.error_type, len(model.requests)) == ("ToolUnavailable", 1)
    assert "the server 's' (ended during a call" in rollout.loss.reason


async def test_running_out_of_turns_is_a_failure(tmp_path):
    rollout = await attempt(ADDER, lambda *_: calling(("add", '{"left":1}')), tmp_path)
    assert isinstance(rollout.loss, Failed)
    assert rollout.loss.error_type == "ActorError"
    assert len(rollout.tools) == 3


async def test_tool_calls_are_not_made_again_on_resume_nor_on_replay(tmp_path):
    script = in_turn(calling(("add", '{"left":1}')), "Answer: 2")
    first = await attempt(ADDER, script, tmp_path)
    again = await attempt(ADDER, script, tmp_path)
    replayed = await run_rollout(spec(), 0, runtime(script, tmp_path, actor=ADDER, replay=True))
    assert agents.CALLS == ["add 1 1"]
    assert first.tools == again.tools == replayed.tools
    assert first.frames == replayed.frames


async def test_a_replay_does_not_run_a_tool_that_was_never_recorded(tmp_path):
    script = in_turn(calling(("add", '{"left":1}')), "Answer: 2")
    await attempt(ChatActor(), script, tmp_path)
    bare = runtime(script, tmp_path, actor=ADDER, replay=True)
    rollout = await run_rollout(spec(), 0, bare)
    assert rollout.fatal is not None
    assert rollout.fatal.startswith(ReplayMiss.__name__)
    assert agents.CALLS == []


async def test_a_call_that_ends_the_run_ends_the_other_calls_of_its_turn(tmp_path):
    finished = []

    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(0.05)
        finished.append("slow")
        return "done"

    actor = ToolActor([tool_from_function(slow), tool_from_function(agents.add)], max_turns=3)
    made = runtime(in_turn(calling(("slow", "{}"), ("add", '{"left":1}')), "never"), tmp_path, actor=actor)
    append, fails = made.journal.append, StoreError("no space left")

    def full(key, payload):
        if "/tool/" in key:
            raise fails
        append(key, payload)

    made.journal.append = full
    rollout = await run_rollout(spec(), 0, made)
    await asyncio.sleep(0.1)
    assert rollout.fatal == "StoreError: no space left"
    assert finished == []


async def test_an_attempt_that_is_over_runs_no_tool_any_more(tmp_path):
    ran = []

    class GoesOn:
        async def attempt(self, attempt):
            attempt.end()
            try:
                await attempt.call_tool(tool_from_function(agents.add), '{"left": 1, "right": 2}')
            except ActorError as error:
                ran.append(str(error))
                raise

    rollout = await attempt(GoesOn(), lambda *_: "7", tmp_path)
    assert ran == ["the attempt is over"]
    assert rollout.tools == ()
