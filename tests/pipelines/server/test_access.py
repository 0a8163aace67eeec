"""Requests without the token, or for another host, are refused."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.support.pipelines.data_server import Served, graded, in_process, item, mix
from tfgrpo.pipelines.server.listening import running

TOKEN = "a-good-token"


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer é"]
)
@pytest.mark.parametrize("path", ["/meta", "/sample", "/grade", "/docs", "/openapi.json", "/nowhere", "/grade/"])
async def test_without_the_token_every_path_is_closed(tmp_path, path, header):
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    async with in_process(mix(tmp_path), token=TOKEN) as (client, _):
        for method in ("GET", "POST"):
            response = await client.request(method, path, headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in response.text


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_with_the_token_all_is_as_without_one(tmp_path, scheme):
    async with in_process(mix(tmp_path), token=TOKEN) as (client, _):
        client.headers["authorization"] = f"{scheme} {TOKEN}"
        assert (await client.get("/meta")).status_code == 200
        assert (await graded(client, item()))[0]["reward"] == 1.0


async def test_health_needs_no_token(tmp_path):
    async with in_process(mix(tmp_path), token=TOKEN) as (client, _):
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *[
            (host, 200)
            for host in ("localhost", "LocalHost:9000", "127.0.0.1:9000", "[::1]:9000", "localhost.", "a.localhost")
        ],
        *[
            (host, 400)
            for host in ("evil.example", "evil.example:9000", "127.0.0.1.evil.example", "localhost.evil.example")
        ],
        *[
            (host, 400)
            for host in ("", "x", "10.0.0.1", "0.0.0.0", "[::2]", "[::1", "localhost@evil.example", "evil/@localhost")
        ],
    ],
)
@pytest.mark.parametrize("path", ["/meta", "/healthz", "/openapi.json"])
async def test_a_name_that_only_resolves_to_this_machine_does_not_get_in(tmp_path, host, status, path):
    served = Served(mix(tmp_path), local_only=True)
    try:
        transport = httpx.ASGITransport(served.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server", headers={"host": host}) as client:
            answer = await client.get(path)
    finally:
        served.close()
    assert answer.status_code == status
    reason = "the Host header names another machine" if host else "the request has no Host header"
    assert status == 200 or reason in answer.json()["detail"]


async def test_an_http_1_0_request_without_a_host_header_is_refused_with_that_reason(tmp_path):
    served = Served(mix(tmp_path), local_only=True)
    try:
        async with running(served.app) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
            writer.write(b"GET /meta HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
    finally:
        served.close()
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"the request has no Host header; ask for localhost" in answer
