"""Peak memory of a run of 1,500 and of one of 15,000.

The same run but for its size, against the simulated model in another process without latency and a Prefect server of
its own. Two thirds of the attempts learn and one third measures.

``python -m benchmarks memory``
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.processes import clean_environment, datasets, measured_run, prefect_server, simulated_server
from benchmarks.table import Row

GROUP_SIZE, CONCURRENCY = 5, 64
SMALL, LARGE = 100, 1000
"""Items to learn on; half as many are held out."""
FLAT = 1.15
"""Growth that still counts as flat: the index of ten times the calls, and the noise of two processes."""


def rollouts(items: int) -> int:
    """Attempts of a run with two learning epochs and a sweep of two arms over half as many items."""
    return 2 * items * GROUP_SIZE + 2 * (items // 2) * GROUP_SIZE


def measure(small_repeats: int = 3) -> list[Row]:
    """Small runs, then a large one: Prefect's server is busy for minutes with what that one told it, and takes no other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = clean_environment(folder / "prefect", OPENAI_API_KEY="unused")
        with simulated_server(0.0) as base_url, prefect_server(environment) as api:
            environment["PREFECT_API_URL"] = api

            def peak(items: int, seed: int) -> float:
                options = _arguments(folder, base_url, items)
                return measured_run(environment, folder / f"out{items}-{seed}", *options, "--seed", str(seed)).peak_mb

            small = [peak(SMALL, seed) for seed in range(small_repeats)]
            large = peak(LARGE, 0)
    median = statistics.median(small)
    return [
        Row(f"memory: peak at {rollouts(SMALL):,} rollouts", median, "MB", 200.0),
        Row(f"memory: peak at {rollouts(LARGE):,} rollouts", large, "MB", 200.0),
        Row("memory: growth from the one to the other", large / median, "x", FLAT, "flat is 1"),
    ]


def _arguments(folder: Path, base_url: str, items: int) -> tuple[str, ...]:
    return (
        *("--base-url", base_url, "--model", "simulated", "--epochs", "3", "--sample-size", str(items)),
        *("--group-size", str(GROUP_SIZE), "--set", f"gate.group_size={GROUP_SIZE}", "--concurrency", str(CONCURRENCY)),
        *("--max-calls", str(10 * rollouts(items))),  # no cap; that of general.yaml would end the large run
        *datasets(folder, items, items // 2),
    )
