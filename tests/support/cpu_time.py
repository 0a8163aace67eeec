"""Processor time of a call, for tests that bound how it grows with the size of the input."""

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """Return the processor time of the fastest of several calls: a busy machine only adds to it."""
    return min(_once(work) for _ in range(rounds))


def _once(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
