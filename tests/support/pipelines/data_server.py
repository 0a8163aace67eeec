"""Serve a small mix with the real data server, in process or on a port, with misbehaving graders."""

import json
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.pipelines.server.app import ServerLimits, data_app
from tfgrpo.pipelines.server.listening import running
from tfgrpo.pipelines.server.service import DataService
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions

RIGHT = "<think>r</think>\n42"
ROGUES = """
    import asyncio, ctypes, math, threading, time
    from tfgrpo.rewarders.scorer import GradeResult

    stuck = threading.Event()

    def _results(inputs, rewards):
        return [GradeResult(each.sample_id, reward, each.completion_index) for each, reward in zip(inputs, rewards)]

    class Fine:
        def grade_batch(self, inputs):
            return _results(inputs, [1.0] * len(inputs))

    class Raising:
        '''Raises for a batch with the word in a completion.'''
        per_item = True

        def grade_batch(self, inputs):
            if any("boom" in each.completion for each in inputs):
                raise RuntimeError("boom")
            return _results(inputs, [1.0] * len(inputs))

    class Hanging:
        def grade_batch(self, inputs):
            if any("hang" in each.completion for each in inputs):
                stuck.wait(20)
            return _results(inputs, [1.0] * len(inputs))

    class Dozing:
        async def grade_batch(self, inputs):
            if any("hang" in each.completion for each in inputs):
                await asyncio.sleep(20)
            return _results(inputs, [1.0] * len(inputs))

    def naps(item):
        if "hang" in item.completion:
            stuck.wait(20)
        return 1.0

    class NotANumber:
        def grade_batch(self, inputs):
            return _results(inputs, [math.nan if "nan" in each.completion else 1.0 for each in inputs])

    class Short:
        def grade_batch(self, inputs):
            return _results(inputs, [1.0] * len(inputs))[:-1]

    class Long:
        def grade_batch(self, inputs):
            return _results([*inputs, *inputs], [1.0] * 2 * len(inputs))

    class Reversed:
        '''Returns correct rewards in another order.'''
        def grade_batch(self, inputs):
            return _results(inputs, [len(each.completion) / 100 for each in inputs])[::-1]

    class Junk:
        per_item = True

        def grade_batch(self, inputs):
            if any("junk" in each.completion for each in inputs):
                return {"reward": 1.0}
            return _results(inputs, [1.0] * len(inputs))

    class Wild:
        '''Keeps the interpreter lock for hours.'''
        def grade_batch(self, inputs):
            if any("wild" in each.completion for each in inputs):
                ctypes.PyDLL(None).sleep(36_000)
            return _results(inputs, [1.0] * len(inputs))

    class Echoing:
        per_item = True

        def grade_batch(self, inputs):
            raise ValueError(f"{inputs[0].completion} #{inputs[0].completion_index}")

    class Slow:
        '''Computes for half a second.'''
        def grade_batch(self, inputs):
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                sum(range(1000))
            return _results(inputs, [1.0] * len(inputs))
"""
RECORDS: dict[str, list[Any]] = {
    "sums": [{"prompt": f"{n}?", "answer": "42", "system_prompt": "add", "metadata": {"n": n}} for n in range(12)],
    "plain": [{"prompt": "p", "answer": "42", "secret": "never sent"} for _ in range(3)],
}


def mix(folder: Path, **changes: Any) -> Path:
    """Write a config with two datasets of exact sums, in two stages; ``changes`` replace its sections."""
    (folder / "rogues.py").write_text(textwrap.dedent(ROGUES), encoding="utf-8")
    for name, records in RECORDS.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    content = {
        "seed": 3,
        "paths": {"data_root": "."},
        "datasets": {
            "sums": {"path": "sums.jsonl", "graders": ["math_exact"], "grader_weights": [3.0]},
            "plain": {"path": "plain.jsonl"},
        },
        "stages": [
            {"name": "first", "until_step": 10, "datasets": [{"id": "sums", "weight": 1.0}]},
            {"name": "second", "until_step": 20, "datasets": [{"id": "sums", "weight": 1.0}, {"id": "plain", "weight": 1.0}]},
        ],
    } | changes
    path = folder / "mix.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def rogue(folder: Path, *names: str, multiplicative: bool = False, isolate: bool = True) -> Path:
    """Write a config in which misbehaving graders, each with weight 1, grade ``sums``."""
    graders = {"multiplicative_graders": list(names)} if multiplicative else {
        "graders": list(names), "grader_weights": [1.0] * len(names)
    }  # fmt: skip
    return mix(
        folder,
        datasets={"sums": {"path": "sums.jsonl", **graders}, "plain": {"path": "plain.jsonl"}},
        python_graders={name: {"path": f"rogues.py:{name}", "isolate": isolate} for name in names},
    )


class Served:
    """The app for a config, and the messages that it printed."""

    def __init__(self, path: Path, *, timeout_s: float = 5.0, telemetry: Telemetry | None = None, **options: Any) -> None:
        self.messages: list[str] = []
        self.runner = ScoreRunner(timeout_s=timeout_s)
        config = load_mix_config(path)
        self.service = DataService(config, self.runner)
        self.app = data_app(
            self.service,
            telemetry=telemetry or Telemetry(TelemetryOptions()),
            say=self.messages.append,
            version="1",
            **{"limits": ServerLimits(), **options},
        )

    def close(self) -> None:
        self.runner.close()


@asynccontextmanager
async def in_process(path: Path, **options: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Served]]:
    """Yield a client of an app on this event loop, without sockets; unhandled errors of the app raise here."""
    served = Served(path, **options)
    try:
        transport = httpx.ASGITransport(served.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            yield client, served
    finally:
        served.close()


@asynccontextmanager
async def on_a_port(path: Path, **options: Any) -> AsyncIterator[tuple[str, Served]]:
    """Yield the URL of a server on a socket of this event loop."""
    served = Served(path, **options)
    try:
        async with running(served.app) as (url, _):
            yield url, served
    finally:
        served.close()


def item(completion: str = RIGHT, sample_id: str = "sums:0", **more: Any) -> dict[str, Any]:
    return {"sample_id": sample_id, "completion": completion, **more}


async def graded(client: httpx.AsyncClient, *items: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of one request."""
    response = await client.post("/grade", json={"iteration": 0, "items": list(items)})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results
