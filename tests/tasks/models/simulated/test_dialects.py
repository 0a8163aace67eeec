"""The same question gets the same answer in every dialect, plain and streamed, with tools and lessons."""

from __future__ import annotations

import asyncio
import json
import time

import httpx
import pytest

from benchmarks.generated_items import generate_items
from tests.support.models.serving import running_server
from tests.support.models.simulated_calls import ITEM, TOOLS, ask, in_process, request
from tfgrpo.tasks.models.simulated import SimulatedOptions
from tfgrpo.tasks.models.simulated.worlds.ledger import run_call
from tfgrpo.tasks.models.simulated.worlds.puzzle import ToolCall, open_world

DIALECTS = ("chat/completions", "responses", "messages")
FUNCTIONS = [tool["function"] for tool in TOOLS]
ADVICE = [open_world("arithmetic").pitfalls[name].good_advice[0] for name in ITEM["metadata"]["pitfalls"]]
LINES = "\n".join(f"- {'Do' if advice.polarity == 'do' else 'Avoid'}: {advice.text}" for advice in ADVICE)
LESSONS = f"<lessons>\n{LINES}\n</lessons>"


def body_of(dialect, system="Solve it.", prompt=ITEM["prompt"], *, tools=False, **changes):
    """The same request in a dialect, with a token limit because Anthropic demands one."""
    common = {"model": "simulated", "temperature": 0.7, **changes}
    user = {"role": "user", "content": prompt}
    if dialect == "responses":
        offered = [{"type": "function", **function} for function in FUNCTIONS]
        body = {"instructions": system, "input": [user], "max_output_tokens": 400, "tools": offered}
    elif dialect == "messages":
        offered = [
            {"name": each["name"], "description": "", "input_schema": each["parameters"], "type": "custom"}
            for each in FUNCTIONS
        ]
        body = {"system": system, "messages": [user], "max_tokens": 400, "tools": offered}
    else:
        body = {"messages": [{"role": "system", "content": system}, user], "max_tokens": 400, "tools": TOOLS}
    if not tools:
        del body["tools"]
    return {**common, **body}


def events_of(response):
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, rest = response.text.split("\n\n")
    assert rest == ""
    lines = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in frames]
    return [
        (line.get("event"), line["data"] if line["data"] == "[DONE]" else json.loads(line["data"])) for line in lines
    ]


def text_of(dialect, answer):
    if dialect == "responses":
        return "".join(p["text"] for item in answer["output"] if item["type"] == "message" for p in item["content"])
    if dialect == "messages":
        return "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    return answer["choices"][0]["message"]["content"] or ""


def calls_of(dialect, answer):
    """(id, name, arguments) of each call."""
    if dialect == "responses":
        found = [item for item in answer["output"] if item["type"] == "function_call"]
        return [(item["call_id"], item["name"], json.loads(item["arguments"])) for item in found]
    if dialect == "messages":
        return [(each["id"], each["name"], each["input"]) for each in answer["content"] if each["type"] == "tool_use"]
    calls = answer["choices"][0]["message"].get("tool_calls", ())
    return [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def continued(dialect, body, answer, results):
    """The next request of a conversation, as each vendor's examples write it."""
    if dialect == "responses":
        outputs = [{"type": "function_call_output", "call_id": key, "output": text} for key, text in results]
        return {**body, "input": [*body["input"], *answer["output"], *outputs]}
    if dialect == "messages":
        blocks = [{"type": "tool_result", "tool_use_id": key, "content": text} for key, text in results]
        turns = [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": blocks}]
        return {**body, "messages": [*body["messages"], *turns]}
    tools = [{"role": "tool", "tool_call_id": key, "content": text} for key, text in results]
    return {**body, "messages": [*body["messages"], answer["choices"][0]["message"], *tools]}


async def post(client, dialect, body, **headers):
    return await client.post(f"/{dialect}", json=body, headers=headers)


async def answers(dialect, bodies, **options):
    async with in_process(**options) as client:
        responses = [await post(client, dialect, body) for body in bodies]
    assert {response.status_code for response in responses} == {200}, responses[0].text
    return responses


def streamed_text(dialect, events):
    names = {"responses": "response.output_text.delta", "messages": "content_block_delta"}
    if dialect == "chat/completions":
        chunks = [data for _, data in events if data != "[DONE]" and data["choices"]]
        return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    deltas = [data["delta"] for name, data in events if name == names[dialect]]
    return "".join(delta if dialect == "responses" else delta.get("text", "") for delta in deltas)


@pytest.mark.parametrize("system", ["Solve it.", f"You are an agent of my own.\n\n{LESSONS}"])
async def test_every_dialect_gives_the_same_answers_plain_and_streamed(system):
    texts = set()
    for dialect in DIALECTS:
        plain = await answers(dialect, [body_of(dialect, system)] * 6)
        texts.add(tuple(text_of(dialect, response.json()) for response in plain))
        streams = await answers(dialect, [body_of(dialect, system, stream=True)] * 6)
        texts.add(tuple(streamed_text(dialect, events_of(response)) for response in streams))
    (said,) = texts
    assert len(set(said)) > 1


async def test_lessons_help_wherever_a_dialect_has_them():
    blocks = [
        {"type": "text", "text": "Mine."},
        {"type": "text", "text": LESSONS, "cache_control": {"type": "ephemeral"}},
    ]
    ways = {
        ("responses", "instructions"): {"instructions": LESSONS},
        ("responses", "developer"): {
            "instructions": "Mine.",
            "input": [{"role": "developer", "content": LESSONS}, {"role": "user", "content": ITEM["prompt"]}],
        },
        ("messages", "blocks"): {"system": blocks},
    }
    for (dialect, _), changes in ways.items():
        shares = []
        for given in ({}, changes):
            replies = await answers(dialect, [{**body_of(dialect), **given}] * 60)
            shares.append(sum(ITEM["answer"] in text_of(dialect, reply.json()) for reply in replies) / 60)
        assert shares[1] > shares[0] + 0.3, (dialect, shares)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_ledger_question_is_worked_with_tools_in_every_dialect(dialect):
    told = {}
    for way in ("chat/completions", dialect):
        told[way] = []
        async with in_process(world="ledger-tools") as client:
            for item in generate_items("ledger-tools", 12):
                body = body_of(way, prompt=item["prompt"], tools=True, temperature=0)
                while calls := calls_of(way, answer := (await post(client, way, body)).json()):
                    results = [(key, run_call(ToolCall(name, given)).result) for key, name, given in calls]
                    told[way].append([(name, given) for _, name, given in calls])
                    body = continued(way, body, answer, results)
                told[way].append(text_of(way, answer).rpartition("Answer: ")[2])
    assert told[dialect] == told["chat/completions"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_has_the_calls_and_the_usage_of_the_plain_answer(dialect):
    prompt = generate_items("ledger-tools", 1)[0]["prompt"]
    changes = {"stream_options": {"include_usage": True}} if dialect == "chat/completions" else {}
    plain = body_of(dialect, prompt=prompt, tools=True, temperature=0)
    (one,) = await answers(dialect, [plain], world="ledger-tools")
    (other,) = await answers(dialect, [{**plain, "stream": True, **changes}], world="ledger-tools")
    answer, events = one.json(), events_of(other)
    assert calls_of(dialect, answer)
    if dialect == "responses":
        assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
        assert all(name == data["type"] for name, data in events)
        assert (events[0][0], events[-1][0]) == ("response.created", "response.completed")
        assert events[-1][1]["response"] == answer
        done = [data for name, data in events if name == "response.function_call_arguments.done"]
        assert [json.loads(data["arguments"]) for data in done] == [given for _, _, given in calls_of(dialect, answer)]
    elif dialect == "messages":
        assert (events[0][0], events[-1][0]) == ("message_start", "message_stop")
        assert all(name == data["type"] for name, data in events)
        parts = [data["delta"].get("partial_json", "") for name, data in events if name == "content_block_delta"]
        assert json.loads("".join(parts)) == answer["content"][-1]["input"]
        assert events[-2][1]["delta"]["stop_reason"] == answer["stop_reason"] == "tool_use"
        assert events[-2][1]["usage"]["output_tokens"] == answer["usage"]["output_tokens"]
        assert events[0][1]["message"]["usage"]["input_tokens"] == answer["usage"]["input_tokens"]
    else:
        assert events[-1][1] == "[DONE]"
        assert events[-2][1]["usage"] == answer["usage"]
        assert events[-2][1]["choices"] == []
        assert events[-3][1]["choices"][0]["finish_reason"] == "tool_calls"
        assert all(data["usage"] is None for _, data in events[:-2])
        parts = [data["choices"][0]["delta"].get("tool_calls", [{}])[0] for _, data in events[:-2]]
        given = "".join(part["function"]["arguments"] for part in parts if part)
        assert json.loads(given) == calls_of(dialect, answer)[0][2]


async def test_a_chat_stream_has_no_usage_unless_asked_and_its_logprobs_are_those_of_the_tokens():
    async with in_process() as client:
        plain = await ask(client, request(logprobs=True))
        stream = events_of(await post(client, "chat/completions", request(logprobs=True, stream=True)))
    chunks = [data["choices"][0] for _, data in stream[:-1]]
    tokens = [token for chunk in chunks for token in (chunk["logprobs"] or {}).get("content", ())]
    assert tokens == plain["choices"][0]["logprobs"]["content"]
    assert not any("usage" in data for _, data in stream[:-1])


async def test_anthropic_counts_the_tokens_that_a_call_then_uses():
    body = body_of("messages", tools=True)
    async with in_process() as client:
        counted = (
            await post(client, "messages/count_tokens", {k: body[k] for k in ("model", "system", "messages")})
        ).json()
        used = (await post(client, "messages", {**body, "tools": []})).json()
    assert counted == {"input_tokens": used["usage"]["input_tokens"]}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_key_counts_in_each_of_three_headers(dialect):
    async with in_process(api_key="s3cret") as client:
        for header, value in (("authorization", "Bearer s3cret"), ("x-api-key", "s3cret"), ("api-key", "s3cret")):
            assert (await post(client, dialect, body_of(dialect), **{header: value})).status_code == 200
            refused = await post(client, dialect, body_of(dialect), **{header: "wrong"})
            assert refused.status_code == 401
    said = refused.json()
    if dialect == "messages":
        assert (said["type"], said["error"]["type"]) == ("error", "authentication_error")
    else:
        assert said["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(("dialect", "changes"), [
    ("responses", {"input": []}),
    ("responses", {"previous_response_id": "resp_1"}),
    ("responses", {"max_output_tokens": 3}),
    ("responses", {"messages": []}),
    ("responses", {"tools": [{"type": "telepathy"}]}),
    ("responses", {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}),
    ("messages", {"max_tokens": None}),
    ("messages", {"temperature": 1.5}),
    ("messages", {"seed": 1}),
    ("messages", {"tools": [{"type": "telepathy", "name": "t"}]}),
    ("messages", {"tool_choice": {"type": "tool", "name": "not_offered"}}),
    ("messages", {"messages": [{"role": "system", "content": "x"}]}),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}),
    ("messages/count_tokens", {"system": 1}),
])  # fmt: skip
async def test_what_a_dialect_does_not_know_is_refused_in_its_form(dialect, changes):
    async with in_process() as client:
        response = await post(client, dialect, {**body_of(dialect.partition("/")[0]), **changes})
        unknown = await post(client, dialect, {**body_of(dialect.partition("/")[0]), "model": "other"})
    assert (response.status_code, unknown.status_code) == (400, 404)
    body = response.json()
    assert body["error"]["type"] == "invalid_request_error"
    assert ("param" in body["error"]) is (dialect == "responses")
    assert body.get("type") == (None if dialect == "responses" else "error")


HOSTED = {
    "responses": [{"type": "web_search", "search_context_size": "low"}, {"type": "custom", "name": "apply_patch"}],
    "messages": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}],
}


@pytest.mark.parametrize("dialect", HOSTED)
async def test_tools_that_a_vendor_runs_are_accepted_and_never_called(dialect):
    offered = body_of(dialect, tools=True, top_p=0.9)
    (plain,) = await answers(dialect, [{**offered, "tools": HOSTED[dialect]}])
    (mixed,) = await answers(dialect, [{**offered, "tools": [*offered["tools"], *HOSTED[dialect]]}])
    assert "Answer: " in text_of(dialect, plain.json())
    assert not calls_of(dialect, plain.json()) + calls_of(dialect, mixed.json())


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_that_is_demanded_has_the_answer_in_it_as_structured_output(dialect, named):
    whole = {
        "type": "object",
        "properties": {"final": {"$ref": "#/$defs/Final"}, "sure": {"type": "boolean"}, "note": {"type": "string"}},
        "required": ["final", "sure"],
        "$defs": {"Final": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
    }
    function = {"name": "final_result", "description": "", "parameters": whole}
    choices = {
        "chat/completions": ["required", {"type": "function", "function": {"name": "final_result"}}],
        "responses": ["required", {"type": "function", "name": "final_result"}],
        "messages": [{"type": "any"}, {"type": "tool", "name": "final_result"}],
    }
    tools = {
        "chat/completions": [{"type": "function", "function": function}],
        "responses": [{"type": "function", **function}],
        "messages": [{"name": "final_result", "description": "", "input_schema": whole}],
    }
    offered = body_of(dialect, tools=True)
    asked = {**offered, "tools": [*offered["tools"], *tools[dialect]], "tool_choice": choices[dialect][named]}
    if dialect != "messages":
        asked["parallel_tool_calls"] = False
    (response,) = await answers(dialect, [asked])
    ((_, name, arguments),) = calls_of(dialect, response.json())
    assert (name, arguments["sure"], list(arguments)) == ("final_result", False, ["final", "sure"])
    assert "Answer: " in arguments["final"]["text"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_overload_and_failure_are_errors_in_the_form_of_the_dialect(dialect, stream):
    for fault, status in (("rate_limit", 429), ("server_error", 500)):
        async with in_process(faults={fault: 1.0}) as client:
            bodies = [body_of(dialect, f"Solve it {n}.", stream=stream) for n in range(8)]
            responses = [await post(client, dialect, body) for body in bodies]
        failed = [response for response in responses if response.status_code == status]
        broken = [response for response in responses if response.status_code == 200]
        assert failed
        kind = {429: "rate_limit_error", 500: "api_error" if dialect == "messages" else "server_error"}[status]
        assert all(response.json()["error"]["type"] == kind for response in failed)
        assert (failed[0].headers.get("retry-after") is not None) is (status == 429)
        # Some streams begin well.
        assert bool(broken) is (stream and status == 500)
        for response in broken:
            (name, last), sent = events_of(response)[-1], len(events_of(response))
            if dialect == "chat/completions":
                assert last["error"]["type"] == "server_error"
            else:
                assert name == last["type"] == "error"
            assert dialect != "responses" or last["sequence_number"] == sent - 1


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_streams_break_off_in_the_middle(dialect):
    body = body_of(dialect, stream=True)
    async with in_process(faults={"bad_json": 1.0}) as client:
        *frames, last = (await post(client, dialect, body)).text.removesuffix("\n\n").split("\n\n")
    assert len(frames) > 2
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(last.partition("data: ")[2])
    async with in_process(faults={"empty": 1.0}) as client:
        events = events_of(await post(client, dialect, body))
    assert streamed_text(dialect, events) == ""
    async with in_process(faults={"truncated": 1.0}) as client:
        cut = json.dumps(events_of(await post(client, dialect, body)))
    assert {"chat/completions": '"length"', "responses": "max_output_tokens", "messages": '"max_tokens"'}[
        dialect
    ] in cut
    async with (
        running_server(SimulatedOptions(faults={"reset": 1.0})) as base_url,
        httpx.AsyncClient(base_url=base_url, trust_env=False) as client,
        client.stream("POST", f"/{dialect}", json=body) as response,
    ):
        parts = response.aiter_bytes()
        assert b"data: " in await anext(parts)
        with pytest.raises(httpx.TransportError):
            [part async for part in parts]


async def test_a_stream_takes_the_second_half_of_the_latency():
    async with (
        running_server(SimulatedOptions(latency_s=2.0)) as base_url,
        httpx.AsyncClient(base_url=base_url, trust_env=False) as client,
    ):
        start = time.monotonic()
        async with client.stream("POST", "/messages", json=body_of("messages", stream=True)) as response:
            times = [time.monotonic() - start async for _ in response.aiter_bytes()]
        assert 0.9 < times[0] < 1.9, "on a busy machine the first event may be most of a second late"
        assert times[-1] > 1.9
        async with client.stream("POST", "/messages", json=body_of("messages", stream=True)) as response:
            await anext(response.aiter_bytes())
        await asyncio.sleep(0)


async def test_the_item_is_found_before_reminders_and_observations():
    later = {"role": "user", "content": "Observation: nothing new. Go on."}
    body = request()
    async with in_process() as client:
        answer = await ask(client, {**body, "messages": [*body["messages"], later]})
    assert answer["choices"][0]["message"]["content"].startswith("Step 1")


@pytest.mark.parametrize("spelt", [
    json.dumps, repr, lambda value: "\n".join(map(json.dumps, value)) if isinstance(value, list) else str(value),
    lambda value: "\n".join(json.dumps(each, indent=2) if isinstance(each, dict) else each for each in value)
    if isinstance(value, list) else str(value),
])  # fmt: skip
async def test_results_of_tools_are_read_as_frameworks_spell_them(spelt):
    for item in generate_items("ledger-tools", 8):
        body = body_of("responses", prompt=item["prompt"], tools=True, temperature=0)
        async with in_process(world="ledger-tools") as client:
            while calls := calls_of("responses", answer := (await post(client, "responses", body)).json()):
                results = [
                    (key, spelt(json.loads(run_call(ToolCall(name, given)).result))) for key, name, given in calls
                ]
                body = continued("responses", body, answer, results)
        assert "no usable result" not in text_of("responses", answer)
