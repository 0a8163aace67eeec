from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

from tfgrpo.stores.errors import EndpointError
from tfgrpo.tasks.models.transport import KEEPALIVE_S, never_sent, open_transport, refuse_socks


async def test_an_application_is_called_in_process_and_its_error_is_a_500() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/break":
            raise RuntimeError("broken")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"in process"})

    async with open_transport(app=app) as client:
        assert (await client.get("http://any/")).text == "in process"
        assert (await client.get("http://any/break")).status_code == 500


async def test_there_is_a_connection_for_every_call_in_flight() -> None:
    async with open_transport(concurrency=200, trust_env=False) as client:
        transport = client._transport
        assert isinstance(transport, AiohttpTransport)
        assert transport.limits.max_connections is not None
        assert transport.limits.max_connections >= 200
        assert transport.limits.keepalive_expiry == KEEPALIVE_S


async def test_the_environments_proxy_is_used_unless_disabled(
    server: Any, act: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.root.removesuffix("/v1"))
    monkeypatch.setenv("NO_PROXY", "")
    server.otherwise = lambda seen: act(body=b"by way of the proxy")
    async with open_transport() as client:
        assert (await client.get("http://far.invalid/x")).text == "by way of the proxy"
    assert server.seen[0].path == "http://far.invalid/x"
    async with open_transport(trust_env=False) as client:
        assert client._mounts == {}


async def test_a_load_balancers_cookie_is_sent_back_once(server: Any, act: Any) -> None:
    server.otherwise = lambda seen: act(headers={"set-cookie": "route=a; Path=/"}, body=b"{}")
    address = server.root.replace("127.0.0.1", "localhost")
    async with open_transport(trust_env=False) as client:
        for _ in range(2):
            assert (await client.get(f"{address}/x")).status_code == 200
        assert not client.cookies
    assert [seen.headers.get("cookie") for seen in server.seen] == [None, "route=a"]


@pytest.mark.parametrize(
    ("cause", "unsent"),
    [
        (aiohttp.ServerDisconnectedError(), False),
        (aiohttp.ClientOSError(), False),
        (aiohttp.SocketTimeoutError(), False),
        (aiohttp.ConnectionTimeoutError(), True),
    ],
)
def test_the_cause_decides_whether_anything_was_sent(cause: Exception, unsent: bool) -> None:
    error = httpx.ConnectTimeout("")
    error.__cause__ = cause
    assert never_sent(error) is unsent


def test_without_a_cause_the_kind_of_error_decides() -> None:
    assert never_sent(httpx.ConnectTimeout(""))
    assert not never_sent(httpx.ReadError(""))
    assert not never_sent(aiohttp.ClientPayloadError())


async def test_a_refused_connection_is_known_as_never_sent(closed_port: int) -> None:
    async with open_transport(trust_env=False) as client:
        with pytest.raises(httpx.HTTPError) as caught:
            await asyncio.wait_for(client.get(f"http://127.0.0.1:{closed_port}/"), 5)
    assert never_sent(caught.value)


@pytest.mark.parametrize("name", ["ALL_PROXY", "http_proxy"])
def test_a_socks_proxy_is_refused_before_any_connection(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for each in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(each, raising=False)
        monkeypatch.delenv(each.lower(), raising=False)
    url = httpx.URL("http://model.test/v1/models")
    refuse_socks(url)
    monkeypatch.setenv(name, "socks5h://me:secret@127.0.0.1:1080")
    with pytest.raises(EndpointError, match=f"{name.upper()}: got socks5h") as caught:
        refuse_socks(url)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("NO_PROXY", "model.test")
    refuse_socks(url)
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:3128")
    refuse_socks(url)
