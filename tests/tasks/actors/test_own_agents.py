"""Agents of one's own behind the gateway, each kind alike: counted, taught, bounded, journalled, and never past it."""

import asyncio
import json
import shlex
import sys
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from aiohttp import web

from tests.support.agents import steps as kit
from tests.support.agents.endpoint import LESSONS, SYSTEM, USAGE, Endpoint, Opener, chat_body
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.stores.ledger import Budget
from tfgrpo.stores.outcomes import Failed, Refused
from tfgrpo.tasks.actors.own import CallableActor
from tfgrpo.tasks.actors.registry import actor_warnings, build_actor
from tfgrpo.tasks.rollout import run_rollout

CODE = """
import json, os, sys, urllib.error, urllib.request

def ask(messages, base_url=None, api_key=None):
    request = urllib.request.Request(
        (base_url or os.environ["OPENAI_BASE_URL"]) + "/chat/completions",
        json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode(),
        {"authorization": "Bearer " + (api_key or os.environ["OPENAI_API_KEY"]), "content-type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request) as reply:
            return json.load(reply)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        error.close()
        raise

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]

def agent(prompt, base_url=None, api_key=None):
    messages = [{"role": "user", "content": prompt}]
    while True:
        message = ask(messages, base_url, api_key)
        if not message.get("tool_calls"):
            return message["content"]
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "found"} for call in message["tool_calls"]]
"""
COMMAND = shlex.join([sys.executable, "-c", CODE + "\nprint(agent(json.load(sys.stdin)['prompt']))"])
own = {}
exec(CODE, own)


def as_callable(prompt, base_url, api_key):
    return own["agent"](prompt, base_url, api_key)


def searching(request, raw):
    """One tool call, then the answer."""
    if json.loads(raw)["messages"][-1]["role"] == "tool":
        return chat_body("Answer: 7")
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    return chat_body("", tool_calls=[call])


@pytest.fixture
async def stack():
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def endpoint(stack):
    running = await stack.enter_async_context(Endpoint())
    running.answer = searching
    return running


@pytest.fixture
def opener(tmp_path, stack):
    return Opener(tmp_path, stack)


async def served(stack):
    """The agent as an HTTP service; return its address."""

    async def answer(request, raw):
        given = json.loads(raw)
        return {"answer": await asyncio.to_thread(as_callable, given["prompt"], given["base_url"], given["api_key"])}

    service = await stack.enter_async_context(Endpoint())
    service.answer = answer
    return service.url


async def actor_of(kind, stack):
    if kind == "callable":
        return CallableActor(as_callable)
    if kind == "command":
        return build_actor(ActorSettings(kind="command", command=COMMAND))
    return build_actor(ActorSettings(kind="http", url=await served(stack)))


async def attempt(opener, url, actor, index=0, **more):
    return await run_rollout(kit.spec(system=SYSTEM), index, replace(opener.runtime(url, **more), actor=actor))


KINDS = ["callable", "command", "http"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_behind_the_gateway_is_taught_and_all_that_it_did_is_known_and_replayed(kind, stack, endpoint, opener):
    actor = await actor_of(kind, stack)
    rollout = await attempt(opener, endpoint.url, actor)
    assert (rollout.output, rollout.loss) == ("Answer: 7", None)
    assert [asked.body["messages"][0] for asked in endpoint.asked] == [{"role": "system", "content": LESSONS}] * 2
    assert (rollout.usage.calls, rollout.usage.prompt_tokens) == (2, 2 * USAGE["prompt_tokens"])
    names = [(frame.kind, frame.name) for frame in rollout.frames]
    assert names == [("model", "m"), ("tool", "search"), ("model", "m")]
    assert [(event.tool, event.ok) for event in rollout.tools] == [("search", True)]
    # It is not started again, and a replay needs no gateway.
    for again in (await attempt(opener, endpoint.url, actor), await attempt(opener, None, actor, replay=True)):
        assert (again.usage, again.frames, again.tools) == (rollout.usage, rollout.frames, rollout.tools)
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_recorded_failure_replays_with_what_the_attempt_did_before_it(kind, stack, endpoint, opener):
    endpoint.answer = lambda request, raw: web.Response(status=400) if len(endpoint.asked) > 1 else searching(request, raw)
    actor = await actor_of(kind, stack)
    failed = await attempt(opener, endpoint.url, actor)
    assert isinstance(failed.loss, Failed)
    assert (failed.usage.calls, len(failed.frames), len(failed.tools)) == (1, 2, 1)
    journal = opener.runtime(endpoint.url).journal
    journal.append_failure(failed.loss.call_key, failed.loss.error_type, failed.loss.reason)
    for url in (endpoint.url, None):
        again = await attempt(opener, url, actor, replay=url is None)
        assert (again.loss, again.usage) == (failed.loss, failed.usage)
        assert (again.frames, again.tools) == (failed.frames, failed.tools)
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_the_budget_stops_an_agent_even_if_it_answers_all_the_same(kind, stack, endpoint, opener):
    rollout = await attempt(opener, endpoint.url, await actor_of(kind, stack), budget=Budget(max_calls=1))
    assert isinstance(rollout.loss, Refused)
    assert len(endpoint.asked) == 1


ECHO = ActorSettings(kind="command", command="echo Answer: 7")


@pytest.mark.parametrize("actor", [CallableActor(lambda prompt, base_url: "Answer: 7"), build_actor(ECHO)])
async def test_an_agent_that_bypasses_the_gateway_fails_and_is_never_scored(actor, endpoint, opener):
    rollout = await attempt(opener, endpoint.url, actor)
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", "ActorError")
    assert rollout.loss.reason.startswith("the agent bypassed the gateway")
    assert "OPENAI_BASE_URL" in rollout.loss.reason
    assert rollout.usage.calls is None
    journal = opener.folder / "journal.jsonl"
    assert not journal.exists() or "/agent/" not in journal.read_text()


def hangs_up(request, raw):
    """Close the connection, within a stream if that is asked for."""
    request.transport.close()
    return chat_body("Answer: 7")


def garbage(request, raw):
    return web.Response(text="<html>busy</html>", content_type="application/json")


async def half_a_stream(request, raw):
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b'data: {"choices": [{"index": 0, "delta": {"content": "Ans"}}]}\n\n')
    request.transport.close()
    return response


async def never(request, raw):
    await asyncio.sleep(60)


@pytest.mark.parametrize(("answer", "error_type", "code"), [
    (lambda *_: web.Response(status=500), "ModelServerFault", 0), (garbage, "ModelReplyMalformed", 3),
    (hangs_up, "ModelUnreachable", 0), (half_a_stream, "ModelUnreachable", 3), (never, "ModelTimeout", 0),
])  # fmt: skip
async def test_an_agent_without_an_answered_call_fails_by_that_call_whatever_it_says(
    endpoint, opener, answer, error_type, code
):
    endpoint.answer = answer
    sorry = f"print('Sorry, the API has a problem.')\n    sys.exit({code})"
    code = f"{CODE}\ntry:\n    print(agent('x'))\nexcept Exception:\n    {sorry}"
    actor = build_actor(ActorSettings(kind="command", command=shlex.join([sys.executable, "-c", code])))
    rollout = await attempt(opener, endpoint.url, actor, model={"timeout_s": 1.0})
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", error_type)


async def test_an_agent_that_gives_up_before_its_only_call_is_answered_fails(endpoint, opener):
    endpoint.answer = never
    code = CODE.replace("opener.open(request)", "opener.open(request, timeout=0.5)")
    code += "\ntry:\n    agent('x')\nexcept OSError:\n    print('Sorry, the API is slow.')"
    actor = build_actor(ActorSettings(kind="command", command=shlex.join([sys.executable, "-c", code])))
    rollout = await attempt(opener, endpoint.url, actor)
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", "ActorError")
    assert rollout.loss.reason == "the agent ended before any of its model calls was answered"


async def test_what_went_wrong_with_an_agent_itself_is_not_called_a_bypass(endpoint, opener):
    actor = build_actor(ActorSettings(kind="command", command="sh -c 'echo no model >&2; exit 1'"))
    assert "no model" in (await attempt(opener, endpoint.url, actor)).loss.reason


async def test_address_and_lessons_can_be_in_arguments_and_variables_of_any_name_and_are_not_added_twice(endpoint, opener):
    endpoint.answer = lambda request, raw: chat_body("Answer: 7")
    asking = "ask([{'role': 'system', 'content': sys.argv[2]}], sys.argv[1], os.environ['MY_TOKEN'])"
    command = shlex.join([sys.executable, "-c", f"{CODE}\nprint({asking}['content'])", "{base_url}", "{system}"])
    settings = ActorSettings(kind="command", command=command, env=("MY_TOKEN={api_key}",))
    rollout = await attempt(opener, endpoint.url, build_actor(settings))
    assert (rollout.output, rollout.loss, rollout.usage.calls) == ("Answer: 7", None, 1)
    assert [asked.body["messages"] for asked in endpoint.asked] == [[{"role": "system", "content": SYSTEM}]]


def test_the_plan_warns_of_an_agent_that_is_not_seen_or_cannot_learn():
    def warned(function):
        return actor_warnings(ActorSettings(kind=f"tests.support.agents.agents:{function}"))

    assert warned("proxied") == warned("drafts_and_corrects") == ()
    no_lesson, unseen = warned("instance")
    assert "no lesson can reach it" in no_lesson
    assert "not counted" in unseen
