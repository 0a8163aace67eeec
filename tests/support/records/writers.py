"""Write stores in processes of their own, killed or refused halfway; importable, as ``spawn`` requires."""

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import random
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tfgrpo.stores.errors import BudgetRefused, StoreError
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.stores.ledger import Budget, Ledger

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


def append_batches(path: Path, writer: int, batches: int, size: int) -> None:
    """Append numbered lines ``writer batch line`` with a filler, a batch at a time."""
    for batch in range(batches):
        LineFile(path).append({"key": f"{writer} {batch} {line}", "text": "x" * 50} for line in range(size))


def append_keyed(path: Path, keys: list[str]) -> None:
    """Append one row per key, the same keys as the other processes."""
    file = LineFile(path, "key")
    for key in keys:
        file.add([{"key": key, "writer": os.getpid()}])


def spend(path: Path, seed: int, results: "multiprocessing.Queue[tuple[int, int]]") -> None:
    """Make thirty calls at once on a shared ledger with caps; put how many were made, and their tokens."""
    ledger = Ledger(Budget(max_calls=50, max_tokens=3_000), shared=path)
    draw, spent = random.Random(seed), list[int]()

    async def one() -> None:
        tokens = draw.randint(1, 100)
        with contextlib.suppress(BudgetRefused):
            reservation = await ledger.reserve(tokens=tokens)
            await asyncio.sleep(0.001)
            reservation.settle(used := draw.randint(0, tokens), None)
            spent.append(used)

    async def everyone() -> None:
        await asyncio.gather(*(one() for _ in range(30)))

    asyncio.run(everyone())
    results.put((len(spent), sum(spent)))
    ledger.close()


def append_for_ever(path: Path) -> None:
    """Append large groups until killed; print the number of each once it is in the file."""
    for batch in itertools.count():
        LineFile(path).append({"key": f"{batch} {line}", "text": "x" * 2000} for line in range(200))
        os.write(1, b"%d\n" % batch)


class _OsWith:
    """The module ``os`` with another ``write``."""

    def __init__(self, write: Callable[[int, bytes], int]) -> None:
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def append_on_a_full_disk(path: Path, limit: int) -> None:
    """Try to append and to replace with at most ``limit`` bytes allowed in a file; exit 0 when both were refused."""
    refused = 0
    attempts: tuple[Callable[[], object], ...] = (
        lambda: LineFile(path).append({"key": f"more {line}", "text": "x" * 1000} for line in range(100)),
        lambda: LineFile(path).append([{"key": "y" * 100_000}]),
        lambda: replace_text(path.with_name("state.json"), "z" * 100_000),
    )
    for attempt in attempts:
        try:
            with _files_up_to(limit):
                attempt()
        except StoreError:
            refused += 1
    sys.exit(0 if refused == 3 else 1)


@contextlib.contextmanager
def _files_up_to(limit: int) -> Iterator[None]:
    """Limit the size of every file to ``limit`` bytes; lifted afterwards, so that coverage can be saved."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


if __name__ == "__main__":
    append_for_ever(Path(sys.argv[1]))
