"""What does a whole run cost over the model's own time? CPU per call, wall against the ideal, peak memory.

The simulated server runs in another process with 200 ms of latency; Prefect's server in a third. The ideal is computed from the
journal of the same run: for every batch the larger of (sum of its calls / calls in flight) and its longest chain of dependent
calls, one batch after another, as the algorithm demands. Figures of CPU and wall are the flow's own, between its first and its last
call; start-up is the subject of ``bench_dry_run``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.quiet import quiet_prefect

ITEMS, GROUP_SIZE, EPOCHS, CONCURRENCY, LATENCY_S = 100, 5, 3, 64, 0.2
REPEATS = 3


@contextlib.contextmanager
def simulated_server(latency_s: float = LATENCY_S) -> Iterator[str]:
    """The simulated model in a process of its own; yields its base URL."""
    command = [sys.executable, "-m", "flows.cli", "serve-simulated", "--port", "0", "--latency", str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            found = re.search(r"http://\S+", line)
            if found is None:
                raise SystemExit(f"the simulated server did not start: {line!r}")
            yield found.group(0)
        finally:
            process.terminate()
            process.wait(10)


@contextlib.contextmanager
def prefect_server(environment: dict[str, str], port: int = 4287) -> Iterator[str]:
    """A Prefect server of its own, on an empty home."""
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port), "--no-ui"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(240):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{url}/health", timeout=2)
                    break
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def run(environment: dict[str, str], out: Path, *arguments: str) -> tuple[Path, int]:
    """One learning run; returns its directory and its peak memory in bytes."""
    command = [sys.executable, "-m", "flows.tfgrpo", "--out", str(out), "--json", *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed, errors = process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"the run failed: {errors[-2000:]}")
    summary: dict[str, Any] = json.loads(printed)
    return Path(summary["run"]), summary["timing"]["peak_memory_bytes"]


def ideal_seconds(journal: Path, concurrency: int = CONCURRENCY) -> tuple[float, int]:
    """The least wall time that the journal's calls allow, and how many calls there were."""
    batches: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    curations = calls = 0.0
    for line in journal.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["kind"] != "reply" or "latency_s" not in entry["payload"]:
            continue
        calls += 1
        epoch, arm, batch, item, rollout, _, role, _ = entry["key"].partition("#")[0].split("/")
        latency = entry["payload"]["latency_s"]
        if role == "rollout":
            batches[epoch + ("" if arm == "train" else "sweep"), batch][f"{arm}/{item}/{rollout}"].append(latency)
        elif role == "curate":
            curations += latency
        else:
            batches[epoch, batch][f"reflect/{item}"].append(latency)
    return curations + sum(_batch_seconds(chains, concurrency) for chains in batches.values()), int(calls)


def _batch_seconds(chains: dict[str, list[float]], concurrency: int) -> float:
    total = sum(sum(latencies) for latencies in chains.values())
    rollouts = max((sum(values) for name, values in chains.items() if not name.startswith("reflect/")), default=0.0)
    reflections = max((sum(values) for name, values in chains.items() if name.startswith("reflect/")), default=0.0)
    return max(total / concurrency, rollouts + reflections)


def main() -> None:
    """Print the table."""
    environment = dict(os.environ)
    quiet_prefect(environment)
    rows: list[tuple[float, float, float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        environment["PREFECT_HOME"] = f"{folder}/prefect"
        with simulated_server() as base_url, prefect_server(environment) as api:
            environment["PREFECT_API_URL"] = api
            for repeat in range(REPEATS):
                directory, peak = run(
                    environment,
                    Path(folder) / f"out{repeat}",
                    *("--base-url", base_url, "--model", "simulated", "--epochs", str(EPOCHS), "--sample-size", str(ITEMS)),
                    *("--group-size", str(GROUP_SIZE), "--concurrency", str(CONCURRENCY), "--seed", str(repeat)),
                )
                timing = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))["timing"]
                ideal, calls = ideal_seconds(directory / "journal.jsonl")
                rows.append((1e3 * timing["cpu_s"] / calls, timing["wall_s"] / ideal, peak / 2**20, calls))
    print(f"{ITEMS} items x G {GROUP_SIZE} x {EPOCHS} epochs, {LATENCY_S:g} s latency, {CONCURRENCY} in flight, {rows[0][3]} calls")
    print(f"{'':>26} {'median':>9} {'bar':>9}")
    for name, place, bar in (("client CPU ms per call", 0, 3.0), ("wall / ideal", 1, 1.25), ("peak memory MB", 2, 250.0)):
        print(f"{name:>26} {statistics.median(row[place] for row in rows):>9.2f} {bar:>9.2f}")


if __name__ == "__main__":
    main()
