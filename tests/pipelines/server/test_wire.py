"""Requests and replies are those of the server that this one replaces; without the token there are none."""

import asyncio
import itertools
import json
from collections import Counter

import httpx
import pytest

from tests.support.pipelines.data_server import RIGHT, graded, in_process, item, mix, on_a_port, rogue

JSON = {"content-type": "application/json"}


@pytest.fixture
def path(tmp_path):
    return mix(tmp_path)


async def test_meta_has_length_and_stages_and_other_paths_and_methods_are_refused(path):
    async with in_process(path) as (client, _):
        response = await client.get("/meta")
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {
            "total_iterations": 20,
            "stages": [{"name": "first", "until_step": 10}, {"name": "second", "until_step": 20}],
        }
        assert (await client.get("/nowhere")).status_code == 404
        wrong = await client.get("/grade")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert (await client.post("/meta", json={})).status_code == 405
        slash = await client.post("/grade/", json={"iteration": 0, "items": []})
        assert (slash.status_code, slash.headers["location"]) == (307, "http://server/grade")
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        described = (await client.get("/openapi.json")).json()["paths"].values()
        assert [each["summary"] for paths in described for each in paths.values()] == ["Health", "Meta", "Sample", "Grade"]
        assert (await client.get("/docs")).status_code == 200


async def test_samples_have_all_keys_and_no_answer(path):
    async with in_process(path) as (client, _):
        response = await client.post("/sample", json={"iteration": 15, "batch_size": 40})
    samples = response.json()["samples"]
    assert len(samples) == 40
    assert {frozenset(sample) for sample in samples} == {
        frozenset({"sample_id", "dataset_id", "system_prompt", "prompt", "metadata"})
    }
    by_dataset = {sample["dataset_id"]: sample for sample in samples}
    assert (by_dataset["plain"]["system_prompt"], by_dataset["plain"]["metadata"]) == (None, None)
    number = by_dataset["sums"]["metadata"]["n"]
    assert (by_dataset["sums"]["sample_id"], by_dataset["sums"]["prompt"]) == (f"sums:{number}", f"{number}?")
    assert "never sent" not in response.text


async def test_results_are_in_the_order_of_the_request_with_the_ids_of_its_items(path):
    items = [
        item("<think>r</think>\n41", "sums:3", completion_index=7),
        item(RIGHT, "plain:0", completion_index=2, completion_tokens=9),
        item(RIGHT, "sums:3", completion_index=2),
        item("no format", "plain:1"),
        item(RIGHT, "sums:11", completion_index=None),
    ]
    async with in_process(path) as (client, _):
        assert await graded(client, *items) == [
            {"sample_id": "sums:3", "reward": 0.25, "completion_index": 7},
            {"sample_id": "plain:0", "reward": 1.0, "completion_index": 2},
            {"sample_id": "sums:3", "reward": 1.0, "completion_index": 2},
            {"sample_id": "plain:1", "reward": 0.0, "completion_index": None},
            {"sample_id": "sums:11", "reward": 1.0, "completion_index": None},
        ]
        assert await graded(client) == []


async def test_whole_numbers_are_read_leniently_and_echoed_as_integers(path):
    async with in_process(path) as (client, _):
        for whole in ("12", 12, 12.0, True, " 1_2 ", "+12.0"):
            body = {"iteration": whole, "items": [item(completion_index=whole, completion_tokens=whole)], "unknown": {}}
            response = await client.post("/grade", json=body)
            index = response.json()["results"][0]["completion_index"]
            assert (response.status_code, type(index), index) == (200, int, 1 if whole is True else 12)


BAD_BODIES = [
    (b"", 422, "missing"),
    (b"{", 422, "json_invalid"),
    (b"[]", 422, "model_attributes_type"),
    (b"null", 422, "missing"),
    (b'{"iteration": 0.5, "items": []}', 422, "int_from_float"),
    (b'{"iteration": null, "items": []}', 422, "int_type"),
    (b'{"iteration": 0, "items": [{"sample_id": "sums:0"}]}', 422, "missing"),
    (b'{"iteration": 0, "items": [{"sample_id": 3, "completion": "x"}]}', 422, "string_type"),
    (b'{"iteration": NaN, "items": []}', 422, "finite_number"),
    (b'{"iteration": 1e300, "items": []}', 422, "int_parsing_size"),
    (b'{"iteration": "\\ud800", "items": []}', 422, "string_unicode"),
    (b'{"iteration": {"a": NaN}, "items": []}', 422, "int_type"),
    (b'{"iteration": 0, "items": ' + b"[" * 300 + b"]" * 300 + b"}", 422, "model_attributes_type"),
    (b"\xff\xfe\xfa", 400, ""),
    (b"[" * 100_000, 400, ""),
    (b'{"iteration": ' + b"9" * 5000 + b', "items": []}', 400, ""),
]  # fmt: skip


async def test_any_invalid_body_is_refused_field_by_field(path):
    async with in_process(path) as (client, _):
        for raw, status, kind in BAD_BODIES:
            response = await client.post("/grade", content=raw, headers=JSON)
            assert (response.status_code, len(response.content) < 2000) == (status, True), raw
            problems = response.json()["detail"]
            if status == 400:
                assert problems == "There was an error parsing the body"
            else:
                assert kind in {problem["type"] for problem in problems}, raw
                assert all(problem["loc"][0] == "body" and problem["msg"] for problem in problems)
        response = await client.post("/grade", json={"iteration": 0, "items": ["x" * 500] * 1000})
        assert len(response.json()["detail"]) == 100, "only some of a thousand"
        assert not any("input" in problem for problem in response.json()["detail"])
        body = json.dumps({"iteration": 0, "batch_size": 1}).encode()
        for kind in ("text/plain", "text/x+json", "application/octet-stream", "", None):
            headers = {} if kind is None else {"content-type": kind}
            assert (await client.post("/sample", content=body, headers=headers)).status_code == 422, kind


NO_IDS = ("sums", "", ":", "sums:", "sums:x", "sums:12", "sums:-1", "nowhere:0", "sums:0:0", "sums:1.0", "a\ud800:\ud801")


async def test_an_id_of_no_sample_refuses_the_request(path):
    async with in_process(path) as (client, _):
        for name in NO_IDS:
            body = json.dumps({"iteration": 0, "items": [item(), item(sample_id=name)]})
            response = await client.post("/grade", content=body, headers=JSON)
            assert (response.status_code, "sample_id" in response.json()["detail"]) == (400, True), name


async def test_an_empty_dataset_and_one_with_a_colon_in_its_name_are_served(tmp_path):
    path = mix(
        tmp_path,
        datasets={"none": {"path": "none.jsonl"}, "a:b": {"path": "sums.jsonl"}},
        stages=[
            {"name": "nothing", "until_step": 1, "datasets": [{"id": "none", "weight": 1.0}]},
            {"name": "colon", "until_step": 2, "datasets": [{"id": "a:b", "weight": 1.0}]},
        ],
    )
    (tmp_path / "none.jsonl").touch()
    async with in_process(path) as (client, _):
        empty = await client.post("/sample", json={"iteration": 0, "batch_size": 1})
        (sample,) = (await client.post("/sample", json={"iteration": 1, "batch_size": 1})).json()["samples"]
        (result,) = await graded(client, item(sample_id=sample["sample_id"]))
    assert (empty.status_code, "none" in empty.json()["detail"], str(tmp_path) in empty.text) == (400, True, False)
    assert result["reward"] == 1.0


async def test_half_a_surrogate_pair_is_graded_logged_and_answered_like_any_text(tmp_path):
    async with in_process(rogue(tmp_path, "Echoing"), verbose=True) as (client, served):
        body = json.dumps({"iteration": 0, "items": [item("<think>\ud800</think>\n42 é", completion_index=7)]})
        response = await client.post("/grade", content=body, headers=JSON)
    (result,) = response.json()["results"]
    assert (response.status_code, "\ud800" in result["error"], "é #7" in result["error"]) == (200, True, True)
    assert "\ud800" in served.messages[-1]


async def test_records_that_cannot_be_served_are_graded_and_never_drawn(tmp_path):
    path = mix(tmp_path)
    (tmp_path / "sums.jsonl").write_text('{"answer": "42"}\n[1]\n{"prompt": "p", "answer": "42"}\n')
    async with in_process(path) as (client, _):
        drawn = (await client.post("/sample", json={"iteration": 0, "batch_size": 50})).json()["samples"]
        results = await graded(client, item(), item(sample_id="sums:1"), item(sample_id="sums:2"))
    assert Counter(sample["sample_id"] for sample in drawn) == {"sums:2": 50}
    assert [result["reward"] for result in results] == [1.0, 0.25, 1.0]


async def test_what_happens_to_a_file_after_the_start_has_no_effect(tmp_path):
    path = mix(tmp_path)
    async with in_process(path) as (client, _):
        (tmp_path / "sums.jsonl").write_bytes((tmp_path / "sums.jsonl").read_bytes().replace(b"42", b"43"))
        results = await graded(client, item(), item("<think>r</think>\n43"))
        (tmp_path / "sums.jsonl").unlink()
        samples = (await client.post("/sample", json={"iteration": 0, "batch_size": 200})).json()["samples"]
    assert [result["reward"] for result in results] == [1.0, 0.25]
    assert {sample["sample_id"] for sample in samples} == {f"sums:{number}" for number in range(12)}


async def test_the_reply_has_the_reward_of_every_grader_on_request(tmp_path):
    items = [item("<think>r</think>\n7"), item("boom"), item(RIGHT, "plain:0")]
    async with in_process(rogue(tmp_path, "Fine", "Raising", "Fine")) as (client, _):
        answer = await client.post("/grade", json={"iteration": 0, "items": items, "parts": True})
        silent = await graded(client, *items)
    results = answer.json()["results"]
    assert [result.pop("parts") for result in results] == [
        {"Fine": 1.0, "Raising": 1.0, "Fine#2": 1.0, "reasoning_format": 1.0},
        {"Fine": 1.0, "Fine#2": 1.0, "reasoning_format": 0.0},
        {"reasoning_format": 1.0},
    ]
    assert results == silent
    async with in_process(rogue(tmp_path, "Fine", multiplicative=True)) as (client, _):
        answer = await client.post("/grade", json={"iteration": 0, "items": [item()], "parts": True})
    assert list(answer.json()["results"][0]["parts"]) == ["reasoning_format", "Fine"], "the parts of the sum come first"


async def test_an_internal_error_is_answered_without_details(path, monkeypatch):
    async with in_process(path) as (_, served):
        monkeypatch.setattr(served.service, "meta", lambda: 1 / 0)
        transport = httpx.ASGITransport(served.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            response = await client.get("/meta")
    assert (response.status_code, response.json()) == (500, {"detail": "Internal Server Error"})


TOKEN = "a-good-token"
WRONG = (None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer é")


async def test_without_the_token_every_path_but_health_is_closed_and_with_it_all_is_as_without_one(tmp_path):
    closed = ("/meta", "/sample", "/grade", "/docs", "/openapi.json", "/nowhere", "/grade/")
    async with in_process(mix(tmp_path), token=TOKEN) as (client, _):
        for header in WRONG:
            headers = {} if header is None else {"authorization": header.encode("latin-1")}
            for path, method in itertools.product(closed, ("GET", "POST")):
                response = await client.request(method, path, headers=headers)
                assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
                assert TOKEN not in response.text
            assert (await client.get("/healthz", headers=headers)).status_code == 200
        for scheme in ("Bearer", "bearer", "BEARER "):
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
