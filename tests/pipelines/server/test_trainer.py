"""The existing trainer's client works against this server as it stands."""

import asyncio
from typing import Any, Self

import httpx

from tests.support.pipelines.data_server import RIGHT, mix, on_a_port, rogue


class TrainerClient:
    """One worker of a trainer: caches samples by optimiser step, retries everything, reads rewards by index."""

    def __init__(
        self, server_url: str, *, batch: int = 8, generations: int = 4, grad_accum: int = 2, backoff_s: float = 0.01
    ) -> None:
        self._url = server_url.removesuffix("/")
        self._batch, self._generations, self._grad_accum = batch, generations, grad_accum
        self._backoff_s = backoff_s
        self._http = httpx.AsyncClient(headers={"Content-Type": "application/json"}, timeout=60, trust_env=False)
        self._rows: dict[tuple[int, int], list[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def total_iterations(self) -> int:
        """Return the length of the training; 1000 when the server does not report it."""
        try:
            return int((await self._ask("GET", "/meta"))["total_iterations"])
        except (httpx.HTTPError, KeyError, ValueError):
            return 1000

    async def row(self, index: int) -> dict[str, Any]:
        """Return the prompt at an index of the training set."""
        prompts = self._batch // self._generations if self._batch % self._generations == 0 else 1
        if self._generations == 1:
            prompts = self._batch
        group, position = divmod(index, prompts)
        iteration, accumulation = divmod(group, self._grad_accum)
        key = (iteration, accumulation)
        if key not in self._rows:
            body = {"iteration": iteration, "batch_size": prompts}
            samples = (await self._ask("POST", "/sample", body))["samples"]
            if not samples:
                raise RuntimeError("no samples")
            self._rows[key] = [_conversation(sample) for sample in samples]
        rows = self._rows[key]
        return rows[position % len(rows)]

    async def rewards(self, step: int, sample_ids: list[str], completions: list[str]) -> list[float]:
        """Return one reward per completion; zeros when the request fails or a reward is no number."""
        items = [
            {"sample_id": name, "completion": text, "completion_tokens": len(text.split()), "completion_index": index}
            for index, (name, text) in enumerate(zip(sample_ids, completions, strict=True))
        ]
        try:
            results = (await self._ask("POST", "/grade", {"iteration": step, "items": items}))["results"]
            by_index = {
                result["completion_index"]: float(result["reward"])
                for result in results
                if type(result["completion_index"]) is int
            }
        except (httpx.HTTPError, KeyError, TypeError, ValueError):
            return [0.0] * len(items)
        return [by_index.get(index, 0.0) for index in range(len(items))]

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        for attempt in range(4):
            try:
                response = await self._http.request(method, f"{self._url}{path}", json=body)
                response.raise_for_status()
                answer: dict[str, Any] = response.json()
                return answer
            except httpx.HTTPError:
                if attempt == 3:
                    raise
                await asyncio.sleep(self._backoff_s * 2**attempt)
        raise AssertionError


def _conversation(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the training set; the keys of the first row are the columns of all."""
    system = sample["system_prompt"]
    messages = [{"role": "system", "content": system}] if system and system.strip() else []
    messages.append({"role": "user", "content": sample["prompt"]})
    return {"prompt": messages, "sample_id": sample["sample_id"], "metadata": sample["metadata"]}


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
