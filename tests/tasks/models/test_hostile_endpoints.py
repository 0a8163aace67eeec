"""Hostile and broken endpoints: bounded in bytes and time, and never sent a secret they need not have.

Also what the night brings: cancellations by the hundred, resets in a row, clocks that disagree, certificates that expired.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import ssl
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from tfgrpo.stores.errors import (
    ConfigError,
    ModelCallError,
    ModelRateLimited,
    ModelReplyMalformed,
    ModelRequestRejected,
    ModelTimeout,
    ModelUnreachable,
)
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey, Journal
from tfgrpo.tasks.models.base import ChatRequest, Message
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint
from tfgrpo.tasks.models.journaled import JournaledModel
from tfgrpo.tasks.models.preflight import check_endpoint
from tfgrpo.tasks.models.retry import FailedAttempt, RetryPolicy, retry_after
from tfgrpo.tasks.models.transport import client_over, exchange, is_certificate_error, open_transport

SECRET = "sk-abcdef-0123456789"
REQUEST = ChatRequest("m", (Message("user", "2+2?"),), 0.7, 64)


def key(number: int = 0) -> CallKey:
    return CallKey(GroupKey(1, "train", "train", 0, f"q{number}"), 0, 0, "rollout")


class Use:
    """A client with its ledger and limiter."""

    def __init__(self, root: str, *, cap: int = 8, retries: int = 0, timeout_s: float = 5.0, **more: Any) -> None:
        self.ledger = Ledger(Budget())
        self.waits: list[float] = []
        self.client = ChatClient(
            Endpoint(root, ApiKey(more.get("secret", SECRET)), timeout_s=timeout_s),
            more.get("http") or open_transport(concurrency=cap, trust_env=False),
            concurrency=cap,
            ledger=self.ledger,
            prices={},
            retry=RetryPolicy(max_retries=retries),
            rng=random.Random(0),
            sleep=self._sleep,
        )
        self.limiter = self.client.limiter

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    async def ask(self, number: int = 0) -> Any:
        return await self.client.complete(REQUEST, key(number))

    def holds_nothing(self) -> bool:
        return self.limiter._in_flight == 0 and self.ledger.in_flight().calls == 0


@asynccontextmanager
async def raw_server(handler: Any, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    listener = await asyncio.start_server(handler, "127.0.0.1", 0, ssl=context)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await listener.wait_closed()


@asynccontextmanager
async def using(root: str, **changes: Any) -> AsyncIterator[Use]:
    use = Use(root, **changes)
    try:
        yield use
        assert use.holds_nothing()
    finally:
        await use.client.aclose()


async def test_an_endless_reply_is_stopped_by_its_size() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
                await writer.drain()
                sent += 1 << 20
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with raw_server(endless) as port, using(f"http://127.0.0.1:{port}/v1", retries=3, timeout_s=20) as use:
        with pytest.raises(ModelReplyMalformed, match="16777216 bytes"):
            await use.ask()
        assert use.ledger.totals().lost_calls == 1
        with pytest.raises(ConfigError, match="more than"):
            await check_endpoint(Endpoint(f"http://127.0.0.1:{port}/v1"))
    assert sent < 60 << 20


async def test_a_small_reply_that_unpacks_to_a_huge_one_is_stopped_by_its_size(server: Any, act: Any) -> None:
    server.acts = [act(body=gzip.compress(b" " * (64 << 20)), headers={"content-encoding": "gzip"})]
    async with using(server.root) as use:
        with pytest.raises(ModelReplyMalformed, match="bytes"):
            await use.ask()


async def test_an_endless_refusal_is_stopped_by_its_size(server: Any, act: Any) -> None:
    server.acts = [act(status=400, body=b"x" * 2000)]
    client = open_transport(concurrency=1, trust_env=False)
    with pytest.raises(ModelReplyMalformed):
        await exchange(client, client.build_request("GET", server.root), max_bytes=1000)
    await client.aclose()


async def test_a_trickling_reply_is_stopped_by_the_time_limit(server: Any, act: Any) -> None:
    server.acts = [act(ending="trickle")]
    async with using(server.root, timeout_s=0.2) as use:
        with pytest.raises(ModelTimeout):
            await use.ask()


@pytest.mark.parametrize(
    "head",
    [
        b"\x00\x01 garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}",
    ],
)
async def test_a_reply_that_is_not_http_is_a_broken_connection(head: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        await writer.drain()
        writer.close()

    async with raw_server(handler) as port, using(f"http://127.0.0.1:{port}/v1?code=abc") as use:
        with pytest.raises(ModelUnreachable) as caught:
            await use.ask()
        assert "code=abc" not in str(caught.value)
        assert len(str(caught.value)) < 500


async def test_a_redirect_is_not_followed_and_its_target_is_shown(server: Any, act: Any) -> None:
    moved = act(status=308, body=b"", headers={"location": "https://u:p@new.example/v1/chat/completions?sig=1"})
    server.acts = [moved, moved]
    async with using(server.root, retries=3) as use:
        with pytest.raises(ModelRequestRejected, match=r"moved to https://new\.example/v1/chat/completions;"):
            await use.ask()
        with pytest.raises(ConfigError, match=r"moved to https://new\.example"):
            await check_endpoint(Endpoint(server.root))
    assert len(server.seen) == 2


async def test_a_redirect_within_the_server_is_shown_as_a_full_address(server: Any, act: Any) -> None:
    server.acts = [act(status=307, body=b"", headers={"location": "/openai/v1/chat/completions"})]
    async with using(server.root) as use:
        with pytest.raises(ModelRequestRejected, match=r"moved to http://127\.0\.0\.1:\d+/openai/v1/chat/completions;"):
            await use.ask()


@pytest.mark.parametrize("place", ["", "http://x:y", "javascript:void"])
async def test_a_redirect_without_a_target_is_a_failure(server: Any, act: Any, place: str) -> None:
    server.acts = [act(status=301, body=b"", headers={"location": place})]
    async with using(server.root) as use:
        with pytest.raises(ModelCallError, match=r"an empty body|broke"):
            await use.ask()


# secrets ----------------------------------------------------------------------------------------------------------


async def test_an_echoed_key_is_masked_everywhere(server: Any, act: Any, reply_body: Any, tmp_path: Path) -> None:
    echo = reply_body(f"Your key is {SECRET}.", id=f"id-{SECRET}", model=f"m-{SECRET}")
    call = {"id": SECRET, "type": "function", "function": {"name": "f", "arguments": f'{{"k": "{SECRET}"}}'}}
    echo["choices"][0]["message"]["tool_calls"] = [call]
    server.acts = [act(body=echo)]
    async with using(server.root) as use:
        with Journal(tmp_path / "journal.jsonl") as journal:
            reply = await JournaledModel(use.client, journal).complete(REQUEST, key())
    assert SECRET not in repr(reply)
    assert reply.message.content == "Your key is ***."
    assert SECRET not in (tmp_path / "journal.jsonl").read_text()


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": f"bad key {SECRET}", "code": 502}},
        {"error": f"bad key {SECRET}"},
        {"choices": [{"message": {"content": "x"}, "finish_reason": "error", "error": {"message": SECRET}}]},
        {"choices": [{"message": {"content": "x"}, "finish_reason": SECRET, "error": True}]},
    ],
)
async def test_an_error_inside_a_reply_does_not_show_the_key(server: Any, act: Any, body: Any) -> None:
    server.acts = [act(body=body)]
    async with using(server.root) as use:
        with pytest.raises(ModelCallError) as caught:
            await use.ask()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("placeholder", ["none", "EMPTY", "ollama", "1234", "test"])
async def test_a_placeholder_key_is_not_masked_in_answers(
    server: Any, act: Any, reply_body: Any, placeholder: str
) -> None:
    server.acts = [act(body=reply_body(f"It is {placeholder}, 1234 test."))]
    async with using(server.root, secret=placeholder) as use:
        assert (await use.ask()).message.content == f"It is {placeholder}, 1234 test."


# cancellation and storms --------------------------------------------------------------------------------------------


async def test_many_cancellations_leak_no_slot_and_no_reservation(server: Any, act: Any) -> None:
    server.otherwise = lambda seen: act(ending="hang") if len(server.seen) % 2 else act()
    rng = random.Random(1)
    async with using(server.root, cap=64) as use:
        for _ in range(3):
            tasks = [asyncio.ensure_future(use.ask(number)) for number in range(256)]
            for task in rng.sample(tasks, 200):
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert use.holds_nothing()
        server.otherwise = lambda seen: act()
        replies = await asyncio.gather(*(use.ask(number) for number in range(100)))
        assert len(replies) == 100


async def test_after_many_resets_each_lost_call_is_counted(server: Any, act: Any) -> None:
    server.otherwise = lambda seen: act(ending="torn") if len(server.seen) <= 100 else act()
    async with using(server.root, cap=64, retries=5) as use:
        replies = await asyncio.gather(*(use.ask(number) for number in range(64)), return_exceptions=True)
        lost = [reply for reply in replies if isinstance(reply, BaseException)]
        assert all(isinstance(reply, ModelUnreachable) for reply in lost)
        assert use.ledger.totals().lost_calls == 100
        assert use.ledger.totals().calls == len(server.seen)


async def test_the_limiter_recovers_from_a_burst_of_refusals(server: Any, act: Any) -> None:
    server.otherwise = lambda seen: act(status=429, headers={"retry-after": "0"}) if len(server.seen) <= 200 else act()
    async with using(server.root, cap=64, retries=20) as use:
        await asyncio.gather(*(use.ask(number) for number in range(64)))
        low = use.limiter.limit
        await asyncio.gather(*(use.ask(number) for number in range(300)))
        assert low < use.limiter.limit


async def test_identical_calls_whose_owner_is_cancelled_are_still_made_once_more_only(
    server: Any, tmp_path: Path
) -> None:
    server.delay_s = 0.05
    async with using(server.root) as use:
        with Journal(tmp_path / "journal.jsonl") as journal:
            model = JournaledModel(use.client, journal)
            tasks = [asyncio.ensure_future(model.complete(REQUEST, key())) for _ in range(50)]
            await server.asked.wait()
            tasks[0].cancel()
            replies = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(replies[0], asyncio.CancelledError)
            assert len(server.seen) == 2
            assert sum(not reply.replayed for reply in replies[1:]) == 1
            assert len(journal) == 1


async def test_identical_calls_fail_together_and_the_failure_is_not_cached(
    server: Any, act: Any, tmp_path: Path
) -> None:
    server.acts = [act(status=400, body={"error": {"message": "no"}})]
    async with using(server.root) as use:
        with Journal(tmp_path / "journal.jsonl") as journal:
            model = JournaledModel(use.client, journal)
            calls = (model.complete(REQUEST, key()) for _ in range(20))
            replies = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(reply, ModelRequestRejected) for reply in replies)
            assert len(server.seen) == 1
            assert (await model.complete(REQUEST, key())).message.content == "fine"


# waiting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["1e9", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_an_absurd_retry_after_does_not_fail_a_call(server: Any, act: Any, value: str) -> None:
    server.acts = [act(status=429, body={"error": {"message": "later"}}, headers={"retry-after": value})]
    async with using(server.root, retries=5) as use:
        assert (await use.ask()).attempts == 2
        assert len(use.waits) == 1
        assert use.waits[0] <= 31.0


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "soon", "Fri, 99 Foo 20xx", "", "1e999"])
def test_a_meaningless_retry_after_is_ignored(value: str) -> None:
    assert retry_after(httpx.Headers({"retry-after": value}), datetime(2026, 1, 1, tzinfo=UTC)) is None


def test_a_retry_date_is_relative_to_the_servers_clock() -> None:
    headers = httpx.Headers({"retry-after": "Thu, 01 Jan 2026 12:00:10 GMT", "date": "Thu, 01 Jan 2026 12:00:00 GMT"})
    assert retry_after(headers, datetime(2026, 1, 1, 2, tzinfo=UTC)) == 10.0
    assert retry_after(headers, datetime(2027, 1, 1, tzinfo=UTC)) == 10.0


def test_a_retry_after_of_zero_does_not_end_the_backoff() -> None:
    policy, rng = RetryPolicy(), random.Random(3)
    fault = FailedAttempt(ModelRateLimited("x"), retryable=True, after_s=0.0)
    waits = [policy.wait(5, fault, 0.0, rng) for _ in range(200)]
    assert max(wait for wait in waits if wait is not None) > 6.0


# TLS, DNS, proxies --------------------------------------------------------------------------------------------------


def certificate_error() -> Exception:
    error = httpx.ConnectError("no")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    return error


async def test_a_certificate_error_is_known_by_its_cause() -> None:
    async def refuse(request: httpx.Request) -> httpx.Response:
        raise certificate_error()

    assert is_certificate_error(certificate_error())
    assert not is_certificate_error(aiohttp.ClientError())
    async with using("https://host/v1", retries=5, http=client_over(httpx.MockTransport(refuse))) as use:
        with pytest.raises(ModelUnreachable, match="SSL_CERT_FILE"):
            await use.ask()
        assert (use.waits, use.ledger.totals().calls) == ([], 0)
        with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
            await check_endpoint(Endpoint("https://host/v1"), client_over(httpx.MockTransport(refuse)))


async def test_an_unresolvable_host_was_never_reached() -> None:
    async with using("http://nosuch.invalid/v1") as use:
        with pytest.raises(ModelUnreachable, match=r"no connection to http://nosuch\.invalid/v1"):
            await use.ask()
        assert use.ledger.totals().calls == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_the_password_of_a_proxy_is_in_no_message(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://user:pw-of-proxy@127.0.0.1:{closed_port}")
    async with using("http://nosuch.invalid/v1", http=open_transport(concurrency=1)) as use:
        with pytest.raises(ModelUnreachable) as caught:
            await use.ask()
    assert "pw-of-proxy" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("place", ["reasoning_content", "extra_content"])
async def test_a_key_echoed_in_reasoning_is_masked(
    server: Any, act: Any, reply_body: Any, tmp_path: Path, place: str
) -> None:
    echo = reply_body("")
    call: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    holder = call if place == "extra_content" else echo["choices"][0]["message"]
    holder[place] = {"thought": f"The key is {SECRET}."}
    echo["choices"][0]["message"]["tool_calls"] = [call]
    server.acts = [act(body=echo)]
    async with using(server.root) as use:
        with Journal(tmp_path / "journal.jsonl") as journal:
            reply = await JournaledModel(use.client, journal).complete(REQUEST, key())
    assert "***" in repr(reply)
    assert SECRET not in repr(reply)
    assert SECRET not in (tmp_path / "journal.jsonl").read_text()
