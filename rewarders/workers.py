"""Score in worker processes: a pool of one scorer, whose processes are ended past a limit and replaced.

A call blocks its thread, at most as long as its limits say. A limit, an exit or an allocation without end costs the attempt
that the worker was asked about; the others go on. A scorer whose calls do not end several times in a row is not asked for a
while, so that it cannot keep the machine busy without bound.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tfgrpo.rewarders.calling import Work, missing, size
from tfgrpo.rewarders.scorer import Abstained, GraderInput, RewardContext, Scorer, Verdict, Verdicts
from tfgrpo.rewarders.threads import is_async
from tfgrpo.rewarders.worker import decoded, receive, send

MOST_FAULTS: Final = 4
"""Calls in a row that ended a worker, after which the scorer is not asked for a while."""
PAUSE_S: Final = 30.0
"""How long it is not asked."""
_START_S: Final = 120.0
"""Most seconds for a worker to import what the scorer needs."""
_LEAST_MEMORY: Final = 1 << 30


def worker_count() -> int:
    """Return how many processes one scorer may have: as many as cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit() -> int:
    """Return the bytes of data that one worker may allocate: its share of half the machine's memory."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return _LEAST_MEMORY
    return max(_LEAST_MEMORY, whole // (2 * worker_count()))


class NotIsolated(Exception):
    """A worker process cannot make the scorer."""


class _Worker:
    """One process and the connection to it."""

    def __init__(self, scorer: Scorer) -> None:
        """Start it, and wait until it has made the scorer. Raises ``NotIsolated``."""
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own module, by the interpreter that runs us
                [sys.executable, "-m", "tfgrpo.rewarders.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C at a terminal is the owner's, and children of the scorer end with it
                env={**os.environ, "PYTHONPATH": path},
            )
        self.connection = ours
        try:
            ours.settimeout(_START_S)
            send(ours, pickle.dumps((sys.path, scorer.source, memory_limit())))
            answer = receive(ours)
        except (OSError, EOFError, pickle.PicklingError, AttributeError, TypeError) as error:
            self.kill()
            raise NotIsolated(f"its worker process did not start: {type(error).__name__} {error}".strip()) from error
        if answer != b"ready":
            self.kill()
            raise NotIsolated(f"its worker process cannot make it: {answer.decode(errors='replace')[:300]}")

    def kill(self) -> int:
        """End the process and its children, and return its exit code."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.connection.close()
        return self.process.wait()


class WorkerPool:
    """The worker processes of one scorer. Several threads may use it at once."""

    def __init__(self, scorer: Scorer, most: int | None = None) -> None:
        """``most``: processes at a time; None: as many as cores."""
        self._scorer = scorer
        self._most = most or worker_count()
        self._changed = threading.Condition()  # guards the fields below
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._starting = 0
        self._faults = 0
        self._paused_until = 0.0
        self._closed = False

    def warm(self) -> None:
        """Start one process, so that the first call finds it. Raises ``NotIsolated``."""
        self._give_back(self._taken())

    def close(self) -> None:
        """End every process, whatever it is doing."""
        with self._changed:
            self._closed = True
            workers = [*self._idle, *self._busy]
            self._idle.clear()
            self._busy.clear()
            self._changed.notify_all()
        for worker in workers:
            worker.kill()

    def perform(self, work: Work, limit_s: float) -> Verdicts:
        """Return a verdict on each attempt. Raises ``NotIsolated`` when no process can make the scorer."""
        verdicts: dict[int, Verdict] = {}
        left = list(range(size(work)))
        alone = False
        while left:
            if (refusal := self._refusal()) is not None:
                verdicts |= dict.fromkeys(left, refusal)
                break
            fault = self._ask(_part(work, left[:1] if alone else left), limit_s, left, verdicts)
            unanswered = [index for index in left if index not in verdicts]
            if fault is None or not unanswered:
                if not alone:
                    break
                left = unanswered
                continue
            lost, alone = self._lost(work, unanswered, alone)
            verdicts |= dict.fromkeys(lost, fault)
            left = [index for index in unanswered if index not in lost]
        return tuple(verdicts.get(index) or missing(self._scorer) for index in range(size(work)))

    def _lost(self, work: Work, unanswered: Sequence[int], alone: bool) -> tuple[Sequence[int], bool]:
        """Return the attempts that an ended process costs, and whether the others are asked about one by one."""
        if isinstance(work, RewardContext) or (self._scorer.scope == "item" and is_async(self._scorer.call)):
            return unanswered, False
        if self._scorer.scope == "batch" and not alone:
            return ([], True) if self._scorer.per_item and len(unanswered) > 1 else (unanswered, False)
        return unanswered[:1], alone

    def _ask(
        self, work: Work, limit_s: float, indices: Sequence[int], verdicts: dict[int, Verdict]
    ) -> Abstained | None:
        """Ask a worker about some attempts, and add their verdicts. Return why it was ended, None if it answered all."""
        worker = self._taken()
        cpu_s = self._scorer.cpu_s or limit_s
        # A busy machine gives a worker less processor time than passes by the clock.
        try:
            worker.connection.settimeout(limit_s)
            send(worker.connection, pickle.dumps((work, cpu_s)))
            deadline = time.monotonic() + limit_s
            while True:
                worker.connection.settimeout(max(0.0, deadline - time.monotonic()) or 1e-6)
                body = receive(worker.connection)
                if body == b"done":
                    self._give_back(worker)
                    self._faults = 0
                    return None
                if body == b"begin":
                    deadline = time.monotonic() + limit_s
                else:
                    at, verdict = decoded(self._scorer.rewarder_id, body)
                    verdicts[indices[at]] = verdict
        except TimeoutError:
            self._replace(worker)
            return self._late(f"{limit_s:g} s")
        except (OSError, EOFError, ValueError, IndexError, pickle.PicklingError, AttributeError, TypeError) as error:
            code = self._replace(worker)
            if code == -signal.SIGPROF:
                return self._late(f"{cpu_s:g} s of processor time")
            unsendable = isinstance(error, pickle.PicklingError | AttributeError | TypeError)
            why = f"it cannot be sent to its process: {error}" if unsendable else f"its process ended{_how(code)}"
            return Abstained(self._scorer.rewarder_id, why, broke=not unsendable)

    def _late(self, limit: str) -> Abstained:
        return Abstained(self._scorer.rewarder_id, f"no score within {limit}", late=True)

    def _refusal(self) -> Abstained | None:
        """Return the verdict on everything while the scorer is not asked."""
        with self._changed:
            if self._closed:
                return Abstained(self._scorer.rewarder_id, "scoring has ended")
            if time.monotonic() < self._paused_until:
                reason = f"{MOST_FAULTS} calls in a row ended its process; it is not asked for {PAUSE_S:g} s"
                return Abstained(self._scorer.rewarder_id, reason, broke=True)
        return None

    def _taken(self) -> _Worker:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._idle or len(self._busy) + self._starting < self._most)
            if self._idle:
                worker = self._idle.pop()
                self._busy.add(worker)
                return worker
            self._starting += 1
        try:
            worker = _Worker(self._scorer)
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify()
        with self._changed:
            self._busy.add(worker)
            return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._changed:
            if worker in self._busy:
                self._busy.discard(worker)
                self._idle.append(worker)
                self._changed.notify()
                return
        worker.kill()  # the pool was closed meanwhile

    def _replace(self, worker: _Worker) -> int:
        code = worker.kill()
        with self._changed:
            self._busy.discard(worker)
            self._faults += 1
            if self._faults >= MOST_FAULTS:
                self._faults, self._paused_until = 0, time.monotonic() + PAUSE_S
            self._changed.notify()
        return code


def _part(work: Work, indices: Sequence[int]) -> Work:
    """Return what a process is sent: some of the inputs, or the group without what only this process has."""
    if isinstance(work, RewardContext):
        return replace(work, judge=None)
    return _inputs(work, indices)


def _inputs(work: Sequence[GraderInput], indices: Sequence[int]) -> list[GraderInput]:
    return [work[index] for index in indices]


def _how(code: int) -> str:
    if code >= 0:
        return f" with exit code {code}"
    with contextlib.suppress(ValueError):
        return f" by {signal.Signals(-code).name}"
    return f" by signal {-code}"
