"""State of the machine before each run, busy or not, fast or slow: without it figures cannot be compared."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.table import Row

_REST_S: Final = 30.0
_AT_REST: Final = 5.0
"""Per cent."""
WORK_MS: Final = 40.0
"""CPU of the fixed piece of work on the machine that bars in seconds of CPU are for."""
_OBJECTS: Final = 50_000
_STEPS: Final = 20_000


class Machine:
    """Looked at before each run of a benchmark whose figures are seconds."""

    def __init__(self) -> None:
        self._busy: list[float] = []
        self._work_ms: list[float] = []
        self._turn_us: list[float] = []

    def look(self) -> None:
        """Wait until the machine has come to rest, and note what it is like then.

        A Prefect server is busy for some seconds with what the run before told it; the next run is not to pay for that.
        """
        deadline = time.monotonic() + _REST_S
        while (share := psutil.cpu_percent(interval=0.5)) > _AT_REST and time.monotonic() < deadline:
            pass
        self._busy.append(share)
        self._work_ms.append(1e3 * min(_work_s() for _ in range(5)))
        self._turn_us.append(1e6 * _turn_s())

    @property
    def slowness(self) -> float:
        """How much longer a fixed piece of work takes here and now than on the machine that bars in seconds of CPU are for."""
        return statistics.median(self._work_ms) / WORK_MS

    def rows(self, name: str) -> list[Row]:
        """What was noted, as rows without a bar."""
        work = f"before each run, {min(self._work_ms):.0f} to {max(self._work_ms):.0f}; what Python does scales with it"
        turns = f"before each run, {min(self._turn_us):.1f} to {max(self._turn_us):.1f}; what threads do scales with it"
        return [
            Row(f"{name}: machine busy", statistics.median(self._busy), "%", note="by others, before each run"),
            Row(f"{name}: a fixed piece of work", statistics.median(self._work_ms), "ms", note=work),
            Row(f"{name}: a turn of two threads", statistics.median(self._turn_us), "us", note=turns),
        ]


def _work_s() -> float:
    """Seconds of CPU for some megabytes of small objects: arithmetic alone does not notice a neighbour in the caches."""
    started = time.process_time()
    objects = [{"number": number, "text": str(number)} for number in range(_OBJECTS)]
    json.loads(json.dumps(objects))
    return time.process_time() - started


def _turn_s() -> float:
    """Seconds of CPU for a step of a thread that is not alone: what it costs to pass Python's lock from core to core.

    The same code takes twice the CPU in one hour that it takes in the next, on the same machine at rest, and this shows it.
    """
    started = time.process_time()
    threads = [threading.Thread(target=_step, args=(_STEPS,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.process_time() - started) / (2 * _STEPS)


def _step(count: int) -> None:
    """A system call lets the other thread go on, as the calls of a run do."""
    with Path(os.devnull).open("wb", buffering=0) as nowhere:
        for _ in range(count):
            nowhere.write(b"x")
            sum(range(200))
