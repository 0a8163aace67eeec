"""How long to wait, how many calls at once, and what an error body means."""

import asyncio
import gzip
import json
import random
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.errors import (
    ModelAuthRefused,
    ModelRateLimited,
    ModelReplyMalformed,
    ModelRequestRejected,
    ModelServerFault,
    ModelTimeout,
)
from tfgrpo.tasks.models.chat import AdaptiveLimiter
from tfgrpo.tasks.models.retry import (
    FailedAttempt,
    Refusal,
    RetryPolicy,
    failure_of,
    hidden_status,
    read_refusal,
    reset_after,
    retry_after,
)
from tfgrpo.tasks.models.transport import chunks_of, client_over, open_transport

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TRANSIENT = FailedAttempt(ModelServerFault("x"), retryable=True)


def asked_to_wait(seconds):
    return FailedAttempt(ModelRateLimited("x"), retryable=True, after_s=seconds)


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_waits_are_jittered_within_a_doubling_bound_and_a_function_of_the_random_source(seed, attempt):
    policy = RetryPolicy(max_retries=6, base_s=0.5, cap_s=4.0)
    wait = policy.wait(attempt, TRANSIENT, 0.0, random.Random(seed))
    assert 0.0 <= wait <= min(4.0, 0.5 * 2 ** (attempt - 1))
    assert wait == policy.wait(attempt, TRANSIENT, 0.0, random.Random(seed))


def test_the_servers_wait_is_the_least_jittered_and_its_total_is_capped():
    policy, rng = RetryPolicy(base_s=0.5, cap_s=25.0, max_wait_s=60.0), random.Random(0)
    waits = [policy.wait(1, asked_to_wait(20.0), 0.0, random.Random(seed)) for seed in range(8)]
    assert len(set(waits)) == 8
    assert all(20.0 <= wait <= 20.5 for wait in waits)
    assert policy.wait(1, asked_to_wait(20.0), 40.0, rng) == 20.0
    assert policy.wait(1, asked_to_wait(20.0), 60.0, rng) is None
    assert policy.wait(5, TRANSIENT, 60.0, rng) == 0.0
    absurd = []
    while (wait := policy.wait(len(absurd) + 1, asked_to_wait(31_536_000.0), sum(absurd), rng)) is not None:
        absurd.append(wait)
    assert len(absurd) == 3
    assert all(25.0 <= wait <= 25.5 for wait in absurd[:-1])
    assert sum(absurd) == pytest.approx(60.0)
    at_once = [RetryPolicy().wait(5, asked_to_wait(0.0), 0.0, rng) for _ in range(200)]
    assert max(at_once) > 6.0, "a server that always answers `now` is not asked without pause"


@pytest.mark.parametrize(("headers", "seconds"), [
    ({}, None), ({"Retry-After": "7"}, 7.0), ({"retry-after": " 0.5 "}, 0.5), ({"retry-after": "-3"}, 0.0),
    *(({"retry-after": value}, None) for value in ("nan", "inf", "-inf", "soon", "", "1e999", "Fri, 99 Foo 20xx")),
    ({"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}, 10.0), ({"retry-after": "Fri, 02 Jan 2026 03:04:15 -0000"}, 10.0),
    ({"retry-after": "Fri, 02 Jan 2026 03:04:00 GMT"}, 0.0),
    # Relative to the server's own clock.
    ({"retry-after": "Thu, 01 Jan 2026 12:00:10 GMT", "date": "Thu, 01 Jan 2026 12:00:00 GMT"}, 10.0),
])  # fmt: skip
def test_retry_after_is_understood_in_each_of_its_forms(headers, seconds):
    assert retry_after(httpx.Headers(headers), NOW) == seconds


@pytest.mark.parametrize(("reset", "seconds"), [
    (None, None), ("soon", None), ("30", 30.0), (str(int(NOW.timestamp()) + 42), 42.0),
    (str((int(NOW.timestamp()) + 42) * 1000), 42.0), (str(int(NOW.timestamp()) - 42), 0.0),
])  # fmt: skip
def test_the_end_of_a_rate_limit_may_be_a_time_or_a_duration(reset, seconds):
    assert reset_after({} if reset is None else {"x-ratelimit-reset": reset}, NOW) == seconds


def refusal(status, **error):
    return read_refusal(status, json.dumps({"error": error}).encode())


@pytest.mark.parametrize(("refused", "answered", "kind", "again"), [
    (Refusal(408, ""), False, ModelTimeout, True), (Refusal(409, ""), False, ModelServerFault, True),
    (Refusal(429, ""), False, ModelRateLimited, True), (Refusal(529, ""), False, ModelServerFault, True),
    (Refusal(422, ""), False, ModelRequestRejected, False), (Refusal(307, ""), False, ModelRequestRejected, False),
    (Refusal(401, "flagged"), True, ModelAuthRefused, False), (Refusal(403, "no"), False, ModelAuthRefused, False),
    (Refusal(403, "no"), True, ModelRequestRejected, False),
    (refusal(403, message="Your model requires moderation and your input was flagged"), False, ModelRequestRejected, False),
    (refusal(403, message="no", metadata={"reasons": ["violence"]}), False, ModelRequestRejected, False),
    (refusal(403, message="no", code="content_policy_violation"), False, ModelRequestRejected, False),
    (refusal(403, message="Content violates usage guidelines."), False, ModelRequestRejected, False),
    (refusal(403, message="Country, region, or territory not supported"), False, ModelAuthRefused, False),
    *((refusal(429, message="Plan", **{name: code}), False, ModelRateLimited, False) for name in ("code", "type")
      for code in ("insufficient_quota", "billing_not_active", "exceeded_current_quota_error")),
    (refusal(429, message="Too many requests", code="rate_limit_exceeded"), False, ModelRateLimited, True),
    (refusal(400, message="Failed to call", code="tool_use_failed"), False, ModelReplyMalformed, True),
])  # fmt: skip
def test_each_refusal_has_its_error_and_is_retryable_or_not(refused, answered, kind, again):
    failed = failure_of(refused, "said", 2.0, answered=answered)
    assert (type(failed.error), str(failed.error), failed.retryable) == (kind, "said", again)


@pytest.mark.parametrize(("raw", "text"), [
    (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
    (b'{"error": "model not found"}', "model not found"), (b'{"message": "flat", "object": "error"}', "flat"),
    (b'{"detail": "Not Found"}', "Not Found"), (b'{"detail": [1]}', '{"detail": [1]}'),
    (b"<html>Bad gateway</html>", "<html>Bad gateway</html>"), (b"", ""), (b"[]", "[]"),
    (b'[{"error": {"code": 400, "message": "API key not valid"}}]', "API key not valid"),
    (b"[" * 100_000, "[" * 100_000),
])  # fmt: skip
def test_the_message_of_an_error_body_is_found(raw, text):
    assert read_refusal(400, raw).message == text


def test_an_error_status_behind_a_success_is_recognised():
    assert hidden_status({"error": {"code": "429"}}) == 429
    assert hidden_status({"error": {"code": 429}, "choices": [{}]}) is None
    assert hidden_status({"error": {"code": "rate"}}) is None
    assert hidden_status({"error": {"code": "9" * 5000}}) is None


async def test_slots_are_granted_up_to_the_cap_in_the_order_of_requests():
    limiter, order, most = AdaptiveLimiter(3), [], 0

    async def call(number):
        nonlocal most
        async with limiter.slot():
            order.append(number)
            most = max(most, limiter._in_flight)
            await asyncio.sleep(0)
            limiter.served()

    await asyncio.gather(*(call(number) for number in range(50)))
    assert order == list(range(50))
    assert (most, limiter._in_flight, limiter.limit) == (3, 0, 3)
    with pytest.raises(ValueError, match="at least 1"):
        AdaptiveLimiter(0)


async def test_one_round_trip_halves_the_limit_once_and_served_calls_restore_it():
    limiter = AdaptiveLimiter(16)
    first = [limiter.slot() for _ in range(16)]
    rounds = [await slot.__aenter__() for slot in first]
    for slot, started in zip(first, rounds, strict=True):
        limiter.pushed_back(started)
        await slot.__aexit__(None, None, None)
    assert limiter.limit == 8
    for expected in (4, 2, 1, 1):
        async with limiter.slot() as later:
            limiter.pushed_back(later)
        assert limiter.limit == expected
    calls = 0
    while limiter.limit < 16:
        async with limiter.slot():
            limiter.served()
        calls += 1
    assert sum(range(1, 16)) <= calls <= 250  # additive: about `limit` calls for each step
    async with limiter.slot():
        limiter.served()
    assert limiter.limit == 16


@given(st.lists(st.sampled_from(["enter", "leave", "push", "serve", "cancel"]), max_size=60))
def test_the_count_is_always_right_and_within_the_cap_and_a_lowered_limit(steps):
    async def play():
        limiter, held, waiting = AdaptiveLimiter(3), [], []
        for step in steps:
            if step == "enter":
                slot = limiter.slot()
                waiting.append((slot, asyncio.create_task(slot.__aenter__())))
            elif step == "cancel" and waiting:
                waiting[0][1].cancel()
            elif held and step == "leave":
                await held.pop(0)[0].__aexit__(None, None, None)
            elif held and step == "push":
                limiter.pushed_back(held[0][1].result())
            elif held and step == "serve":
                limiter.served()
            before = len(held)
            for _ in range(3):
                await asyncio.sleep(0)
            held += [(slot, task) for slot, task in waiting if task.done() and not task.cancelled()]
            waiting = [(slot, task) for slot, task in waiting if not task.done()]
            assert limiter._in_flight == len(held) <= 3
            assert 1 <= limiter.limit <= 3
            assert len(held) <= max(before, limiter.limit)
            assert not waiting or len(held) >= limiter.limit
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)

    asyncio.run(play())


PARTS = [b"one ", b"two ", b"three"]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


class Server:
    """Answers every request with the parts, each when the one before has been seen."""

    def __init__(self, head, parts, end=b"", *, closes=False):
        self.head, self.parts, self.end, self.closes = head, parts, end, closes
        self.connections = 0
        self.chunks, self.tasks = list[bytes](), list[object]()
        self.seen: asyncio.Queue[bytes] = asyncio.Queue()

    def take(self, chunk):
        self.chunks.append(chunk)
        self.tasks.append(asyncio.current_task())
        self.seen.put_nowait(chunk)

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(HEAD + self.head + b"\r\n")
                for part in self.parts:
                    writer.write(part)
                    await self.seen.get()
                writer.write(self.end)
                if self.closes:
                    break
        except asyncio.IncompleteReadError:  # the client has closed the connection
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def listening(self, context=None):
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=context) as listener:
            yield f"http{'s' if context else ''}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"


def chunked():
    parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in PARTS]
    return Server(b"transfer-encoding: chunked\r\n", parts, b"0\r\n\r\n")


async def received(client, url, seen, *, last=b""):
    """Return whether the body was stopped, at the chunk ``last``."""

    def take(chunk):
        seen(chunk)
        return chunk != last

    response = await client.send(httpx.Request("GET", url), stream=True)
    try:
        return await asyncio.wait_for(chunks_of(response)(take), 10)
    finally:
        await response.aclose()


@pytest.mark.parametrize(
    "server",
    [chunked(), Server(b"content-length: 13\r\n", PARTS), Server(b"connection: close\r\n", PARTS, closes=True)],
    ids=["chunked", "with a length", "until the connection closes"],
)
async def test_a_chunk_is_handed_over_before_the_next_one_is_sent(server):
    async with server.listening() as url, open_transport(trust_env=False) as client:
        for calls in (1, 2):
            assert not await received(client, url, server.take)
            assert server.chunks == PARTS * calls
            assert server.tasks[-2:] == [None, None], "no task is woken for a chunk that comes after the headers"
            assert server.connections == (calls if server.closes else 1)


async def test_an_encrypted_connection_is_no_different(tmp_path, monkeypatch):
    server, file = chunked(), tmp_path / "certificate.pem"
    file.write_bytes(certificate())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with server.listening(context) as url, open_transport() as client:
        for _ in range(2):
            assert not await received(client, url, server.take)
        assert (server.chunks, server.connections) == (PARTS * 2, 1)


async def test_encoded_bodies_and_other_transports_are_handed_over_too():
    packed = gzip.compress(b"".join(PARTS))
    server = Server(b"content-encoding: gzip\r\ncontent-length: %d\r\n" % len(packed), [packed])
    chunks: list[bytes] = []
    async with server.listening() as url, open_transport(trust_env=False) as client:
        server.seen.put_nowait(b"")
        assert not await received(client, url, chunks.append)
    async with client_over(httpx.MockTransport(lambda request: httpx.Response(200, content=b" four"))) as client:
        assert await received(client, "http://any/", chunks.append, last=b" four")
    assert b"".join(chunks) == b"one two three four"


def certificate():
    """Return a certificate for loopback that signs itself, with its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    return signed.public_bytes(pem) + key.private_bytes(pem, form, serialization.NoEncryption())
