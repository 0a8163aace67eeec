"""Actors of the house and callables of the user's: what they ask, what they record, and whose failure a failure is."""

import asyncio
import json
from dataclasses import replace

import pytest

from tests.support.agents import agents
from tests.support.agents.steps import ScriptedModel, attempt, calling, in_turn, item, reply, runtime, spec
from tests.support.waiting import eventually
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.stores.errors import (
    ActorError,
    BudgetRefused,
    ModelAuthRefused,
    ModelServerFault,
    SettingsError,
    StoreError,
    ToolUnavailable,
)
from tfgrpo.stores.outcomes import Refused, Ungraded
from tfgrpo.tasks.actors.own import CallableActor
from tfgrpo.tasks.actors.registry import ChatActor, ToolActor, build_actor, check_actor
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.tools.schema import tool_from_function

HERE = "tests.support.agents.agents"
ADDER = ToolActor([tool_from_function(agents.add), tool_from_function(agents.breaks)], max_turns=3)


def failed(rollout, error_type="ActorError"):
    """The reason of a failure that ends its rollout and not the run."""
    assert rollout.fatal is None
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", error_type)
    return rollout.loss.reason


async def test_the_chat_actor_asks_once_with_the_system_text_first_and_the_item_last(tmp_path):
    model = ScriptedModel(lambda *_: "Answer: 7")
    rollout = await attempt(ChatActor(), model, tmp_path, of=item(system_prompt="Use digits."))
    [(request, key)] = model.requests
    texts = [(message.role, message.content) for message in request.messages]
    assert texts == [("system", "Be careful."), ("user", "Use digits.\n\n3 + 4?")]
    assert (request.temperature, request.max_tokens, request.answer_schema) == (0.7, 1024, None)
    assert (key.role, key.turn, key.group.item) == ("rollout", 0, "q1")
    assert (rollout.output, rollout.loss, rollout.usage.completion_tokens) == ("Answer: 7", None, 5)


async def test_every_rollout_has_seeds_of_its_own_and_both_sides_share_them(tmp_path):
    model = ScriptedModel(lambda *_: "7")
    made = runtime(model, tmp_path)
    for arm in ("library", "none"):
        for index in (0, 1):
            await run_rollout(spec(arm=arm, system=arm, epoch=3), index, made)
    seeds = [request.seed for request, _ in model.requests]
    assert seeds[:2] == seeds[2:]
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize("actor", [ChatActor(), ToolActor([], max_turns=3)], ids=["chat", "tools"])
async def test_a_cut_off_answer_is_ungraded_never_a_zero(tmp_path, finish, actor):
    rollout = await attempt(actor, lambda *_: reply("Answer: 7 and then", finish=finish), tmp_path)
    assert isinstance(rollout.loss, Ungraded)
    assert rollout.loss.error_type == "truncated"


@pytest.mark.parametrize(
    ("actor", "error"), [(ChatActor(), "ModelServerFault"), (CallableActor(agents.raises), "ActorError")], ids=["chat", "own"]
)
async def test_a_recorded_failure_is_raised_again_without_another_call(tmp_path, actor, error):
    model = ScriptedModel(lambda *_: ModelServerFault("503"))
    made = runtime(model, tmp_path, actor=actor)
    rollout = await run_rollout(spec(), 0, made)
    failed(rollout, error)
    made.journal.append_failure(rollout.loss.call_key, rollout.loss.error_type, rollout.loss.reason)
    asked = len(model.requests)
    again = await run_rollout(spec(), 0, runtime(model, tmp_path, actor=actor, replay=True))
    assert (again.loss, len(model.requests)) == (rollout.loss, asked)


# Tools


async def test_parallel_tool_calls_are_all_answered_and_each_is_one_event(tmp_path):
    model = ScriptedModel(in_turn(calling(("add", '{"left":1,"right":2}'), ("add", '{"left":5}')), "Answer: 9"))
    rollout = await attempt(ADDER, model, tmp_path)
    second = model.requests[1][0].messages
    assert [(m.role, m.content, m.tool_call_id) for m in second[-2:]] == [("tool", "3", "c0"), ("tool", "6", "c1")]
    assert rollout.output == "Answer: 9"
    events = [(event.tool, event.ok, event.cost_usd, event.epoch) for event in rollout.tools]
    assert events == [("add", True, 0.002, 1)] * 2
    assert [frame.kind for frame in rollout.frames] == ["model", "tool", "tool", "model"]


async def test_errors_of_tools_bad_arguments_and_unknown_names_go_back_to_the_model(tmp_path):
    calls = calling(("breaks", '{"text":"x"}'), ("add", "{oops"), ("nothing", "{}"))
    model = ScriptedModel(in_turn(calls, "Answer: 1"))
    rollout = await attempt(ADDER, model, tmp_path)
    told = [message.content for message in model.requests[1][0].messages[-3:]]
    for word, text in zip(("LookupError", "not JSON", "no tool named 'nothing'"), told, strict=True):
        assert word in text
    assert [event.ok for event in rollout.tools] == [False, False]
    assert rollout.loss is None


async def test_an_unreachable_tool_and_too_many_turns_are_failures(tmp_path):
    async def lookup(text: str) -> str:
        raise ToolUnavailable("the server 's' (ended during a call: Connection closed)")

    model = ScriptedModel(in_turn(calling(("lookup", '{"text":"x"}')), "Answer: 1"))
    rollout = await attempt(ToolActor([tool_from_function(lookup)], max_turns=3), model, tmp_path / "a")
    assert "the server 's' (ended during a call" in failed(rollout, "ToolUnavailable")
    assert len(model.requests) == 1
    rollout = await attempt(ADDER, lambda *_: calling(("add", '{"left":1}')), tmp_path / "b")
    failed(rollout)
    assert len(rollout.tools) == 3


async def test_tool_calls_are_made_once_whether_resumed_or_replayed_and_never_in_a_replay_alone(tmp_path):
    script = in_turn(calling(("add", '{"left":1}')), "Answer: 2")
    first, again = [await attempt(ADDER, script, tmp_path / "a") for _ in range(2)]
    replayed = await run_rollout(spec(), 0, runtime(script, tmp_path / "a", actor=ADDER, replay=True))
    assert agents.CALLS == ["add 1 1"]
    assert first.tools == again.tools == replayed.tools
    assert first.frames == replayed.frames
    await attempt(ChatActor(), script, tmp_path / "b")
    missing = await run_rollout(spec(), 0, runtime(script, tmp_path / "b", actor=ADDER, replay=True))
    assert missing.fatal.startswith("ReplayMiss")
    assert agents.CALLS == ["add 1 1"]


async def test_a_call_that_ends_the_run_ends_the_other_calls_of_its_turn(tmp_path):
    finished = []

    async def slow() -> str:
        """Take a while."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            finished.append("cancelled")
            raise
        return "done"

    actor = ToolActor([tool_from_function(slow), tool_from_function(agents.add)], max_turns=3)
    made = runtime(in_turn(calling(("slow", "{}"), ("add", '{"left":1}')), "never"), tmp_path, actor=actor)
    append = made.journal.append

    def full(key, payload):
        if "/tool/" in key:
            raise StoreError("no space left")
        append(key, payload)

    made.journal.append = full
    rollout = await run_rollout(spec(), 0, made)
    assert (rollout.fatal, finished) == ("StoreError: no space left", ["cancelled"])


async def test_an_attempt_that_is_over_runs_no_tool_any_more(tmp_path):
    class GoesOn:
        async def attempt(self, attempt):
            attempt.end()
            with pytest.raises(ActorError, match="the attempt is over"):
                await attempt.call_tool(tool_from_function(agents.add), '{"left": 1, "right": 2}')

    rollout = await attempt(GoesOn(), lambda *_: "7", tmp_path)
    assert (rollout.tools, agents.CALLS) == ((), [])
    assert "returned nothing" in failed(rollout)


async def test_text_that_no_utf8_can_carry_breaks_nothing(tmp_path):
    odd = "half a pair \ud83d"
    script = in_turn(calling(("echo", json.dumps({"text": odd})), ("echo", odd)), f"Answer: 2 {odd}")
    actor = ToolActor([tool_from_function(agents.echo)], max_turns=2)
    rollout, again = [await attempt(actor, script, tmp_path) for _ in range(2)]
    assert rollout.loss is None
    assert rollout.frames[1:3] == again.frames[1:3]
    assert (await attempt(CallableActor(agents.returns_a_lone_surrogate), lambda *_: "", tmp_path)).loss is None


# Callables


@pytest.mark.parametrize(("name", "output"), [
    ("takes_everything", "chat item prompt seed system temperature"), ("instance", "answer to 3 + 4?"),
    ("sends_a_system_message", "mine"), ("returns_a_trajectory", "7"),
])  # fmt: skip
async def test_an_agent_gets_what_it_declares_and_may_return_a_trajectory(tmp_path, name, output):
    actor = CallableActor(getattr(agents, name))
    rollout = await attempt(actor, lambda request, _: request.messages[0].content, tmp_path)
    assert rollout.output == output
    if name == "returns_a_trajectory":
        usage = rollout.usage
        assert (usage.calls, usage.completion_tokens, usage.cost_usd) == (1, 11, 0.5)


async def test_a_user_may_answer_in_turns_that_can_be_read_only_once(tmp_path):
    roles = ["user", "assistant", "user"]

    async def agent(chat):
        return await chat(messages=({"role": role, "content": role} for role in roles))

    model = ScriptedModel(lambda *_: "done")
    await attempt(CallableActor(agent), model, tmp_path)
    assert [message.role for message in model.requests[0][0].messages] == ["system", *roles]


async def test_a_finished_agent_is_not_started_again_and_a_blocking_one_has_a_thread(tmp_path):
    model, actor = ScriptedModel(lambda *_: "7"), CallableActor(agents.blocking)
    first, second = [await attempt(actor, model, tmp_path) for _ in range(2)]
    replayed = await run_rollout(spec(), 0, runtime(model, tmp_path, actor=actor, replay=True))
    assert len(agents.CALLS) == 1
    assert agents.CALLS != ["MainThread"]
    assert first.frames == second.frames == replayed.frames
    assert first.usage == second.usage == replayed.usage
    entries = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [entry["key"].split("/")[6] for entry in entries] == ["rollout", "agent"]
    never = await run_rollout(spec(), 1, runtime(model, tmp_path, actor=actor, replay=True))
    assert never.fatal.startswith("ReplayMiss: the journal holds no agent call")
    unrecorded = replace(runtime(model, tmp_path), journal=None, actor=actor)
    assert (await run_rollout(spec(), 0, unrecorded)).output == "7"


@pytest.mark.parametrize("name", ["swallows_errors", "wraps_errors", "sends_a_system_message"])
async def test_an_agent_cannot_hide_that_the_run_is_ending(tmp_path, name):
    actor = CallableActor(getattr(agents, name))
    refused = await attempt(actor, lambda *_: BudgetRefused("max_calls 0"), tmp_path / "a")
    assert refused.loss == Refused("max_calls 0")
    fatal = await attempt(actor, lambda *_: ModelAuthRefused("401"), tmp_path / "b")
    assert fatal.fatal == "ModelAuthRefused: 401"
    assert not any("/agent/" in line for line in (tmp_path / "a" / "journal.jsonl").read_text().splitlines())


async def test_an_agent_may_deal_with_a_failed_call_but_not_with_none_that_is_answered(tmp_path):
    down = ModelServerFault("503")
    silent = await attempt(CallableActor(agents.swallows_errors), lambda *_: down, tmp_path / "a")
    assert failed(silent, "ModelServerFault") == "503"
    inside = await attempt(CallableActor(agents.drafts_and_corrects), lambda *_: down, tmp_path / "b")
    failed(inside, "ModelServerFault")
    assert "/agent/" in inside.loss.call_key
    answers = iter(["a draft", down])
    drafted = await attempt(CallableActor(agents.keeps_its_draft), lambda *_: next(answers), tmp_path / "c")
    assert (drafted.output, drafted.loss) == ("a draft", None)


async def test_an_agent_that_was_given_up_on_spends_nothing_more(tmp_path):
    model = ScriptedModel(lambda *_: "7")
    made = runtime(model, tmp_path, actor=CallableActor(agents.calls_after_the_end), limits={"timeout_s": 0.05})
    failed(await run_rollout(spec(), 0, made), "ModelTimeout")
    await eventually(lambda: agents.CALLS)
    assert (agents.CALLS, model.requests) == (["the attempt is over"], [])


# Settings


@pytest.mark.parametrize(("settings", "why"), [
    ({"kind": "tools"}, "none"), ({"kind": "tools", "tools": (f"{HERE}:untyped",)}, "has no annotation"),
    ({"tools": (f"{HERE}:add",)}, "a value with kind: chat"), ({"kind": "teapot"}, "teapot"), ({"kind": HERE}, HERE),
    ({"kind": f"{HERE}:demands_more"}, "it demands"),
    ({"kind": f"{HERE}:Agent"}, "it is a class; an agent is a function, or an instance that can be called"),
    *(({"kind": f"{HERE}:{name}"}, "it yields; an agent returns") for name in ("yields", "yields_later")),
    ({"kind": "nowhere:x"}, "importing it failed: ModuleNotFoundError: No module named 'nowhere'"),
    ({"kind": f"{HERE}:missing"}, "agents does not have"), ({"kind": f"{HERE}:CALLS"}, "it is of type list"),
])  # fmt: skip
def test_a_bad_actor_is_one_problem_before_anything_is_spent(settings, why):
    [problem] = check_actor(ActorSettings(**settings))
    assert problem.accepted
    assert why in problem.given
    with pytest.raises(SettingsError):
        build_actor(ActorSettings(**settings))
