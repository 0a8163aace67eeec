"""The gateway in production: who may call, which arm a conversation has, what is counted, and what is kept."""

import asyncio
import gc
import json
import random
import re
import socket
import stat
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from aiohttp import web

from tests.support.agents.endpoint import KEY, LESSONS, begin, chat_body, chat_events, message_body, response_body, stream
from tests.support.waiting import eventually
from tfgrpo.prompt_packs.safety import without_secrets
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.files import lines
from tfgrpo.stores.files.lines import LineFile, read_objects
from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions, configure
from tfgrpo.tasks.gateway import dialects, live, session
from tfgrpo.tasks.gateway.dialects import Document
from tfgrpo.tasks.gateway.live import KeptItems, LiveServer, Traffic, opening_of
from tfgrpo.tasks.gateway.session import Additions, outgoing
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import ApiKey
from tfgrpo.tasks.models.endpoint import Endpoint as Address
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport

CALLERS = "sk-of-the-caller-0123456789"
TOKEN = "a-token-nobody-prints"


class Serving:
    """Opens gateways in production and clients of them."""

    def __init__(self, endpoint, stack):
        self.endpoint, self._stack = endpoint, stack

    async def client(self, *, token=None, key=CALLERS, **options):
        own = ApiKey(KEY) if token is not None else None
        budget, now = options.pop("budget", Budget()), options.pop("now", utc_now)
        client = ChatClient(
            Address(self.endpoint.url, own),
            open_transport(concurrency=8, trust_env=False),
            concurrency=8,
            ledger=Ledger(budget),
            prices={},
            retry=RetryPolicy(),
            rng=random.Random(0),
        )
        self._stack.push_async_callback(client.aclose)
        telemetry = options.pop("telemetry", None) or Telemetry(TelemetryOptions())
        self.facts: dict[str, Any] = {"lessons": ["one"], "library": "l1"}
        served = {"": Traffic("t", lambda: LESSONS, telemetry, lambda: self.facts, **options)}
        served["other"] = Traffic("other", lambda: "", telemetry)
        keys = None if token is None else lambda: (token,)
        self.server = server = LiveServer(client, served.get, keys, now=now)
        self._stack.push_async_callback(server.aclose)
        url = await server.start(socket.create_server(("127.0.0.1", 0)))
        how = {"headers": {"authorization": f"Bearer {key}"}, "trust_env": False, "verify": False}
        return await self._stack.enter_async_context(httpx.AsyncClient(base_url=url, **how))


@pytest.fixture
async def serving(endpoint):
    async with AsyncExitStack() as stack:
        yield Serving(endpoint, stack)


def ask(text="3 + 4?", **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def user(text):
    return {"role": "user", "content": text}


async def test_without_a_token_loopback_is_served_with_the_clients_own_key_and_the_lessons(endpoint, serving):
    client = await serving.client()
    reply = await client.post("/v1/chat/completions", json=ask(), headers={"x-api-key": "second"})
    assert reply.json() == chat_body("seven")
    assert reply.headers["x-tfgrpo-arm"] == "lessons"
    [asked] = endpoint.asked
    assert asked.headers["Authorization"] == f"Bearer {CALLERS}"
    assert asked.headers["x-api-key"] == "second"
    assert asked.body["messages"] == [{"role": "system", "content": LESSONS}, *ask()["messages"]]
    assert (await client.post("/v1/chat/completions", json=ask(), headers={"host": "evil.example"})).status_code == 403
    assert len(endpoint.asked) == 1


async def test_with_a_token_the_endpoints_own_key_is_sent_on_and_nobody_else_is_served(endpoint, serving):
    client = await serving.client(token=TOKEN, key=TOKEN)
    assert (await client.post("/v1/chat/completions", json=ask(), headers={"host": "lan.example"})).is_success
    assert endpoint.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert TOKEN not in str(endpoint.asked[0].headers)
    for path in ("/v1/chat/completions", "/v1/messages"):
        refused = await client.post(path, json=ask(), headers={"authorization": "Bearer other"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert (await client.get("/meta", headers={"authorization": ""})).status_code == 401
    assert (await client.get("/healthz", headers={"authorization": ""})).json()["status"] == "ok"
    assert len(endpoint.asked) == 1


async def test_a_client_that_repeats_its_call_by_a_key_of_its_own_is_charged_once(endpoint, serving):
    client = await serving.client()
    for headers in (*[{"Idempotency-Key": "the client's"}] * 2, {}, {}):
        await client.post("/v1/chat/completions", json=ask(), headers=headers)
    first, again, *others = (asked.headers["idempotency-key"] for asked in endpoint.asked)
    assert first == again == "the client's"
    assert len({first, *others}) == 3


async def test_a_conversation_keeps_its_arm_and_the_share_is_held_out(endpoint, serving):
    client = await serving.client(held_out=0.3)

    async def arm(text, **headers):
        turns = [*ask(text)["messages"], {"role": "assistant", "content": "?"}, {"role": "user", "content": "more"}]
        first = await client.post("/v1/chat/completions", json=ask(text), headers=headers)
        later = await client.post("/v1/chat/completions", json=ask(messages=turns), headers=headers)
        assert first.headers["x-tfgrpo-arm"] == later.headers["x-tfgrpo-arm"]
        return first.headers["x-tfgrpo-arm"]

    arms = [await arm(f"question {number}") for number in range(30)]
    assert 4 <= arms.count("held-out") <= 14
    for number, drawn in enumerate(arms):
        taught = LESSONS[:9] in json.dumps(endpoint.asked[2 * number].body)
        assert taught is (drawn == "lessons")
    assert len({await arm(f"other {number}", **{"x-tfgrpo-conversation": "one"}) for number in range(8)}) == 1


async def test_conversations_that_begin_with_an_image_alone_are_drawn_by_its_digest_however_it_is_wrapped(serving):
    client = await serving.client(held_out=0.5)

    async def arm(number, **more):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": f"iVBO{number:060}"}}
        body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [image | more]}]}
        return (await client.post("/v1/messages", json=body)).headers["x-tfgrpo-arm"]

    arms = [await arm(number) for number in range(12)]
    assert set(arms) == {"lessons", "held-out"}
    assert [await arm(number, cache_control={"type": "ephemeral"}) for number in range(12)] == arms
    for wrapped in ("iVBO" * 250_000, json.loads('{"a":' * 450 + '["iVBO"]' + "}" * 450)):
        _, opening, _ = opening_of({"messages": [{"role": "user", "content": [{"type": "image", "source": wrapped}]}]})
        assert len(opening.media) == 64
        body = ask(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": wrapped}]}])
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


@pytest.mark.parametrize("place", ["x-session-id", "idempotency-key", "prompt_cache_key", "previous_response_id", "metadata"])
async def test_a_name_that_is_no_unicode_is_a_name_and_changes_no_other_conversation(serving, place):
    client = await serving.client(held_out=0.5)
    first = await client.post("/v1/chat/completions", json=ask())
    headers = {place: b"caf\xe9"} if "-" in place else {}
    labels = {} if headers else {place: {"user_id": "\ud800"} if place == "metadata" else "\ud800"}
    for text in ("3 + 4?", "hi"):
        raw = json.dumps(ask(text, **labels))
        replies = [await client.post("/v1/chat/completions", content=raw, headers=headers) for _ in "12"]
        assert [reply.status_code for reply in replies] == [200, 200]
        assert len({reply.headers["x-tfgrpo-arm"] for reply in replies}) == 1
    again = await client.post("/v1/chat/completions", json=ask())
    assert (again.status_code, again.headers["x-tfgrpo-arm"]) == (200, first.headers["x-tfgrpo-arm"])
    assert (await client.post("/outcome", content='{"conversation": "\\ud800", "score": 1}')).status_code == 404


async def test_a_name_that_one_client_gives_changes_no_arm_of_another_whose_first_message_is_the_same(serving):
    client = await serving.client(held_out=0.5)

    async def arm(*texts, **more):
        body = ask(messages=[user(text) for text in texts])
        return (await client.post("/v1/chat/completions", json=body, **more)).headers["x-tfgrpo-arm"]

    begun, others = await arm("hello"), set[str]()
    for number in range(8):
        others.add(await arm("hello", headers={"x-tfgrpo-conversation": f"c{number}"}))
        assert await arm("hello", "go on") == begun
    assert others == {"lessons", "held-out"}


async def test_the_tools_of_one_client_take_no_lessons_from_another_whose_first_message_is_the_same(endpoint, serving):
    client = await serving.client()
    for more in ({"tools": [ADD]}, {}):
        reply = await client.post("/v1/chat/completions", json=ask(**more))
        assert (reply.headers["x-tfgrpo-arm"], LESSONS[:9] in json.dumps(endpoint.asked[-1].body)) == ("lessons", True)


async def test_of_long_names_only_digests_are_kept(serving):
    client = await serving.client()
    await client.post("/v1/chat/completions", json=ask())
    tracemalloc.start()
    try:
        for number in range(3):
            named = ask(str(number), prompt_cache_key="k" * (5 << 20) + str(number))
            assert (await client.post("/v1/chat/completions", json=named)).is_success
            serving.endpoint.asked.clear()
        del named
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 8 << 20


async def test_a_conversation_kept_by_the_endpoint_has_the_arm_of_its_beginning(endpoint, serving):
    client = await serving.client(held_out=0.5)
    for number in range(12):
        endpoint.answer = lambda request, raw, number=number: response_body("seven", id=f"resp_{number}")
        first = await client.post("/v1/responses", json={"model": "m", "input": f"q{number}"})
        more = {"model": "m", "input": "and then?", "previous_response_id": f"resp_{number}"}
        later = await client.post("/v1/responses", json=more)
        assert first.headers["x-tfgrpo-arm"] == later.headers["x-tfgrpo-arm"]


async def test_held_out_and_declined_requests_pass_byte_for_byte(endpoint, serving):
    raw = b'{ "model":"m","x":1e2, "messages" : [{"role":"user","content":"\\u0041"}] }'
    client = await serving.client(held_out=1.0)
    held = await client.post("/v1/chat/completions", content=raw)
    off = await client.post("/v1/chat/completions", content=raw, headers={"x-tfgrpo-lessons": "off"})
    assert [reply.headers["x-tfgrpo-arm"] for reply in (held, off)] == ["held-out", "off"]
    assert [asked.raw for asked in endpoint.asked] == [raw, raw]


async def test_calls_are_counted_by_arm(endpoint, serving, otlp_receiver):
    telemetry = configure(TelemetryOptions(), otlp_receiver.environment())
    client = await serving.client(telemetry=telemetry)
    await client.post("/v1/chat/completions", json=ask())
    trace = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "x-tfgrpo-lessons": "off"}
    await client.post("/v1/chat/completions", json=ask(), headers=trace)

    async def streamed(request, raw):
        return await stream(request, chat_events("a b", json.loads(raw)))

    endpoint.answer = streamed
    await client.post("/v1/chat/completions", json=ask(stream=True))
    endpoint.answer = lambda request, raw: web.json_response({"error": {"message": "no"}}, status=429)
    refused = await client.post("/v1/chat/completions", json=ask())
    assert (refused.status_code, refused.headers["x-tfgrpo-arm"]) == (429, "lessons")
    meta = (await client.get("/meta")).json()
    counted = {name: meta["arms"]["lessons"][name] for name in ("calls", "answered", "failed", "with_lessons")}
    assert counted == {"calls": 3, "answered": 2, "failed": 1, "with_lessons": 3}
    assert meta["arms"]["lessons"]["input_tokens"] == 20
    assert meta["arms"]["off"]["with_lessons"] == 0
    assert meta["lessons"] == ["one"]
    telemetry.shutdown()
    tokens = {
        (point.attributes["tfgrpo.arm"], point.attributes["gen_ai.token.type"]): point.value
        for point in otlp_receiver.points("tfgrpo.llm.tokens")
    }
    assert tokens == {("lessons", "input"): 20, ("lessons", "output"): 10, ("off", "input"): 10, ("off", "output"): 5}
    failed = [point for point in otlp_receiver.points("tfgrpo.llm.duration") if "error.type" in point.attributes]
    assert [point.attributes["tfgrpo.arm"] for point in failed] == ["lessons"]
    spans = otlp_receiver.spans()
    assert sorted(span.attributes["tfgrpo.arm"] for span in spans) == ["lessons", "lessons", "lessons", "off"]
    assert "ab" * 16 in {span.trace_id for span in spans}


async def test_what_one_client_is_refused_slows_down_no_other(endpoint, serving):
    client = await serving.client()
    endpoint.answer = lambda request, raw: web.json_response({"error": {"message": "slow down"}}, status=429)
    for _ in range(4):
        await client.post("/v1/chat/completions", json=ask())
    both, arrived = asyncio.Event(), []

    async def together(request, raw):
        arrived.append(request)
        if len(arrived) == 8:
            both.set()
        await both.wait()
        return chat_body("seven")

    endpoint.answer = together
    async with asyncio.timeout(10):
        replies = await asyncio.gather(*(client.post("/v1/chat/completions", json=ask()) for _ in range(8)))
    assert {reply.status_code for reply in replies} == {200}


async def test_a_conversation_is_kept_once_with_its_last_answer_and_without_secrets(endpoint, serving, tmp_path):
    file = tmp_path / "live.jsonl"
    file.touch(0o644)
    said: list[str] = []
    kept = KeptItems(file, 1 << 20, said.append)
    client = await serving.client(kept=kept)
    secret = "ghp_" + "a1B2" * 9
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    body = ask(f"use {secret} and {CALLERS}", tools=[{"type": "function", "function": {"name": "add"}}])
    endpoint.answer = lambda request, raw: chat_body("", tool_calls=[call])
    await client.post("/v1/chat/completions", json=body)
    kept.settle()
    assert file.read_text() == ""
    endpoint.answer = lambda request, raw: {**chat_body(f"seven, by {CALLERS}"), "model": f"m of {CALLERS}"}
    body["tools"].append({"type": "function", "function": {"name": f"of-{CALLERS}"}})
    body["messages"] = [{"role": "developer", "content": "Be brief."}, *body["messages"], {"role": "tool", "content": "7"}]
    for _ in range(2):
        await client.post("/v1/chat/completions", json=body)
    endpoint.answer = lambda request, raw: message_body("neuf")
    await client.post("/v1/messages", json={**ask("4 + 5?"), "system": [{"type": "text", "text": "Short."}]})
    kept.settle()
    assert CALLERS not in file.read_text()
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["prompt"], first["system_prompt"]) == ("use *** and ***", "Be brief.")
    of = {"arm": "lessons", "model": "m of ***", "tools": ["add", "of-***"], "reply": "seven, by ***"}
    assert first["metadata"] == {"foreign": True, **of}
    assert (second["prompt"], second["system_prompt"], second["metadata"]["reply"]) == ("4 + 5?", "Short.", "neuf")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (await client.get("/meta")).json()["kept"]["items"] == 2
    again = KeptItems(file, file.stat().st_size + 10, said.append)
    client = await serving.client(kept=again)
    await client.post("/v1/messages", json={**ask("4 + 5?"), "system": "Short."})
    await client.post("/v1/messages", json=ask("a new one"))
    again.settle()
    facts = (await client.get("/meta")).json()["kept"]
    assert (facts["items"], facts["added"]) == (2, 0)
    assert facts["problem"] == "the file has reached 0 MiB"
    assert said == ["no traffic is kept: the file has reached 0 MiB"]


async def test_questions_of_text_are_kept_also_after_the_file_was_moved_away_or_has_room_again(serving, tmp_path):
    file, said = tmp_path / "live.jsonl", list[str]()
    kept = KeptItems(file, 340, said.append)
    client = await serving.client(kept=kept)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    shown = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
    assert (await client.post("/v1/chat/completions", json=ask(messages=shown))).is_success

    async def items(*questions):
        for question in questions:
            assert (await client.post("/v1/chat/completions", json=ask(question))).is_success
        kept.settle()
        return [json.loads(line)["prompt"] for line in file.read_text().splitlines()]

    assert (await client.post("/v1/chat/completions", json=ask("1" * live._LONGEST_ITEM))).is_success
    assert await items("one", "two", "three", "four") == ["one", "two"]
    file.rename(tmp_path / "night.jsonl")
    assert await items("one", "five") == ["one", "five"]
    assert len((tmp_path / "night.jsonl").read_text().splitlines()) == 2
    file.unlink()
    file.mkdir()
    assert (await client.post("/v1/chat/completions", json=ask("six"))).is_success
    kept.settle()
    file.rmdir()
    assert await items("seven") == ["seven"]
    assert (await client.get("/meta")).json()["kept"]["problem"] is None
    assert [text.partition("kept: ")[2][:16] for text in said] == ["the file has rea", str(file)[:16]]


CONTEXT = "<environment_context>\n<cwd>/home/me</cwd>\n</environment_context>"
CANNED = [
    {"role": "user", "content": "This is the agent. We are setting up the context. Today is Friday."},
    {"role": "assistant", "content": "Got it. Thanks for the context!"},
]
ADD = {"type": "function", "name": "add", "function": {"name": "add"}}
CHAT, RESPONSES, MESSAGES = (f"/v1/{name}" for name in ("chat/completions", "responses", "messages"))
AGENTS: dict[str, Any] = {  # path, what comes before the question, headers, labels of requests; "*" is the session
    "codex": (RESPONSES, [user(CONTEXT)], {"session-id": "*"}, {}),
    "codex by its label": (RESPONSES, [user(CONTEXT)], {}, {"prompt_cache_key": "*"}),
    "claude": (MESSAGES, [user(CONTEXT)], {"x-claude-code-session-id": "*"}, {}),
    "claude by its label": (MESSAGES, [user(CONTEXT)], {}, {"metadata": {"user_id": "user_1_session_*"}}),
    "opencode": (CHAT, [], {"x-session-id": "*"}, {}),
    "qwen": (CHAT, CANNED, {}, {}),
    "no name": (CHAT, [user(CONTEXT)], {}, {}),
}
ANSWERS = {RESPONSES: response_body, MESSAGES: message_body, CHAT: chat_body}


@pytest.mark.parametrize("agent", AGENTS)
async def test_conversations_of_agents_have_arms_of_their_own_and_their_question_is_kept(endpoint, serving, tmp_path, agent):
    path, before, headers, labels = AGENTS[agent]
    field = "input" if path == RESPONSES else "messages"
    client = await serving.client(held_out=0.5, kept=KeptItems(tmp_path / "live.jsonl", 1 << 20, print))

    async def arm(number, turns, answer, **more):
        endpoint.answer = lambda request, raw: ANSWERS[path](answer)
        own, named = json.loads(json.dumps([headers, labels]).replace("*", f"s{number}"))
        body = {"model": "m", "max_tokens": 9, field: [*before, *turns], **named, **more}
        return (await client.post(path, json=body, headers=own)).headers["x-tfgrpo-arm"]

    arms = []
    for number in range(8):
        question = user(f"What is {number} + 1?")
        if headers or labels:  # what agents ask beside their work, before and after it
            await arm(number, [user(f"Write a title: What is {number} + 1?")], "Sums")
        first = await arm(number, [question], f"{number + 1}", tools=[ADD])
        later = [question, {"role": "assistant", "content": f"{number + 1}"}, user("And twice that?")]
        assert await arm(number, later, "more", tools=[ADD]) == first
        assert await arm(number, later, "noted", tools=[ADD], system="Keep notes.") == first  # a subagent, as of Qwen
        if headers or labels:
            assert await arm(number, [user(f"Summarize it: {number} + 1")], "A sum") == "off"
            assert (LESSONS[:9] in json.dumps(endpoint.asked[-1].body)) is False
        arms.append(first)
    assert set(arms) == {"lessons", "held-out"}
    await serving.server.aclose()
    items = [json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert [item["prompt"] for item in items] == [f"What is {number} + 1?" for number in range(8)]
    assert [item["metadata"]["reply"] for item in items] == [f"{number + 1}" for number in range(8)]


async def test_an_answer_of_a_named_conversation_without_tools_is_kept_when_no_tools_come(serving, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "_UNDECIDED_S", 0.4)
    file = tmp_path / "live.jsonl"
    client = await serving.client(kept=KeptItems(file, 1 << 20, print))
    await client.post("/v1/chat/completions", json=ask("one"), headers={"x-session-id": "s"})
    assert file.read_text() == ""
    await eventually(file.read_text)
    assert json.loads(file.read_text())["prompt"] == "one"


async def test_answers_that_wait_to_be_kept_are_bounded_in_number_and_length(endpoint, serving, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "_MOST_UNDECIDED", 2)
    file = tmp_path / "live.jsonl"
    client = await serving.client(kept=KeptItems(file, 1 << 20, print))
    tracemalloc.start()
    try:
        for number in range(12):
            long = [{"role": "system", "content": "x" * (number < 9 and 2 << 20)}, user(f"{number}")]
            await client.post("/v1/chat/completions", json=ask(messages=long), headers={"x-session-id": f"s{number}"})
            endpoint.asked.clear()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 9 << 20
    await serving.server.aclose()
    assert [json.loads(line)["prompt"] for line in file.read_text().splitlines()] == ["9", "10"]


async def test_what_a_conversation_was_worth_is_kept_once_by_its_id_or_its_name(serving, tmp_path):
    file = tmp_path / "outcomes.jsonl"
    client = await serving.client(held_out=0.5, outcomes=LineFile(file, "line_id"), secret="s")
    ids = []
    for number in range(8):
        reply = await client.post("/v1/chat/completions", json=ask(), headers={"x-tfgrpo-conversation": f"c{number}"})
        ids.append((reply.headers["x-tfgrpo-conversation"], reply.headers["x-tfgrpo-arm"]))
    after_restart = await serving.client(held_out=0.5, outcomes=LineFile(file, "line_id"), secret="s")
    serving.facts["library"] = "l2"
    for number, (name, _) in enumerate(ids):
        posted = {"conversation": name if number % 2 else f"c{number}", "score": number / 8}
        gateway = after_restart if number % 2 else client
        assert (await gateway.post("/outcome", json=posted)).json() == {"kept": True}
        assert (await client.post("/outcome", json={"conversation": name, "score": 1})).json() == {"kept": False}
    lines = list(read_objects(file))
    assert [(line["arm"], line["library"], line["score"]) for line in lines] == [
        (arm, "l1", number / 8) for number, (_, arm) in enumerate(ids)
    ]
    changed = ids[0][0].translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    for body, status in (
        ({"conversation": "never seen", "score": 1}, 404),
        ({"conversation": changed, "score": 1}, 404),
        ({"conversation": f"{7:016x}.held-out.l1", "score": 1}, 404),
        ({"conversation": f"{7:016x}.lessons.{'x' * 100_000}.{'0' * 16}", "score": 1}, 404),
        ({"conversation": "é.é", "score": 1}, 404),
        ({"conversation": ids[0][0], "score": 1.5}, 400),
        ({"conversation": ids[0][0], "score": True}, 400),
        ({"conversation": 7, "score": 1}, 400),
        ([], 400),
    ):
        assert (await client.post("/outcome", json=body)).status_code == status
    assert len(list(read_objects(file))) == len(ids)


async def test_an_outcome_reads_no_earlier_ones_again(serving, tmp_path, monkeypatch):
    file, read, checked = tmp_path / "outcomes.jsonl", list[bytes](), lines._checked
    LineFile(file, "line_id").add([{"line_id": f"{number}", "arm": "lessons"} for number in range(500)])
    monkeypatch.setattr(lines, "_checked", lambda data: read.append(data) or checked(data))
    client = await serving.client(outcomes=LineFile(file, "line_id"))
    counts = []
    for number in range(3):
        reply = await client.post("/v1/chat/completions", json=ask(f"{number}"))
        posted = {"conversation": reply.headers["x-tfgrpo-conversation"], "score": 1}
        assert (await client.post("/outcome", json=posted)).json() == {"kept": True}
        counts.append(len(read))
    assert counts == [500] * 3


SHAPES = ("<{a}", "<{a}>{a}", "<a>{</a}", "<{a}>{</a}", "<a>{</a> }x", "{ }", "{-}", "{lessons>}", "{Wall time: }",
          "{session-}", '"choices"{ }', '"type"{data:}', '{"type":"response.}', "{api_key=}", "{eyJ}")  # fmt: skip
READERS: dict[str, Callable[[str], object]] = {
    "opening": lambda text: opening_of(ask(text)),
    "name": lambda text: live.name_by_agent({}, {"metadata": {text: "v"}}),
    "request": lambda text: outgoing(dialects.CHAT, Document(json.dumps(ask(text, model=text)).encode()), Additions(LESSONS)),
    "result": session._SAYS_ERROR.match,
    "events": lambda text: [each.ends(text.encode()) for each in (dialects.CHAT, dialects.RESPONSES)],
    "item": without_secrets,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_clients_write_is_read_in_a_time_that_grows_no_faster_than_it(reader):
    def took_s(shape, times):
        text = re.sub(r"\{(.+?)\}", lambda match: match[1] * (times // len(match[1])), shape)
        began = time.thread_time()
        READERS[reader](text)
        return time.thread_time() - began

    for shape in SHAPES:
        assert took_s(shape, 20_000) < 40 * max(took_s(shape, 2_000), 0.01), shape


async def test_tasks_are_served_by_their_paths(endpoint, serving):
    client = await serving.client()
    assert (await client.post("/t/other/v1/chat/completions", json=ask())).is_success
    assert endpoint.asked[-1].body == ask()
    assert (await client.get("/t/other/meta")).json()["task_id"] == "other"
    for path in ("/t/none/v1/chat/completions", "/t/none/meta"):
        assert (await client.request("GET" if "meta" in path else "POST", path, json=ask())).status_code == 404
    assert len(endpoint.asked) == 1


async def test_readiness_is_that_of_endpoint_and_lessons(endpoint, serving, monkeypatch):
    monkeypatch.setattr(live, "_PROBED_S", 0.0)
    client = await serving.client(token=TOKEN, key="none")
    assert (await client.get("/readyz")).json() == {"status": "ok", "endpoint": "", "library": ""}
    endpoint.answer = lambda request, raw: web.Response(status=503)
    serving.facts["problem"] = "it is damaged"
    reply = await client.get("/readyz")
    assert (reply.status_code, reply.json()["endpoint"], reply.json()["library"]) == (503, "status 503", "it is damaged")
    assert (await client.get("/healthz")).status_code == 200


async def test_of_probes_that_come_at_once_one_asks_the_endpoint(endpoint, serving):
    async def slow(request, raw):
        await asyncio.sleep(0.2)
        return {"data": []}

    endpoint.answer = slow
    client = await serving.client()
    assert {reply.status_code for reply in await asyncio.gather(*(client.get("/readyz") for _ in range(20)))} == {200}
    assert len(endpoint.asked) == 1


async def test_caps_are_of_a_day(endpoint, serving):
    moments = [datetime(2026, 1, 1, 23, tzinfo=UTC)] * 4 + [datetime(2026, 1, 2, 1, tzinfo=UTC)]
    client = await serving.client(budget=Budget(max_calls=2, scope="today's "), now=lambda: moments.pop(0))
    statuses = [(await client.post("/v1/chat/completions", json=ask())).status_code for _ in range(4)]
    assert statuses == [200, 200, 402, 200]
    assert len(endpoint.asked) == 3


async def test_a_stalled_stream_holds_up_the_end_for_the_time_on_the_page_and_no_longer(endpoint, serving, monkeypatch):
    monkeypatch.setattr(live, "_CLOSING_S", 1.5)

    async def stalled(request, raw):
        await begin(request, b"data: {}\n\n")
        await asyncio.sleep(60)

    endpoint.answer = stalled
    client = await serving.client()
    async with client.stream("POST", "/v1/chat/completions", json=ask(stream=True)) as reply:
        assert reply.status_code == 200
        began = time.monotonic()
        await serving.server.aclose()
        assert 1.4 < time.monotonic() - began < 2.9  # a second time of waiting would be another 1.5


@pytest.mark.parametrize("named", [False, True])
async def test_a_conversation_kept_by_the_endpoint_has_the_item_of_its_first_message(endpoint, serving, tmp_path, named):
    kept = KeptItems(tmp_path / "live.jsonl", 1 << 20, print)
    client = await serving.client(kept=kept)

    async def turn(answer, given, after):
        endpoint.answer = lambda request, raw: answer
        place = {"conversation": {"id": "conv_1"}} if named else {"previous_response_id": after}
        await client.post("/v1/responses", json={"model": "m", "instructions": "Short.", "input": given, **place})

    await turn(response_body("", [("c", "add", "{}")], id="resp_1"), "3 + 4?", None)
    await turn(response_body("seven", id="resp_2"), [{"type": "function_call_output", "call_id": "c"}], "resp_1")
    await turn(response_body("eight", id="resp_3"), "and 3 + 5?", "resp_2")
    if not named:
        await turn(response_body("nine", id="resp_4"), "and 3 + 6?", "resp_of_another_gateway")
    kept.settle()
    [item] = map(json.loads, (tmp_path / "live.jsonl").read_text().splitlines())
    assert (item["prompt"], item["system_prompt"], item["metadata"]["reply"]) == ("3 + 4?", "Short.", "seven")


async def test_secrets_of_long_texts_are_looked_for_beside_the_calls(endpoint, serving, tmp_path, monkeypatch):
    masking, masked = threading.Event(), live.without_secrets
    monkeypatch.setattr(live, "without_secrets", lambda text: masking.wait(20) and masked(text))
    kept = KeptItems(tmp_path / "live.jsonl", 1 << 20, print)
    client = await serving.client(kept=kept)
    async with asyncio.timeout(10):
        for text in ("one\ud800", "two"):
            assert (await client.post("/v1/chat/completions", content=json.dumps(ask(text)))).is_success
    masking.set()
    kept.settle()
    items = map(json.loads, (tmp_path / "live.jsonl").read_text().splitlines())
    assert [item["prompt"] for item in items] == ["one?", "two"]


@pytest.mark.parametrize(("limit", "most"), [("_REMEMBERED", 2), ("_CHARACTERS", 8)])
def test_of_the_conversations_the_one_that_was_silent_longest_is_forgotten_first(monkeypatch, limit, most):
    monkeypatch.setattr(live, limit, most)
    known = live.Conversations("t")
    requests = (("a", "one"), ("b", "two"), ("a", "and?"), ("c", "three"), ("a", "go on"), ("b", "more"))
    found = [known.of({"conversation": name}, *opening_of({"input": text})[1:], "") for name, text in requests]
    assert [each.prompt for each in found] == ["one", "two", "one", "three", "one", "more"]
