"""How long a command takes until it helps, and a run until its first call, on a Prefect server that is there.

The fastest of several, since a busy machine only adds to it, as it would be where a fixed piece of work takes 40 ms of CPU.

``python -m benchmarks start``
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.machine import WORK_MS, Machine
from benchmarks.processes import ROOT, clean_environment, prefect_server
from benchmarks.table import Row
from tests.support.runs.running import Server

REPEATS = 5


def measure(repeats: int = REPEATS) -> list[Row]:
    """Ask for help, and start runs of a few items until their first call arrives."""
    machine, helped, first = Machine(), list[float](), list[float]()
    arrived: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        environment = clean_environment(Path(name) / "prefect", OPENAI_API_KEY="unused")
        with prefect_server(environment) as api, Server() as server:
            environment["PREFECT_API_URL"] = api
            server.before_answer = lambda _: arrived.append(time.perf_counter())
            for number in range(repeats + 1):  # the first compiles what was never imported, and does not count
                machine.look()
                helped.append(_cpu_of(environment, "--help"))
                asked = ("run", "--model", "simulated", "--base-url", server.url, "--sample-size", "5")
                arrived.clear()
                began = time.perf_counter()
                _cpu_of(environment, *asked, "--out", f"{name}/{number}")
                first.append(arrived[0] - began)
    cpu, seconds = min(helped[1:]), min(first[1:])
    note = f"where the fixed work takes {WORK_MS:g} ms; here {cpu:.2f} s"
    return [
        Row("start: CPU of --help", cpu / machine.slowness, "s", 0.3, note),
        Row("start: first call", seconds / machine.slowness, "s", 2.0, f"the same; here {seconds:.2f} s on the clock"),
        *machine.rows("start"),
    ]


def _cpu_of(environment: Mapping[str, str], *arguments: str) -> float:
    """Run a command to its end and return its seconds of CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "tfgrpo", *arguments]
    subprocess.run(command, env=dict(environment), cwd=ROOT, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
