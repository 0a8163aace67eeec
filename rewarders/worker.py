"""A worker process: make one scorer, then score what arrives until the connection ends.

It is started as ``python -m tfgrpo.rewarders.worker FD``. Whatever the scorer's code does to its process (exit, fork, print,
allocate, never end) costs the attempt that it was asked about: clocks of processor time end the process, and the owner
starts another.
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

from tfgrpo.rewarders.scorer import Abstained, Source, Verdict
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.outcomes import RewardScore

HEADER: Final = struct.Struct("!I")
_ORPHAN_S: Final = 1.0


def send(connection: socket.socket, body: bytes) -> None:
    """Send a message behind its length."""
    connection.sendall(HEADER.pack(len(body)) + body)


def receive(connection: socket.socket) -> bytes:
    """Return the next message. Raises ``EOFError`` at the end of the connection, ``TimeoutError`` at its limit."""
    (length,) = HEADER.unpack(_exactly(connection, HEADER.size))
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
    except (TypeError, KeyError) as error:
        raise ValueError("no verdict") from error


def main(descriptor: int) -> None:
    """Serve the owner at the other end of a socket."""
    owner = os.getppid()
    threading.Thread(target=_end_with, args=(owner,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides
    with socket.socket(fileno=descriptor) as connection, contextlib.suppress(EOFError, OSError):
        _serve(connection)
    os._exit(0)  # without what the scorer's code registered for the end


def _serve(connection: socket.socket) -> None:
    sys.path[:], source, memory = pickle.loads(receive(connection))  # noqa: S301 - of the process that started this one
    _limit_memory(memory)
    from tfgrpo.rewarders.calling import perform  # noqa: PLC0415 - after ``sys.path`` is the owner's
    from tfgrpo.rewarders.registry import scorer_of  # noqa: PLC0415 - as above

    scorer = _made(connection, source, scorer_of)
    process = os.getpid()
    while True:
        work, cpu_s = pickle.loads(receive(connection))  # noqa: S301 - as above

        def begin(seconds: float = cpu_s) -> None:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            _say(connection, process, b"begin")

        def report(index: int, verdict: Any) -> None:
            _say(connection, process, encoded(index, verdict))

        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, also in code that keeps the interpreter
        perform(scorer, work, report, begin)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        _say(connection, process, b"done")


def _made(connection: socket.socket, source: Source, scorer_of: Any) -> Any:
    try:
        made = scorer_of(source)
    except BaseException as error:
        send(connection, json.dumps({"refused": f"{type(error).__name__}: {error}"}).encode())
        raise EOFError from error
    send(connection, b"ready")
    return made


def _say(connection: socket.socket, process: int, body: bytes) -> None:
    if os.getpid() != process:
        os._exit(0)  # a copy that the scorer's code forked, and that returned from it
    send(connection, body)


def _end_with(owner: int) -> None:
    while os.getppid() == owner:
        time.sleep(_ORPHAN_S)
    os._exit(1)


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


if __name__ == "__main__":
    main(int(sys.argv[1]))
