"""Requests and replies are those of the server that this one takes the place of, with its failures taken out."""

from __future__ import annotations

import json
from collections import Counter

import httpx
import pytest

from tests.support.pipelines.data_server import RIGHT, graded, in_process, item, mix, rogue


@pytest.fixture
def path(tmp_path):
    return mix(tmp_path)


async def test_meta_has_length_and_stages(path):
    async with in_process(path) as (client, _):
        response = await client.get("/meta")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "total_iterations": 20,
        "stages": [{"name": "first", "until_step": 10}, {"name": "second", "until_step": 20}],
    }


async def test_samples_have_all_keys_and_no_answer(path):
    async with in_process(path) as (client, _):
        response = await client.post("/sample", json={"iteration": 15, "batch_size": 40})
    samples = response.json()["samples"]
    assert len(samples) == 40
    assert {frozenset(sample) for sample in samples} == {
        frozenset({"sample_id", "dataset_id", "system_prompt", "prompt", "metadata"})
    }
    by_dataset = {sample["dataset_id"]: sample for sample in samples}
    assert set(by_dataset) == {"sums", "plain"}
    assert by_dataset["plain"]["system_prompt"] is None
    assert by_dataset["plain"]["metadata"] is None
    number = by_dataset["sums"]["metadata"]["n"]
    assert by_dataset["sums"]["sample_id"] == f"sums:{number}"
    assert by_dataset["sums"]["prompt"] == f"{number}?"
    assert "never sent" not in response.text


async def test_a_seeded_server_gives_the_same_stream_and_never_the_same_batch_twice(path):
    streams = []
    for _ in range(2):
        async with in_process(path) as (client, _served):
            replies = [await client.post("/sample", json={"iteration": 0, "batch_size": 8}) for _ in range(3)]
        streams.append([reply.text for reply in replies])
    assert streams[0] == streams[1]
    assert len(set(streams[0])) == 3


@pytest.mark.parametrize(
    ("iteration", "datasets"),
    [(-5, {"sums"}), (9, {"sums"}), (10, {"sums", "plain"}), (10**30, {"sums", "plain"})],
)
async def test_the_stage_of_the_iteration_is_drawn_from(path, iteration, datasets):
    async with in_process(path) as (client, _):
        response = await client.post("/sample", json={"iteration": iteration, "batch_size": 60})
    assert {sample["dataset_id"] for sample in response.json()["samples"]} == datasets


@pytest.mark.parametrize("size", [0, -1, -(10**20)])
async def test_no_samples_are_asked_for_and_none_come(path, size):
    async with in_process(path) as (client, _):
        response = await client.post("/sample", json={"iteration": 0, "batch_size": size})
    assert (response.status_code, response.json()) == (200, {"samples": []})


async def test_results_are_in_the_order_of_the_request_with_the_ids_of_its_items(path):
    items = [
        item("<think>r</think>\n41", "sums:3", completion_index=7),
        item(RIGHT, "plain:0", completion_index=2, completion_tokens=9),
        item(RIGHT, "sums:3", completion_index=2),
        item("no format", "plain:1"),
        item(RIGHT, "sums:11", completion_index=None),
    ]
    async with in_process(path) as (client, _):
        results = await graded(client, *items)
    assert results == [
        {"sample_id": "sums:3", "reward": 0.25, "completion_index": 7},
        {"sample_id": "plain:0", "reward": 1.0, "completion_index": 2},
        {"sample_id": "sums:3", "reward": 1.0, "completion_index": 2},
        {"sample_id": "plain:1", "reward": 0.0, "completion_index": None},
        {"sample_id": "sums:11", "reward": 1.0, "completion_index": None},
    ]


async def test_an_empty_list_to_grade_is_no_error(path):
    async with in_process(path) as (client, _):
        assert await graded(client) == []


@pytest.mark.parametrize("whole", ["12", 12, 12.0, True, " 1_2 ", "+12.0"])
async def test_whole_numbers_are_read_leniently_and_echoed_as_integers(path, whole):
    body = {"iteration": whole, "items": [item(completion_index=whole, completion_tokens=whole)], "unknown": {}}
    async with in_process(path) as (client, _):
        response = await client.post("/grade", json=body)
    assert response.status_code == 200
    index = response.json()["results"][0]["completion_index"]
    assert type(index) is int
    assert index == (1 if whole is True else 12)


@pytest.mark.parametrize(
    "body",
    [
        {"iteration": 0.5, "items": []},
        {"iteration": "x", "items": []},
        {"iteration": None, "items": []},
        {"items": []},
        {"iteration": 0},
        {"iteration": 0, "items": {}},
        {"iteration": 0, "items": [3]},
        {"iteration": 0, "items": [{"sample_id": "sums:0"}]},
        {"iteration": 0, "items": [item(sample_id=3)]},
        {"iteration": 0, "items": [item(completion=["42"])]},
        {"iteration": 0, "items": [item(completion_index="first")]},
        [],
        None,
        "text",
    ],
)
async def test_invalid_bodies_are_refused_field_by_field(path, body):
    async with in_process(path) as (client, _):
        response = await client.post("/grade", json=body)
    assert response.status_code == 422
    problems = response.json()["detail"]
    assert problems
    for problem in problems:
        assert problem["loc"][0] == "body"
        assert problem["type"]
        assert problem["msg"]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "missing"),
        (b"{", "json_invalid"),
        (b'{"iteration": 0, "items": []', "json_invalid"),
        (b"\xff\xfe\xfa", "json_invalid"),
        (b"[" * 100_000, "json_invalid"),
        (b'{"iteration": ' + b"9" * 5000 + b', "items": []}', "json_invalid"),
        (b'{"iteration": NaN, "items": []}', "finite_number"),
        (b'{"iteration": -Infinity, "items": []}', "finite_number"),
        (b'{"iteration": 1e999, "items": []}', "finite_number"),
        (b'{"iteration": 1e300, "items": []}', "int_parsing_size"),
        (b'{"iteration": "\\ud800", "items": []}', "string_unicode"),
        (b'{"iteration": {"a": NaN}, "items": []}', "int_type"),
        (b'{"iteration": 0, "items": ' + b"[" * 300 + b"]" * 300 + b"}", "model_attributes_type"),
    ],
)
async def test_any_invalid_body_is_refused_with_422(path, raw, kind):
    async with in_process(path) as (client, _):
        response = await client.post("/grade", content=raw, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert kind in {problem["type"] for problem in response.json()["detail"]}
    assert len(response.content) < 2000


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/x+json", "application/octet-stream", "", None, "application/x-www-form-urlencoded"]
)
async def test_only_json_is_read(path, kind):
    body = json.dumps({"iteration": 0, "batch_size": 1}).encode()
    headers = {} if kind is None else {"content-type": kind}
    async with in_process(path) as (client, _):
        response = await client.post("/sample", content=body, headers=headers)
    assert response.status_code == 422


async def test_of_a_thousand_bad_items_only_some_are_reported(path):
    async with in_process(path) as (client, _):
        response = await client.post("/grade", json={"iteration": 0, "items": ["x" * 500] * 1000})
    assert len(response.json()["detail"]) == 100
    assert all(problem["input"] == "x" * 200 for problem in response.json()["detail"])


@pytest.mark.parametrize(
    "name", ["sums", "", ":", "sums:", "sums:x", "sums:12", "sums:-1", "nowhere:0", "sums:0:0", "sums:1.0", "a\ud800:\ud801"]
)  # fmt: skip
async def test_an_id_of_no_sample_refuses_the_request(path, name):
    async with in_process(path) as (client, _):
        body = json.dumps({"iteration": 0, "items": [item(), item(sample_id=name)]})
        response = await client.post("/grade", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert "sample_id" in response.json()["detail"]


@pytest.mark.parametrize("index", ["+1", " 1 ", "0_1", "\u0661"])
async def test_indexes_are_read_as_python_reads_them(path, index):
    async with in_process(path) as (client, _):
        (result,) = await graded(client, item(sample_id=f"sums:{index}"))
    assert (result["sample_id"], result["reward"]) == (f"sums:{index}", 1.0)


async def test_sampling_an_empty_dataset_is_refused_without_its_path(tmp_path):
    path = mix(
        tmp_path,
        datasets={"none": {"path": "none.jsonl"}},
        stages=[{"name": "only", "until_step": 1, "datasets": [{"id": "none", "weight": 1.0}]}],
    )
    (tmp_path / "none.jsonl").touch()
    async with in_process(path) as (client, _):
        response = await client.post("/sample", json={"iteration": 0, "batch_size": 1})
    assert response.status_code == 400
    assert "none" in response.json()["detail"]
    assert str(tmp_path) not in response.text


async def test_a_dataset_with_a_colon_in_its_name_can_be_graded_too(tmp_path):
    path = mix(
        tmp_path,
        datasets={"a:b": {"path": "sums.jsonl"}},
        stages=[{"name": "only", "until_step": 1, "datasets": [{"id": "a:b", "weight": 1.0}]}],
    )
    async with in_process(path) as (client, _):
        sample = (await client.post("/sample", json={"iteration": 0, "batch_size": 1})).json()["samples"][0]
        (result,) = await graded(client, item(sample_id=sample["sample_id"]))
    assert result["reward"] == 1.0


async def test_other_paths_methods_and_slashes(path):
    async with in_process(path) as (client, _):
        assert (await client.get("/nowhere")).status_code == 404
        wrong = await client.get("/grade")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert (await client.post("/meta", json={})).status_code == 405
        slash = await client.post("/grade/", json={"iteration": 0, "items": []})
        assert (slash.status_code, slash.headers["location"]) == (307, "http://server/grade")
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/docs")).status_code == 200


async def test_half_a_surrogate_pair_is_graded_and_logged_like_any_text(path):
    text = "<think>\ud800</think>\n42"
    async with in_process(path, verbose=True) as (client, served):
        body = json.dumps({"iteration": 0, "items": [item(text)]})
        response = await client.post("/grade", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 200
    assert response.json()["results"][0]["reward"] == 1.0
    assert "\ud800" in served.messages[-1]


async def test_records_that_cannot_be_served_are_graded_and_never_drawn(tmp_path):
    path = mix(tmp_path)
    (tmp_path / "sums.jsonl").write_text('{"answer": "42"}\n[1]\n{"prompt": "p", "answer": "42"}\n')
    async with in_process(path) as (client, _):
        drawn = (await client.post("/sample", json={"iteration": 0, "batch_size": 50})).json()["samples"]
        results = await graded(client, item(), item(sample_id="sums:1"), item(sample_id="sums:2"))
    assert Counter(sample["sample_id"] for sample in drawn) == {"sums:2": 50}
    assert [result["reward"] for result in results] == [1.0, 0.25, 1.0]


async def test_a_file_that_changes_under_the_server_costs_only_its_items(tmp_path):
    path = mix(tmp_path)
    async with in_process(path) as (client, served):
        content = (tmp_path / "sums.jsonl").read_bytes()
        lines = content.split(b"\n")
        with (tmp_path / "sums.jsonl").open("r+b") as file:
            file.write(b"x" * len(lines[0]))
        results = await graded(client, item(), item(sample_id="sums:1"))
        samples = await client.post("/sample", json={"iteration": 0, "batch_size": 200})
    assert results[0]["reward"] == 0.0
    assert "has changed" in results[0]["error"]
    assert results[1]["reward"] == 1.0
    drawn = {sample["sample_id"] for sample in samples.json()["samples"]}
    assert (samples.status_code, drawn) == (200, {f"sums:{number}" for number in range(1, 12)})
    assert any("record" in line for line in served.messages)


async def test_an_answer_rewritten_under_the_server_grades_nothing_and_is_never_served(tmp_path):
    path = mix(tmp_path)
    async with in_process(path) as (client, _):
        lines = (tmp_path / "sums.jsonl").read_bytes().splitlines(keepends=True)
        lines[0] = lines[0].replace(b"42", b"43")
        with (tmp_path / "sums.jsonl").open("r+b") as file:
            file.write(b"".join(lines))
        results = await graded(client, item(), item("<think>r</think>\n43"), item(sample_id="sums:1"))
        samples = (await client.post("/sample", json={"iteration": 0, "batch_size": 200})).json()["samples"]
    assert [("error" in result, result["reward"]) for result in results] == [(True, 0.0), (True, 0.0), (False, 1.0)]
    assert {sample["sample_id"] for sample in samples} == {f"sums:{number}" for number in range(1, 12)}


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda lines: b"",
        lambda lines: b"x" * len(lines),
        lambda lines: lines.replace(b'"prompt"', b'"morpth"'),
        lambda lines: b"".join(b"5".ljust(len(line)) for line in lines.splitlines(keepends=True)),
    ],
)
async def test_a_file_rewritten_under_the_server_is_a_temporary_failure(tmp_path, rewrite):
    async with in_process(mix(tmp_path)) as (client, _):
        path = tmp_path / "sums.jsonl"
        path.write_bytes(rewrite(path.read_bytes()))
        response = await client.post("/sample", json={"iteration": 0, "batch_size": 3})
    told = "the data cannot be read: its files have changed since the start"
    assert (response.status_code, response.json()) == (503, {"detail": told})


async def test_the_reply_has_the_reward_of_every_grader_on_request(tmp_path):
    items = [item("<think>r</think>\n7"), item("boom"), item(RIGHT, "plain:0")]
    async with in_process(rogue(tmp_path, "Fine", "Raising")) as (client, _):
        answer = await client.post("/grade", json={"iteration": 0, "items": items, "parts": True})
        silent = await graded(client, *items)
    assert [result["parts"] for result in answer.json()["results"]] == [
        {"Fine": 1.0, "Raising": 1.0, "reasoning_format": 1.0},
        {"Fine": 1.0, "reasoning_format": 0.0},
        {"reasoning_format": 1.0},
    ]
    assert [{**result, "parts": ...} for result in silent] == [
        {**result, "parts": ...} for result in answer.json()["results"]
    ]
    assert not any("parts" in result for result in silent)


async def test_an_internal_error_is_answered_without_details(path, monkeypatch):
    async with in_process(path) as (_, served):
        monkeypatch.setattr(served.service, "meta", lambda: 1 / 0)
        transport = httpx.ASGITransport(served.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            response = await client.get("/meta")
    assert (response.status_code, response.json()) == (500, {"detail": "Internal Server Error"})


async def test_a_failing_disk_is_a_temporary_failure(path, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    async with in_process(path) as (client, _):
        monkeypatch.setattr("tfgrpo.pipelines.mix.records.Records.__getitem__", fail)
        response = await client.post("/sample", json={"iteration": 0, "batch_size": 1})
        (result,) = await graded(client, item())
    assert (response.status_code, response.json()) == (503, {"detail": "the data cannot be read: Input/output error"})
    assert result["reward"] == 0.0
    assert result["error"].startswith("record: ")


async def test_a_server_that_starts_the_apps_life_span_can(path):
    async with in_process(path) as (_, served):
        sent = []
        asked = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive():
            return next(asked)

        async def send(message):
            sent.append(message["type"])

        await served.app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
