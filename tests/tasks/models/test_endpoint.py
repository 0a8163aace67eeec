"""Where calls go, by which connection and with which key, and what is known of an endpoint before the first of them."""

import asyncio
import copy
import dataclasses
import json
import pickle
import re
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import aiohttp
import httpx
import pytest

from tests.tasks.models.conftest import Act
from tfgrpo.rewarders.runner import GroupScores
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import EndpointError
from tfgrpo.stores.json_values import FrozenDict, frozen
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint, check_endpoint, scrubbed, scrubber
from tfgrpo.tasks.models.transport import never_sent, open_transport, refuse_socks
from tfgrpo.tasks.shapes import Frame, Trajectory

SECRET = "sk-very-secret-0123456789"


def test_no_text_or_pickle_of_an_endpoint_shows_the_key():
    endpoint = Endpoint("http://h/v1", ApiKey(f" {SECRET}\n"))
    assert endpoint.headers()["authorization"] == f"Bearer {SECRET}"
    for text in (repr(endpoint), str(endpoint), f"{endpoint.api_key}", repr(dataclasses.asdict(endpoint))):
        assert SECRET not in text
        assert "***" in text
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(endpoint)
    assert copy.deepcopy(endpoint.api_key) is endpoint.api_key


@pytest.mark.parametrize("key", ["", "  ", "two words", "line\nbreak", "schlüssel", "nul\x00"])
def test_a_key_that_is_invalid_in_a_header_is_refused_without_showing_it(key):
    with pytest.raises(EndpointError) as caught:
        ApiKey(key)
    assert not key.strip() or key not in str(caught.value)


@pytest.mark.parametrize(("url", "said"), [
    *((url, "base URL") for url in ("", "host/v1", "ftp://h/v1", "http://", "http://[bad", "/v1", "http://h:99999999/v1")),
    *((f"https://host/v1/{path}", "only its root") for path in ("chat/completions", "chat/completions/", "responses?a=b")),
    ("https://me:hunter2@h/v1", "."),
])  # fmt: skip
def test_an_invalid_address_is_refused(url, said):
    with pytest.raises(EndpointError, match=said) as caught:
        Endpoint(url)
    assert "hunter2" not in str(caught.value)


def test_an_excerpt_is_short_and_loses_the_key_before_it_is_cut():
    endpoint = Endpoint("http://h", ApiKey(SECRET))
    text = endpoint.excerpt("x" * 290 + SECRET + "\n\n tail")
    assert len(text) <= 300
    assert SECRET[:6] not in text
    assert endpoint.excerpt("a\n  b") == "a b"
    assert Endpoint("http://h", ApiKey("x")).excerpt("axb") == "axb"


@pytest.mark.parametrize("before", ["", "u", "u:", "Bearer "])
@pytest.mark.parametrize("key", [SECRET, "sk/a+b-0123456789=AbC"])
def test_a_key_is_masked_as_addresses_json_and_base64_write_it(key, before):
    coded = [each(f"{before}{key}!".encode()).decode() for each in (b64encode, urlsafe_b64encode)]
    every = "".join(f"\\u{ord(each):04x}" for each in key)
    some = "".join(each if each.isalnum() else f"\\u{ord(each):04X}" for each in key)
    for written in (key, quote(key, safe=""), key.replace("/", "\\/"), every, some, *coded):
        masked = ApiKey(key).scrub(before + written)
        assert "***" in masked
        assert len(masked) < len(before) + 20
        assert ApiKey(key).scrub((before + written).encode()) == masked.encode()


def test_the_key_and_lone_surrogates_are_removed_from_every_text_of_users_code():
    details = frozen({"votes": [{"raw": f"{SECRET}!"}], "mean": 0.5})
    verdicts = ((RewardScore("r", 0.5, f"saw {SECRET}", details), Abstained("s", f"no {SECRET}")),)
    kept = scrubbed(GroupScores(verdicts, {"a": 0.5}, {"s": f"broke at {SECRET}"}), scrubber(ApiKey(SECRET)))
    clean = FrozenDict({"votes": (FrozenDict({"raw": "***!"}),), "mean": 0.5})
    assert kept.verdicts == ((RewardScore("r", 0.5, "saw ***", clean), Abstained("s", "no ***")),)
    assert (kept.totals, kept.faults) == ({"a": 0.5}, {"s": "broke at ***"})
    half = "a\ud83db"
    kept = scrubbed(Trajectory(half, (Frame("tool", half, half, 1, None, 1.0, half),)), scrubber())
    assert kept == Trajectory("a?b", (Frame("tool", "a?b", "a?b", 1, None, 1.0, "a?b"),))
    fine = Trajectory("7 é", (Frame("model", "m", "x", 1, None, 1.0),))
    assert scrubbed(fine, scrubber(ApiKey(SECRET))) == fine


# Connections


async def test_the_environments_proxy_is_used_unless_disabled(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.root.removesuffix("/v1"))
    monkeypatch.setenv("NO_PROXY", "")
    server.otherwise = lambda seen: Act(body=b"by way of the proxy")
    async with open_transport() as client:
        assert (await client.get("http://far.invalid/x")).text == "by way of the proxy"
    assert server.seen[0].path == "http://far.invalid/x"
    async with open_transport(trust_env=False) as client:
        assert client._mounts == {}


async def test_a_load_balancers_cookie_is_sent_back_once(server):
    server.otherwise = lambda seen: Act(headers={"set-cookie": "route=a; Path=/"}, body=b"{}")
    address = server.root.replace("127.0.0.1", "localhost")
    async with open_transport(trust_env=False) as client:
        for _ in range(2):
            assert (await client.get(f"{address}/x")).status_code == 200
    assert [seen.headers.get("cookie") for seen in server.seen] == [None, "route=a"]


@pytest.mark.parametrize(("cause", "unsent"), [
    (aiohttp.ServerDisconnectedError(), False), (aiohttp.ClientOSError(), False), (aiohttp.SocketTimeoutError(), False),
    (aiohttp.ConnectionTimeoutError(), True), (None, True),
])  # fmt: skip
async def test_the_cause_decides_whether_anything_was_sent(closed_port, cause, unsent):
    error = httpx.ConnectTimeout("")
    error.__cause__ = cause
    assert never_sent(error) is unsent
    assert not never_sent(httpx.ReadError(""))
    async with open_transport(trust_env=False) as client:
        with pytest.raises(httpx.HTTPError) as caught:
            await asyncio.wait_for(client.get(f"http://127.0.0.1:{closed_port}/"), 5)
    assert never_sent(caught.value)


@pytest.mark.parametrize("name", ["ALL_PROXY", "http_proxy"])
def test_a_socks_proxy_is_refused_before_any_connection(monkeypatch, name):
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


# Before a run


def at(server, *models):
    return Endpoint(server.root, ApiKey(SECRET), models=models)


@pytest.mark.parametrize(("listed", "named", "warnings"), [
    ({"data": [{"id": "gpt-x"}, {"id": "llama3:latest"}, "stray", {"id": 1}]}, ("gpt-x", "llama3"), ()),
    ({"data": [{"id": "gpt-x-mini"}, {"id": "other"}]}, ("gpt-x-mimi", "zzzz"), ("'gpt-x-mini'", "'gpt-x-mini', 'other'")),
    ({"data": [{"id": f"m{n}"} for n in range(4)]}, ("zzzz",), ("4 others",)),
    ([{"id": "meta-llama/Llama-4"}], ("meta-llama/Llama-4", "else"), ("else",)),  # Together
    ({"data": [{"id": "models/gemini-3"}]}, ("gemini-3", "else"), ("else",)),
    ({"data": [{"id": "openai/gpt-x"}]}, ("openai/gpt-x:nitro", "else"), ("else",)),  # OpenRouter
    ({"data": [{"id": "openai/*"}]}, ("openai/gpt-x", "else"), ("else",)),  # LiteLLM
])  # fmt: skip
async def test_a_model_that_is_not_listed_in_the_vendors_way_is_warned_of(server, listed, named, warnings):
    server.otherwise = lambda seen: Act(body=json.dumps(listed).encode())
    told = await check_endpoint(at(server, *named))
    assert len(told) == len(warnings)
    assert all(word in warning for word, warning in zip(warnings, told, strict=True))
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.headers["authorization"]) == ("GET", "/v1/models", f"Bearer {SECRET}")


SCOPES = f"You have insufficient permissions. Missing scopes: api.model.read. {SECRET}"


@pytest.mark.parametrize(("status", "body", "said"), [
    *((status, b"nothing here", str(status)) for status in (405, 500)), (429, {"error": {"code": "insufficient_quota"}}, "429"),
    (404, b"no", "404 .*is the base URL right"),
    *((200, body, "base URL") for body in (b"<html>", b"[]", b'{"data": 3}', b"[" * 100_000)),
    *((status, {"error": {"message": SCOPES}}, r"api\.model\.read.* was not checked") for status in (401, 403)),
])  # fmt: skip
async def test_an_endpoint_without_a_list_is_tolerated_with_a_warning(server, status, body, said):
    server.otherwise = lambda seen: Act(status, body)
    (warning,) = await check_endpoint(at(server, "m"))
    assert re.search(said, warning)
    assert SECRET not in warning


@pytest.mark.parametrize(("status", "body"), [(404, b"no"), (200, b"<!doctype html><p>hello"), (200, b" \n<html>")])
async def test_a_base_url_without_a_path_gets_advice(server, status, body):
    server.otherwise = lambda seen: Act(status, body)
    root = server.root.removesuffix("/v1")
    (warning,) = await check_endpoint(Endpoint(f"{root}/"))
    assert warning.startswith(f"{root} ")
    assert warning.endswith(f"probably {root}/v1 is meant")


@pytest.mark.parametrize(("act", "key", "said"), [
    (Act(401, {"error": {"message": f"Incorrect key: {SECRET}"}}), SECRET, "401 .*refused.*OPENAI_API_KEY"),
    (Act(403, b""), SECRET, "403 .*refused.*OPENAI_API_KEY"), (Act(401, b""), None, "no API key was sent"),
    (Act(308, b"", {"location": f"https://u:p@new.example/v1/{SECRET}"}), SECRET, r"moved to https://new\.example/v1/\*"),
    *((Act(status, b"busy"), SECRET, f"{status} from GET /models: busy") for status in (429, 502, 503, 504, 529)),
    (Act(ending="hang"), SECRET, r"no answer within 0\.1 s"), (None, SECRET, "no connection.*--base-url"),
])  # fmt: skip
async def test_an_endpoint_that_can_answer_no_call_is_one_clear_error_without_the_key(server, closed_port, act, key, said):
    server.otherwise = lambda seen: act
    root = f"http://127.0.0.1:{closed_port}/v1" if act is None else server.root
    with pytest.raises(EndpointError, match=said) as caught:
        await check_endpoint(Endpoint(root, key and ApiKey(key)), timeout_s=0.1 if act and act.ending == "hang" else 5.0)
    assert root in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


async def test_an_environment_with_an_address_that_is_none_is_refused_at_once_and_not_waited_for(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "host:port")
    with pytest.raises(EndpointError, match="Invalid port") as caught:
        await check_endpoint(Endpoint("http://model.test/v1"))
    assert type(caught.value) is EndpointError, "unavailable is what may be there later"
