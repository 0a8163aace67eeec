"""A worker process: make one scorer, then score what arrives until the connection ends.

Whatever the scorer's code does to its process (exit, fork, print, allocate, never end) costs the attempt that it was asked
about: a clock of processor time ends the process, and the owner starts another. The process ends with its owner.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any, Final

from tfgrpo.rewarders.faults import each_alone
from tfgrpo.rewarders.scorer import Abstained, Source, Verdict
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.outcomes import RewardScore

PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[3]); "
    "from tfgrpo.rewarders.worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
"""What the interpreter of a worker runs: its arguments are the connection, the lifeline, and where ``tfgrpo`` is."""
HEADER: Final = struct.Struct("!Q")
LONGEST: Final = 1 << 30
"""Bytes of the longest message of a worker; more is what its code wrote into the connection."""
_ORPHAN_S: Final = 1.0
_LONGEST_S: Final = 1e8
"""Longest processor time: timers of the system take no more."""


def send(connection: socket.socket, body: bytes) -> None:
    """Send a message behind its length."""
    connection.sendall(HEADER.pack(len(body)))
    connection.sendall(body)


def receive(connection: socket.socket, most: int | None = None) -> bytes:
    """Return the next message.

    Raises ``EOFError`` at the end of the connection, ``TimeoutError`` at its limit, and ``ValueError`` for one longer than
    ``most`` bytes.
    """
    (length,) = HEADER.unpack(_exactly(connection, HEADER.size))
    if most is not None and length > most:
        raise ValueError(f"a message of {length} bytes")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def encoded(index: int, verdict: Verdict) -> bytes:
    """Return a verdict as JSON."""
    if isinstance(verdict, Abstained):
        row: dict[str, Any] = {"at": index, "reason": verdict.reason, "broke": verdict.broke, "late": verdict.late}
    else:
        row = {"at": index, "score": verdict.score, "evidence": verdict.evidence, "details": verdict.details}
    return json.dumps(row).encode()


def decoded(name: str, body: bytes) -> tuple[int, Verdict]:
    """Return index and verdict of a message. Raises ``ValueError`` for what is none."""
    try:
        row = json.loads(body)
        if "score" in row:
            return row["at"], RewardScore(name, float(row["score"]), str(row["evidence"]), frozen(row["details"]))
        return row["at"], Abstained(name, str(row["reason"]), bool(row["broke"]), bool(row["late"]))
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError("no verdict") from error


def main(descriptor: int, lifeline: int) -> None:
    """Serve the owner at the other end of a socket, until it closes that or its end of the lifeline."""
    _end_with(lifeline, os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides
    with socket.socket(fileno=descriptor) as connection, contextlib.suppress(EOFError, OSError):
        _serve(connection)
    os._exit(0)  # without what the scorer's code registered for the end


def _serve(connection: socket.socket) -> None:
    from tfgrpo.rewarders.calling import perform  # noqa: PLC0415 - what an owner needs of this module is less
    from tfgrpo.rewarders.registry import scorer_of  # noqa: PLC0415 - as above

    # Only now: a file of the user's folder called as a module of the library must not take its place.
    sys.path[:], source, memory = pickle.loads(receive(connection))  # noqa: S301 - of the process that started this one
    _limit_memory(memory)
    scorer = _made(connection, source, scorer_of)
    process = os.getpid()

    def report(index: int, verdict: Verdict) -> None:
        _say(connection, process, encoded(index, verdict))

    while True:
        parts, limit_s, cpu_s = pickle.loads(receive(connection))  # noqa: S301 - as above
        # The class of a value may exist in the owner only.
        items: list[Any] = each_alone(parts, _unpickled, lambda _: None)
        if unread := [at for at, item in enumerate(items) if item is None]:
            _say(connection, process, b"unreadable " + json.dumps(unread).encode())
            continue

        def begin(seconds: float = min(cpu_s, _LONGEST_S)) -> None:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, also in code that keeps the interpreter
            signal.setitimer(signal.ITIMER_PROF, seconds)
            _say(connection, process, b"begin")

        perform(scorer, items[0] if scorer.scope == "group" else items, report, begin, limit_s)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        _say(connection, process, b"done")


def _unpickled(part: Any) -> Any:
    return pickle.loads(part)  # noqa: S301 - of the process that started this one


def _made(connection: socket.socket, source: Source, scorer_of: Any) -> Any:
    try:
        made = scorer_of(source)
    except BaseException as error:
        send(connection, f"refused {type(error).__name__}: {error}".encode(errors="replace"))
        raise EOFError from error
    send(connection, b"ready")
    return made


def _say(connection: socket.socket, process: int, body: bytes) -> None:
    if os.getpid() != process:
        os._exit(0)  # a copy that the scorer's code forked, and that returned from it
    send(connection, body)


def _end_with(lifeline: int, owner: int) -> None:
    """Have this process and its children ended when the other end of the lifeline closes, whatever they are doing."""
    import fcntl  # noqa: PLC0415 - POSIX only

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


def _limit_memory(count: int) -> None:
    try:
        import resource  # noqa: PLC0415 - POSIX only
    except ImportError:
        return
    # Data rather than address space: libraries reserve much more than they ever touch.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
