"""Seconds that a newcomer waits: a dry run of 100 items per epoch, process start to exit, with Prefect's embedded server.

The first run on a machine creates Prefect's database; it is repeated on an empty ``PREFECT_HOME`` each time. Later runs
find the database. First and later ones alternate.

``python -m benchmarks dry_run``
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.machine import Machine
from benchmarks.processes import Measured, clean_environment, measured_run
from benchmarks.table import Row

BAR_S = 25.0
REPEATS = 3


def measure(repeats: int = REPEATS) -> list[Row]:
    """First and later runs in turn."""
    first: list[Measured] = []
    later: list[Measured] = []
    machine = Machine()
    with tempfile.TemporaryDirectory() as name:
        for number in range(repeats):
            home = Path(name) / f"home{number}"
            environment = clean_environment(home)
            machine.look()
            for place, runs in enumerate((first, later)):
                out = Path(name) / f"out{number}-{place}"
                runs.append(measured_run(environment, out, "--dry-run", "--sample-size", "100", "--seed", str(number)))
    return [
        _row("dry run: the first, on an empty PREFECT_HOME", first),
        _row("dry run: later ones", later),
        *machine.rows("dry run"),
    ]


def _row(name: str, runs: list[Measured]) -> Row:
    opened = statistics.median(run.wall_s - run.manifest["timing"]["wall_s"] for run in runs)
    cpu = statistics.median(run.cpu_s for run in runs)
    note = f"{opened:.1f} s of it before the run is open and after it is closed; {cpu:.1f} s CPU"
    return Row(name, statistics.median(run.wall_s for run in runs), "s", BAR_S, note)
