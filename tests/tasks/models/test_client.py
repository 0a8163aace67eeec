"""One call over HTTP: answered, priced and settled, repeated where that can help, and never with the key in a message."""

import asyncio
import dataclasses
import gzip
import json
import ssl
import traceback
import zlib

import httpx
import pytest

from tests.support.models.chat_bench import BOUND, KEY, NOW, REQUEST, SECRET
from tests.tasks.models.conftest import Act, completion
from tfgrpo.stores.errors import (
    BudgetRefused,
    EndpointError,
    ModelAuthRefused,
    ModelCallError,
    ModelNotFound,
    ModelRateLimited,
    ModelReplyMalformed,
    ModelRequestRejected,
    ModelServerFault,
    ModelTimeout,
    ModelUnreachable,
)
from tfgrpo.stores.ledger import Budget, Price
from tfgrpo.stores.runs import Journal
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message, TokenUsage, ToolCall
from tfgrpo.tasks.models.chat import JournaledModel
from tfgrpo.tasks.models.endpoint import Endpoint, check_endpoint
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import client_over, open_transport

ONCE = RetryPolicy(max_retries=0)
UNREAD = RetryPolicy(max_retries=20)


def refused(message, **more):
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


def choice(message, finish="stop", **more):
    return completion(choices=[{"message": message, "finish_reason": finish, **more}])


def head(*lines):
    return b"\r\n".join([*lines, b"", b""])


async def test_a_call_is_sent_answered_priced_and_settled(server, bench):
    use = bench()
    reply = await use.ask(dataclasses.replace(REQUEST, seed=5))
    assert reply == ChatReply(Message("assistant", "fine"), "stop", TokenUsage(10, 5), 1, 20_000 / 1e9, "m", "cmpl-1")
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.headers["authorization"] == f"Bearer {SECRET}"
    assert seen.json["seed"] == 5
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.nano_usd, totals.at_risk_tokens) == (1, 15, 20_000, 0)


async def test_a_call_has_one_idempotency_key_in_all_its_attempts_and_another_call_another(server, bench):
    use, other = bench(), dataclasses.replace(REQUEST, temperature=0.1)
    embedded = {"data": [{"index": 0, "embedding": [0.5]}], "model": "m"}
    server.acts = [Act(503), Act(ending="drop"), Act(429), Act(), Act(), Act(200, embedded)]
    for request in (REQUEST, other, dataclasses.replace(other, embeds=True)):
        await use.ask(request)
    await bench().ask()  # as after a kill
    use = bench()
    use.client.run = "another run"
    await use.ask()
    keys = [seen.headers["idempotency-key"] for seen in server.seen]
    first = keys[0]
    assert [key == first for key in keys] == [True] * 4 + [False, False, True, False]
    assert len(set(keys)) == 4
    assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize(("sent", "words"), [
    ("idempotency-key", "Unknown header: Idempotency-Key"),
    ("Carry one.", "'messages.2' : for 'role:assistant' property 'reasoning' is not supported"),  # Groq's words
])  # fmt: skip
async def test_an_endpoint_that_refuses_idempotency_keys_or_reasoning_gets_none_from_then_on(server, bench, sent, words):
    use = bench(retry=ONCE)
    thought = Message("assistant", None, tool_calls=(ToolCall("c1", "add", "{}"),), extra='{"reasoning":"Carry one."}')
    request = dataclasses.replace(REQUEST, messages=(*REQUEST.messages, thought, Message("tool", "4", tool_call_id="c1")))
    server.otherwise = lambda seen: Act(400, refused(words)) if sent in f"{seen.headers} {seen.json}" else Act()
    assert (await use.ask(request)).attempts == 1
    await use.ask(request)
    assert [sent in f"{seen.headers} {seen.json}" for seen in server.seen] == [True, False, False]
    assert use.ledger.totals().tokens == 30


async def test_connections_are_reused_across_calls(server, bench):
    server.delay_s = 0.001
    use = bench()
    await asyncio.gather(*(use.ask() for _ in range(60)))
    assert len(server.seen) == use.ledger.totals().calls == 60
    assert server.connections <= 8
    assert 2 <= server.most_in_flight <= 8


CACHED = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}


@pytest.mark.parametrize(("usage", "read", "cost", "settled", "at_risk"), [
    (None, None, None, 0, BOUND),
    (CACHED, TokenUsage(10, 5, cached=8), (2 * 1000 + 8 * 100 + 5 * 2000) / 1e9, 15, 0),
    # An endpoint may have added to a request, but not two thousand million tokens.
    ({"prompt_tokens": 90_000, "completion_tokens": 5}, TokenUsage(90_000, 5), 0.09001, 90_005, 0),
    ({"prompt_tokens": 2_000_000_000, "completion_tokens": 5}, None, None, BOUND, 0),
])  # fmt: skip
async def test_usage_is_settled_as_told_or_at_the_bound(server, bench, usage, read, cost, settled, at_risk):
    server.acts = [Act(body=completion(usage=usage))]
    use = bench()
    reply = await use.ask()
    assert (reply.usage, reply.cost_usd) == (read, cost if cost is None else pytest.approx(cost))
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.at_risk_tokens) == (1, settled, at_risk)
    assert totals.implausible_usage == (settled == BOUND)
    assert totals.overruns == (settled == 90_005)


async def test_an_unknown_price_is_unknown_and_not_zero(bench):
    use = bench(priced=False)
    assert (await use.ask()).cost_usd is None
    assert use.ledger.totals().unknown_price_calls == 1


# Embeddings


def vectors(*rows):
    return [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]


EMBEDDED = ChatRequest("m", (Message("user", "one text"), Message("user", "another")), 0.3, 0, embeds=True)
COUNTED = {"prompt_tokens": 4, "total_tokens": 4}


async def test_texts_are_sent_and_their_vectors_are_read_in_order_priced_and_settled(server, bench):
    data = vectors([1.0, 0.0], [0.0, 1.0])[::-1]
    server.acts = [Act(body={"data": data, "model": "m-1", "usage": COUNTED})]
    use = bench()
    reply = await use.ask(EMBEDDED)
    assert json.loads(reply.message.content) == [[1.0, 0.0], [0.0, 1.0]]
    assert (reply.usage, reply.cost_usd, reply.model) == (TokenUsage(4, 0), 4_000 / 1e9, "m-1")
    (seen,) = server.seen
    assert seen.path == "/v1/embeddings"
    assert seen.json == {"model": "m", "input": ["one text", "another"], "encoding_format": "float"}
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.nano_usd, totals.at_risk_tokens) == (1, 4, 4_000, 0)


@pytest.mark.parametrize("data", [
    vectors([1.0, 0.0]), vectors([1.0], [1.0, 0.0]), vectors([], []), vectors([1.0], ["x"]), vectors([1.0], [None]),
    [*vectors([1.0]), *vectors([2.0])], [1, 2], None,
])  # fmt: skip
async def test_a_reply_without_a_vector_for_each_text_is_asked_for_again_and_then_lost(server, bench, data):
    server.otherwise = lambda seen: Act(body={"data": data, "usage": COUNTED})
    with pytest.raises(ModelReplyMalformed, match="no vector of finite numbers for each of 2 texts"):
        await bench().ask(EMBEDDED)
    assert len(server.seen) == 4


# Failures: what the server always answers, the error, words in its message, requests of four, and calls at risk

FAILURES = {
    "429": (Act(429, refused("busy")), ModelRateLimited, "429 from http.*: busy", 4, 0),
    "500": (Act(500, refused("busy")), ModelServerFault, "500 from http.*: busy", 4, 0),
    "401": (Act(401, refused(f"Incorrect API key: {SECRET}")), ModelAuthRefused, "Incorrect", 1, 0),
    "403": (Act(403, f"no access with {SECRET}".encode()), ModelAuthRefused, "no access", 1, 0),
    "403 flagged": (Act(403, refused("your input was flagged")), ModelRequestRejected, "flagged", 1, 0),
    "400 long": (Act(400, b"x" * 10_000 + SECRET.encode()), ModelRequestRejected, "xxx", 1, 0),
    "404": (Act(404, b""), ModelNotFound, "check the base URL", 1, 0),
    "a page": (Act(body=b" <html>Welcome</html>"), ModelNotFound, "a page of HTML .*is the base URL right", 4, 4),
    "no quota": (Act(429, refused("Quota", code="insufficient_quota")), BudgetRefused, "429 from .*: Quota", 1, 0),
    "402": (Act(402, refused("no credit")), BudgetRefused, "no credit", 1, 0),
    "moved": (Act(308, b"", {"location": f"https://u:p@new.example/v1/{SECRET}?sig=1"}), ModelRequestRejected,
              r"moved to https://new\.example/v1/\*\*\*;", 1, 0),
    "moved within": (Act(307, b"", {"location": "/openai/v1/chat"}), ModelRequestRejected,
                     r"moved to http://127\.0\.0\.1:\d+/openai/v1/chat;", 1, 0),
    "moved nowhere": (Act(301, b"", {"location": ""}), ModelRequestRejected, "an empty body", 1, 0),
    "dropped": (Act(ending="drop"), ModelUnreachable, "broke", 4, 4),
    "torn": (Act(ending="torn"), ModelUnreachable, "broke", 4, 4),
    "garbage": (Act(body=b"\x00\x01 garbage\r\n\r\n", ending="raw"), ModelUnreachable, "broke", 4, 4),
    "a huge header": (Act(body=head(b"HTTP/1.1 200 OK", b"x: " + b"a" * 70_000), ending="raw"), ModelUnreachable, ".", 4, 4),
    "no gzip": (Act(body=b"hello", headers={"content-encoding": "gzip"}), ModelUnreachable, "broke", 4, 4),
    "bad chunk": (Act(body=head(b"HTTP/1.1 200 OK", b"transfer-encoding: chunked") + b"zz\r\nhello", ending="raw"),
                  ModelUnreachable, "broke", 4, 4),
    "unpacks to a huge body": (Act(body=gzip.compress(b" " * (64 << 20)), headers={"content-encoding": "gzip"}),
                               ModelReplyMalformed, "16777216 bytes", 1, 1),
    **{f"body {body[:9]!r}": (Act(body=body), ModelReplyMalformed, "reply|body|JSON", 4, 4)
       for body in (b"", b"[1]", b"[" * 100_000, b'{"choices": []}')},
    "empty": (Act(body=completion("")), ModelReplyMalformed, "reply|body|JSON", 4, 0),
    "empty at the limit": (Act(body=choice({"content": ""}, "length")), ModelReplyMalformed, "finish reason length", 1, 0),
    "only reasoning": (Act(body=choice({"content": None, "reasoning_content": "long"}, "length")), ModelReplyMalformed,
                       r"raise model\.max_tokens", 1, 0),
    "partial": (Act(body=choice({"content": "The answer"}, "abort")), ModelReplyMalformed, "broke off", 4, 0),
    "an error in the choice": (Act(body=choice({"content": "half"}, error={"message": f"gone {SECRET}"})),
                               ModelReplyMalformed, r"gone \*\*\*", 4, 0),
    "hidden 502": (Act(body=refused(f"Provider {SECRET}", code=502)), ModelServerFault, r"Provider \*\*\*", 4, 4),
    "hidden 429": (Act(body=refused("Rate limit", code=429)), ModelRateLimited, "Rate limit", 4, 4),
    "hidden 404": (Act(body=refused("No endpoints", code="404")), ModelNotFound, "No endpoints", 1, 1),
    "an error as text": (Act(body={"error": f"out of memory {SECRET}"}), ModelReplyMalformed, "out of memory", 4, 4),
    "unparsed answer": (Act(400, refused("Failed to call a function.", code="tool_use_failed")), ModelReplyMalformed,
                        "Failed", 4, 4),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_is_raised_as_its_type_after_the_retries_that_can_help(server, bench, name):
    act, kind, words, requests, at_risk = FAILURES[name]
    server.otherwise = lambda seen: act
    use = bench()
    with pytest.raises(kind, match=words) as caught:
        await use.ask()
    assert type(caught.value) is kind
    totals = use.ledger.totals()
    assert len(server.seen) == totals.calls == requests == len(use.waits) + 1
    assert (totals.at_risk_tokens, totals.lost_calls) == (at_risk * BOUND, at_risk)
    assert len(str(caught.value)) < 500
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(use.client)
    server.acts = [act]
    server.otherwise = lambda seen: Act()
    if requests > 1:
        assert (await use.ask()).attempts == 2, "an answer may follow"


ANSWER = json.dumps(completion("seven")).encode()


@pytest.mark.parametrize("raw", [
    gzip.compress(ANSWER) + b"\n", gzip.compress(ANSWER) + bytes(9), gzip.compress(ANSWER)[:-8],
    gzip.compress(ANSWER[:9]) + gzip.compress(ANSWER[9:]), zlib.compress(ANSWER) + b"\n",
], ids=["a newline", "padding", "no trailer", "two members", "deflate"])  # fmt: skip
async def test_what_surrounds_an_encoded_reply_costs_no_second_call(server, bench, raw):
    server.otherwise = lambda seen: Act(body=raw, headers={"content-encoding": "gzip" if raw[0] == 0x1F else "deflate"})
    assert (await bench().ask()).attempts == 1


@pytest.mark.parametrize("status", [401, 403, 402])
async def test_after_a_refused_key_and_an_empty_account_no_call_of_a_run_is_sent_and_a_service_asks_again(
    server, bench, status
):
    server.otherwise = lambda seen: Act(status, refused("no"))
    for ends, asked in ((True, 1), (False, 2)):
        use, before = bench(ends=ends), len(server.seen)
        for _ in range(2):
            with pytest.raises(BudgetRefused if status == 402 else ModelAuthRefused, match=f"{status} from"):
                await use.ask()
        assert len(server.seen) - before == asked


async def test_a_page_or_a_404_after_an_answer_concerns_that_call_alone(server, bench):
    use = bench()
    await use.ask()
    server.acts = [Act(body=b"<html>")]
    assert (await use.ask()).attempts == 2
    server.acts = [Act(404, b"")]
    with pytest.raises(ModelRequestRejected) as caught:
        await use.ask()
    assert not isinstance(caught.value, ModelNotFound)


TEMPERATURE = "Unsupported value: 'temperature' does not support 0.7 with this model."
HINTS = [
    (400, refused(TEMPERATURE, param="temperature"), "model.send_temperature: false"),
    (400, refused("'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
     "model.max_tokens_field: max_completion_tokens"),
    (400, refused("Unrecognized request argument supplied: max_completion_tokens"), "model.max_tokens_field: max_tokens"),
    (400, refused("'max_tokens' is too large: 9. This model's maximum context length is 8."), "lower model.max_tokens"),
    (400, refused("request (9000 tokens) exceeds the available context size (4096 tokens)"), "lower model.max_tokens"),
    (400, refused("Please reduce the length of the messages."), "lower model.max_tokens"),
    (400, refused("too much", code="context_length_exceeded"), "lower model.max_tokens"),
    *((400, refused(words), "takes no system message") for words in (
        "System role not supported", "unsupported role: system", "Developer instruction is not enabled", "roles must alternate",
    )),
    (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra"}]}, "model.send_seed: false"),
    (400, refused("You are not allowed to request logprobs from this model."), "model.logprobs: false"),
    (400, refused("Invalid parameter: 'response_format' of type 'json_schema' is not supported"), "model.structured"),
    (400, refused("registry.ollama.ai/library/gemma:2b does not support tools"), "takes no tools"),
    (400, {"object": "error", "message": '"auto" tool choice requires --enable-auto-tool-choice'}, "takes no tools"),
    (404, refused("Resource not found"), "check the base URL"), (405, {"detail": "Not Allowed"}, "check the base URL"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "advice"), HINTS)
async def test_a_refused_request_names_the_setting_that_helps(server, bench, status, body, advice):
    server.acts = [Act(status, body)]
    with pytest.raises(ModelRequestRejected) as caught:
        await bench().ask()
    assert advice in str(caught.value)


@pytest.mark.parametrize("ending", ["hang", "trickle"])
async def test_the_time_limit_covers_the_whole_exchange(server, bench, ending):
    server.acts = [Act(ending=ending)]
    use = bench(timeout_s=0.2, retry=ONCE)
    with pytest.raises(ModelTimeout, match=r"within 0\.2 s"):
        await use.ask()
    assert (use.ledger.totals().calls, use.ledger.totals().at_risk_tokens) == (1, BOUND)
    assert (await use.ask()).message.content == "fine"


async def test_an_endless_reply_is_stopped_by_its_size(server, bench):
    server.otherwise = lambda seen: Act(ending="endless")
    with pytest.raises(ModelReplyMalformed, match="16777216 bytes"):
        await bench(timeout_s=20.0, retry=ONCE).ask()
    with pytest.raises(EndpointError, match="more than"):
        await check_endpoint(Endpoint(server.root))
    assert server.sent < 60 << 20


def never_connects(error):
    def refuse(request):
        raise error

    return client_over(httpx.MockTransport(refuse))


UNTRUSTED = httpx.ConnectError("no")
UNTRUSTED.__cause__ = ssl.SSLCertVerificationError("self-signed")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("error", "words", "waits"), [
    (None, r"no connection to http://\S+: 127\.0\.0\.1:\d+: \[Errno", 3),
    (httpx.ConnectTimeout(""), "no connection to .*: ConnectTimeout", 3),
    ("http://user:pw-of-proxy@", "no connection", 3), (UNTRUSTED, "SSL_CERT_FILE", 0),
])  # fmt: skip
async def test_what_never_connects_costs_nothing_and_is_no_call(bench, closed_port, monkeypatch, error, words, waits):
    http = never_connects(error) if isinstance(error, Exception) else None
    if isinstance(error, str):
        monkeypatch.setenv("HTTP_PROXY", f"{error}127.0.0.1:{closed_port}")
        http = open_transport(concurrency=1)
    root = f"http://127.0.0.1:{closed_port}/v1?code=abc" if error is None else "http://nosuch.invalid/v1?code=abc"
    use = bench(root, **({} if http is None else {"http": http}))
    with pytest.raises(ModelUnreachable, match=words) as caught:
        await use.ask()
    assert (len(use.waits), use.ledger.totals().calls, use.ledger.totals().at_risk_tokens) == (waits, 0, 0)
    text = "".join(traceback.format_exception(caught.value))
    assert not [secret for secret in (SECRET, "pw-of-proxy", "code=abc") if secret in text]


# Waiting


async def test_retry_after_is_honoured_and_nothing_is_charged_for_a_429(server, bench):
    reset = {"X-RateLimit-Reset": str((int(NOW.timestamp()) + 40) * 1000)}
    server.acts = [
        Act(429, headers={"retry-after": "7"}), Act(429, headers={"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}),
        Act(429, headers={"retry-after": "1.5"}), Act(429, b"", reset),
        Act(429, refused("Rate limit", metadata={"headers": reset})), Act(429, headers={"retry-after": "1e9"}),
    ]  # fmt: skip
    use = bench(retry=UNREAD)
    reply = await use.ask()
    assert (reply.attempts, reply.latency_s) == (7, 1), "the latency is that of the last attempt alone"
    least = (7, 10, 1.5, 40, 40, 30)
    assert all(low <= wait <= max(low + 0.5, 31) or low == 40 for low, wait in zip(least, use.waits, strict=True))
    assert all(wait >= low for low, wait in zip(least, use.waits, strict=True))
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.at_risk_tokens) == (7, 15, 0)
    assert use.limiter.limit < 8


async def test_an_overloaded_endpoint_gets_fewer_calls_for_a_while(server, bench):
    use = bench(retry=ONCE)
    for status, limit in ((429, 4), (503, 2), (529, 1)):
        server.acts = [Act(status, {})]
        with pytest.raises(ModelCallError):
            await use.ask()
        assert use.limiter.limit == limit
    await asyncio.gather(*(use.ask() for _ in range(60)))
    assert use.limiter.limit == 8


# Budget


async def test_calls_and_retries_are_reserved_before_they_are_sent(server, bench):
    with pytest.raises(BudgetRefused):
        await bench(budget=Budget(max_tokens=BOUND - 1)).ask()
    most = Price(1000, 2000, 100).cost(BOUND - 64, 64)
    with pytest.raises(BudgetRefused, match="max_usd"):
        await bench(budget=Budget(max_usd=(most - 1) / 1e9)).ask()
    assert server.seen == []
    await bench(budget=Budget(max_usd=most / 1e9)).ask()
    server.otherwise = lambda seen: Act(status=500)
    with pytest.raises(BudgetRefused, match=r"max_calls 2 is reached.*; the call had failed before: 500 from http"):
        await bench(budget=Budget(max_calls=2)).ask()
    assert len(server.seen) == 1 + 2


async def test_a_cancelled_call_gives_back_its_slot_and_its_reservation_stays_at_risk(server, bench):
    server.acts = [Act(ending="hang")]
    use = bench(cap=1)
    call = asyncio.create_task(use.ask())
    await server.asked.wait()
    waiting = asyncio.create_task(use.ask())
    await asyncio.sleep(0)
    waiting.cancel()
    call.cancel()
    results = await asyncio.gather(call, waiting, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    assert (use.ledger.totals().calls, use.ledger.totals().at_risk_tokens) == (1, BOUND)
    assert (await use.ask()).message.content == "fine"


# Secrets in answers


@pytest.mark.parametrize("place", ["content", "id", "model", "arguments", "reasoning_content", "extra_content"])
async def test_an_echoed_key_is_masked_in_reply_and_journal(server, bench, tmp_path, place):
    told = f"Your key is {SECRET}."
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"content": "x", "tool_calls": [call]}
    body = choice(message)
    holder = {"id": body, "model": body, "arguments": call["function"], "extra_content": call}.get(place, message)
    holder[place] = {"thought": told} if place == "extra_content" else told
    server.acts = [Act(body=body)]
    with Journal(tmp_path / "journal.jsonl") as journal:
        reply = await JournaledModel(bench().client, journal).complete(REQUEST, KEY)
    assert "***" in repr(reply)
    assert SECRET not in repr(reply) + (tmp_path / "journal.jsonl").read_text()
