"""Cost of a whole run over the model's own time: CPU per call, wall time against the ideal, memory.

Three epochs of 100 items in groups of 5: two that learn, one that tries lessons and no lessons on 100 held-out items.
The simulated model answers from another process after 200 ms, Prefect's server is a third process, journal and metrics
are on. CPU and wall time are the flow's own, from opening the run to its closed books, as its manifest states them; a
second row holds the CPU of the whole process, imports and start-up included. The ideal is that of ``ideal``. One more
row tells how a sweep of 50 items does, 1,500 attempts in all: the less of a run is sweep, the more of it is batches that
have to wait for the one before. What the simulated server itself spent on a call is told too: it does the same each
time, so that this is what the machine makes of the same work in this hour, and the client's figure scales with it.

``python -m benchmarks.runs.run``
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.ideal import ideal_seconds, journal_keys
from benchmarks.machine import Machine
from benchmarks.processes import (
    Measured,
    clean_environment,
    cpu_of_children,
    datasets,
    measured_run,
    prefect_server,
    simulated_server,
)
from benchmarks.table import Row, table

ITEMS, GROUP_SIZE, EPOCHS, CONCURRENCY, LATENCY_S = 100, 5, 3, 64, 0.2
SHORT_SWEEP = 50
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
    """Run it often enough, with the whole and with the short sweep in turn."""
    whole: list[RunFigures] = []
    short: list[RunFigures] = []
    machine = Machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = clean_environment(folder / "prefect", OPENAI_API_KEY="unused")
        with simulated_server(LATENCY_S) as base_url, prefect_server(environment) as api:
            environment["PREFECT_API_URL"] = api
            common = _arguments(folder / "whole", base_url, ITEMS)
            measured_run(environment, folder / "warm", *common, "--sample-size", "5")
            for seed in map(str, range(repeats)):
                machine.look()
                before = cpu_of_children(_SERVER)
                found = figures(measured_run(environment, folder / f"whole{seed}", *common, "--seed", seed))
                served = 1e3 * (cpu_of_children(_SERVER) - before) / found.calls
                whole.append(replace(found, served_ms=served))
                less = _arguments(folder / "short", base_url, SHORT_SWEEP)
                machine.look()
                short.append(figures(measured_run(environment, folder / f"short{seed}", *less, "--seed", seed)))
    return [*_rows(whole, short), *machine.rows("run")]


def _arguments(folder: Path, base_url: str, held_out: int) -> tuple[str, ...]:
    folder.mkdir(exist_ok=True)
    return (
        *("--base-url", base_url, "--model", "simulated", "--epochs", str(EPOCHS), "--sample-size", str(ITEMS)),
        *("--group-size", str(GROUP_SIZE), "--set", f"gate.group_size={GROUP_SIZE}", "--concurrency", str(CONCURRENCY)),
        *datasets(folder, ITEMS, held_out),
    )


def _rows(whole: list[RunFigures], short: list[RunFigures]) -> list[Row]:
    calls = statistics.median(run.calls for run in whole)
    return [
        Row(
            "run: client CPU per call",
            statistics.median(run.cpu_ms for run in whole),
            "ms",
            3.0,
            f"{calls:,.0f} calls, {CONCURRENCY} in flight, {LATENCY_S:g} s each",
        ),
        Row(
            "run: the same with start-up and imports",
            statistics.median(run.process_cpu_ms for run in whole),
            "ms",
            note="process start to exit",
        ),
        Row(
            "run: wall / ideal of the same calls",
            statistics.median(run.over_ideal for run in whole),
            "x",
            1.25,
            f"{statistics.median(run.wall_s for run in whole):.1f} s",
        ),
        Row(
            f"run: the same with a sweep of {SHORT_SWEEP} items",
            statistics.median(run.over_ideal for run in short),
            "x",
            note=f"{statistics.median(run.wall_s for run in short):.1f} s",
        ),
        Row(
            "run: CPU per call of the simulated server",
            statistics.median(run.served_ms for run in whole),
            "ms",
            note="the same work each time: the client's scales with it",
        ),
        Row("run: peak memory", max(run.peak_mb for run in whole), "MB", 250.0, "worst of all"),
    ]


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
