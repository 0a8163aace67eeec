"""The service speaks the chat protocol strictly, counts what it uses and says SIMULATED."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from benchmarks.generated_items import generate_items
from tests.support.models.simulated_calls import ITEM, TOOLS, ask, content_of, in_process, request, schema
from tfgrpo.pipelines.settings.model import SimulatedSettings
from tfgrpo.tasks.models.simulated import SimulatedOptions
from tfgrpo.tasks.models.simulated.engine import _REMEMBERED, Engine
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.worlds.ledger import run_call
from tfgrpo.tasks.models.simulated.worlds.puzzle import ToolCall


async def test_every_answer_is_labelled_simulated():
    async with in_process() as client:
        response = await client.post("/chat/completions", json=request())
        refused = await client.post("/chat/completions", json={})
    answer = response.json()
    assert (answer["model"], answer["system_fingerprint"]) == ("simulated", "SIMULATED")
    assert response.headers["x-simulated"] == refused.headers["x-simulated"] == "SIMULATED"
    assert refused.json()["error"]["message"].startswith("SIMULATED")


async def test_a_completion_has_the_shape_of_the_protocol():
    async with in_process() as client:
        answer = await ask(client, request())
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    assert choice["message"]["content"].splitlines()[-1].startswith("Answer: ")


@pytest.mark.parametrize("root", ["/v1", ""])
async def test_paths_work_with_and_without_v1(root):
    async with in_process() as client:
        url = f"http://simulated{root}"
        assert (await client.post(f"{url}/chat/completions", json=request())).status_code == 200
        models = (await client.get(f"{url}/models")).json()
    assert [model["id"] for model in models["data"]] == ["simulated"]


async def test_unknown_paths_and_methods_get_error_bodies():
    async with in_process() as client:
        missing, method = await client.get("/nothing"), await client.get("/chat/completions")
    assert (missing.status_code, method.status_code) == (404, 405)
    assert all("message" in response.json()["error"] for response in (missing, method))


async def test_a_configured_key_is_required():
    async with in_process(api_key="s3cret") as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            for response in (
                await client.post("/chat/completions", json=request(), headers=headers),
                await client.get("/models", headers=headers),
            ):
                assert response.status_code == 401
                assert response.json()["error"]["code"] == "invalid_api_key"
        client.headers["Authorization"] = "Bearer s3cret"
        assert (await client.get("/models")).status_code == 200
        await ask(client, request())
    assert "s3cret" not in repr(SimulatedOptions(api_key="s3cret"))


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
USER = {"role": "user", "content": "hello"}


@pytest.mark.parametrize(("changes", "param"), [
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user"}]}, "messages.0"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]}, "messages.0"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0"),
    ({"messages": [USER, {"role": "tool", "content": "x", "tool_call_id": "c1"}]}, None),
    ({"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]}, None),
    ({"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, USER]}, None),
    ({"temperature": 2.5}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 5}, None),
    ({"seed": 1.5}, "seed"),
    ({"n": 2}, "n"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, None),
    ({"tool_choice": "required"}, None),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": TOOLS}, None),
    ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"response_format": {"type": "text", "json_schema": {"name": "x"}}}, "response_format"),
    ({"top_q": 0.5}, "top_q"),
    ({"parallel_tool_calls": False, "tools": TOOLS}, None),
])  # fmt: skip
async def test_bad_requests_are_refused_with_the_reason(changes, param):
    async with in_process() as client:
        response = await client.post("/chat/completions", json=request(**changes))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
async def test_invalid_json_is_refused(raw):
    async with in_process() as client:
        response = await client.post("/chat/completions", content=raw)
    assert response.status_code == 400
    assert "not valid JSON" in response.json()["error"]["message"]


async def test_other_models_do_not_exist():
    async with in_process() as client:
        response = await client.post("/chat/completions", json=request(model="gpt-none"))
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


async def test_usage_counts_request_and_reply():
    async with in_process() as client:
        short, long = await ask(client, request()), await ask(client, request(system="Solve it. " * 100))
        told = await ask(client, request(tools=TOOLS))
        formatted = await ask(client, request(response_format=schema("x", {"type": "object"})))
    for answer in (short, long):
        usage, text = answer["usage"], answer["choices"][0]["message"]["content"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["completion_tokens"] == -(-len(text) // 4)
    assert short["usage"]["prompt_tokens"] == -(-len("Solve it." + ITEM["prompt"]) // 4)
    assert long["usage"]["prompt_tokens"] - short["usage"]["prompt_tokens"] in range(246, 250)
    assert told["usage"]["prompt_tokens"] > short["usage"]["prompt_tokens"] + 40
    assert formatted["usage"]["prompt_tokens"] > short["usage"]["prompt_tokens"]


@pytest.mark.parametrize("text", ["x", "日本語の問題", "🙂" * 9, ""])
async def test_tokens_never_exceed_the_bytes_sent(text):
    body = request(text, system="s")
    async with in_process() as client:
        usage = (await ask(client, body))["usage"]
    assert 1 <= usage["prompt_tokens"] <= len(f"s{text}".encode())


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_the_token_limit_cuts_the_text(name):
    body = request()
    del body["max_tokens"]
    async with in_process() as client:
        whole, cut = await ask(client, body), await ask(client, {**body, name: 5})
    choice = cut["choices"][0]
    assert (choice["finish_reason"], len(choice["message"]["content"])) == ("length", 20)
    assert cut["usage"]["completion_tokens"] == 5
    assert whole["choices"][0]["finish_reason"] == "stop"


async def test_logprobs_come_with_every_token_when_asked_for():
    async with in_process() as client:
        answer = await ask(client, request(logprobs=True))
        without = await ask(client, request())
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"]
    assert "".join(token["token"] for token in content) == answer["choices"][0]["message"]["content"]
    assert all(token["logprob"] <= 0.0 for token in content)
    assert without["choices"][0]["logprobs"] is None


async def test_with_a_seed_the_answer_is_a_function_of_the_request():
    answers = []
    for _ in range(2):
        async with in_process(seed=3) as client:
            answers += [await ask(client, request(seed=seed)) for seed in (1, 1, 2, 3, 4, 5)]
    assert answers[:6] == answers[6:]
    assert answers[0] == answers[1]
    assert len({content_of(answer) for answer in answers[:6]}) > 1


async def test_another_server_seed_gives_other_answers():
    texts = []
    for seed in (1, 2):
        async with in_process(seed=seed) as client:
            texts.append([content_of(await ask(client, request(seed=n))) for n in range(8)])
    assert texts[0] != texts[1]


async def test_without_a_seed_repeating_a_request_gives_new_answers_in_a_fixed_order():
    body = request()
    del body["seed"]
    runs = []
    for _ in range(2):
        async with in_process() as client:
            runs.append([content_of(await ask(client, body)) for _ in range(12)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


async def test_spacing_and_order_of_the_json_do_not_matter():
    body = request(seed=7)
    turned = dict(reversed(list(body.items())))
    async with in_process() as client:
        plain = await client.post("/chat/completions", content=json.dumps(body))
        other = await client.post("/chat/completions", content=json.dumps(turned, indent=2))
    assert plain.json() == other.json()


async def test_only_needed_request_counts_are_kept_and_bounded(monkeypatch):
    monkeypatch.setattr("tfgrpo.tasks.models.simulated.engine._REMEMBERED", 3)
    engine = Engine(SimulatedOptions())
    seeded = ChatBody.model_validate(request())
    assert [engine.arrive(seeded, "a") for _ in range(3)] == [0, 0, 0]
    unseeded = ChatBody.model_validate(request(seed=None))
    assert [engine.arrive(unseeded, digest) for digest in "aabcda"] == [0, 1, 0, 0, 0, 0]
    assert _REMEMBERED >= 10_000


async def test_content_may_be_a_list_of_texts():
    parts = [{"type": "text", "text": ITEM["prompt"][:9]}, {"type": "text", "text": ITEM["prompt"][9:]}]
    async with in_process() as client:
        answer = await ask(client, request(messages=[{"role": "user", "content": parts}]))
    assert content_of(answer).startswith("Step 1")


@pytest.mark.parametrize("changes", [
    {"messages": [{"role": "system", "content": "hello"}]},
    {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
    {"messages": [{"role": "user", "content": "{not json"}]},
    {"messages": [{"role": "user", "content": '{"other": 1}'}]},
    {"messages": [{"role": "user", "content": '{"attempts": 1, "max_lessons": 2}'}]},
])  # fmt: skip
async def test_a_prompt_of_no_world_always_gets_the_same_answer(changes):
    async with in_process() as client:
        texts = {content_of(await ask(client, request(**changes, seed=seed))) for seed in range(6)}
    (text,) = texts
    assert text.startswith("SIMULATED reply")
    assert text.endswith("Answer: 0")


async def test_an_unset_temperature_is_one():
    bodies = [request(seed=seed, temperature=heat) for heat in (None, 1.0) for seed in range(30)]
    async with in_process() as client:
        texts = [content_of(await ask(client, body)) for body in bodies]
    assert len(set(texts[:30])) > 1


async def test_a_ledger_question_is_worked_through_the_tool_protocol():
    items = generate_items("ledger-tools", 40)
    right, turns = 0, set()
    async with in_process(world="ledger-tools") as client:
        for number, item in enumerate(items):
            messages = [{"role": "user", "content": item["prompt"]}]
            for turn in range(1, 6):
                answer = await ask(client, request(messages=messages, tools=TOOLS, seed=number * 10 + turn))
                message = answer["choices"][0]["message"]
                if answer["choices"][0]["finish_reason"] != "tool_calls":
                    break
                messages.append(message)
                for call in message["tool_calls"]:
                    planned = ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"]))
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": run_call(planned).result})
            turns.add(turn)
            right += message["content"].rsplit("Answer: ", 1)[1] == item["answer"]
            ids = [call["id"] for m in messages for call in m.get("tool_calls", ())]
            assert len(set(ids)) == len(ids)
    assert turns == {2, 3, 4}
    assert 8 <= right <= 30


@pytest.mark.parametrize("changes", [{}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS, "max_tokens": 3}])
async def test_no_calls_are_made_without_tools_or_room(changes):
    item = generate_items("ledger-tools", 1)[0]
    async with in_process(world="ledger-tools") as client:
        answer = await ask(client, request(item["prompt"], **changes))
    assert "tool_calls" not in answer["choices"][0]["message"]
    assert answer["choices"][0]["finish_reason"] == ("length" if "max_tokens" in changes else "stop")


async def test_invalid_arguments_in_the_history_are_tolerated():
    item = next(i for i in generate_items("ledger-tools", 40) if i["metadata"]["template"] == "balance")
    call = {"id": "c1", "type": "function", "function": {"name": "ledger_entries", "arguments": "{broken"}}
    listed = {**call, "id": "c2", "function": {"name": "ledger_entries", "arguments": "[]"}}
    messages = [
        {"role": "user", "content": item["prompt"]},
        {"role": "assistant", "content": None, "tool_calls": [call, listed]},
        {"role": "tool", "tool_call_id": "c1", "content": "error: no JSON"},
        {"role": "tool", "tool_call_id": "c2", "content": "[]"},
    ]
    async with in_process(world="ledger-tools") as client:
        answer = await ask(client, request(messages=messages, tools=TOOLS))
    assert "no usable result" in content_of(answer)


async def test_latency_is_added():
    async with in_process(latency_s=0.05) as client:
        start = time.monotonic()
        await ask(client, request())
    assert time.monotonic() - start >= 0.045


def test_options_come_from_settings():
    settings = SimulatedSettings(world="unlearnable", seed=4, latency_s=0.5, faults={"hang": 0.1})
    options = SimulatedOptions(**dict(settings), api_key="key")
    assert options.model_dump() == {**settings.model_dump(), "api_key": "key", "night": 0}
    with pytest.raises(ValueError, match="at most 1") as caught:
        SimulatedOptions(faults={"hang": 0.6, "reset": 0.6}, api_key="s3cret")
    assert "s3cret" not in str(caught.value)


async def test_lone_surrogates_are_served():
    async with in_process() as client:
        response = await client.post("/chat/completions", content=rb'{"model": "\ud800", "messages": []}')
        found = await client.post("/chat/completions", content=json.dumps(request("\ud800")).encode())
    assert (response.status_code, found.status_code) == (400, 200)
    assert isinstance(found, httpx.Response)
