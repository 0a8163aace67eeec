"""Run functions in spawned processes and wait for them; count the bytes that this process reads."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPAWN = multiprocessing.get_context("spawn")


def in_process(target: Callable[..., None], *args: Any) -> int:
    """Return the exit code of a process that calls the function."""
    process = SPAWN.Process(target=target, args=args)
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def all_at_once(target: Callable[..., None], per_process: list[tuple[Any, ...]]) -> None:
    """Run one process per list of arguments; all must exit 0."""
    processes = [SPAWN.Process(target=target, args=args) for args in per_process]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def bytes_read() -> int:
    """Return the bytes that this process has read; Linux only."""
    return int(Path("/proc/self/io").read_text().split()[1])
