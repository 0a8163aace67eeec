"""Measure wall time, processor time and peak memory of the flow process."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from typing import TypedDict


class Timing(TypedDict):
    """Timing in the manifest and ``--json``; of a resumed run, of this part only."""

    wall_s: float
    cpu_s: float
    """Of all threads of this process; workers of Dask or Ray count their own."""
    peak_memory_bytes: int
    """Largest resident set of the process so far."""
    calls: int
    """Requests sent, retries included."""


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Clocks and counter at the start of the run."""

    wall_s: float
    cpu_s: float
    calls: int

    @classmethod
    def start(cls, calls: int) -> Stopwatch:
        """Start to measure; ``calls`` is the current count of the ledger."""
        return cls(time.perf_counter(), time.process_time(), calls)

    def read(self, calls: int) -> Timing:
        """Return the use since the start; ``calls`` is the current count of the ledger."""
        return {
            "wall_s": time.perf_counter() - self.wall_s,
            "cpu_s": time.process_time() - self.cpu_s,
            "peak_memory_bytes": _peak_memory_bytes(),
            "calls": calls - self.calls,
        }


def _peak_memory_bytes() -> int:
    # Darwin counts in bytes, every other system in kibibytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
