"""Requests without the token, or for another host, are refused."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.support.pipelines.data_server import graded, in_process, item, mix, on_a_port

TOKEN = "a-good-token"
WRONG = (None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer é")


@pytest.mark.parametrize("header", WRONG)
async def test_without_the_token_every_path_but_health_is_closed(tmp_path, header):
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    async with in_process(mix(tmp_path), token=TOKEN) as (client, _):
        for path in ("/meta", "/sample", "/grade", "/docs", "/openapi.json", "/nowhere", "/grade/"):
            for method in ("GET", "POST"):
                response = await client.request(method, path, headers=headers)
                assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
                assert TOKEN not in response.text
        assert (await client.get("/healthz", headers=headers)).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_with_the_token_all_is_as_without_one(tmp_path, scheme):
    async with in_process(mix(tmp_path), token=TOKEN) as (client, _):
        client.headers["authorization"] = f"{scheme} {TOKEN}"
        assert (await client.get("/meta")).status_code == 200
        assert (await graded(client, item()))[0]["reward"] == 1.0


OURS = ("localhost", "LocalHost:9000", "127.0.0.1:9000", "[::1]:9000", "localhost.", "a.localhost")
OTHERS = (
    "evil.example", "evil.example:9000", "127.0.0.1.evil.example", "localhost.evil.example", "", "x", "10.0.0.1", "0.0.0.0",
    "[::2]", "[::1", "localhost@evil.example", "evil/@localhost",
)  # fmt: skip


async def test_a_name_that_only_resolves_to_this_machine_does_not_get_in(tmp_path):
    async with in_process(mix(tmp_path), local_only=True) as (client, _):
        for host in (*OURS, *OTHERS):
            for path in ("/meta", "/healthz", "/openapi.json"):
                answer = await client.get(path, headers={"host": host})
                assert answer.status_code == (200 if host in OURS else 400), host
                reason = "the Host header names another machine" if host else "the request has no Host header"
                assert host in OURS or reason in answer.json()["detail"]


async def test_an_http_1_0_request_without_a_host_header_is_refused_with_that_reason(tmp_path):
    async with on_a_port(mix(tmp_path), local_only=True) as (url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        writer.write(b"GET /meta HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"the request has no Host header; ask for localhost" in answer
