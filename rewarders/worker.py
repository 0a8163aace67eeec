"""A worker process: make one scorer, then score what arrives until the connection ends.

Whatever the scorer's code does to it (exit, fork, print, allocate, never end) costs the attempt it was asked about.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import resource
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tfgrpo.rewarders.calling import BEGIN, READY, UNREADABLE, caught, perform
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import ItemScorer, Scorer, Verdict
from tfgrpo.stores.outcomes import RewardScore

_ORPHAN_S: Final = 1.0
# Longest processor time: timers of the system take no more
_LONGEST_S: Final = 1e8


def main() -> None:
    """Serve the owner at the other end of standard input, until it closes that or its end of standard output."""
    connection, lifeline = Connection(os.dup(0)), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    _end_with(lifeline, os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides
    with connection, contextlib.suppress(EOFError, OSError):
        _serve(connection)
    os._exit(0)  # without what the scorer's code registered for the end


def _serve(connection: Connection) -> None:
    # Only now: a file of the user's folder called as a module of the library must not take its place.
    sys.path[:], source, memory = connection.recv()
    # Data rather than address space: libraries reserve much more than they ever touch.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    allowed = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
    process = os.getpid()
    try:
        scorer = build_scorer(source.name, source.options, folder=Path(source.folder), entry=source.entry)
        assert isinstance(scorer, Scorer)  # noqa: S101 - a composite has no source
        if isinstance(scorer.made_from, ItemScorer):
            scorer.made_from.prepare()
    except BaseException as error:
        connection.send_bytes(f"refused {type(error).__name__}: {error}".encode(errors="replace"))
        raise EOFError from error

    def say(message: bytes) -> None:
        if os.getpid() != process:
            os._exit(0)  # a copy that the scorer's code forked, and that returned from it
        connection.send_bytes(message)

    say(READY)
    while True:
        calls, limit_s, cpu_s = connection.recv()
        # The class of a value may exist in the owner only.
        works: Any = caught(list, map(_loaded, calls))
        if isinstance(works, BaseException):
            say(UNREADABLE)
            continue

        for items in works:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, also in code that keeps the interpreter
            signal.setitimer(signal.ITIMER_PROF, min(cpu_s, _LONGEST_S))
            say(BEGIN)
            answer = perform(scorer, items[0] if scorer.scope == "group" else items, limit_s)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            say(json.dumps([*map(_row, answer)] if isinstance(answer, tuple) else _row(answer)).encode())


def _loaded(parts: list[bytes]) -> list[Any]:
    return [*map(pickle.loads, parts)]


def _row(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, RewardScore):
        return {"score": verdict.score, "evidence": verdict.evidence, "details": verdict.details}
    return {"reason": verdict.reason, "broke": verdict.broke, "late": verdict.late}


def _end_with(lifeline: int, owner: int) -> None:
    # When the owner ends, however it does, the system closes its end of the lifeline.
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    except AttributeError:  # not Linux: there a thread looks, which code that keeps the interpreter stops

        def look() -> None:
            while os.getppid() == owner:
                time.sleep(_ORPHAN_S)
            os.killpg(0, signal.SIGKILL)

        threading.Thread(target=look, daemon=True).start()
