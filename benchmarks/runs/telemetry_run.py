"""Wall time of runs with and without telemetry, in turn, compared in pairs.

The attempts are those that the bar is stated for: a model with tools, some four calls of 200 ms and three tool calls
each, 60 in flight. Server, Prefect's server and the receiver are processes of their own.

``python -m benchmarks telemetry_run``
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.generated_items import LEDGER
from benchmarks.machine import Machine
from benchmarks.processes import clean_environment, datasets, measured_run, otlp_receiver, prefect_server, simulated_server
from benchmarks.table import Row

ITEMS, HELD_OUT, GROUP_SIZE, CONCURRENCY, LATENCY_S, BAR = 36, 12, 5, 60, 0.2, 1.05
REPEATS = 5


def measure(repeats: int = REPEATS) -> list[Row]:
    """The median ratio of the pairs, with what each run took."""
    pairs: list[tuple[float, float]] = []
    machine = Machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = clean_environment(folder / "prefect", OPENAI_API_KEY="unused")
        with simulated_server(LATENCY_S, LEDGER) as base_url, prefect_server(plain) as api, otlp_receiver() as receiver:
            plain["PREFECT_API_URL"] = api
            traced = {**plain, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver}
            arguments = (
                *("--pipeline", "benchmarks/ledger/pipeline.yaml", "--base-url", base_url, "--model", "simulated"),
                *("--sample-size", str(ITEMS), "--group-size", str(GROUP_SIZE), "--concurrency", str(CONCURRENCY)),
                *("--set", f"tfgrpo.batch_size={ITEMS}", *datasets(folder, ITEMS, HELD_OUT, LEDGER)),
            )
            measured_run(plain, folder / "warm", *arguments, "--epochs", "2")
            for seed in map(str, range(repeats)):
                machine.look()
                without, having = (
                    measured_run(environment, folder / f"{label}{seed}", *arguments, "--seed", seed)
                    for label, environment in (("plain", plain), ("traced", traced))
                )
                pairs.append((without.manifest["timing"]["wall_s"], having.manifest["timing"]["wall_s"]))
    ratio = statistics.median(having / without for without, having in pairs)
    seconds = statistics.median(without for without, _ in pairs)
    row = Row("telemetry: wall with it / without", ratio, "x", BAR, f"{seconds:.1f} s without; {CONCURRENCY} in flight")
    return [row, *machine.rows("telemetry")]
