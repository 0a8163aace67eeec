"""The HTTP actor against a real server: what it sends, the forms of an answer, and its failures."""

import asyncio
import json
import re
import socket
from dataclasses import replace

import pytest
from aiohttp import web

from tests.support.agents import steps as kit
from tests.support.agents.endpoint import Endpoint
from tfgrpo.pipelines.settings.tree import ActorSettings, GatewaySettings
from tfgrpo.tasks.actors import own
from tfgrpo.tasks.actors.registry import actor_warnings, build_actor, check_actor
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.rollout import run_rollout

OFF = GatewaySettings(enabled=False)
URL = "http://localhost:1/a"


@pytest.fixture
async def agent():
    """A service on a port, whose answers are scripted."""
    async with Endpoint() as running:
        yield running


async def attempt(tmp_path, url, *, timeout_s=10.0, **more):
    actor = build_actor(ActorSettings(kind="http", url=url, gateway=OFF, **more))
    runtime = kit.runtime(lambda *_: "7", tmp_path, actor=actor, limits={"timeout_s": timeout_s})
    try:
        return await run_rollout(kit.spec(of=kit.item(metadata={"tier": [1]}, domain="sums")), 0, runtime)
    finally:
        await runtime.resources.aclose()


def answering(body, content_type="application/json", status=200, **headers):
    return lambda *_: web.Response(body=body.encode(), content_type=content_type, status=status, headers=headers)


async def test_the_agent_gets_the_item_without_its_answer_and_one_key_also_when_its_run_lost_the_answer(tmp_path, agent):
    agent.answer = lambda *_: {"answer": "Answer: 7", "id": 1}
    await attempt(tmp_path / "killed", agent.url)
    rollout = await attempt(tmp_path / "resumed", agent.url)
    item = {"id": "q1", "prompt": "3 + 4?", "system_prompt": "", "metadata": {"tier": [1]}, "domain": "sums"}
    told = {"prompt": "3 + 4?", "system": "Be careful.", "item": item, "temperature": 0.7, "seed": rollout.seed}
    assert [asked.body for asked in agent.asked] == [{**told, "base_url": None, "api_key": None}] * 2
    [key] = {asked.headers["Idempotency-Key"] for asked in agent.asked}
    assert len(key) == 32
    agent.answer = answering("  Answer: 7\n", "text/plain")
    assert (await attempt(tmp_path / "text", agent.url, answer="text")).output == "Answer: 7"
    agent.answer = answering('{"step": 1}\n{"answer": "Answer: 7"}\n', "application/x-ndjson")
    assert (await attempt(tmp_path / "lines", agent.url)).output == "Answer: 7"
    assert (rollout.output, rollout.loss, rollout.usage.calls) == ("Answer: 7", None, None)


async def test_a_private_service_gets_its_header_alone_and_what_repeats_it_is_recorded_without_it(tmp_path, monkeypatch, agent):
    monkeypatch.setenv("AGENT_AUTH", "Bearer agent-s3cret")
    told = [
        answering('{"answer": "7, said agent-s3cret"}'), answering("", status=303, Location="/done"),
        answering('{"error": "bad token agent-s3cret"}', status=401),
    ]  # fmt: skip
    agent.answer = lambda *_: told[len(agent.asked) - 1]()
    headers = {"Authorization": "env:AGENT_AUTH", "X-Team": "blue"}
    first, moved, refused = [await attempt(tmp_path / n, agent.url, headers=headers) for n in "abc"]
    seen = [(asked.path, asked.headers["Authorization"], asked.headers["X-Team"]) for asked in agent.asked]
    assert seen == [("/v1", "Bearer agent-s3cret", "blue")] * 3
    assert first.output == "7, said ***"
    assert f"it moved to {agent.url.removesuffix('/v1')}/done" in moved.loss.reason
    assert "401 from the agent" in refused.loss.reason
    assert "bad token ***" in refused.loss.reason


@pytest.mark.parametrize(("headers", "said"), [
    ({"Authorization": "Bearer agent-s3cret"}, "env:NAME as the value of Authorization"),
    ({"Host": "x"}, "names of headers other than"), ({"a b": "x"}, "names of headers other than"),
    ({"X-Key": "env:a b"}, "the name of an environment variable"), ({"X-Team": "blü"}, "printable ASCII"),
])  # fmt: skip
def test_a_header_that_cannot_be_sent_or_would_be_recorded_is_refused(headers, said):
    with pytest.raises(ValueError, match=said):
        ActorSettings(kind="http", url=URL, headers=headers)


@pytest.mark.parametrize(("given", "source", "said"), [
    ({"kind": "http"}, "actor.url", "the address of the agent"),
    ({"kind": "http", "url": URL, "answer": "stdout"}, "actor.answer", "text or json:/POINTER"),
    ({"kind": "http", "url": URL, "command": "cat"}, "actor.command", "it with kind: command"),
    ({"kind": "http", "url": URL, "headers": {"X": "env:NOT_SET_HERE"}}, "header X", "NOT_SET_HERE, which is not set"),
    ({"headers": {"X-Team": "blue"}}, "actor.headers", "it with kind: http"),
    ({"stdin": "prompt"}, "actor.stdin", "it with kind: command"), ({"mcp": "mcp.json"}, "actor.mcp", "it with kind: tools"),
    ({"max_turns": 3}, "actor.max_turns", "it with kind: tools"),
])  # fmt: skip
def test_bad_settings_and_those_of_another_kind_are_refused_before_anything_is_sent(given, source, said):
    (problem,) = check_actor(ActorSettings(**given))
    assert problem.source == source
    assert said in f"{problem.given} {problem.accepted}"


@pytest.mark.parametrize(("route", "said"), [
    (answering('{"error": {"message": "no  more\\nagents"}}', status=503), "503 from the agent at .*: no more agents"),
    (answering("", status=404), "an empty body"), (answering("", status=202, Location="/j"), "which has no answer yet"),
    (answering("", status=308, Location="https://elsewhere.test/a?key=1"), "it moved to https://elsewhere.test/a,"),
    (answering("<html>"), "the answer is no JSON"), (answering("{}"), "nothing at /answer"),
    (answering('data: {"answer": "7"}\n\n', "text/event-stream"), "answers with an event stream"),
    (answering(json.dumps({"answer": "x" * (17 << 20)})), "more than 16777216 bytes"),
])  # fmt: skip
async def test_what_the_agent_does_wrong_is_a_failure_of_its_rollout(tmp_path, agent, route, said):
    agent.answer = route
    rollout = await attempt(tmp_path, agent.url)
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", "ActorError")
    assert re.search(said, rollout.loss.reason)


async def test_a_service_that_never_starts_is_named_in_place_of_the_limit_of_the_attempt(tmp_path):
    rollout = await attempt(tmp_path, URL, timeout_s=2.0)
    assert "no answer from the agent at http://localhost:1/a: " in rollout.loss.reason
    assert (rollout.usage.calls, rollout.usage.cost_usd) == (0, 0.0)


async def test_a_request_is_repeated_only_if_it_was_never_sent_and_for_as_long_as_an_endpoint_is_waited_for(
    tmp_path, monkeypatch, agent
):
    agent.answer = lambda request, _: request.transport.abort() or {}
    broken = await attempt(tmp_path, agent.url)
    assert (broken.loss.error_type, len(agent.asked), broken.usage.calls) == ("ModelUnreachable", 1, None)
    # As if all retries were used up: what is left is the patience of model.wait_s.
    used_up = RetryPolicy(max_retries=0, base_s=0.01)
    monkeypatch.setattr(own, "RetryPolicy", lambda unavailable_s, **_: replace(used_up, unavailable_s=unavailable_s))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        late = Endpoint(free.getsockname()[1])
    late.answer = lambda *_: {"answer": "7"}
    asking = asyncio.ensure_future(attempt(tmp_path / "late", f"http://127.0.0.1:{late.port}/v1"))
    await asyncio.sleep(0.05)
    async with late:
        rollout = await asking
    assert (rollout.output, rollout.loss) == ("7", None)


def test_an_agent_elsewhere_cannot_reach_the_gateway_and_the_plan_says_so():
    (warning,) = actor_warnings(ActorSettings(kind="http", url="https://agent.example/attempt"))
    assert "listens on this machine only" in warning
    assert actor_warnings(ActorSettings(kind="http", url="http://127.0.0.1:1/attempt")) == ()
    (unseen,) = actor_warnings(ActorSettings(kind="http", url="https://agent.example/attempt", gateway=OFF))
    assert "no cap holds" in unseen
