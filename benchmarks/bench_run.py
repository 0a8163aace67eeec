"""What does a whole run cost over the model's own time? CPU per call, wall time against the ideal, memory, telemetry.

100 items, groups of 5 and three epochs make 1,500 attempts: 2 x 100 x 5 that learn, 2 arms x 50 held-out items x 5 that
measure. The simulated model answers from another process after 200 ms, Prefect's server is a third process, journal and
metrics are on. CPU and wall time are the flow's own, from opening the run to its closed books, as its manifest states
them; a second row holds the CPU of the whole process, imports and start-up included. The ideal is that of ``ideal``.
Runs with and without telemetry alternate and are compared in pairs.

``python -m benchmarks.bench_run``
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ideal import ideal_seconds, journal_keys
from benchmarks.processes import (
    Measured,
    busy_share,
    clean_environment,
    datasets,
    machine_row,
    measured_run,
    otlp_receiver,
    prefect_server,
    simulated_server,
)
from benchmarks.table import Row, table

ITEMS, HELD_OUT, GROUP_SIZE, EPOCHS, CONCURRENCY, LATENCY_S = 100, 50, 5, 3, 64, 0.2
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
    """Run it often enough, with and without telemetry in turn."""
    plain: list[RunFigures] = []
    traced: list[RunFigures] = []
    busy: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = clean_environment(folder / "prefect", OPENAI_API_KEY="unused")
        with simulated_server(LATENCY_S) as base_url, prefect_server(environment) as api, otlp_receiver() as receiver:
            environment["PREFECT_API_URL"] = api
            common = _arguments(folder, base_url)
            telemetry = {**environment, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver}
            measured_run(environment, folder / "warm", *common, "--sample-size", "5")
            for seed in map(str, range(repeats)):
                busy.append(busy_share())
                plain.append(figures(measured_run(environment, folder / f"plain{seed}", *common, "--seed", seed)))
                traced.append(figures(measured_run(telemetry, folder / f"traced{seed}", *common, "--seed", seed)))
    return [*_rows(plain, traced), machine_row("run", busy)]


def _arguments(folder: Path, base_url: str) -> tuple[str, ...]:
    return (
        *("--base-url", base_url, "--model", "simulated", "--epochs", str(EPOCHS), "--sample-size", str(ITEMS)),
        *("--group-size", str(GROUP_SIZE), "--concurrency", str(CONCURRENCY)),
        *datasets(folder, ITEMS, HELD_OUT),
    )


def _rows(plain: list[RunFigures], traced: list[RunFigures]) -> list[Row]:
    calls = statistics.median(run.calls for run in plain)
    slower = statistics.median(with_it.wall_s / without.wall_s for with_it, without in zip(traced, plain, strict=True))
    return [
        Row(
            "run: client CPU per call",
            statistics.median(run.cpu_ms for run in plain),
            "ms",
            3.0,
            f"{calls:,.0f} calls, {CONCURRENCY} in flight, {LATENCY_S:g} s each",
        ),
        Row(
            "run: the same with start-up and imports",
            statistics.median(run.process_cpu_ms for run in plain),
            "ms",
            note="process start to exit",
        ),
        Row(
            "run: wall / ideal of the same calls",
            statistics.median(run.over_ideal for run in plain),
            "x",
            1.25,
            f"{statistics.median(run.wall_s for run in plain):.1f} s",
        ),
        Row("run: peak memory", max(run.peak_mb for run in plain), "MB", 250.0, "worst of all"),
        Row(
            "telemetry: wall with it / without",
            slower,
            "x",
            1.05,
            f"{statistics.median(run.cpu_ms for run in traced):.2f} ms CPU per call with it",
        ),
    ]


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
