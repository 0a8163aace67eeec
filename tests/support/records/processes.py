"""Processes that the tests of this folder start and wait for, and what they read."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPAWN = multiprocessing.get_context("spawn")


def in_process(target: Callable[..., None], *args: Any) -> int:
    """The exit code of a process that does this."""
    process = SPAWN.Process(target=target, args=args)
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def all_at_once(target: Callable[..., None], per_process: list[tuple[Any, ...]]) -> None:
    """One process for each list of arguments; all of them end well."""
    processes = [SPAWN.Process(target=target, args=args) for args in per_process]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def bytes_read() -> int:
    """By this process so far; of Linux."""
    return int(Path("/proc/self/io").read_text().split()[1])
