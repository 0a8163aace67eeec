"""The existing trainer's client works against this server as it stands."""

from __future__ import annotations

from tests.support.pipelines.data_server import RIGHT, mix, on_a_port, rogue
from tests.support.pipelines.trainer import TrainerClient


async def test_a_trainer_reads_the_length_samples_and_rewards(tmp_path):
    async with on_a_port(mix(tmp_path)) as (url, _), TrainerClient(f"{url}/") as trainer:
        assert await trainer.total_iterations() == 20
        rows = [await trainer.row(index) for index in range(40)]
        ids = [row["sample_id"] for row in rows[-8:]]
        rewards = await trainer.rewards(3, ids, [RIGHT, "<think>r</think>\n7"] * 4)
    assert {frozenset(row) for row in rows} == {frozenset({"prompt", "sample_id", "metadata"})}
    assert all(message["content"] for row in rows for message in row["prompt"])
    assert rewards == [1.0, 0.25 if ids[1].startswith("sums") else 1.0] * 4 or set(rewards) <= {1.0, 0.25}
    assert rewards[0] == 1.0


async def test_generations_of_one_sample_get_rewards_of_their_own(tmp_path):
    completions = [RIGHT, "42", "<think>r</think> 42", "", RIGHT]
    async with on_a_port(mix(tmp_path)) as (url, _), TrainerClient(url) as trainer:
        rewards = await trainer.rewards(0, ["sums:1"] * 5, completions)
    assert rewards == [1.0, 0.0, 0.975, 0.0, 1.0]


async def test_a_failing_grader_costs_a_trainer_one_reward_and_not_the_batch(tmp_path):
    async with on_a_port(rogue(tmp_path, "Raising")) as (url, _), TrainerClient(url) as trainer:
        rewards = await trainer.rewards(0, ["sums:0", "plain:0", "sums:1"], [RIGHT, RIGHT, f"{RIGHT} boom"])
    assert rewards == [1.0, 1.0, 0.0]
