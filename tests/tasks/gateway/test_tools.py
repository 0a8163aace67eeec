"""Tools of an agent are seen on the wire: called in an assistant turn, answered in the next request."""

import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from tests.support.agents import agents
from tests.support.agents import steps as kit
from tests.support.agents.endpoint import (
    chat_body,
    chat_events,
    message_body,
    message_events,
    response_body,
    response_events,
    stream,
)
from tests.support.records.watched import Watched
from tfgrpo.tasks.actors.registry import ToolActor
from tfgrpo.tasks.models.base import ToolCall
from tfgrpo.tasks.runtime.runtime import AttemptContext
from tfgrpo.tasks.tools.schema import tool_from_function

CALLS = [("c1", "add", '{"left": 1}'), ("c2", "breaks", '{"text": "x"}'), ("c3", "invented", "{}")]
RESULTS = {"c1": "2", "c2": "error: LookupError: no x", "c3": "error: no tool named 'invented'; there are: add, breaks"}
NAMES = ("add", "breaks")
USER = {"role": "user", "content": "use the tools"}


def chat_turns():
    calls = [{"id": each, "type": "function", "function": {"name": name, "arguments": text}} for each, name, text in CALLS]
    body = {"model": "m", "tools": [{"type": "function", "function": {"name": name}} for name in NAMES]}
    results = [{"role": "tool", "tool_call_id": each, "content": text} for each, text in RESULTS.items()]
    turn = {"role": "assistant", "content": None, "tool_calls": calls}
    return (
        {**body, "messages": [USER]},
        {**body, "messages": [USER, turn, *results]},
        {**body, "messages": [USER, turn, *results, {"role": "user", "content": "again"}]},
    )


def response_turns():
    body = {"model": "m", "tools": [{"type": "function", "name": name} for name in NAMES]}
    calls = [{"type": "function_call", "call_id": each, "name": name, "arguments": text} for each, name, text in CALLS]
    results = [{"type": "function_call_output", "call_id": each, "output": text} for each, text in RESULTS.items()]
    return (
        {**body, "input": "use the tools"},
        {**body, "input": [USER, *calls, *results]},
        {**body, "input": [USER, *calls, *results, USER]},
    )


def message_turns():
    body = {"model": "m", "max_tokens": 9, "tools": [{"name": name, "input_schema": {}} for name in NAMES]}
    uses = [{"type": "tool_use", "id": each, "name": name, "input": json.loads(text)} for each, name, text in CALLS]
    results = [{"type": "tool_result", "tool_use_id": each, "content": text} for each, text in RESULTS.items()]
    turns = [USER, {"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    return {**body, "messages": [USER]}, {**body, "messages": turns}, {**body, "messages": [*turns, USER]}


WAYS: dict[str, tuple[Any, Any, Any]] = {
    "/chat/completions": (
        chat_turns(),
        lambda calls: chat_body(
            "", tool_calls=[{"id": i, "function": {"name": name, "arguments": text}} for i, name, text in calls] or None
        ),
        lambda body, calls: chat_events("so", body, calls),
    ),
    "/responses": (
        response_turns(),
        lambda calls: response_body("so", calls),
        lambda body, calls: response_events("so", calls),
    ),
    "/messages": (message_turns(), lambda calls: message_body("so", calls), lambda body, calls: message_events("so", calls)),
}


def answers(endpoint, path):
    """Answer the first request with calls of tools and the others without."""
    _, whole, events = WAYS[path]

    def answer(request, raw):
        body = json.loads(raw)
        calls = CALLS if len(endpoint.asked) == 1 else []
        return stream(request, events(body, calls)) if body.get("stream") else whole(calls)

    endpoint.answer = answer


async def measured_by_the_tools_actor(opened):
    def script(request, key):
        calls = tuple(ToolCall(*call) for call in CALLS)
        return kit.reply("so") if key.turn else kit.reply(None, finish="tool_calls", calls=calls)

    tools = [tool_from_function(agents.add), tool_from_function(agents.breaks)]
    runtime = kit.runtime(script, opened.folder / "own")
    attempt = AttemptContext(kit.spec(), 0, runtime)
    await ToolActor(tools, max_turns=3).attempt(attempt)
    runtime.threads.shutdown()
    return [(event.tool, event.tokens, event.ok) for event in attempt.tool_events]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", WAYS)
async def test_tools_are_measured_as_those_of_the_tools_actor(endpoint, opened, session, agent, path, streamed):
    answers(endpoint, path)
    for body in WAYS[path][0]:  # the third request repeats the results, which count once
        assert (await agent.post(path, json={**body, "stream": streamed})).status_code == 200

    attempt = session.attempt
    assert [frame.kind for frame in attempt.frames] == ["model", "tool", "tool", "model", "model"]
    assert attempt.frames[0].text.splitlines()[-3] == '→ add({"left": 1})'
    assert [frame.error for frame in attempt.frames[1:3]] == [None, RESULTS["c2"]]
    events = attempt.tool_events
    assert [(event.tool, event.tokens, event.ok) for event in events] == await measured_by_the_tools_actor(opened)
    assert all(0 < event.latency_ms < 10_000 and event.cost_usd is None for event in events)
    assert attempt.tool_events == tuple(events)


@pytest.mark.parametrize(("text", "succeeded"), [
    ("Error: no such file", False), ("an error: none", True),
    ("Chunk ID: 7e9d3b\nWall time: 0.01 seconds\nProcess exited with code 1\nOutput:\nno", False),
    ("Chunk ID: 7e9d3b\nWall time: 0.01 seconds\nProcess exited with code 0\nOutput:\nProcess exited with code 1", True),
    ("Wall time: 1.0 seconds\nProcess exited with code 127\nOutput:\n", False),
    ("Wall time: 0.0033 seconds\nOutput:\nProcess exited with code 1\n", True),
])  # fmt: skip
async def test_a_result_is_an_error_where_a_framework_or_codex_begins_it_so(endpoint, session, agent, text, succeeded):
    endpoint.answer = lambda request, raw: response_body("", [("c1", "exec_command", "{}")])
    output = {"type": "function_call_output", "call_id": "c1", "output": text}
    for items in ([], [output]):
        await agent.post("/responses", json={"model": "m", "input": items})
    assert [event.ok for event in session.attempt.tool_events] == [succeeded]


@pytest.mark.parametrize("streamed", [False, True])
async def test_calls_of_custom_tools_and_calls_that_share_an_index_are_seen(endpoint, session, agent, streamed):
    calls: list[dict[str, Any]] = [
        {"index": 0, "id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
        {"index": 0, "id": "b", "type": "function", "function": {"name": "add", "arguments": "{}"}},
    ]

    async def streamed_answer(request, raw):
        deltas = [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in calls]
        last = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
        return await stream(request, [f"data: {json.dumps(each)}\n\n".encode() for each in (*deltas, last)])

    endpoint.answer = streamed_answer if streamed else lambda request, raw: chat_body("", tool_calls=calls)
    tools = [{"type": "custom", "custom": {"name": "shell"}}, {"type": "function", "function": {"name": "add"}}]
    body = {"model": "m", "tools": tools, "stream": streamed}
    await agent.post("/chat/completions", json={**body, "messages": [USER]})
    results = [{"role": "tool", "tool_call_id": each, "content": "7"} for each in "ab"]
    await agent.post("/chat/completions", json={**body, "messages": [USER, *results]})
    assert [event.tool for event in session.attempt.tool_events] == ["shell", "add"]


async def test_calls_are_spans_of_their_rollout_and_counted_like_our_own(endpoint, opened):
    watched = Watched(content=True)
    runtime = replace(opened.runtime(endpoint.url), telemetry=watched.telemetry)
    body = {"model": "m", "messages": [USER], "temperature": 0.5, "max_tokens": 64}
    with watched.telemetry.span("the rollout"):
        session = await opened.session(runtime)
        agent = await opened.agent(session)
    await agent.post("/chat/completions", json=body)
    endpoint.answer = lambda request, raw: stream(request, chat_events("so", json.loads(raw)))
    await agent.post("/chat/completions", json={**body, "stream": True})
    endpoint.answer = lambda request, raw: web.json_response({"error": {"message": "no"}}, status=500)
    await agent.post("/chat/completions", json=body)

    rollout, whole, streamed, failed = watched.spans()
    assert {span.parent and span.parent.span_id for span in (whole, streamed, failed)} == {rollout.context.span_id}
    attributes = dict(whole.attributes or {})
    assert attributes["tfgrpo.role"] == "gateway"
    assert (attributes["gen_ai.request.temperature"], attributes["gen_ai.request.max_tokens"]) == (0.5, 64)
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (10, 5)
    assert (attributes["gen_ai.response.finish_reasons"], attributes["gen_ai.output.messages"]) == (("stop",), "seven")
    assert "use the tools" in str(attributes["gen_ai.input.messages"])
    assert "gen_ai.response.time_to_first_chunk" not in attributes
    assert 0 < float(str((streamed.attributes or {})["gen_ai.response.time_to_first_chunk"])) < 10
    assert (failed.attributes or {})["error.type"] == "ModelServerFault"
    points = watched.points("tfgrpo.llm.duration")
    assert {point.attributes["tfgrpo.role"] for point in points} == {"gateway"}
