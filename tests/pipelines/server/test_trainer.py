"""A trainer's client as it stands works against this server: it reads lengths, prompts and rewards by these keys alone."""

from typing import Any

import httpx

from tests.support.pipelines.data_server import RIGHT, mix, on_a_port, rogue


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"Content-Type": "application/json"}, timeout=60, trust_env=False)


async def rewards(http: httpx.AsyncClient, step: int, sample_ids: list[str], completions: list[str]) -> list[float]:
    """Return one reward per completion, by its index, and zero where there is none, as the trainer does."""
    items = [
        {"sample_id": name, "completion": text, "completion_tokens": len(text.split()), "completion_index": index}
        for index, (name, text) in enumerate(zip(sample_ids, completions, strict=True))
    ]
    response = await http.post("/grade", json={"iteration": step, "items": items})
    by_index = {
        result["completion_index"]: float(result["reward"])
        for result in response.raise_for_status().json()["results"]
        if type(result["completion_index"]) is int
    }
    return [by_index.get(index, 0.0) for index in range(len(items))]


async def test_a_trainer_reads_the_length_samples_and_rewards_of_generations(tmp_path):
    async with on_a_port(mix(tmp_path)) as (url, _), client(url) as http:
        assert int((await http.get("/meta")).json()["total_iterations"]) == 20
        samples: list[dict[str, Any]] = []
        for step in range(20):
            samples += (await http.post("/sample", json={"iteration": step, "batch_size": 2})).json()["samples"]
        ids = [sample["sample_id"] for sample in samples[-8:]]
        right_and_wrong = await rewards(http, 3, ids, [RIGHT, "<think>r</think>\n7"] * 4)
        completions = [RIGHT, "42", "<think>r</think> 42", "", RIGHT]
        assert await rewards(http, 0, ["sums:1"] * 5, completions) == [1.0, 0.0, 0.975, 0.0, 1.0]
    assert all(sample["prompt"] and {"system_prompt", "metadata"} <= sample.keys() for sample in samples)
    expected = [1.0 if at % 2 == 0 or name.startswith("plain") else 0.25 for at, name in enumerate(ids)]
    assert right_and_wrong == expected


async def test_a_failing_grader_costs_a_trainer_one_reward_and_not_the_batch(tmp_path):
    async with on_a_port(rogue(tmp_path, "Raising")) as (url, _), client(url) as http:
        found = await rewards(http, 0, ["sums:0", "plain:0", "sums:1"], [RIGHT, RIGHT, f"{RIGHT} boom"])
    assert found == [1.0, 1.0, 0.0]
