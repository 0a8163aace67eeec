from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from tests.support.agents import agents
from tests.support.agents.steps import ScriptedModel, attempt, calling, in_turn, item, reply, runtime, spec
from tfgrpo.pipelines.settings.actor import ActorSettings
from tfgrpo.rewarders.importing import load_callable
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelServerFault, SettingsError
from tfgrpo.stores.outcomes import Failed, Refused, Ungraded
from tfgrpo.stores.runs.journal import Journal
from tfgrpo.tasks.actors.callable import CallableActor
from tfgrpo.tasks.actors.registry import ChatActor, ToolActor, build_actor, check_actor
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.tools.schema import tool_from_function

HERE = "tests.support.agents.agents"


async def test_the_chat_actor_asks_once_with_the_system_text_first_and_the_item_last(tmp_path):
    model = ScriptedModel(lambda *_: "Answer: 7")
    rollout = await attempt(ChatActor(), model, tmp_path, of=item(system_prompt="Use digits."))
    [(request, key)] = model.requests
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be careful."),
        ("user", "Use digits.\n\n3 + 4?"),
    ]
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


async def test_a_failed_call_is_named_by_its_journal_key(tmp_path):
    model = ScriptedModel(lambda *_: ModelServerFault("503"))
    made = runtime(model, tmp_path)
    rollout = await run_rollout(spec(), 0, made)
    assert isinstance(rollout.loss, Failed)
    assert rollout.loss.error_type == "ModelServerFault"
    made.journal.append_failure(rollout.loss.call_key, rollout.loss.error_type, rollout.loss.reason)
    again = await run_rollout(spec(), 0, made)
    assert again.loss == rollout.loss
    assert len(model.requests) == 1


async def test_a_reply_without_usage_costs_the_unknown(tmp_path):
    rollout = await attempt(ChatActor(), lambda *_: replace(reply("7"), usage=None, cost_usd=None), tmp_path)
    assert (rollout.usage.calls, rollout.usage.completion_tokens, rollout.usage.cost_usd) == (1, None, None)


class Misbehaving:
    def __init__(self, act):
        self.act = act

    async def attempt(self, attempt):
        return self.act()


def too_slow_by_itself():
    raise TimeoutError("its own limit")


@pytest.mark.parametrize(("act", "said"), [(too_slow_by_itself, "its own limit"), (lambda: None, "returned nothing")])
async def test_an_actor_that_breaks_its_promise_fails_alone(tmp_path, act, said):
    rollout = await attempt(Misbehaving(act), lambda *_: "7", tmp_path)
    assert rollout.loss.error_type == "ActorError"
    assert said in rollout.loss.reason


async def test_a_recorded_failure_of_an_agent_is_raised_again_without_running_it(tmp_path):
    made = runtime(lambda *_: "7", tmp_path, actor=CallableActor(agents.raises))
    rollout = await run_rollout(spec(), 0, made)
    made.journal.append_failure(rollout.loss.call_key, rollout.loss.error_type, rollout.loss.reason)
    again = await run_rollout(
        spec(), 0, runtime(lambda *_: "7", tmp_path, actor=CallableActor(agents.raises), replay=True)
    )
    assert again.loss == rollout.loss


async def test_without_a_journal_work_is_simply_done(tmp_path):
    made = replace(runtime(lambda *_: "7", tmp_path), journal=None, actor=CallableActor(agents.blocking))
    assert (await run_rollout(spec(), 0, made)).output == "7"


def test_a_whole_agent_may_be_named_by_an_attribute_of_an_attribute():
    assert load_callable("tests.support.agents.agents:instance.__call__")
    with pytest.raises(ValueError, match="module:attr"):
        load_callable("tests.support.agents.agents")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Agent", "it is a class; an agent is a function, or an instance that can be called"),
        ("yields", "it yields; an agent returns its answer"),
        ("yields_later", "it yields; an agent returns its answer"),
        ("yielding", "it yields; an agent returns its answer"),
    ],
)
def test_what_could_never_answer_is_refused_before_anything_is_spent(name, why):
    (problem,) = check_actor(ActorSettings(kind=f"tests.support.agents.agents:{name}"))
    assert problem.source == "actor.kind"
    assert why in problem.given
    assert check_actor(ActorSettings(kind="tests.support.agents.agents:instance")) == ()


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("nowhere:x", "importing it failed: ModuleNotFoundError: No module named 'nowhere'"),
        ("tests.support.agents.agents:missing", "importing it failed: AttributeError: .* has no attribute 'missing'"),
        ("tests.support.agents.agents:CALLS", "it is of type list, which cannot be called"),
    ],
)
def test_a_reference_that_leads_nowhere_says_why(reference, why):
    with pytest.raises(ValueError, match=why):
        load_callable(reference)


async def test_anybodys_agent_fits_in_five_lines(tmp_path):
    model = ScriptedModel(lambda request, _: f"<{request.messages[-1].content}>")
    rollout = await attempt(CallableActor(agents.drafts_and_corrects), model, tmp_path)
    assert rollout.output == "<Correct: <3 + 4?> under Be careful.>"
    assert [key.turn for _, key in model.requests] == [0, 1]
    assert rollout.usage.calls == 2


async def test_a_blocking_agent_gets_a_thread_and_a_blocking_chat(tmp_path):
    rollout = await attempt(CallableActor(agents.blocking), lambda *_: "7", tmp_path)
    assert rollout.output == "7"
    assert agents.CALLS != ["MainThread"]


async def test_a_finished_agent_is_not_started_again(tmp_path):
    model = ScriptedModel(lambda *_: "7")
    first = await attempt(CallableActor(agents.blocking), model, tmp_path)
    second = await attempt(CallableActor(agents.blocking), model, tmp_path)
    replayed = await run_rollout(spec(), 0, runtime(model, tmp_path, actor=CallableActor(agents.blocking), replay=True))
    assert len(agents.CALLS) == 1
    assert first.frames == second.frames == replayed.frames
    assert first.usage == second.usage == replayed.usage
    entries = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [entry["key"].split("/")[6] for entry in entries] == ["rollout", "agent"]


async def test_an_entry_that_is_no_attempt_is_set_aside_and_the_agent_started_again(tmp_path):
    actor = CallableActor(agents.blocking)
    first = await attempt(actor, lambda *_: "7", tmp_path)
    key = json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[-1])["key"]

    def forge():
        with Journal(tmp_path / "journal.jsonl") as journal:
            journal.append(key, {"trajectory": {"output": "42"}, "events": [], "tally": []})

    forge()
    again = await attempt(actor, lambda *_: "7", tmp_path)
    assert (again.output, again.loss, again.usage) == (first.output, None, first.usage)
    assert len(agents.CALLS) == 2
    forge()
    replayed = await run_rollout(spec(), 0, runtime(lambda *_: "7", tmp_path, actor=actor, replay=True))
    assert replayed.fatal.startswith("CorruptFile")


async def test_a_replay_does_not_start_an_agent_that_was_never_recorded(tmp_path):
    made = runtime(lambda *_: "7", tmp_path, actor=CallableActor(agents.blocking), replay=True)
    rollout = await run_rollout(spec(), 0, made)
    assert rollout.fatal.startswith("ReplayMiss: the journal holds no agent call")
    assert agents.CALLS == []


async def test_text_that_no_utf8_can_carry_breaks_nothing(tmp_path):
    odd = "half a pair \ud83d"
    script = in_turn(calling(("echo", json.dumps({"text": odd})), ("echo", odd)), f"Answer: 2 {odd}")
    actor = ToolActor([tool_from_function(agents.echo)], max_turns=2)
    rollout = await attempt(actor, script, tmp_path)
    again = await attempt(actor, script, tmp_path)
    assert rollout.loss is None
    assert rollout.frames[1:3] == again.frames[1:3]
    agent = await attempt(CallableActor(agents.returns_a_lone_surrogate), lambda *_: "", tmp_path)
    assert agent.loss is None


async def test_an_agent_may_return_a_trajectory_of_its_own(tmp_path):
    rollout = await attempt(CallableActor(agents.returns_a_trajectory), lambda *_: "", tmp_path)
    assert rollout.output == "7"
    assert (rollout.usage.calls, rollout.usage.completion_tokens, rollout.usage.cost_usd) == (1, 11, 0.5)


@pytest.mark.parametrize("name", ["returns_a_number", "raises", "uses_a_strange_role"])
async def test_what_an_agent_does_wrong_is_a_failure_of_one_rollout(tmp_path, name):
    rollout = await attempt(CallableActor(getattr(agents, name)), lambda *_: "7", tmp_path)
    assert isinstance(rollout.loss, Failed)
    assert rollout.loss.error_type == "ActorError"
    assert rollout.loss.call_key is not None
    assert rollout.fatal is None


@pytest.mark.parametrize("name", ["swallows_errors", "wraps_errors", "sends_a_system_message"])
async def test_an_agent_cannot_hide_that_the_run_is_ending(tmp_path, name):
    actor = CallableActor(getattr(agents, name))
    refused = await attempt(actor, lambda *_: BudgetRefused("max_calls 0"), tmp_path / "a")
    assert refused.loss == Refused("max_calls 0")
    fatal = await attempt(actor, lambda *_: ModelAuthRefused("401"), tmp_path / "b")
    assert fatal.fatal == "ModelAuthRefused: 401"
    assert not any("/agent/" in line for line in (tmp_path / "a" / "journal.jsonl").read_text().splitlines())


async def test_an_agent_may_deal_with_a_failed_call_but_not_with_none_that_is_answered(tmp_path):
    silent = await attempt(CallableActor(agents.swallows_errors), lambda *_: ModelServerFault("503"), tmp_path / "a")
    assert (silent.loss.name, silent.loss.error_type, silent.loss.reason) == ("failed", "ModelServerFault", "503")
    answers = iter(["a draft", ModelServerFault("503")])
    drafted = await attempt(CallableActor(agents.keeps_its_draft), lambda *_: next(answers), tmp_path / "b")
    assert (drafted.output, drafted.loss) == ("a draft", None)


async def test_an_agent_that_was_given_up_on_spends_nothing_more(tmp_path):
    model = ScriptedModel(lambda *_: "7")
    made = runtime(model, tmp_path, actor=CallableActor(agents.calls_after_the_end), limits={"timeout_s": 0.05})
    rollout = await run_rollout(spec(), 0, made)
    assert rollout.loss.error_type == "ModelTimeout"
    for _ in range(100):
        if agents.CALLS:
            break
        await asyncio.sleep(0.02)
    assert agents.CALLS == ["the attempt is over"]
    assert model.requests == []


async def test_a_failed_call_inside_an_agent_keeps_its_type(tmp_path):
    rollout = await attempt(CallableActor(agents.drafts_and_corrects), lambda *_: ModelServerFault("503"), tmp_path)
    assert rollout.loss.error_type == "ModelServerFault"
    assert "/agent/" in rollout.loss.call_key


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("takes_everything", "chat item prompt seed system temperature"),
        ("instance", "answer to 3 + 4?"),
        ("sends_a_system_message", "mine"),
    ],
)
async def test_an_agent_gets_what_it_declares(tmp_path, name, output):
    actor = CallableActor(getattr(agents, name))
    rollout = await attempt(actor, lambda request, _: request.messages[0].content, tmp_path)
    assert rollout.output == output


def test_the_settings_choose_the_actor():
    assert isinstance(build_actor(ActorSettings()), ChatActor)
    assert isinstance(build_actor(ActorSettings(kind="tools", tools=(f"{HERE}:add",))), ToolActor)
    assert isinstance(build_actor(ActorSettings(kind=f"{HERE}:blocking")), CallableActor)
    assert isinstance(build_actor(ActorSettings(kind=f"{HERE}:instance")), CallableActor)


@pytest.mark.parametrize(
    "settings",
    [
        ActorSettings(kind="tools"),
        ActorSettings(kind="tools", tools=(f"{HERE}:untyped",)),
        ActorSettings(kind="chat", tools=(f"{HERE}:add",)),
        ActorSettings(kind="teapot"),
        ActorSettings(kind=f"{HERE}:absent"),
        ActorSettings(kind=f"{HERE}:CALLS"),
        ActorSettings(kind=f"{HERE}:demands_more"),
        ActorSettings(kind="no.such.module:agent"),
    ],
)
def test_a_bad_actor_is_one_problem_before_anything_is_spent(settings):
    [problem] = check_actor(settings)
    assert problem.accepted
    with pytest.raises(SettingsError):
        build_actor(settings)
