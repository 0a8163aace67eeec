"""The service answers as a function of seed and request and says SIMULATED, in chat and in two dialects of agents."""

import asyncio
import json
import time

import pytest

from tests.support.models.simulated_calls import ITEM, TOOLS, ask, content_of, in_process, request, schema
from tfgrpo.tasks.models.simulated.puzzle import open_world

ADVICE = [open_world("arithmetic").pitfalls[name].good_advice[0] for name in ITEM["metadata"]["pitfalls"]]
LESSONS = "\n".join(["<lessons>", *(f"- {'Do' if a.polarity == 'do' else 'Avoid'}: {a.text}" for a in ADVICE), "</lessons>"])
CHAT, RESPONSES, MESSAGES = DIALECTS = ("chat/completions", "responses", "messages")


async def posted(path, body, **options):
    async with in_process(**options) as client:
        return await client.post(f"/{path}", json=body)


async def test_every_answer_is_labelled_and_has_the_shape_of_the_protocol():
    answered, refused = await posted(CHAT, request()), await posted(CHAT, {})
    assert answered.headers["x-simulated"] == refused.headers["x-simulated"] == "SIMULATED"
    answer = answered.json()
    assert (answer["object"], answer["model"]) == ("chat.completion", "simulated")
    assert answer["system_fingerprint"] == "SIMULATED"
    (choice,) = answer["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    assert content_of(answer).splitlines()[-1].startswith("Answer: ")


async def test_the_one_model_is_listed_and_there_are_no_others():
    async with in_process() as client:
        listed = await client.get("/models")
        gone = [await client.post("/responses", json={"model": "x", "input": "y"})]
        gone.append(await client.post("/messages", json={"model": "x", "max_tokens": 1, "messages": [USER]}))
        nothing, method = await client.get("/nothing"), await client.get("/chat/completions")
    assert [each["id"] for each in listed.json()["data"]] == ["simulated"]
    assert [each.status_code for each in (*gone, nothing, method)] == [404, 404, 404, 405]
    assert all("does not exist" in each.json()["error"]["message"] for each in gone)
    assert gone[1].json()["type"] == "error"


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
USER = {"role": "user", "content": "hello"}
ENDLESS = {"$ref": "#/$defs/one", "$defs": {"one": {"properties": {"next": {"$ref": "#/$defs/one"}}, "required": ["next"]}}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}


@pytest.mark.parametrize(("changes", "param"), [
    ({"messages": []}, "messages"), ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
    ({"temperature": 2.5}, "temperature"), ({"temperature": "hot"}, "temperature"), ({"max_tokens": 0}, "max_tokens"),
    ({"seed": 1.5}, "seed"), ({"n": 2}, "n"),
    ({"top_logprobs": 2}, "top_logprobs"), ({"stream": "yes"}, "stream"),
    ({"tools": "add"}, "tools"), ({"tools": [{"type": "function"}]}, None),
    ({"messages": [{**CALLING, "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": {}}}]}]}, None),
    ({"response_format": {"type": "json_schema", "json_schema": "x"}}, None),
    ({"tool_choice": "required"}, None), ({"tools": TOOLS, "tool_choice": {"function": {"name": "other"}}}, None),
    ({"response_format": schema("endless", ENDLESS)}, None),
])  # fmt: skip
async def test_bad_requests_are_refused_with_the_field_at_fault(changes, param):
    answer = await posted(CHAT, request(**changes))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"model": NaN}', b"\xff\xfe", b"[" * 100_000, rb'{"model": "\ud800", "messages": []}']
)
async def test_bodies_that_are_no_request_are_refused(raw):
    async with in_process() as client:
        for dialect in DIALECTS:
            assert (await client.post(f"/{dialect}", content=raw)).status_code == 400


@pytest.mark.parametrize("text", ["\ud800", "日本語の問題", "🙂" * 9, ""])
async def test_usage_counts_request_and_reply_and_never_more_than_the_bytes_sent(text):
    async with in_process() as client:
        reply = await client.post("/chat/completions", content=json.dumps(request(text, system="s")).encode())
        plain, more = await ask(client, request()), await ask(client, request(tools=TOOLS))
    usage = reply.json()["usage"]
    assert 1 <= usage["prompt_tokens"] <= len(f"s{text}".encode("utf-8", "surrogatepass"))
    assert plain["usage"]["prompt_tokens"] == -(-len("Solve it." + ITEM["prompt"]) // 4)
    assert plain["usage"]["completion_tokens"] == -(-len(content_of(plain)) // 4)
    assert more["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"] + 40


async def test_words_are_embedded():
    answer = await posted("embeddings", {"model": "simulated", "input": ["the cat", "The  cat", "a dog"]})
    one, same, other = (row["embedding"] for row in answer.json()["data"])
    assert one == same != other
    assert sum(each * each for each in one) == pytest.approx(1.0)
    assert answer.headers["x-simulated"] == "SIMULATED"
    assert (await posted("embeddings", {})).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
async def test_latency_is_added(stream):
    start = time.monotonic()
    await posted(CHAT, request(stream=stream), latency_s=0.05)
    assert time.monotonic() - start >= 0.045


async def test_without_a_latency_no_other_task_has_its_turn_before_the_answer():
    turns = []
    async with in_process() as client:
        asyncio.get_running_loop().call_soon(turns.append, "another")
        await client.post(f"/{CHAT}", json=request())
        assert turns == []


# Dialects


def body_of(dialect, system, **changes):
    """The same request in a dialect, with a token limit because Anthropic demands one."""
    user = {"role": "user", "content": ITEM["prompt"]}
    body = {
        CHAT: {"messages": [{"role": "system", "content": system}, user], "max_tokens": 400},
        RESPONSES: {"instructions": system, "input": [user], "max_output_tokens": 400},
        MESSAGES: {"system": system, "messages": [user], "max_tokens": 400},
    }[dialect]
    return {"model": "simulated", "temperature": 0.7, **body, **changes}


def said_in(dialect, answer):
    if dialect == RESPONSES:
        return "".join(part["text"] for item in answer["output"] for part in item["content"])
    return content_of(answer) if dialect == CHAT else "".join(block["text"] for block in answer["content"])


def streamed(dialect, response):
    """The text of the deltas of a stream."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, rest = response.text.split("\n\n")
    assert rest == ""
    lines = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in frames]
    data = [json.loads(line["data"]) for line in lines if line["data"] != "[DONE]"]
    if dialect == CHAT:
        return "".join(each["choices"][0]["delta"].get("content") or "" for each in data)
    assert [line["event"] for line in lines] == [each["type"] for each in data]
    if dialect == RESPONSES:
        return "".join(each["delta"] for each in data if each["type"] == "response.output_text.delta")
    return "".join(each["delta"]["text"] for each in data if each["type"] == "content_block_delta")


@pytest.mark.parametrize("system", ["Solve it.", f"You are an agent of my own.\n\n{LESSONS}"])
async def test_every_dialect_gives_the_same_answers_plain_and_streamed(system):
    texts = set()
    for dialect in DIALECTS:
        async with in_process() as client:
            plain = [await client.post(f"/{dialect}", json=body_of(dialect, system)) for _ in range(6)]
        async with in_process() as client:
            streams = [await client.post(f"/{dialect}", json=body_of(dialect, system, stream=True)) for _ in range(6)]
        texts.add(tuple(said_in(dialect, each.json()) for each in plain))
        texts.add(tuple(streamed(dialect, each) for each in streams))
    (said,) = texts
    assert len(set(said)) > 1


# Tools and structured output


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "final"}}])
async def test_a_call_that_is_demanded_has_the_answer_in_it_as_structured_output(choice):
    whole = {
        "type": "object",
        "properties": {"final": {"$ref": "#/$defs/Final"}, "sure": {"type": "boolean"}, "note": {"type": "string"}},
        "required": ["final", "sure"],
        "$defs": {"Final": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
    }
    final = {"type": "function", "function": {"name": "final", "description": "", "parameters": whole}}
    answer = (await posted(CHAT, request(tools=[*TOOLS, final], tool_choice=choice))).json()
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert (call["function"]["name"], arguments["sure"], list(arguments)) == ("final", False, ["final", "sure"])
    assert "Answer: " in arguments["final"]["text"]


async def test_structured_output_is_a_minimal_instance_of_the_schema():
    properties = {
        "verdict": {"enum": ["yes", "no"]}, "why": {"type": "string", "maxLength": 9}, "score": {"type": "number"},
        "all": {"type": "array", "items": {"type": "integer"}, "minItems": 2}, "one": {"const": 3}, "two": {"default": "d"},
        "any": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "some": {"type": ["integer", "null"], "minimum": 4},
    }  # fmt: skip
    wanted = schema("judge", {"type": "object", "required": list(properties), "properties": properties})
    async with in_process() as client:
        value = content_of(await ask(client, request("Judge this.", response_format=wanted)))
        free = content_of(await ask(client, request("Judge this.", response_format={"type": "json_object"})))
        text = content_of(await ask(client, request("Judge this.", response_format={"type": "text"})))
    assert value == {
        "verdict": "yes", "why": "SIMULATED", "score": 0, "all": [0, 0], "one": 3, "two": "d", "any": None, "some": 4,
    }  # fmt: skip
    assert free["answer"] == text
