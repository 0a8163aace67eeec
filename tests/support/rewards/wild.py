"""Scorers of a user that do to their process what the output names."""

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final, NoReturn

import psutil

from tfgrpo.rewarders.graders import GradeResult, GraderInput
from tfgrpo.rewarders.scorer import RewardContext


def regex() -> None:
    """Keep the interpreter for ever."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def spin() -> NoReturn:
    while True:
        pass


def ignore_clock() -> None:
    """Keep the interpreter for ever, and take no processor time."""
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    while True:
        ctypes.PyDLL(None).sleep(600)


def fork_and_return() -> None:
    """Two processes return from here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.fork()


def fork_and_leave_the_copy() -> None:
    """The copy keeps the connection open."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(5)


def gigabytes() -> None:
    bytearray(1 << 38)


def prints() -> None:
    for _ in range(8):
        os.write(1, b"x" * (1 << 20))
        os.write(2, b"x" * (1 << 20))
    sys.stdout.write("x" * (1 << 22))
    sys.stdout.flush()


def closes() -> None:
    os.closerange(0, 256)


def writes_everywhere() -> None:
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"done, and garbage")
        except OSError:
            continue


def kills_siblings() -> None:
    """End every worker of the owner, this one last. Its other children serve the tests."""
    ours = psutil.Process().cmdline()[:3]
    for child in psutil.Process(os.getppid()).children():
        if child.pid != os.getpid() and child.cmdline()[:3] == ours:
            child.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    ctypes.string_at(0)


def recursion() -> None:
    recursion()


def goes_elsewhere() -> None:
    os.chdir("/")


def alarm() -> None:
    """End the process a little later, while it is idle."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.1)


def starts_children() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    threading.Thread(target=time.sleep, args=(600,)).start()


def asks_its_own_processes() -> None:
    """Use the pools of the standard library, as code for several cores does."""
    with ProcessPoolExecutor(1, get_context("spawn")) as own, ProcessPoolExecutor(1, get_context("fork")) as copied:
        assert [pool.submit(abs, -1).result() for pool in (own, copied)] == [1, 1]


def stops() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


ACTS: Final[dict[str, Callable[[], object]]] = {
    "exit": lambda: os._exit(0),
    "sys.exit": lambda: sys.exit(4),
    **{
        each.__name__: each
        for each in (
            regex, spin, ignore_clock, fork_and_return, fork_and_leave_the_copy, gigabytes, prints, closes, writes_everywhere,
            kills_siblings, segfault, recursion, goes_elsewhere, alarm, starts_children, asks_its_own_processes, stops,
        )
    },
}  # fmt: skip


def act(output: str) -> float:
    """Return the output as a number, 1 after what it names."""
    if output in ACTS:
        ACTS[output]()
        return 1.0
    return float(output)


def score(output: str) -> float:
    return act(output)


def other(output: str) -> float:
    return act(output)


async def later(output: str) -> float:
    """The same as a coroutine; ``never`` does not end, and keeps no thread."""
    await asyncio.sleep(30 if output == "never" else 0)
    return act(output)


class Batch:
    def grade_batch(self, inputs: Sequence[GraderInput]) -> list[GradeResult]:
        return [GradeResult(each.sample_id, act(each.completion), each.completion_index) for each in inputs]


class Each(Batch):
    per_item = True


def group(context: RewardContext) -> list[float]:
    return [act(each.output) for each in context.outputs]


def echo(output: str) -> dict[str, Any]:
    """Return the output with its score."""
    return {"score": 1.0, "reason": output, "output": output}


def where(output: str) -> dict[str, Any]:
    """Return the process that scores, after a while."""
    time.sleep(float(output))
    return {"score": 1.0, "process": os.getpid()}
