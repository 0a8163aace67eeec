"""Cost of a whole run over the model's own time: CPU per call, wall time against the ideal, memory.

Three epochs of 100 items in groups of 5: two that learn, one that tries lessons and no lessons on 100 held-out items.
The simulated model answers from another process after 200 ms, Prefect's server is a third process, journal and metrics
are on. CPU and wall time are the flow's own, from opening the run to its closed books, as its manifest states them; a
second row holds the CPU of the whole process, imports and start-up included. CPU is given as it would be where a fixed piece
of work takes 40 ms: its ratio to that work, measured before each run, times 40 ms. The ideal is that of ``ideal``, at 200 ms
and at 1 s. What the simulated server itself spent on a call is a row, too: it does the same each time.

``python -m benchmarks run``
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.ideal import ideal_seconds, journal_keys
from benchmarks.machine import WORK_MS, Machine
from benchmarks.processes import (
    Measured,
    clean_environment,
    cpu_of_children,
    datasets,
    measured_run,
    prefect_server,
    simulated_server,
)
from benchmarks.table import Row

ITEMS, GROUP_SIZE, EPOCHS, CONCURRENCY, LATENCY_S = 100, 5, 3, 64, 0.2
SLOW_S, SLOW_REPEATS = 1.0, 2
_SERVER = "serve-simulated"
REPEATS = 5


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run in figures."""

    calls: int
    cpu_ms: float
    """Per call, of the flow."""
    process_cpu_ms: float
    """Per call, of the whole process."""
    wall_s: float
    over_ideal: float
    peak_mb: float
    served_ms: float = 0.0
    """CPU per call of the simulated server."""


def figures(measured: Measured, concurrency: int = CONCURRENCY, latency_s: float = LATENCY_S) -> RunFigures:
    """Read off a finished run."""
    timing = measured.manifest["timing"]
    keys = list(journal_keys(measured.run / "journal.jsonl"))
    calls = len(keys)
    return RunFigures(
        calls=calls,
        cpu_ms=1e3 * timing["cpu_s"] / calls,
        process_cpu_ms=1e3 * measured.cpu_s / calls,
        wall_s=timing["wall_s"],
        over_ideal=timing["wall_s"] / ideal_seconds(keys, concurrency, latency_s),
        peak_mb=measured.peak_mb,
    )


def measure(repeats: int = REPEATS) -> list[Row]:
    """Run it often enough, and some runs with a slow model."""
    runs: list[RunFigures] = []
    slow: list[RunFigures] = []
    machine = Machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = clean_environment(folder / "prefect", OPENAI_API_KEY="unused")
        with simulated_server(LATENCY_S) as base_url, simulated_server(SLOW_S) as slow_url, prefect_server(environment) as api:
            environment["PREFECT_API_URL"] = api
            common = _arguments(folder / "items", base_url, ITEMS)
            measured_run(environment, folder / "warm", *common, "--sample-size", "5")
            for seed in map(str, range(repeats)):
                machine.look()
                before = cpu_of_children(_SERVER)
                found = figures(measured_run(environment, folder / f"out{seed}", *common, "--seed", seed))
                served = 1e3 * (cpu_of_children(_SERVER) - before) / found.calls
                runs.append(replace(found, served_ms=served))
            for seed in map(str, range(min(repeats, SLOW_REPEATS))):
                machine.look()
                options = _arguments(folder / "items", slow_url, ITEMS)
                done = measured_run(environment, folder / f"slow{seed}", *options, "--seed", seed)
                slow.append(figures(done, latency_s=SLOW_S))
    return [*_rows(runs, slow, machine.slowness), *machine.rows("run")]


def _arguments(folder: Path, base_url: str, held_out: int) -> tuple[str, ...]:
    folder.mkdir(exist_ok=True)
    return (
        *("--base-url", base_url, "--model", "simulated", "--epochs", str(EPOCHS), "--sample-size", str(ITEMS)),
        *("--group-size", str(GROUP_SIZE), "--set", f"gate.group_size={GROUP_SIZE}", "--concurrency", str(CONCURRENCY)),
        *datasets(folder, ITEMS, held_out),
    )


def _rows(runs: list[RunFigures], slow: list[RunFigures], slowness: float) -> list[Row]:
    calls = statistics.median(run.calls for run in runs)
    cpu, process = (statistics.median(getattr(run, name) for run in runs) for name in ("cpu_ms", "process_cpu_ms"))
    return [
        Row(
            "run: client CPU per call",
            cpu / slowness,
            "ms",
            1.5,
            f"where the fixed work takes {WORK_MS:g} ms; here {cpu:.2f} ms; {calls:,.0f} calls, {CONCURRENCY} in flight",
        ),
        Row(
            "run: the same with start-up and imports",
            process / slowness,
            "ms",
            4.0,
            f"process start to exit; here {process:.2f} ms",
        ),
        Row(
            f"run: wall / ideal of the same calls at {LATENCY_S:g} s",
            statistics.median(run.over_ideal for run in runs),
            "x",
            1.15,
            f"{statistics.median(run.wall_s for run in runs):.1f} s",
        ),
        Row(
            f"run: wall / ideal of the same calls at {SLOW_S:g} s",
            statistics.median(run.over_ideal for run in slow),
            "x",
            1.10,
            f"{statistics.median(run.wall_s for run in slow):.1f} s",
        ),
        Row(
            "run: CPU per call of the simulated server",
            statistics.median(run.served_ms for run in runs),
            "ms",
            note="the same work each time: the client's scales with it",
        ),
        Row("run: peak memory", max(run.peak_mb for run in runs), "MB", 200.0, "worst of all"),
    ]
