from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tfgrpo.stores.errors import EndpointError
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint
from tfgrpo.tasks.models.preflight import check_endpoint
from tfgrpo.tasks.models.transport import open_transport

SECRET = "sk-very-secret-0123456789"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    opened = open_transport(trust_env=False)
    yield opened
    await opened.aclose()


def at(server: Any, *models: str) -> Endpoint:
    return Endpoint(server.root, ApiKey(SECRET), models=models)


async def test_a_listed_model_raises_no_warning(server: Any, act: Any, client: httpx.AsyncClient) -> None:
    server.otherwise = lambda seen: act(body={"data": [{"id": "gpt-x"}, {"id": "llama3:latest"}, "stray", {"id": 1}]})
    assert await check_endpoint(at(server, "gpt-x", "llama3"), client) == ()
    assert (server.seen[0].method, server.seen[0].path) == ("GET", "/v1/models")
    assert server.seen[0].headers["authorization"] == f"Bearer {SECRET}"


async def test_an_unlisted_model_is_warned_of_with_the_closest_name(
    server: Any, act: Any, client: httpx.AsyncClient
) -> None:
    server.otherwise = lambda seen: act(body={"data": [{"id": "gpt-x-mini"}, {"id": "other"}]})
    close, far = await check_endpoint(at(server, "gpt-x-mimi", "zzzz"), client)
    assert "'gpt-x-mini'" in close
    assert "2 others" in far


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_one_clear_error_without_the_key(
    server: Any, act: Any, client: httpx.AsyncClient, status: int
) -> None:
    server.otherwise = lambda seen: act(status=status, body={"error": {"message": f"Incorrect key: {SECRET}"}})
    with pytest.raises(EndpointError) as caught:
        await check_endpoint(at(server), client)
    text = str(caught.value)
    assert SECRET not in text
    assert all(part in text for part in (str(status), server.root, "OPENAI_API_KEY", "refused"))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert len(server.seen) == 1
    server.otherwise = lambda seen: act(status=status, body=b"")
    with pytest.raises(EndpointError, match="no API key was sent"):
        await check_endpoint(Endpoint(server.root), client)


async def test_an_unreachable_port_is_one_clear_error(client: httpx.AsyncClient, closed_port: int) -> None:
    root = f"http://127.0.0.1:{closed_port}/v1"
    with pytest.raises(EndpointError) as caught:
        await check_endpoint(Endpoint(root, ApiKey(SECRET)), client)
    assert all(part in str(caught.value) for part in (root, "no connection", "--base-url"))
    assert SECRET not in str(caught.value)


async def test_a_hanging_endpoint_times_out(server: Any, act: Any, client: httpx.AsyncClient) -> None:
    server.otherwise = lambda seen: act(ending="hang")
    with pytest.raises(EndpointError, match=r"no answer within 0\.1 s"):
        await check_endpoint(at(server), client, timeout_s=0.1)


@pytest.mark.parametrize("status", [404, 405, 500, 503, 429])
async def test_an_endpoint_without_a_list_is_tolerated(
    server: Any, act: Any, client: httpx.AsyncClient, status: int
) -> None:
    server.otherwise = lambda seen: act(status=status, body=b"nothing here")
    (warning,) = await check_endpoint(at(server, "m"), client)
    assert str(status) in warning


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 3}', b"[" * 100_000])
async def test_a_list_that_cannot_be_read_is_warned_of(
    server: Any, act: Any, client: httpx.AsyncClient, body: bytes
) -> None:
    server.otherwise = lambda seen: act(body=body)
    (warning,) = await check_endpoint(at(server, "m"), client)
    assert "base URL" in warning


@pytest.mark.parametrize(("status", "body"), [(404, b"no"), (200, b"<!doctype html><p>hello"), (200, b" \n<html>")])
async def test_a_base_url_without_a_path_gets_advice(
    server: Any, act: Any, client: httpx.AsyncClient, status: int, body: bytes
) -> None:
    server.otherwise = lambda seen: act(status=status, body=body)
    root = server.root.removesuffix("/v1")
    for given in (root, f"{root}/"):
        (warning,) = await check_endpoint(Endpoint(given), client)
        assert warning.startswith(f"{root} ")
        assert ("404" if status == 404 else "a page of HTML") in warning
        assert warning.endswith(f"probably {root}/v1 is meant")


async def test_without_a_client_one_is_opened_for_the_request(server: Any, act: Any) -> None:
    server.otherwise = lambda seen: act(body={"data": [{"id": "m"}]})
    assert await check_endpoint(at(server, "m")) == ()
    assert server.connections == 1


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ([{"id": "meta-llama/Llama-4"}], "meta-llama/Llama-4"),
        ({"data": [{"id": "models/gemini-3"}]}, "gemini-3"),
        ({"data": [{"id": "openai/gpt-x"}]}, "openai/gpt-x:nitro"),
        ({"data": [{"id": "openai/*"}]}, "openai/gpt-x"),
    ],
    ids=["together", "gemini", "openrouter", "litellm"],
)
async def test_each_vendors_way_to_list_a_model_is_understood(
    server: Any, act: Any, client: httpx.AsyncClient, listed: Any, asked: str
) -> None:
    server.otherwise = lambda seen: act(body=json.dumps(listed).encode())
    assert await check_endpoint(at(server, asked), client) == ()
    assert len(await check_endpoint(at(server, "else"), client)) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_may_only_chat_is_no_wrong_key(
    server: Any, act: Any, client: httpx.AsyncClient, status: int
) -> None:
    said = f"You have insufficient permissions for this operation. Missing scopes: api.model.read. {SECRET}"
    server.otherwise = lambda seen: act(status=status, body={"error": {"message": said}})
    (warning,) = await check_endpoint(at(server, "m"), client)
    assert "Missing scopes: api.model.read" in warning
    assert "was not checked" in warning
    assert SECRET not in warning
