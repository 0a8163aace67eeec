"""A grader that misbehaves harms its own items and nobody else: not the batch, not other requests, not the server."""

import asyncio

import httpx
import pytest

from tests.support.pipelines.data_server import RIGHT, Served, graded, in_process, item, rogue
from tfgrpo.pipelines.server.app import ServerLimits
from tfgrpo.pipelines.server.listening import running


@pytest.mark.parametrize(
    ("name", "word", "multiplicative"),
    [("Raising", "boom", False), ("NotANumber", "nan", True), ("Junk", "junk", False), ("naps", "hang", True)],
)
async def test_only_the_item_that_a_grader_fails_on_is_ungraded(tmp_path, name, word, multiplicative):
    path = rogue(tmp_path, name, multiplicative=multiplicative)
    items = [
        item(RIGHT, "sums:1", completion_index=2),
        item(RIGHT, "plain:0", completion_index=1),
        item(f"{RIGHT} {word}", "sums:0", completion_index=0),
    ]
    async with in_process(path, timeout_s=0.4) as (client, served):
        results = await graded(client, *items)
        again = await graded(client, item(RIGHT, "sums:1"))
    assert [result["reward"] for result in results] == [1.0, 1.0, 0.0]
    assert [result["completion_index"] for result in results] == [2, 1, 0]
    assert name in results[2]["error"]
    assert "error" not in results[0] | results[1]
    assert again[0]["reward"] == 1.0
    assert [line for line in served.messages if name in line]


async def test_results_in_another_order_reach_their_items_and_a_wrong_number_of_them_never_becomes_anothers_reward(tmp_path):
    completions = [f"<think>r</think>\n{'x' * length}" for length in (10, 30, 50)]
    items = [item(text, f"sums:{n}", completion_index=n) for n, text in enumerate(completions)]
    async with in_process(rogue(tmp_path, "Reversed")) as (client, _):
        results = await graded(client, *items)
    assert [result["reward"] for result in results] == pytest.approx([(len(text) / 100 + 1) / 2 for text in completions])
    async with in_process(rogue(tmp_path, "Short", "Long")) as (client, _):
        results = await graded(client, *items, item(RIGHT, "plain:0"))
    assert [result["reward"] for result in results] == [0.0 if "error" in result else 1.0 for result in results]
    assert (len(results), results[3]["reward"]) == (4, 1.0)


@pytest.mark.parametrize("name", ["Hanging", pytest.param("Dozing", marks=pytest.mark.slow)])
async def test_a_hanging_batch_times_out_and_delays_neither_samples_nor_other_graders(tmp_path, name):
    """Which of its items it hangs on, nobody can tell: all items of that call are its own."""
    stuck, fine = item(f"{RIGHT} hang"), item(RIGHT, "plain:0")
    async with in_process(rogue(tmp_path, "Fine", name), timeout_s=1.0) as (client, _):
        assert (await graded(client, item()))[0]["reward"] == 1.0
        waiting = [asyncio.create_task(graded(client, stuck, fine)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert (await graded(client, item(RIGHT, "plain:0")))[0]["reward"] == 1.0
        assert (await client.post("/sample", json={"iteration": 0, "batch_size": 4})).status_code == 200
        assert not any(task.done() for task in waiting)
        for bad, good in await asyncio.gather(*waiting):
            assert (bad["reward"], good["reward"]) == (0.0, 1.0)
            assert name in bad["error"]
        assert (await graded(client, item()))[0]["reward"] == 1.0


@pytest.mark.parametrize("name", ["Hanging", pytest.param("Dozing", marks=pytest.mark.slow)])
async def test_what_is_being_graded_when_the_server_ends_is_answered_without_a_traceback(tmp_path, name, caplog):
    served = Served(rogue(tmp_path, name), timeout_s=20.0)
    body = {"iteration": 0, "items": [item(f"{RIGHT} hang")]}
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            async with running(served.app, shutdown_s=0) as (url, _):
                asking = asyncio.create_task(client.post(f"{url}/grade", json=body))
                await asyncio.sleep(0.3)
            answer = await asking
    finally:
        served.close()
    assert (answer.status_code, answer.json()) == (503, {"detail": "the server is being stopped; come again"})
    assert "Exception in ASGI application" not in caplog.text


@pytest.mark.parametrize(
    ("name", "word", "status"), [("Raising", "boom", 503), ("naps", "hang", 503), ("NotANumber", "nan", 200)]
)
async def test_a_request_is_refused_for_graders_that_failed_and_not_for_what_stays_so(tmp_path, name, word, status):
    limits = ServerLimits(refuse_lost=True)
    async with in_process(rogue(tmp_path, name), timeout_s=0.3, limits=limits) as (client, served):
        half = await client.post("/grade", json={"iteration": 0, "items": [item(), item(word)]})
        more = await client.post("/grade", json={"iteration": 0, "items": [item(), item(word), item(word)]})
    assert (half.status_code, more.status_code) == (200, status)
    assert any(name in line for line in served.messages)
